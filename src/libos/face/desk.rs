//! What the homa face asks of the desk: nothing here waits.

use crate::addr::Addr;
use crate::error::Error;
use crate::homa::{Endpoint, Message, Notify, Payload, RpcKey, SocketKey};
use crate::libos::desk::{Desk, QUEUE_TAG};
use crate::libos::queue::{IPPROTO_HOMA, IPPROTO_HOMA_OLD, Kind, Queue};
use crate::libos::result::QDesc;
use crate::libos::sockets::check_destination;
use crate::mem::{Buf, Region};
use crate::wire::homa::{MAX_MESSAGE_LEN, RpcId};

use super::mailbox::{Arrival, Mailbox, Received, Refusal, Wanted};

/// Automatic ports start here. Source: the seed's `HOMA_MIN_DEFAULT_PORT`.
const AUTOMATIC_MIN: u16 = 0x8000;

/// Of a page of the system's memory.
const PAGE_LEN: usize = 4096;

const fn refusal(error: Error, text: &'static str) -> Refusal {
    Refusal { error, text }
}

/// Whether a message may have that many bytes.
pub(super) fn check_len(len: usize) -> Result<(), Refusal> {
    match len {
        1.. if len <= MAX_MESSAGE_LEN as usize => Ok(()),
        _ => Err(refusal(
            Error::Invalid,
            "a message has 1 to 1,000,000 bytes",
        )),
    }
}

impl Desk {
    pub(super) fn homa_socket(
        &mut self,
        homa: &mut Endpoint,
        (domain, kind, protocol): (i32, i32, i32),
        sockets_max: usize,
    ) -> Result<QDesc, Error> {
        if domain != libc::AF_INET && domain != libc::AF_INET6 {
            return Err(Error::FamilyNotSupported);
        }
        // Descriptors that are the library's own are not inherited by `exec` anyway.
        if kind & !(libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC) != libc::SOCK_DGRAM {
            return Err(Error::NotSupported);
        }
        if !matches!(protocol, IPPROTO_HOMA | IPPROTO_HOMA_OLD) {
            return Err(Error::ProtocolUnsupported);
        }
        if self.queues.socket_count() >= sockets_max {
            return Err(Error::Exhausted);
        }
        let socket = homa.open_lent(0)?;
        let mailbox = Mailbox::new(domain, kind & libc::SOCK_NONBLOCK == 0);
        let qd = self
            .queues
            .insert(Queue::new(Kind::Face(Box::new(mailbox))));
        self.queues.join(qd, socket)?;
        Ok(qd)
    }

    /// A queue's mailbox; `NotSupported` if it is a queue of another kind.
    pub(super) fn mailbox(&mut self, qd: QDesc) -> Result<&mut Mailbox, Error> {
        match &mut self.queues.get_mut(qd)?.kind {
            Kind::Face(mailbox) => Ok(mailbox),
            Kind::Datagram(_) | Kind::Native(_) | Kind::Stream(_) => Err(Error::NotSupported),
        }
    }

    /// The transport's socket of a queue of the homa face that is not shut down.
    pub(super) fn open_socket(&mut self, qd: QDesc) -> Result<SocketKey, Error> {
        self.mailbox(qd)?;
        self.queues.get(qd)?.socket.ok_or(Error::Shutdown)
    }

    /// Notes why a call failed, for those who ask afterwards.
    pub(super) fn told<T>(&mut self, qd: QDesc, result: Result<T, Refusal>) -> Result<T, Error> {
        result.map_err(|refusal| {
            if let Ok(mailbox) = self.mailbox(qd) {
                mailbox.last_error = Some(refusal);
            }
            refusal.error
        })
    }

    pub(super) fn homa_bind(
        &mut self,
        homa: &mut Endpoint,
        qd: QDesc,
        (addr, family): (Addr, i32),
        is_ours: bool,
    ) -> Result<(), Refusal> {
        let socket = self.open_socket(qd)?;
        if family != self.mailbox(qd)?.family {
            return Err(refusal(
                Error::FamilyNotSupported,
                "the address is of another family than the socket",
            ));
        }
        if !is_ours {
            return Err(refusal(
                Error::AddressNotAvailable,
                "not an address of this runtime: see network.address in the configuration",
            ));
        }
        if addr.port >= AUTOMATIC_MIN {
            return Err(refusal(
                Error::Invalid,
                "ports from 32768 on are given automatically: bind to one below",
            ));
        }
        if addr.port == 0 {
            return Ok(());
        }
        homa.bind(socket, addr.port)?;
        homa.set_server(socket, true);
        self.mailbox(qd)?.is_server = true;
        self.queues.get_mut(qd)?.bound = Some(addr.ip);
        Ok(())
    }

    pub(super) fn homa_set_server(
        &mut self,
        homa: &mut Endpoint,
        qd: QDesc,
        is_server: bool,
    ) -> Result<(), Refusal> {
        let socket = self.open_socket(qd)?;
        homa.set_server(socket, is_server);
        self.mailbox(qd)?.is_server = is_server;
        Ok(())
    }

    pub(super) fn homa_lend(
        &mut self,
        homa: &mut Endpoint,
        qd: QDesc,
        region: Region,
    ) -> Result<(), Refusal> {
        let socket = self.open_socket(qd)?;
        if !region.address(0).addr().get().is_multiple_of(PAGE_LEN) {
            return Err(refusal(
                Error::Invalid,
                "the region must start at a page boundary: take it from mmap or aligned_alloc",
            ));
        }
        homa.lend(self.now, socket, region)
            .map_err(|error| match error {
                Error::Exists => refusal(Error::Invalid, "the socket has a region already"),
                Error::NoMemory => refusal(
                    Error::Invalid,
                    "the region is too small: two messages of 1,000,000 bytes and a page of \
                     65,536 must fit, 2,065,536 bytes",
                ),
                _ => refusal(Error::Invalid, "a region has at most 4 GiB"),
            })
    }

    /// Whether a request to `to` may be sent at all.
    pub(super) fn check_send(
        &mut self,
        qd: QDesc,
        (to, family): (Addr, i32),
        len: usize,
    ) -> Result<(), Refusal> {
        self.open_socket(qd)?;
        let calls_max = self.params.tokens_max as usize;
        let mailbox = self.mailbox(qd)?;
        if family != mailbox.family {
            return Err(refusal(
                Error::FamilyNotSupported,
                "the address is of another family than the socket",
            ));
        }
        check_destination(to).map_err(|error| refusal(error, "no host or no port to send to"))?;
        check_len(len)?;
        if mailbox.call_count() >= calls_max {
            return Err(refusal(
                Error::Exhausted,
                "too many calls whose outcome was not received: see runtime.tokens_max",
            ));
        }
        Ok(())
    }

    /// Starts a call; `None` while the transport has no room for it.
    pub(super) fn homa_call(
        &mut self,
        homa: &mut Endpoint,
        qd: QDesc,
        to: Addr,
        buf: &Buf,
        cookie: u64,
    ) -> Result<Option<u64>, Error> {
        let socket = self.open_socket(qd)?;
        let payload = Payload::Buffer(buf.clone());
        match homa.send_request(self.now, socket, to, payload, QUEUE_TAG, Notify::Never) {
            Ok((rpc, id)) => {
                self.mailbox(qd)?.on_called(id.0, rpc, to, cookie);
                Ok(Some(id.0))
            }
            Err(Error::Exhausted) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The request that a reply with that id and address answers; `None` if it is gone.
    pub(super) fn find_request(
        &mut self,
        homa: &mut Endpoint,
        qd: QDesc,
        id: u64,
        client: Addr,
    ) -> Result<Option<RpcKey>, Refusal> {
        let socket = self.open_socket(qd)?;
        if RpcId(id).is_client() {
            return Err(refusal(
                Error::Invalid,
                "a reply needs the odd id that came with its request",
            ));
        }
        let rpc = homa.server_rpc(RpcId(id), client);
        let rpc = rpc.filter(|&rpc| homa.socket_of(rpc) == Some(socket));
        if rpc.is_some_and(|rpc| !homa.in_service(rpc)) {
            return Err(refusal(
                Error::Invalid,
                "the request was not received yet, or was answered before",
            ));
        }
        Ok(rpc)
    }

    /// What fits `wanted`, if it is there.
    pub(super) fn homa_receive(
        &mut self,
        homa: &mut Endpoint,
        qd: QDesc,
        wanted: &Wanted,
    ) -> Result<Option<Received>, Error> {
        let socket = self.open_socket(qd)?;
        let service_max = self.params.service_max;
        let mailbox = self.mailbox(qd)?;
        if wanted.id != 0 && mailbox.call(wanted.id).is_none() {
            return Err(Error::Invalid);
        }
        let may_serve = homa.in_service_count(socket) < service_max;
        let wanted = Wanted {
            requests: wanted.requests && may_serve,
            ..*wanted
        };
        Ok(match mailbox.next(homa, &wanted) {
            None => None,
            Some(Arrival::Request(rpc)) => homa.take_lent(rpc).and_then(|message| {
                let parts = homa.hand_over(socket, message.run)?;
                Some(Received {
                    id: message.id.0,
                    cookie: 0,
                    peer: message.peer,
                    result: Ok((message.len, parts)),
                })
            }),
            Some(Arrival::Outcome(outcome)) => {
                let handed = |message: Message| {
                    let parts = homa.hand_over(socket, message.run);
                    Ok((message.len, parts.ok_or(Error::Canceled)?))
                };
                Some(Received {
                    id: outcome.id,
                    cookie: outcome.cookie,
                    peer: outcome.peer,
                    result: outcome.result.and_then(handed),
                })
            }
        })
    }

    /// Rule RP-22: calls of this socket end with an error, or without a word; requests stay.
    pub(super) fn homa_abort(
        &mut self,
        homa: &mut Endpoint,
        qd: QDesc,
        id: u64,
        error: i32,
    ) -> Result<(), Refusal> {
        let socket = self.open_socket(qd)?;
        if error < 0 {
            return Err(refusal(
                Error::Invalid,
                "the error is an errno, which is positive",
            ));
        }
        let mailbox = self.mailbox(qd)?;
        let calls: Vec<_> = match id {
            0 => mailbox.calls().map(|(id, call)| (id, *call)).collect(),
            id => {
                let call = mailbox.call(id).ok_or(refusal(
                    Error::Invalid,
                    "no call of this socket has that id",
                ))?;
                vec![(id, *call)]
            }
        };
        for (id, call) in calls {
            let mailbox = self.mailbox(qd)?;
            let outcome = mailbox.outcome_of(&call).map(|outcome| outcome.result);
            match error {
                0 => mailbox.forget(id).is_some(),
                error => mailbox.on_outcome(id, Err(Error::Aborted(error))),
            };
            match outcome {
                None => homa.forget(self.now, call.rpc),
                Some(Ok(message)) => homa.release_lent(self.now, socket, message.run),
                Some(Err(_)) => {}
            }
        }
        Ok(())
    }

    /// Ends all RPCs at once; what was handed to the application stays as it is.
    pub(super) fn homa_shutdown(&mut self, homa: &mut Endpoint, qd: QDesc) -> Result<(), Error> {
        self.mailbox(qd)?.shut();
        if let Some(socket) = self.queues.leave(qd) {
            homa.send_saved_acks(socket);
            homa.close(self.now, socket);
        }
        Ok(())
    }

    /// A call of the homa face is over. False if its socket is not of that kind.
    pub(in crate::libos) fn on_face_outcome(
        &mut self,
        homa: &mut Endpoint,
        socket: SocketKey,
        id: RpcId,
        result: Result<Message, Error>,
    ) -> bool {
        let queue = self.queues.of_socket_mut(socket);
        let Some(Kind::Face(mailbox)) = queue.map(|(_, queue)| &mut queue.kind) else {
            return false;
        };
        if !mailbox.on_outcome(id.0, result)
            && let Ok(message) = result
        {
            self.stats.responses_dropped += 1;
            homa.release_lent(self.now, socket, message.run);
        }
        true
    }

    /// A request came for a socket of the homa face. False if it is not of that kind.
    pub(in crate::libos) fn on_face_request(&mut self, socket: SocketKey, rpc: RpcKey) -> bool {
        let queue = self.queues.of_socket_mut(socket);
        let Some(Kind::Face(mailbox)) = queue.map(|(_, queue)| &mut queue.kind) else {
            return false;
        };
        mailbox.on_request(rpc);
        true
    }
}
