//! Ports: a listening socket and the channels that came through it share one socket of Homa's.

use std::collections::VecDeque;

use crate::error::Error;
use crate::homa::{Endpoint, SocketKey};
use crate::time::Instant;

use super::event::ChannelKey;

/// All ports with channels, by the slot of their socket.
#[derive(Debug, Default)]
pub struct Ports {
    by_slot: Vec<Option<Port>>,
}

#[derive(Debug)]
pub struct Port {
    socket: SocketKey,
    /// Queues and channels on it; it closes with the last.
    users: u32,
    pub listener: Option<Listener>,
}

/// Who listens on a port.
#[derive(Debug)]
pub struct Listener {
    pub backlog: usize,
    /// Channels to be accepted.
    pub opened: VecDeque<ChannelKey>,
    /// The tags of those who wait for one.
    pub accepts: VecDeque<u64>,
}

impl Ports {
    /// Opens a port, or an automatic one for 0, with one user.
    pub fn open(&mut self, homa: &mut Endpoint, port: u16) -> Result<SocketKey, Error> {
        let socket = homa.open(port)?;
        let slot = socket.index() as usize;
        if self.by_slot.len() <= slot {
            self.by_slot.resize_with(slot + 1, || None);
        }
        self.by_slot[slot] = Some(Port {
            socket,
            users: 1,
            listener: None,
        });
        Ok(socket)
    }

    pub fn get_mut(&mut self, socket: SocketKey) -> Option<&mut Port> {
        let port = self.by_slot.get_mut(socket.index() as usize)?.as_mut();
        port.filter(|port| port.socket == socket)
    }

    pub fn listener(&mut self, socket: SocketKey) -> Option<&mut Listener> {
        self.get_mut(socket)?.listener.as_mut()
    }

    /// One more user.
    pub fn join(&mut self, socket: SocketKey) {
        if let Some(port) = self.get_mut(socket) {
            port.users += 1;
        }
    }

    /// One user less.
    pub fn leave(&mut self, now: Instant, homa: &mut Endpoint, socket: SocketKey) {
        let Some(port) = self.get_mut(socket) else {
            return;
        };
        port.users -= 1;
        if port.users == 0 {
            self.by_slot[socket.index() as usize] = None;
            homa.close(now, socket);
        }
    }
}
