//! Acts when something is due: leases, and sessions without paths.

use crate::homa::Endpoint;
use crate::session::event::ServerEvent;
use crate::session::server::{Consent, Server, SessionKey};
use crate::session::status;
use crate::time::Instant;
use crate::wire::session::{Resolve, Response};

impl Server {
    /// Acts on what is due. To be called at each turn.
    pub fn poll(&mut self, now: Instant, homa: &mut Endpoint) {
        let lived = self.clock.live(now);
        if lived < self.due_at {
            return;
        }
        self.due_at = Instant(u64::MAX);
        let keys: Vec<_> = self.sessions.iter().map(|(key, _)| key).collect();
        for key in keys {
            self.poll_leases(key);
            let Some(session) = self
                .sessions
                .get(key)
                .filter(|session| !session.is_draining)
            else {
                continue;
            };
            match session.linger_until {
                Some(until) if until <= lived => self.drain(now, homa, key),
                Some(until) => self.due_by(until),
                None => {}
            }
        }
    }

    /// Drops the paths over which nothing was heard for too long.
    fn poll_leases(&mut self, key: SessionKey) {
        let lived = self.clock.lived();
        let Some(session) = self.sessions.get(key) else {
            return;
        };
        let lease = session.lease;
        let dues: Vec<_> = session
            .paths
            .iter()
            .enumerate()
            .filter_map(|(place, path)| {
                let path = path.as_ref()?;
                let due_at = match path.is_up {
                    true => path.heard_lived + lease,
                    false => path.ready_by,
                };
                Some((place, due_at))
            })
            .collect();
        for (place, due_at) in dues {
            if due_at <= lived {
                self.stats.leases_expired += 1;
                self.drop_path(key, place);
            } else {
                self.due_by(due_at);
            }
        }
    }

    /// Ends all sessions, and opens no more. The server is over when [`Self::is_over`] says so;
    /// handlers that never answer hold it up, so whoever waits should wait for so long only, and
    /// then [`Self::abandon`] it.
    pub fn close(&mut self, now: Instant, homa: &mut Endpoint) {
        self.is_closing = true;
        let keys: Vec<_> = self.sessions.iter().map(|(key, _)| key).collect();
        for key in keys {
            self.drain(now, homa, key);
        }
    }

    /// It was closed, and all handlers have ended.
    pub fn is_over(&self) -> bool {
        self.is_closing && self.sessions.is_empty()
    }

    /// Ends the socket. What is answered after that is harmless, and changes nothing.
    pub fn abandon(mut self, now: Instant, homa: &mut Endpoint) {
        self.close(now, homa);
        let keys: Vec<_> = self.ops.iter().map(|(key, _)| key).collect();
        for key in keys {
            // Gives the request's pages back; nobody hears the answer.
            let _ = self.respond(now, homa, key, status::DROPPED, 0);
        }
        homa.close(now, self.socket);
    }

    /// A session takes nothing new, and is gone once its handlers have ended.
    pub(super) fn drain(&mut self, now: Instant, homa: &mut Endpoint, key: SessionKey) {
        let Some(session) = self
            .sessions
            .get_mut(key)
            .filter(|session| !session.is_draining)
        else {
            return;
        };
        session.is_draining = true;
        session.linger_until = None;
        session.paths.clear();
        let had_paths = std::mem::take(&mut session.paths_up) > 0;
        let waiting = match std::mem::replace(&mut session.consent, Consent::Given) {
            Consent::Asked(waiting) => waiting,
            Consent::NotAsked | Consent::Given => Vec::new(),
        };
        if had_paths {
            self.events
                .push_back(ServerEvent::Disconnected { session: key });
        }
        for (rpc, common) in waiting {
            let list = Resolve {
                status: status::NOT_CONNECTED,
                ..Resolve::default()
            };
            self.reply(now, homa, rpc, (&Response::PathReady(list), common, &[]));
        }
        self.turn_away_all(now, homa, key);
        self.finish_drained(key);
    }

    /// A session that is going is gone, once nothing runs.
    pub(super) fn finish_drained(&mut self, key: SessionKey) {
        let is_done = self
            .sessions
            .get(key)
            .is_some_and(|session| session.is_draining && session.slots.running() == 0);
        if !is_done {
            return;
        }
        if let Some(session) = self.sessions.remove(key) {
            self.promised_pages -= session.promised_pages;
            self.by_uuid.remove(&session.uuid);
            self.by_name.remove(&session.name);
            self.stats.sessions_gone += 1;
            self.events
                .push_back(ServerEvent::Destroyed { session: key });
        }
    }
}
