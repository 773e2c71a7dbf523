//! The user's side: sockets, messages, outcomes.

use crate::addr::Addr;
use crate::error::Error;
use crate::homa::event::{Event, Message, Notify, Payload, RpcKey, RunKey, SocketKey};
use crate::homa::mutant::{self, Mutant};
use crate::homa::pool::Pool;
use crate::homa::rpc::State;
use crate::time::Instant;
use crate::wire::homa::{MAX_MESSAGE_LEN, RpcId};

use super::{Endpoint, SLOT_BITS};

impl Endpoint {
    /// Opens a socket on `port`, or on an automatic one if that is 0. It takes no requests yet.
    ///
    /// # Errors
    /// [`Error::AddressInUse`]; [`Error::AddressNotAvailable`] if no automatic port is left;
    /// [`Error::Exhausted`] if all sockets are taken.
    pub fn open(&mut self, port: u16) -> Result<SocketKey, Error> {
        self.sockets.open(port)
    }

    /// Gives a socket another port; it keeps the old one on an error, as in [`Self::open`].
    pub fn bind(&mut self, socket: SocketKey, port: u16) -> Result<(), Error> {
        self.sockets.bind(socket, port)
    }

    /// Sets whether a socket takes requests. If not, its port looks closed to them.
    pub fn set_server(&mut self, socket: SocketKey, accepts: bool) {
        self.sockets.set_server(socket, accepts);
    }

    pub fn port(&self, socket: SocketKey) -> Option<u16> {
        self.sockets.get(socket).map(|socket| socket.port)
    }

    /// Ends a socket and all its RPCs: from now on nothing of them is sent, received or told. What
    /// they hold is given back in this call and, if they are many, in the next turns.
    ///
    /// Client RPCs vanish without [`Event::Failed`]; each [`Notify`] still open is answered with
    /// [`Error::Canceled`], as its RPC gives back what it holds.
    pub fn close(&mut self, now: Instant, socket: SocketKey) {
        if self.sockets.lent_mut(socket).is_some() {
            self.end_lender(now, socket);
        } else if self.sockets.close(socket) {
            self.begin_reaping(now);
        }
    }

    /// Ends a socket whose messages lie in pages that its user lends, and its RPCs with it: what
    /// they held goes back to those pages, so they go first, and all at once.
    #[cold]
    fn end_lender(&mut self, now: Instant, socket: SocketKey) {
        if let Some(lent) = self.sockets.lent_mut(socket) {
            lent.forget_waiters();
        }
        let rpcs: Vec<_> = self
            .rpcs
            .iter()
            .filter(|(_, rpc)| rpc.socket == socket)
            .map(|(key, _)| key)
            .collect();
        rpcs.into_iter().for_each(|key| self.end(now, key));
        self.sockets.close(socket);
    }

    /// Starts a client RPC; [`Event::Response`] or [`Event::Failed`] brings `tag` back.
    ///
    /// A received payload's run gets one holder more for as long as it is needed.
    ///
    /// # Errors
    /// [`Error::Invalid`] for an empty payload or one whose run is gone,
    /// [`Error::MessageTooLong`], [`Error::BadDescriptor`], [`Error::Exhausted`] if all RPCs or
    /// peers are taken. Nothing is kept then.
    #[inline(always)]
    pub fn send_request(
        &mut self,
        now: Instant,
        socket: SocketKey,
        to: Addr,
        payload: Payload,
        tag: u64,
        notify: Notify,
    ) -> Result<(RpcKey, RpcId), Error> {
        let port = self.sockets.get(socket).ok_or(Error::BadDescriptor)?.port;
        let len = payload_len(&payload)?;
        if !self.may_call() {
            self.reap_for_room(now);
            if !self.may_call() {
                return Err(Error::Exhausted);
            }
        }
        let peer_key = self.peers.find_or_add(now, to.ip).ok_or(Error::Exhausted)?;
        self.hold(&payload)?;
        let cut = self.cut_for(to.ip);
        let (key, rpc) = self.rpcs.enter().ok_or(Error::Exhausted)?;
        let generation = self.next_generation;
        self.next_generation =
            generation.wrapping_add(u64::from(!mutant::is_on(Mutant::IdUsedTwice)));
        let id = RpcId((generation << SLOT_BITS | u64::from(key.index())) << 1);
        let (tick, ask_interval) = (self.wheel.tick(), self.params.resend_interval_ticks);
        rpc.begin(id, (peer_key, to.port), (socket, port), tick, ask_interval);
        rpc.state = State::Sending;
        rpc.tag = tag;
        rpc.out.begin(payload, len, cut, now, notify);
        let peer = self.peers.get_mut(peer_key);
        peer.on_rpc(now);
        rpc.incarnation = peer.incarnation;
        let goes_at_once = peer.link.is_up() && rpc.out.is_one_packet();
        self.stats.requests += 1;
        self.file_new(key, goes_at_once);
        if !mutant::is_on(Mutant::TimerNotFiled) {
            self.file_timer(now, key, self.params.resend_ticks);
        }
        Ok((key, id))
    }

    /// Answers a request that was taken.
    ///
    /// If the RPC is gone meanwhile, that is no error: the client went away. After an error it is
    /// in service as before, and another response may follow. Deviation: HomaModule ends an RPC
    /// whose response is too long; its client would send the request again, and it would run
    /// again. Rule AP-03.
    ///
    /// # Errors
    /// As [`Self::send_request`]; [`Error::Invalid`] too if the RPC is not in service.
    #[inline(always)]
    pub fn send_response(
        &mut self,
        now: Instant,
        key: RpcKey,
        payload: Payload,
        notify: Notify,
    ) -> Result<(), Error> {
        let len = payload_len(&payload)?;
        let Some(rpc) = self.rpcs.get(key).filter(|rpc| !self.is_over(rpc)) else {
            self.tell_released(notify, Ok(()));
            return Ok(());
        };
        if rpc.state != State::InService {
            return Err(Error::Invalid);
        }
        let peer = self.peers.get(rpc.peer);
        let (cut, is_up) = (self.cut_for(peer.ip), peer.link.is_up());
        self.hold(&payload)?;
        let Some(rpc) = self.rpcs.get_mut(key) else {
            return Ok(());
        };
        rpc.state = State::Replying;
        if let Some(socket) = self.sockets.get_mut(rpc.socket) {
            socket.in_service -= 1;
        }
        rpc.heard_tick = self.wheel.tick();
        rpc.out.begin(payload, len, cut, now, notify);
        let goes_at_once = is_up && rpc.out.is_one_packet();
        self.stats.responses_out += 1;
        self.file_new(key, goes_at_once);
        self.file_timer(now, key, self.params.request_ack_ticks);
        Ok(())
    }

    /// Answers a request with [`Payload::EmptyReply`].
    ///
    /// # Errors
    /// As [`Self::send_response`].
    pub fn send_empty_response(&mut self, now: Instant, rpc: RpcKey) -> Result<(), Error> {
        self.send_response(now, rpc, Payload::EmptyReply, Notify::Never)
    }

    /// Whether a request was taken and not answered yet.
    pub fn in_service(&self, rpc: RpcKey) -> bool {
        self.rpcs
            .get(rpc)
            .is_some_and(|rpc| rpc.state == State::InService && !self.is_over(rpc))
    }

    /// How many requests of a socket were taken and not answered yet.
    #[inline]
    pub fn in_service_count(&self, socket: SocketKey) -> u32 {
        self.sockets
            .get(socket)
            .map_or(0, |socket| socket.in_service)
    }

    /// The client RPC of that id.
    pub fn client_rpc(&self, id: RpcId) -> Option<RpcKey> {
        if id.is_client() {
            self.find_client(id)
        } else {
            None
        }
    }

    /// The server RPC of that id, odd as this side knows it, and that client.
    pub fn server_rpc(&mut self, id: RpcId, client: Addr) -> Option<RpcKey> {
        if id.is_client() {
            return None;
        }
        let peer = self.peers.find(client.ip)?;
        self.find_server(id, peer, client.port)
    }

    /// The request that an event announced, which is in service from now on; `None` if it was
    /// taken, or the RPC is gone.
    #[inline(always)]
    pub fn take(&mut self, key: RpcKey) -> Option<Message> {
        self.take_at(key, Pool::place)
    }

    /// As [`Self::take`]; `place` tells where a run begins, and its length.
    #[inline(always)]
    pub(super) fn take_at(
        &mut self,
        key: RpcKey,
        place: impl FnOnce(&Pool, RunKey) -> Option<(u32, u32)>,
    ) -> Option<Message> {
        if self.has_ended(key) {
            return None;
        }
        let rpc = self.rpcs.get_mut(key)?;
        if rpc.state != State::Requested {
            return None;
        }
        rpc.state = State::InService;
        if let Some(socket) = self.sockets.get_mut(rpc.socket) {
            socket.in_service += 1;
        }
        let (offset, len) = place(&self.pool, rpc.run)?;
        Some(Message {
            run: rpc.run,
            offset,
            len,
            rpc: key,
            id: rpc.id,
            peer: Addr::new(self.peers.get(rpc.peer).ip, rpc.peer_port),
            empty_reply: rpc.empty_reply,
        })
    }

    /// Ends an RPC: a client's has failed with `error`, a server's just ends.
    pub fn abort(&mut self, now: Instant, rpc: RpcKey, error: Error) {
        match self.rpcs.get(rpc) {
            None => {}
            Some(client) if client.id.is_client() => self.fail(now, rpc, error),
            Some(_) => self.end(now, rpc),
        }
    }

    /// Ends an RPC without a word.
    pub fn forget(&mut self, now: Instant, rpc: RpcKey) {
        self.end(now, rpc);
    }

    /// What happened next, besides what [`Self::handle_packet`] told at once.
    #[inline]
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    #[inline]
    pub fn has_events(&self) -> bool {
        !self.events.is_empty()
    }

    /// Keeps an event that cannot be told now for [`Self::poll_event`].
    pub fn keep_event(&mut self, event: Event) {
        self.events.push_back(event);
    }

    /// Where a message's bytes lie: offset in the region, length. `None` if they are gone.
    pub fn place(&self, run: RunKey) -> Option<(u32, u32)> {
        self.pool.place(run)
    }

    /// Writes to a message that the user took, from byte `start` of it on. False, and nothing is
    /// written, if it has not so many bytes.
    pub fn overwrite(&mut self, run: RunKey, start: u32, bytes: &[u8]) -> bool {
        let Some((offset, len)) = self.pool.place(run) else {
            return false;
        };
        let fits = start as usize + bytes.len() <= len as usize;
        if fits {
            self.region.write((offset + start) as usize, bytes);
        }
        fits
    }

    /// Whether messages wait for receive pages, or requests for RPCs: who holds some that it could
    /// do without should give them back.
    pub fn is_short_of_room(&self) -> bool {
        self.pool.has_waiters() || !self.may_serve()
    }

    /// One more holder of a message's bytes. False if they are gone.
    pub fn retain(&mut self, run: RunKey) -> bool {
        self.pool.retain(run)
    }

    /// One holder less; the last one frees the pages. False if they are gone already.
    #[inline]
    pub fn release(&mut self, now: Instant, run: RunKey) -> bool {
        let released = self.pool.release(run);
        if self.pool.has_waiters() {
            self.serve_waiters(now);
        }
        released
    }

    /// Ends a client RPC with an error.
    pub(super) fn fail(&mut self, now: Instant, key: RpcKey, error: Error) {
        let Some(rpc) = self.rpcs.get(key) else {
            return;
        };
        if self.is_over(rpc) {
            return self.end(now, key);
        }
        debug_assert!(rpc.id.is_client(), "only clients are told: {rpc:?}");
        let failed = Event::Failed {
            socket: rpc.socket,
            tag: rpc.tag,
            id: rpc.id,
            peer: Addr::new(self.peers.get(rpc.peer).ip, rpc.peer_port),
            error,
        };
        self.stats.failures += 1;
        self.end_with(now, key, error);
        self.events.push_back(failed);
    }

    #[inline(always)]
    fn hold(&mut self, payload: &Payload) -> Result<(), Error> {
        match payload {
            Payload::Buffer(_) | Payload::EmptyReply | Payload::Gone => Ok(()),
            Payload::Received { run, start, len } => {
                let (_, run_len) = self.pool.place(*run).ok_or(Error::Invalid)?;
                if u64::from(*start) + u64::from(*len) > u64::from(run_len) {
                    return Err(Error::Invalid);
                }
                self.pool.retain(*run);
                Ok(())
            }
        }
    }
}

fn payload_len(payload: &Payload) -> Result<u32, Error> {
    let len = match payload {
        Payload::Buffer(buf) => buf.len(),
        Payload::Received { len, .. } => *len as usize,
        Payload::EmptyReply => 1,
        Payload::Gone => 0,
    };
    match len {
        0 => Err(Error::Invalid),
        len if len > MAX_MESSAGE_LEN as usize => Err(Error::MessageTooLong),
        len => Ok(len as u32),
    }
}
