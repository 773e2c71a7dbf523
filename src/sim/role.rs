//! Worlds in which some hosts ask and others answer.

use crate::homa::{Endpoint, Event};
use crate::sim::{App, Echo, Requester};
use crate::time::Instant;

/// What one host of such a world does.
#[derive(Debug)]
pub enum Role {
    Client(Requester),
    Server(Echo),
}

impl Role {
    /// # Panics
    /// If it is no client.
    pub fn client(&self) -> &Requester {
        match self {
            Self::Client(client) => client,
            Self::Server(_) => panic!("this host is a server"),
        }
    }

    /// # Panics
    /// If it is no server.
    pub fn server(&self) -> &Echo {
        match self {
            Self::Server(server) => server,
            Self::Client(_) => panic!("this host is a client"),
        }
    }
}

impl App for Role {
    fn act(&mut self, now: Instant, homa: &mut Endpoint) {
        match self {
            Self::Client(client) => client.act(now, homa),
            Self::Server(server) => server.act(now, homa),
        }
    }

    fn on_event(&mut self, now: Instant, homa: &mut Endpoint, event: Event) {
        match self {
            Self::Client(client) => client.on_event(now, homa, event),
            Self::Server(server) => server.on_event(now, homa, event),
        }
    }

    fn wake_at(&self) -> Option<Instant> {
        match self {
            Self::Client(client) => client.wake_at(),
            Self::Server(server) => server.wake_at(),
        }
    }
}
