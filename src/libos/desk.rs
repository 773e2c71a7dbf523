//! The desk between the transport and the application: it turns what happens into results.
//!
//! It never turns the loop itself. Each call gets the transport it works on; the time is that of
//! the last turn.

use crate::addr::Addr;
use crate::channel::{self, Channels};
use crate::error::Error;
use crate::homa::{Endpoint, Event, Message, RpcKey, SocketKey};
use crate::mem::Buffers;
use crate::rng::Rng;
use crate::runtime::{QToken, Tokens};
use crate::time::{Duration, Instant};
use crate::wire::homa::RpcId;

use super::params::Params;
use super::queue::{Arrival, HeldPush, Kind, Queues};
use super::result::{MessageKind, OperationResult, QDesc, QResult, Sga, Stats};
use super::sga::{Labels, Outgoing, SgaKey, Sgas};

/// The most that one turn can add to the time lived: after a pause no grace ends at once.
const TICK: Duration = Duration::millis(1);

/// Tag of the RPCs whose end their queue is told: those that carry datagrams, and those of the homa
/// face. The others carry their call's token, which is never 0.
pub(super) const QUEUE_TAG: u64 = 0;

/// Everything about sockets, tokens and buffers that does not depend on the device.
#[derive(Debug)]
pub(super) struct Desk {
    pub(super) params: Params,
    pub(super) buffers: Buffers,
    pub(super) tokens: Tokens<Pending, Done>,
    pub(super) sgas: Sgas,
    pub(super) queues: Queues,
    pub(super) channels: Channels,
    /// Datagram queues with pushes held back.
    pub(super) holding: Vec<QDesc>,
    /// Somewhere a message and a pop are kept apart by a limit.
    pub(super) is_stalled: bool,
    pub(super) now: Instant,
    /// Time during which the loop was turned often enough to hear from peers.
    pub(super) lived: Duration,
    graces_checked_at: Duration,
    pub(super) stats: Stats,
}

/// An operation under way.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Pending {
    pub(super) qd: QDesc,
    pub(super) kind: Operation,
    /// Of a pop: bytes the application wants at most.
    pub(super) len_max: u32,
    /// Of a call, like the next.
    pub(super) rpc: RpcKey,
    pub(super) cookie: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Operation {
    #[default]
    Push,
    Pop,
    Call,
    Accept,
    Connect,
}

/// An operation's result while nobody has asked for it.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Done {
    pub(super) qd: QDesc,
    result: Completion,
}

#[derive(Clone, Copy, Debug, Default)]
pub(super) enum Completion {
    #[default]
    Push,
    Pop(SgaKey),
    Close,
    /// From a channel, which tells no sender.
    PopStream(SgaKey),
    Connect,
    Accept(QDesc),
    Failed(Error),
}

impl Pending {
    pub(super) fn push(qd: QDesc) -> Self {
        Self {
            qd,
            ..Self::default()
        }
    }
}

impl Desk {
    pub(super) fn new(params: Params, now: Instant) -> Result<Self, Error> {
        let mut rng = Rng::new(params.seed);
        let buffers = Buffers::new(params.send_bytes);
        let channel = channel::Params {
            seed: !params.seed,
            ..params.channel.clone()
        };
        Ok(Self {
            channels: Channels::new(channel, buffers.clone(), now)?,
            buffers,
            tokens: Tokens::new(params.tokens_max as usize, rng.next_u64()),
            sgas: Sgas::new(rng.next_u64()),
            queues: Queues::default(),
            holding: Vec::new(),
            is_stalled: false,
            now,
            lived: Duration::ZERO,
            graces_checked_at: Duration::ZERO,
            stats: Stats::default(),
            params,
        })
    }

    /// Takes one event of the turn.
    #[inline(always)]
    pub(super) fn on_event(&mut self, homa: &mut Endpoint, event: Event) {
        match event {
            Event::Request { socket, rpc } => self.on_request(homa, socket, rpc),
            Event::Response {
                socket,
                tag,
                ref message,
            } => match tag {
                QUEUE_TAG => self.on_queue_response(homa, socket, message),
                call => self.on_call_response(homa, socket, QToken(call), message),
            },
            Event::Failed {
                socket,
                tag,
                id,
                error,
                ..
            } => match tag {
                QUEUE_TAG => self.on_queue_failed(homa, socket, id, error),
                call => self.on_call_failed(homa, call, error),
            },
            Event::Released { tag, result } => {
                let end = result.map_or_else(Completion::Failed, |()| Completion::Push);
                if !self.try_complete(QToken(tag), end) {
                    self.on_channel_released(homa, tag, result);
                }
            }
        }
    }

    /// What went out just now may have completed pushes.
    #[inline]
    pub(super) fn drain(&mut self, homa: &mut Endpoint) {
        if homa.has_events() {
            self.drain_some(homa);
        }
    }

    #[cold]
    fn drain_some(&mut self, homa: &mut Endpoint) {
        while let Some(event) = homa.poll_event() {
            self.on_event(homa, event);
        }
    }

    /// Does what is due after a turn at `self.now`. Frames may still wait, if it `is_behind`.
    #[inline]
    pub(super) fn end_turn(&mut self, homa: &mut Endpoint, since: Duration, is_behind: bool) {
        self.drain(homa);
        // What waits to be looked at may be what some grace is there for.
        if !is_behind {
            self.lived = self.lived + since.min(TICK);
        }
        if !self.holding.is_empty() {
            self.send_held(homa);
        }
        if self.is_stalled {
            self.is_stalled = false;
            self.queues
                .qds()
                .into_iter()
                .for_each(|qd| self.deliver(homa, qd));
        }
        if !self.channels.is_empty() {
            self.turn_channels(homa);
        }
        if self.lived >= self.graces_checked_at + TICK {
            self.graces_checked_at = self.lived;
            self.end_graces(homa);
        }
    }

    /// Brings what came and the pops that wait together.
    #[inline(never)]
    pub(super) fn deliver(&mut self, homa: &mut Endpoint, qd: QDesc) {
        while let Ok(queue) = self.queues.get_mut(qd) {
            if !queue.has_room(homa) || self.sgas.is_full() {
                self.is_stalled = true;
                return;
            }
            let (kind, message) = match queue.arrivals.meet() {
                None => return,
                Some(Arrival::Response(message)) => (MessageKind::Response, message),
                Some(Arrival::Request(rpc)) => match homa.take(rpc) {
                    Some(message)
                        if matches!(queue.kind, Kind::Datagram(_))
                            && self.channels.refuse(self.now, homa, &message) =>
                    {
                        continue;
                    }
                    Some(message) => (MessageKind::Request, message),
                    // The client gave it up before anybody popped it.
                    None => continue,
                },
            };
            if let Some(qt) = queue.arrivals.first_waiting() {
                self.give(homa, qd, qt, kind, &message);
            }
        }
    }

    /// Completes a pop with a message.
    #[inline(always)]
    fn give(
        &mut self,
        homa: &mut Endpoint,
        qd: QDesc,
        qt: QToken,
        kind: MessageKind,
        message: &Message,
    ) {
        let Ok(queue) = self.queues.get_mut(qd) else {
            return;
        };
        let socket = queue.socket.expect("a queue with arrivals has a socket");
        let mut evicted = None;
        let open = match (kind, &mut queue.kind) {
            (MessageKind::Response, _) | (_, Kind::Face(_)) => None,
            (MessageKind::Request, Kind::Native(service)) => {
                service.latest = Some((message.id.0, message.peer, message.rpc));
                None
            }
            (MessageKind::Request, Kind::Datagram(datagram)) => {
                let open;
                (open, evicted) = datagram.pairing.on_popped(message.rpc, message.peer);
                Some(open)
            }
            // Its messages are the channels'.
            (MessageKind::Request, Kind::Stream(_)) => None,
        };
        if let Some(rpc) = evicted {
            self.stats.open_evicted += 1;
            self.reply_empty(homa, rpc);
        }
        let labels = Labels {
            socket,
            kind,
            cookie: 0,
            open,
        };
        let Self { tokens, sgas, .. } = self;
        tokens.complete(qt, |pending, done| {
            debug_assert_eq!(pending.kind, Operation::Pop, "who waits at a queue");
            let sga = sgas.insert_received(homa, message, pending.len_max, labels);
            done.qd = qd;
            done.result = sga.map_or_else(Completion::Failed, Completion::Pop);
        });
    }

    /// Ends an operation, if it is still under way.
    #[inline]
    pub(super) fn complete(&mut self, qt: QToken, result: Completion) {
        self.try_complete(qt, result);
    }

    /// As [`Self::complete`]; false if there is no such operation.
    #[inline]
    fn try_complete(&mut self, qt: QToken, result: Completion) -> bool {
        self.tokens.complete(qt, |pending, done| {
            done.qd = pending.qd;
            done.result = result;
        })
    }

    /// A result as the application sees it.
    #[inline(always)]
    pub(super) fn describe(&self, qt: QToken, done: Done) -> QResult {
        QResult {
            qd: done.qd,
            qt,
            result: match done.result {
                Completion::Pop(sga) => OperationResult::Pop(self.sgas.describe(sga)),
                other => self.describe_other(other),
            },
        }
    }

    /// What is no message of a datagram or native queue.
    #[inline(never)]
    fn describe_other(&self, result: Completion) -> OperationResult {
        match result {
            Completion::Push => OperationResult::Push,
            Completion::Pop(sga) => OperationResult::Pop(self.sgas.describe(sga)),
            Completion::PopStream(sga) => OperationResult::Pop(Sga {
                peer: None,
                ..self.sgas.describe(sga)
            }),
            Completion::Connect => OperationResult::Connect,
            Completion::Close => OperationResult::Close,
            Completion::Accept(qd) => self.describe_accepted(qd),
            Completion::Failed(error) => OperationResult::Failed(error),
        }
    }

    /// Sends a new datagram now, if the transport has room. Tells whether it had.
    #[inline(never)]
    pub(super) fn send_datagram(
        &mut self,
        homa: &mut Endpoint,
        qd: QDesc,
        to: Addr,
        outgoing: &Outgoing,
        qt: QToken,
    ) -> bool {
        let max = self.params.datagram_outstanding_max;
        let Ok(queue) = self.queues.get_mut(qd) else {
            return true;
        };
        let socket = queue.socket;
        let (Some(socket), Ok(datagram)) = (socket, queue.datagram()) else {
            return true;
        };
        if datagram.outstanding >= max {
            return false;
        }
        let (payload, notify) = (outgoing.payload(), outgoing.notify(qt));
        match homa.send_request(self.now, socket, to, payload, QUEUE_TAG, notify) {
            Ok(_) => datagram.outstanding += 1,
            Err(Error::Exhausted) => return false,
            Err(error) => self.complete(qt, Completion::Failed(error)),
        }
        true
    }

    /// Gives the pushes that were held back another try, each queue's in order.
    fn send_held(&mut self, homa: &mut Endpoint) {
        // Another queue is first each time, should RPCs be short for all of them.
        self.holding.rotate_left(1);
        for qd in std::mem::take(&mut self.holding) {
            while let Some(held) = self.next_held(qd) {
                if !self.send_datagram(homa, qd, held.to, &held.outgoing, held.qt) {
                    if let Ok(datagram) = self.queues.get_mut(qd).and_then(|q| q.datagram()) {
                        datagram.held.push_front(held);
                        self.holding.push(qd);
                    }
                    break;
                }
                held.outgoing.release(homa, self.now);
            }
        }
    }

    fn next_held(&mut self, qd: QDesc) -> Option<HeldPush> {
        self.queues
            .get_mut(qd)
            .ok()?
            .datagram()
            .ok()?
            .held
            .pop_front()
    }

    /// Replies for the application where it had its time and did not.
    fn end_graces(&mut self, homa: &mut Endpoint) {
        let mut replies = 0;
        for (_, queue) in self.queues.iter_mut() {
            let Kind::Datagram(datagram) = &mut queue.kind else {
                continue;
            };
            while let Some(rpc) = datagram.pairing.poll_expired(self.lived) {
                // Of an RPC that is gone there is nothing to answer.
                replies += u64::from(homa.send_empty_response(self.now, rpc).is_ok());
            }
        }
        self.stats.empty_replies += replies;
    }

    pub(super) fn reply_empty(&mut self, homa: &mut Endpoint, rpc: RpcKey) {
        if homa.send_empty_response(self.now, rpc).is_ok() {
            self.stats.empty_replies += 1;
        }
    }

    fn on_arrival(&mut self, homa: &mut Endpoint, socket: SocketKey, arrival: Arrival) {
        if let Arrival::Request(rpc) = arrival
            && self.on_face_request(socket, rpc)
        {
            return;
        }
        if let Some(qd) = self.queues.of_socket(socket)
            && let Ok(queue) = self.queues.get_mut(qd)
        {
            queue.arrivals.come(arrival);
            self.deliver(homa, qd);
        } else if let Arrival::Request(rpc) = arrival {
            self.on_channel_request(homa, socket, rpc);
        }
    }

    /// As [`Self::on_arrival`]; nearly always a pop waits, and the request goes straight to it.
    #[inline(never)]
    fn on_request(&mut self, homa: &mut Endpoint, socket: SocketKey, rpc: RpcKey) {
        if !self.sgas.is_full()
            && let Some((qd, queue)) = self.queues.of_socket_mut(socket)
            && queue.arrivals.is_awaited()
            && queue.has_room(homa)
        {
            if let Some(message) = homa.take(rpc)
                && !(matches!(queue.kind, Kind::Datagram(_))
                    && self.channels.refuse(self.now, homa, &message))
                && let Some(qt) = queue.arrivals.first_waiting()
            {
                self.give(homa, qd, qt, MessageKind::Request, &message);
            }
            return;
        }
        self.on_arrival(homa, socket, Arrival::Request(rpc));
    }

    /// One datagram less that no peer has confirmed.
    fn on_datagram_over(&mut self, socket: SocketKey) -> Option<QDesc> {
        let (qd, queue) = self.queues.of_socket_mut(socket)?;
        if let Ok(datagram) = queue.datagram() {
            datagram.outstanding -= 1;
        }
        Some(qd)
    }

    #[inline(never)]
    fn on_queue_failed(&mut self, homa: &mut Endpoint, socket: SocketKey, id: RpcId, error: Error) {
        if self.on_face_outcome(homa, socket, id, Err(error)) {
            return;
        }
        self.on_datagram_over(socket);
        self.stats.datagrams_failed += 1;
    }

    #[inline(never)]
    fn on_queue_response(&mut self, homa: &mut Endpoint, socket: SocketKey, message: &Message) {
        if self.on_face_outcome(homa, socket, message.id, Ok(*message)) {
            return;
        }
        let qd = self.on_datagram_over(socket);
        if qd.is_some() && !message.empty_reply {
            self.on_arrival(homa, socket, Arrival::Response(*message));
            return;
        }
        self.stats.responses_dropped += u64::from(!message.empty_reply);
        homa.release(self.now, message.run);
    }

    #[inline(never)]
    fn on_call_response(
        &mut self,
        homa: &mut Endpoint,
        socket: SocketKey,
        qt: QToken,
        message: &Message,
    ) {
        let Self { tokens, sgas, .. } = self;
        let mut is_kept = false;
        tokens.complete(qt, |pending, done| {
            debug_assert_eq!(pending.kind, Operation::Call, "whose tag is a token");
            let labels = Labels {
                socket,
                kind: MessageKind::Response,
                cookie: pending.cookie,
                open: None,
            };
            let sga = sgas.insert_received(homa, message, message.len, labels);
            is_kept = sga.is_ok();
            done.qd = pending.qd;
            done.result = sga.map_or_else(Completion::Failed, Completion::Pop);
        });
        if !is_kept {
            if Channels::is_tag(qt.0) {
                return self.on_channel_response(homa, qt.0, message);
            }
            self.stats.responses_dropped += 1;
            homa.release(self.now, message.run);
        }
    }
}
