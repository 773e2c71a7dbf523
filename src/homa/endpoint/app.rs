//! The user's side: sockets, messages, outcomes.

use crate::addr::Addr;
use crate::error::Error;
use crate::homa::event::{Event, Message, Notify, Outcome, Payload, RpcKey, RunKey, SocketKey};
use crate::homa::msg_out::MsgOut;
use crate::homa::mutant::{self, Mutant};
use crate::homa::peer::SAVED_ACKS_MAX;
use crate::homa::rpc::{Rpc, State, Whole};
use crate::time::Instant;
use crate::wire::homa::{Ack, MAX_MESSAGE_LEN, RpcId};

use super::{Body, Control, Endpoint, SLOT_BITS};

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

    /// Ends a socket and all its RPCs. Client RPCs vanish without [`Event::Done`]; each
    /// [`Notify`] still open is answered with [`Error::Canceled`].
    pub fn close(&mut self, now: Instant, socket: SocketKey) {
        self.sockets.close(socket);
        let rpcs: Vec<_> = self
            .rpcs
            .iter()
            .filter(|(_, rpc)| rpc.socket == socket)
            .map(|(key, _)| key)
            .collect();
        rpcs.into_iter().for_each(|key| self.end(now, key));
    }

    /// Starts a client RPC; [`Event::Done`] brings `tag` back.
    ///
    /// A received payload's run gets one holder more for as long as it is needed.
    ///
    /// # Errors
    /// [`Error::Invalid`] for an empty payload or one whose run is gone,
    /// [`Error::MessageTooLong`], [`Error::BadDescriptor`], [`Error::Exhausted`] if all RPCs or
    /// peers are taken. Nothing is kept then.
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
            return Err(Error::Exhausted);
        }
        let peer = self.peers.find_or_add(now, to.ip).ok_or(Error::Exhausted)?;
        self.hold(&payload)?;
        let cut = self.cut_for(to.ip);
        let generation = self.next_generation;
        self.next_generation =
            generation.wrapping_add(u64::from(!mutant::is_on(Mutant::IdUsedTwice)));
        let (tick, ask_interval) = (self.wheel.tick(), self.params.resend_interval_ticks);
        let incarnation = self.peers.get(peer).incarnation;
        let key = self.rpcs.insert_with(|key| Rpc {
            id: RpcId((generation << SLOT_BITS | u64::from(key.index())) << 1),
            peer,
            peer_addr: to,
            socket,
            port,
            tag,
            hash: 0,
            incarnation,
            heard_tick: tick,
            asked_tick: tick,
            ask_interval,
            need_acks: 0,
            sent_tick: tick,
            state: State::Sending(MsgOut::new(payload, len, cut, now, notify)),
        });
        let key = key.ok_or(Error::Exhausted)?;
        self.peers.get_mut(peer).on_rpc(now);
        self.stats.requests += 1;
        self.file_out(key);
        if !mutant::is_on(Mutant::TimerNotFiled) {
            self.file_timer(now, key, self.params.resend_ticks);
        }
        let id = self.rpcs.get(key).ok_or(Error::Exhausted)?.id;
        Ok((key, id))
    }

    /// Answers a request that was taken.
    ///
    /// If the RPC is gone meanwhile, that is no error: the client went away.
    ///
    /// # Errors
    /// As [`Self::send_request`]; [`Error::Invalid`] too if the RPC is not in service.
    pub fn send_response(
        &mut self,
        now: Instant,
        key: RpcKey,
        payload: Payload,
        notify: Notify,
    ) -> Result<(), Error> {
        let len = payload_len(&payload)?;
        let Some(rpc) = self.rpcs.get(key) else {
            self.tell_released(notify, Ok(()));
            return Ok(());
        };
        if !matches!(rpc.state, State::InService) {
            return Err(Error::Invalid);
        }
        let peer_ip = rpc.peer_addr.ip;
        self.hold(&payload)?;
        let out = MsgOut::new(payload, len, self.cut_for(peer_ip), now, notify);
        let tick = self.wheel.tick();
        if let Some(rpc) = self.rpcs.get_mut(key) {
            rpc.state = State::Replying(out);
            rpc.heard_tick = tick;
        }
        self.stats.responses_out += 1;
        self.file_out(key);
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
            .is_some_and(|rpc| matches!(rpc.state, State::InService))
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
    pub fn server_rpc(&self, id: RpcId, peer: Addr) -> Option<RpcKey> {
        if id.is_client() {
            None
        } else {
            self.find_server(id, peer)
        }
    }

    /// The outcome that an event announced; `None` if it was taken, or the RPC is gone.
    ///
    /// A request is in service from now on. A client RPC is over, and its server will be told.
    pub fn take(&mut self, now: Instant, key: RpcKey) -> Option<Outcome> {
        let rpc = self.rpcs.get_mut(key)?;
        match rpc.state {
            State::Requested(whole) => {
                rpc.state = State::InService;
                Some(Outcome::Request(self.message(key, whole)?))
            }
            State::Done(outcome) => {
                let (id, peer) = (rpc.id, rpc.peer_addr);
                rpc.state = State::Moving;
                let outcome = match outcome {
                    Ok(whole) => {
                        let message = self.message(key, whole)?;
                        self.save_ack(key);
                        Outcome::Response(message)
                    }
                    Err(error) => Outcome::Failed { id, peer, error },
                };
                self.end(now, key);
                Some(outcome)
            }
            State::Sending(_)
            | State::Receiving(..)
            | State::Incoming(_)
            | State::InService
            | State::Replying(_)
            | State::Moving => None,
        }
    }

    /// Ends an RPC: a client's is done with `error`, a server's just ends.
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

    /// What happened next.
    #[inline]
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// One more holder of a message's bytes. False if they are gone.
    pub fn retain(&mut self, run: RunKey) -> bool {
        self.pool.retain(run)
    }

    /// One holder less; the last one frees the pages. False if they are gone already.
    pub fn release(&mut self, now: Instant, run: RunKey) -> bool {
        let released = self.pool.release(run);
        if self.pool.has_waiters() {
            self.serve_waiters(now);
        }
        released
    }

    /// Completes a client RPC with an error; one that is done already gets it too. Rule RP-11.
    pub(super) fn fail(&mut self, now: Instant, key: RpcKey, error: Error) {
        let Some(rpc) = self.rpcs.get_mut(key) else {
            return;
        };
        let (socket, tag) = (rpc.socket, rpc.tag);
        match std::mem::replace(&mut rpc.state, State::Done(Err(error))) {
            State::Sending(mut out) => {
                self.tell_released(
                    std::mem::replace(&mut out.notify, Notify::Never),
                    Err(error),
                );
                self.drop_out(now, out);
            }
            State::Receiving(mut out, message) => {
                self.tell_released(
                    std::mem::replace(&mut out.notify, Notify::Never),
                    Err(error),
                );
                self.drop_in(now, key, message);
                self.drop_out(now, out);
            }
            State::Done(Ok(whole)) => {
                self.release(now, whole.run);
                return;
            }
            State::Done(Err(_)) => return,
            server @ (State::Incoming(_)
            | State::Requested(_)
            | State::InService
            | State::Replying(_)
            | State::Moving) => unreachable!("a client RPC in the state {server:?}"),
        }
        self.outgoing.unfile(key);
        self.stats.failures += 1;
        self.events.push_back(Event::Done {
            socket,
            rpc: key,
            tag,
        });
    }

    fn hold(&mut self, payload: &Payload) -> Result<(), Error> {
        match payload {
            Payload::Buffer(_) | Payload::EmptyReply => Ok(()),
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

    fn message(&self, key: RpcKey, whole: Whole) -> Option<Message> {
        let rpc = self.rpcs.get(key)?;
        let (offset, len) = self.pool.place(whole.run)?;
        Some(Message {
            run: whole.run,
            offset,
            len,
            rpc: key,
            id: rpc.id,
            peer: rpc.peer_addr,
            empty_reply: whole.empty_reply,
        })
    }

    /// Lets the server know, with a later packet, that its response was taken. Rule PE-07.
    fn save_ack(&mut self, key: RpcKey) {
        let Some(rpc) = self.rpcs.get(key) else {
            return;
        };
        let ack = Ack {
            client_id: rpc.id,
            server_port: rpc.peer_addr.port,
        };
        let (peer, common) = (rpc.peer, rpc.common());
        if self.peers.get_mut(peer).save_ack(ack).is_ok() {
            return;
        }
        self.queue(Control {
            peer,
            common,
            body: Body::Ack,
        });
        // Each ACK packet names one RPC in its header and takes up to five of the saved acks.
        const { assert!(SAVED_ACKS_MAX == 16) };
        for _ in 0..2 {
            if let Some(ack) = self.peers.get_mut(peer).take_ack() {
                let (id, dport) = (ack.client_id, ack.server_port);
                let common = crate::wire::homa::Common {
                    id,
                    dport,
                    ..common
                };
                self.queue(Control {
                    peer,
                    common,
                    body: Body::Ack,
                });
            }
        }
    }
}

fn payload_len(payload: &Payload) -> Result<u32, Error> {
    let len = match payload {
        Payload::Buffer(buf) => buf.len(),
        Payload::Received { len, .. } => *len as usize,
        Payload::EmptyReply => 1,
    };
    match len {
        0 => Err(Error::Invalid),
        len if len > MAX_MESSAGE_LEN as usize => Err(Error::MessageTooLong),
        len => Ok(len as u32),
    }
}
