//! Opens paths and sessions, and ends them.

use crate::error::Error;
use crate::homa::{BPAGE_LEN, Endpoint, Message, RpcKey};
use crate::session::event::ServerEvent;
use crate::session::name::Name;
use crate::session::params::{DEPTH_MIN, USER_MAX, chunk_pages, is_beat, is_io_max};
use crate::session::policy::PATHS_MAX;
use crate::session::server::{Consent, Path, Server, Session, SessionKey};
use crate::session::slots::SlotTable;
use crate::session::status;
use crate::time::{Duration, Instant};
use crate::wire::session::{
    Close, Common, ENTRIES_MAX, Entry, Heartbeat, OpenRequest, OpenResponse, Resolve, Response,
    SlotState, Verdict,
};

/// Sessions that are going, at once; beyond that no new ones come.
pub(super) const DRAINING_MAX: usize = 32;

/// When to come again, to a session that is going.
const RETRY_GOING_MS: u32 = 50;

/// When to come again, to a server that has no room.
const RETRY_FULL_MS: u32 = 200;

/// Receive pages for a session's messages that are no requests.
const ADMIN_PAGES: u64 = 8;

/// Why a path is not opened.
struct Refusal {
    status: i32,
    retry_after_ms: u32,
}

/// There is no memory for one more session now.
const NO_ROOM: Refusal = Refusal {
    status: status::NO_MEMORY,
    retry_after_ms: RETRY_FULL_MS,
};

impl From<i32> for Refusal {
    fn from(status: i32) -> Self {
        Self {
            status,
            retry_after_ms: 0,
        }
    }
}

impl Server {
    /// Opens no paths until [`Self::resume`], and drops those that are open. `no_reconnect` tells
    /// clients not to come back by themselves.
    pub fn pause(&mut self, no_reconnect: bool) {
        self.paused = Some(no_reconnect);
        let keys: Vec<_> = self.sessions.iter().map(|(key, _)| key).collect();
        for key in keys {
            for place in 0..PATHS_MAX {
                self.drop_path(key, place);
            }
        }
    }

    pub fn resume(&mut self) {
        self.paused = None;
    }

    /// The application wants a session that [`ServerEvent::Connecting`] told.
    ///
    /// # Errors
    /// [`Error::NotConnected`] if it is gone, [`Error::AlreadyAnswered`].
    pub fn accept(
        &mut self,
        now: Instant,
        homa: &mut Endpoint,
        key: SessionKey,
    ) -> Result<(), Error> {
        let waiting = self.consent(key)?;
        for (rpc, common) in waiting {
            self.make_ready(now, homa, key, rpc, common, &[]);
        }
        Ok(())
    }

    /// The application does not want a session: its client is told so, and it goes.
    ///
    /// # Errors
    /// As [`Self::accept`].
    pub fn refuse(
        &mut self,
        now: Instant,
        homa: &mut Endpoint,
        key: SessionKey,
    ) -> Result<(), Error> {
        for (rpc, common) in self.consent(key)? {
            let list = Resolve {
                status: status::NOT_PERMITTED,
                ..Resolve::default()
            };
            self.reply(now, homa, rpc, (&Response::PathReady(list), common, &[]));
        }
        self.drain(now, homa, key);
        Ok(())
    }

    /// Notes that the application has answered; gives those who waited for that.
    fn consent(&mut self, key: SessionKey) -> Result<Vec<(RpcKey, Common)>, Error> {
        let session = self.sessions.get_mut(key).ok_or(Error::NotConnected)?;
        match &session.consent {
            Consent::NotAsked | Consent::Given => return Err(Error::AlreadyAnswered),
            Consent::Asked(_) => {}
        }
        match std::mem::replace(&mut session.consent, Consent::Given) {
            Consent::Asked(waiting) => Ok(waiting),
            Consent::NotAsked | Consent::Given => Ok(Vec::new()),
        }
    }

    pub(super) fn on_open(
        &mut self,
        now: Instant,
        homa: &mut Endpoint,
        message: &Message,
        common: Common,
        open: &OpenRequest,
    ) {
        let mut name = vec![0; usize::from(open.name_len)];
        let name_at = message.offset as usize + OpenRequest::LEN;
        homa.region().read(name_at, &mut name);
        let opened = self.try_open(now, homa, (message, common), open, &name);
        let base = OpenResponse {
            server_uuid: self.uuid,
            server_id: self.params.server_id,
            no_reconnect: self.paused == Some(true),
            ..OpenResponse::default()
        };
        let (answer, answer_common) = match opened {
            Ok((key, place)) => self.opened(key, place, base, common),
            Err(Refusal {
                status,
                retry_after_ms,
            }) => {
                let answer = OpenResponse {
                    status,
                    retry_after_ms,
                    ..base
                };
                (answer, common)
            }
        };
        let response = Response::PathOpen(answer);
        self.reply(now, homa, message.rpc, (&response, answer_common, &[]));
    }

    /// What the client of an opened path is told.
    fn opened(
        &self,
        key: SessionKey,
        place: usize,
        base: OpenResponse,
        common: Common,
    ) -> (OpenResponse, Common) {
        let session = self.sessions.get(key).expect("it was just found or made");
        let path = session.paths[place].as_ref().expect("it was just opened");
        let answer = OpenResponse {
            queue_depth: session.slots.len(),
            io_max: session.io_max,
            user_max: session.user_max,
            beat_ms: session.beat.as_millis() as u32,
            missed_max: session.missed_max,
            is_new: path.is_new,
            lease_ms: session.lease.as_millis() as u32,
            linger_ms: self.params.linger.as_millis() as u32,
            ..base
        };
        let common = Common {
            session: session.id,
            path: place as u16 + 1,
            ..common
        };
        (answer, common)
    }

    fn try_open(
        &mut self,
        now: Instant,
        homa: &mut Endpoint,
        (message, common): (&Message, Common),
        open: &OpenRequest,
        name: &[u8],
    ) -> Result<(SessionKey, usize), Refusal> {
        let is_sound = open.session_uuid != 0 && open.path_uuid != 0 && common.epoch != 0;
        let beat = Duration::millis(open.beat_ms.into());
        if !is_sound || !is_beat(beat) || !(1..=100).contains(&open.missed_max) {
            return Err(status::INVALID.into());
        }
        let name = Name::new(name).map_err(|_| status::INVALID)?;
        if self.paused.is_some() || self.is_closing {
            return Err(status::PAUSED.into());
        }
        if open.expected_server != 0 && open.expected_server != self.uuid {
            return Err(status::STALE.into());
        }
        let known = self.by_uuid.get(&open.session_uuid).copied();
        let (key, is_new) = match known {
            Some(key) => (self.check_known(key, open)?, false),
            None => (self.make(now, homa, open, name)?, true),
        };
        let place = self.place_path(key, (message, common), open, (now, is_new))?;
        Ok((key, place))
    }

    /// Whether a session goes on.
    fn check_known(&self, key: SessionKey, open: &OpenRequest) -> Result<SessionKey, Refusal> {
        let session = self.sessions.get(key).ok_or(status::STALE)?;
        if session.is_draining {
            return Err(Refusal {
                status: status::BUSY,
                retry_after_ms: RETRY_GOING_MS,
            });
        }
        if open.resumed != 0 && open.resumed != session.id {
            return Err(status::STALE.into());
        }
        Ok(key)
    }

    /// Whether a new session may be made; if its name is in use by one that has no path any more,
    /// that one gives way.
    fn may_make(
        &mut self,
        now: Instant,
        homa: &mut Endpoint,
        open: &OpenRequest,
        name: &Name,
    ) -> Result<(), Refusal> {
        let busy = |retry_after_ms| Refusal {
            status: status::BUSY,
            retry_after_ms,
        };
        if open.resumed != 0 {
            return Err(status::STALE.into());
        }
        if !open.may_create {
            return Err(status::NO_SUCH_SESSION.into());
        }
        let draining = self
            .sessions
            .iter()
            .filter(|(_, session)| session.is_draining);
        if draining.count() > DRAINING_MAX {
            return Err(busy(RETRY_FULL_MS));
        }
        if let Some(&other) = self.by_name.get(name) {
            let is_live = |session: &Session| session.paths_up > 0 && !session.is_draining;
            if self.sessions.get(other).is_some_and(is_live) {
                return Err(status::EXISTS.into());
            }
            self.drain(now, homa, other);
            return Err(busy(RETRY_GOING_MS));
        }
        if self.by_uuid.len() >= self.params.sessions_max {
            return Err(NO_ROOM);
        }
        Ok(())
    }

    /// Makes a session.
    fn make(
        &mut self,
        now: Instant,
        homa: &mut Endpoint,
        open: &OpenRequest,
        name: Name,
    ) -> Result<SessionKey, Refusal> {
        self.may_make(now, homa, open, &name)?;
        let io_max = match open.io_max {
            0 => self.params.io_max,
            wanted if is_io_max(wanted) => wanted.min(self.params.io_max),
            _ => return Err(status::INVALID.into()),
        };
        let (depth, pages) = self.admit(homa, open.queue_depth, io_max).ok_or(NO_ROOM)?;
        let lived = self.clock.lived();
        let beat = Duration::millis(open.beat_ms.into());
        let (uuid, chance) = (open.session_uuid, self.rng.next_u64() | 1 << 63);
        let session = Session {
            uuid,
            id: 0,
            name: name.clone(),
            consent: Consent::NotAsked,
            paths: Vec::new(),
            paths_up: 0,
            linger_until: Some(lived + self.params.linger),
            is_draining: false,
            slots: SlotTable::new(depth),
            io_max,
            user_max: match open.user_max {
                0 => USER_MAX,
                wanted => wanted.min(USER_MAX),
            },
            beat,
            missed_max: open.missed_max,
            lease: beat.times(u64::from(open.missed_max) + 2),
            promised_pages: pages,
        };
        let key = self.sessions.insert(session).ok_or(status::BUSY)?;
        if let Some(session) = self.sessions.get_mut(key) {
            // Its slot is part of its number, so that it is found without a search.
            session.id = chance << 16 | u64::from(key.index());
        }
        self.promised_pages += pages;
        self.by_uuid.insert(uuid, key);
        self.by_name.insert(name, key);
        self.stats.sessions_made += 1;
        self.due_by(lived + self.params.linger);
        Ok(key)
    }

    /// How many slots there is receive memory for, and how much that is.
    fn admit(&self, homa: &Endpoint, wanted: u32, io_max: u32) -> Option<(u32, u64)> {
        let depth = match wanted {
            0 => self.params.queue_depth,
            wanted => wanted.min(self.params.queue_depth),
        };
        let pages = homa.region().len() as u64 / u64::from(BPAGE_LEN);
        let limit = pages * u64::from(self.params.overcommit_percent) / 100;
        let left = limit.saturating_sub(self.promised_pages + ADMIN_PAGES);
        let each = u64::from(chunk_pages(io_max));
        let depth = u64::from(depth).min(left / each) as u32;
        (depth >= DEPTH_MIN).then(|| (depth, u64::from(depth) * each + ADMIN_PAGES))
    }

    /// Finds the path of that name, or makes it, for a new attempt or the same one again.
    fn place_path(
        &mut self,
        key: SessionKey,
        (message, common): (&Message, Common),
        open: &OpenRequest,
        (now, is_new): (Instant, bool),
    ) -> Result<usize, Refusal> {
        let lived = self.clock.lived();
        let ready_by = lived + self.params.ready_timeout;
        let session = self.sessions.get_mut(key).ok_or(status::STALE)?;
        let of_uuid = |path: &Option<Path>| {
            path.as_ref()
                .is_some_and(|path| path.uuid == open.path_uuid)
        };
        let found = session.paths.iter().position(of_uuid);
        if let Some(place) = found
            && let Some(path) = &session.paths[place]
        {
            match common.epoch.cmp(&path.epoch) {
                std::cmp::Ordering::Less => return Err(status::STALE.into()),
                std::cmp::Ordering::Equal => return Ok(place),
                std::cmp::Ordering::Greater => {}
            }
            // The attempt before is dead from now on.
            self.drop_path(key, place);
        }
        let session = self.sessions.get_mut(key).ok_or(status::STALE)?;
        let free = found.or_else(|| session.paths.iter().position(Option::is_none));
        let place = match free {
            Some(place) => place,
            None if session.paths.len() < PATHS_MAX => {
                session.paths.push(None);
                session.paths.len() - 1
            }
            None => return Err(status::TOO_MANY_PATHS.into()),
        };
        session.paths[place] = Some(Path {
            uuid: open.path_uuid,
            ip: message.peer.ip,
            epoch: common.epoch,
            is_new,
            is_up: false,
            ready_by,
            heard_lived: lived,
            heard_at: now,
        });
        self.stats.paths_opened += 1;
        self.due_by(ready_by);
        Ok(place)
    }

    pub(super) fn on_ready(
        &mut self,
        now: Instant,
        homa: &mut Endpoint,
        message: &Message,
        common: Common,
        list: Resolve,
    ) {
        let refused = |status| Resolve {
            status,
            ..Resolve::default()
        };
        let found = self.session_and_path(now, common, message);
        let key = match found {
            Ok(key) => key,
            Err(status) => {
                let response = Response::PathReady(refused(status));
                return self.reply(now, homa, message.rpc, (&response, common, &[]));
            }
        };
        let Some(session) = self.sessions.get_mut(key) else {
            return;
        };
        match &mut session.consent {
            Consent::NotAsked => {
                session.consent = Consent::Asked(vec![(message.rpc, common)]);
                self.events
                    .push_back(ServerEvent::Connecting { session: key });
            }
            Consent::Asked(waiting) => {
                // A path asks once; a copy of that takes its place.
                waiting.retain(|(_, other)| other.path != common.path);
                waiting.push((message.rpc, common));
            }
            Consent::Given => {
                let verdicts = self.resolve(key, homa, message, list);
                self.make_ready(now, homa, key, message.rpc, common, &verdicts);
            }
        }
    }

    /// A path carries from now on, and its client is told.
    fn make_ready(
        &mut self,
        now: Instant,
        homa: &mut Endpoint,
        key: SessionKey,
        rpc: RpcKey,
        common: Common,
        verdicts: &[u8],
    ) {
        let Some(session) = self.sessions.get_mut(key) else {
            return;
        };
        let place = usize::from(common.path).wrapping_sub(1);
        let path = session.paths.get_mut(place).and_then(Option::as_mut);
        let Some(path) = path.filter(|path| path.epoch == common.epoch) else {
            let list = Resolve {
                status: status::STALE,
                ..Resolve::default()
            };
            return self.reply(now, homa, rpc, (&Response::PathReady(list), common, &[]));
        };
        let lease = session.lease;
        if !std::mem::replace(&mut path.is_up, true) {
            session.paths_up += 1;
            if session.linger_until.take().is_some() && !path.is_new {
                self.events.push_back(ServerEvent::Resumed { session: key });
            }
        }
        let list = Resolve {
            status: 0,
            count: (verdicts.len() / Entry::ANSWERED) as u32,
            pages: 0,
        };
        let response = Response::PathReady(list);
        self.reply(now, homa, rpc, (&response, common, verdicts));
        self.due_by(self.clock.lived() + lease);
    }

    /// What became of the slots that a message asks about, as it is answered.
    pub(super) fn resolve(
        &mut self,
        key: SessionKey,
        homa: &Endpoint,
        message: &Message,
        list: Resolve,
    ) -> Vec<u8> {
        let Some(session) = self.sessions.get_mut(key) else {
            return Vec::new();
        };
        let mut verdicts = Vec::with_capacity(list.count as usize * Entry::ANSWERED);
        for nth in 0..list.count.min(ENTRIES_MAX) {
            let mut bytes = [0; Entry::ASKED];
            let at = Resolve::message_len(nth, Entry::ASKED);
            homa.region().read(message.offset as usize + at, &mut bytes);
            let entry = Entry::parse(&bytes);
            let state = session.slots.resolve(entry.slot, entry.sequence);
            let verdict = Verdict {
                slot: entry.slot,
                sequence: entry.sequence,
                state: state.unwrap_or(SlotState::Stale),
            };
            let mut out = [0; Entry::ANSWERED];
            verdict.emit(&mut out);
            verdicts.extend(out);
        }
        verdicts
    }

    pub(super) fn on_resolve(
        &mut self,
        now: Instant,
        homa: &mut Endpoint,
        message: &Message,
        common: Common,
        list: Resolve,
    ) {
        let (status, verdicts) = match self.session_and_path(now, common, message) {
            Ok(key) => (0, self.resolve(key, homa, message, list)),
            Err(status) => (status, Vec::new()),
        };
        let answer = Resolve {
            status,
            count: (verdicts.len() / Entry::ANSWERED) as u32,
            pages: 0,
        };
        let response = Response::SlotResolve(answer);
        self.reply(now, homa, message.rpc, (&response, common, &verdicts));
    }

    pub(super) fn on_beat(
        &mut self,
        now: Instant,
        homa: &mut Endpoint,
        message: &Message,
        common: Common,
        beat: Heartbeat,
    ) {
        let found = self.session_and_path(now, common, message);
        let session = found.map(|key| self.sessions.get_mut(key));
        let (status, inflight) = match session {
            Ok(Some(session)) => match session.path_of(common, message.peer.ip) {
                Ok(path) if path.is_up => (0, session.slots.running()),
                // Story 3: a client that has not said that it is ready has nothing to say.
                Ok(_) | Err(_) => (status::PROTOCOL, 0),
            },
            Ok(None) => (status::NOT_CONNECTED, 0),
            Err(status) => (status, 0),
        };
        let answer = Heartbeat {
            status,
            inflight,
            ..beat
        };
        let response = Response::Heartbeat(answer);
        self.reply(now, homa, message.rpc, (&response, common, &[]));
    }

    pub(super) fn on_path_close(
        &mut self,
        now: Instant,
        homa: &mut Endpoint,
        message: &Message,
        common: Common,
    ) {
        let found = self.session_and_path(now, common, message);
        let status = match found {
            Ok(key) => {
                self.drop_path(key, usize::from(common.path) - 1);
                0
            }
            Err(status) => status,
        };
        let response = Response::PathClose(Close { status });
        self.reply(now, homa, message.rpc, (&response, common, &[]));
    }

    pub(super) fn on_session_close(
        &mut self,
        now: Instant,
        homa: &mut Endpoint,
        message: &Message,
        common: Common,
    ) {
        let found = self.session_and_path(now, common, message);
        let status = found.err().unwrap_or(0);
        let response = Response::SessionClose(Close { status });
        self.reply(now, homa, message.rpc, (&response, common, &[]));
        if let Ok(key) = found {
            self.drain(now, homa, key);
        }
    }

    /// The session of a message, if the path it came over is one of its, in this attempt. It was
    /// heard.
    fn session_and_path(
        &mut self,
        now: Instant,
        common: Common,
        message: &Message,
    ) -> Result<SessionKey, i32> {
        let lived = self.clock.lived();
        let key = self.find(common).ok_or(status::NOT_CONNECTED)?;
        let session = self.sessions.get_mut(key).ok_or(status::NOT_CONNECTED)?;
        if session.is_draining {
            return Err(status::NOT_CONNECTED);
        }
        let path = session.path_of(common, message.peer.ip)?;
        path.heard_lived = lived;
        path.heard_at = now;
        Ok(key)
    }

    /// A path is over. Without another one, its session lingers.
    pub(super) fn drop_path(&mut self, key: SessionKey, place: usize) {
        let Some(session) = self.sessions.get_mut(key) else {
            return;
        };
        let Some(path) = session.paths.get_mut(place).and_then(Option::take) else {
            return;
        };
        if !path.is_up {
            return;
        }
        session.paths_up -= 1;
        if session.paths_up == 0 && !session.is_draining {
            let until = self.clock.lived() + self.params.linger;
            session.linger_until = Some(until);
            self.events
                .push_back(ServerEvent::Disconnected { session: key });
            self.due_by(until);
        }
    }
}
