//! Control packets that wait to be sent.

use std::collections::VecDeque;

use crate::homa::peer::Peer;
use crate::slots::Key;
use crate::wire::homa::{Common, Grant, Resend};

/// One packet, but for what is only known when it is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Control {
    pub peer: Key<Peer>,
    pub common: Common,
    pub body: Body,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Body {
    /// Only one that waited for a link: others are decided on as they are sent.
    Grant(Grant),
    Resend(Resend),
    Unknown,
    Busy,
    Cutoffs,
    NeedAck,
    Freeze,
    /// Carries saved acks of the peer too.
    Ack,
}

/// A bounded queue: the wire may lose any of them anyway, so a full one drops.
#[derive(Debug)]
pub struct ControlQueue {
    queue: VecDeque<Control>,
    capacity: usize,
}

impl ControlQueue {
    pub fn new(capacity: u32) -> Self {
        Self {
            queue: VecDeque::new(),
            capacity: capacity as usize,
        }
    }

    /// False if the queue is full and the packet was dropped.
    pub fn push(&mut self, control: Control) -> bool {
        let has_room = self.queue.len() < self.capacity;
        if has_room {
            self.queue.push_back(control);
        }
        has_room
    }

    #[inline]
    pub fn pop(&mut self) -> Option<Control> {
        self.queue.pop_front()
    }

    pub fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::homa::RpcId;

    #[test]
    fn a_full_queue_drops_the_newest() {
        let control = |id| Control {
            peer: Key::from_parts(0, 1),
            common: Common {
                sport: 1,
                dport: 2,
                id: RpcId(id),
            },
            body: Body::Busy,
        };
        let mut queue = ControlQueue::new(2);
        let taken: Vec<_> = (0..3).map(|id| queue.push(control(id))).collect();
        assert_eq!(taken, [true, true, false]);
        let left: Vec<_> = std::iter::from_fn(|| queue.pop())
            .map(|c| c.common.id.0)
            .collect();
        assert_eq!(left, [0, 1]);
    }
}
