//! Queues: what stands behind a descriptor.

use std::collections::VecDeque;

use crate::addr::{Addr, Ip};
use crate::channel::ChannelKey;
use crate::error::Error;
use crate::homa::{Endpoint, Message, RpcKey, SocketKey};
use crate::keyed::Keyed;
use crate::runtime::{QToken, Rendezvous};
use crate::time::Duration;

use super::datagram::Pairing;
use super::face::Mailbox;
use super::params::Params;
use super::result::QDesc;
use super::sga::Outgoing;

/// The first descriptor. Source: Demikernel 1.5.13, whose programs see 500 first.
const FIRST_QD: u32 = 500;

/// Protocol of native Homa sockets. Source: HomaModule homa.h `IPPROTO_HOMA`.
pub const IPPROTO_HOMA: i32 = 146;
/// The same, as older copies of that header had it.
pub(super) const IPPROTO_HOMA_OLD: i32 = 0xfd;

/// One socket.
#[derive(Debug)]
pub(super) struct Queue {
    /// The transport's socket, once there is a port.
    pub(super) socket: Option<SocketKey>,
    /// The address given to `bind`.
    pub(super) bound: Option<Ip>,
    /// Overrides `Params::linger`.
    pub(super) linger: Option<Duration>,
    pub(super) arrivals: Rendezvous<Arrival, QToken>,
    pub(super) kind: Kind,
}

#[derive(Debug)]
pub(super) enum Kind {
    /// Paired datagrams.
    Datagram(Datagram),
    /// Homa's own calls and replies.
    Native(Service),
    /// The calls of the Linux module.
    Face(Box<Mailbox>),
    /// Connections.
    Stream(Stream),
}

/// A stream socket. Its port is the channels' and not [`Queue::socket`], as a listening queue
/// shares it with those it accepted.
#[derive(Debug)]
pub(super) struct Stream {
    /// Once it has a port of its own.
    pub(super) port: Option<SocketKey>,
    pub(super) role: Role,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    Idle,
    Listening(SocketKey),
    Connecting(ChannelKey),
    Connected(ChannelKey),
}

/// What can be popped.
#[derive(Debug)]
pub(super) enum Arrival {
    Request(RpcKey),
    /// The response to a datagram of ours.
    Response(Message),
}

#[derive(Debug)]
pub(super) struct Datagram {
    pub(super) pairing: Pairing,
    /// New datagrams that wait for older ones to be confirmed.
    pub(super) held: VecDeque<HeldPush>,
    /// New datagrams the peers have not confirmed.
    pub(super) outstanding: u32,
}

#[derive(Debug)]
pub(super) struct HeldPush {
    pub(super) outgoing: Outgoing,
    pub(super) to: Addr,
    pub(super) qt: QToken,
}

/// What a native socket's application works on.
#[derive(Debug)]
pub(super) struct Service {
    /// The request popped last, by the names its reply goes by: mostly it is answered next.
    pub(super) latest: Option<(u64, Addr, RpcKey)>,
    /// Requests that may be popped and not answered.
    max: u32,
}

/// All queues, by descriptor and by socket.
#[derive(Debug, Default)]
pub(super) struct Queues {
    by_qd: Vec<Option<Queue>>,
    /// By the socket's slot.
    by_socket: Vec<Option<QDesc>>,
}

impl Kind {
    /// What `socket(2)`'s arguments ask for.
    pub(super) fn of(
        domain: i32,
        kind: i32,
        protocol: i32,
        params: &Params,
    ) -> Result<Self, Error> {
        if domain != libc::AF_INET && domain != libc::AF_INET6 {
            return Err(Error::NotSupported);
        }
        if kind == libc::SOCK_STREAM {
            // As for datagrams, results have room for IPv4 peers only.
            return match protocol {
                0 | libc::IPPROTO_TCP if domain == libc::AF_INET => Ok(Self::Stream(Stream::new())),
                _ => Err(Error::NotSupported),
            };
        }
        if kind != libc::SOCK_DGRAM {
            return Err(Error::NotSupported);
        }
        match protocol {
            IPPROTO_HOMA | IPPROTO_HOMA_OLD => Ok(Self::Native(Service {
                latest: None,
                max: params.service_max,
            })),
            // Demikernel's results have room for IPv4 senders only.
            0 | libc::IPPROTO_UDP if domain == libc::AF_INET => Ok(Self::Datagram(Datagram {
                pairing: Pairing::new(
                    params.datagram_open_max,
                    params.datagram_reply_grace,
                    Keyed::new(params.seed),
                ),
                held: VecDeque::new(),
                outstanding: 0,
            })),
            _ => Err(Error::NotSupported),
        }
    }
}

impl Queue {
    pub(super) fn new(kind: Kind) -> Self {
        Self {
            socket: None,
            bound: None,
            linger: None,
            arrivals: Rendezvous::new(),
            kind,
        }
    }

    /// Whether another message may be popped.
    #[inline]
    pub(super) fn has_room(&self, homa: &Endpoint) -> bool {
        match (&self.kind, self.socket) {
            (Kind::Native(service), Some(socket)) => homa.in_service_count(socket) < service.max,
            (Kind::Native(_) | Kind::Datagram(_) | Kind::Stream(_) | Kind::Face(_), _) => true,
        }
    }

    pub(super) fn datagram(&mut self) -> Result<&mut Datagram, Error> {
        match &mut self.kind {
            Kind::Datagram(datagram) => Ok(datagram),
            Kind::Native(_) | Kind::Stream(_) | Kind::Face(_) => Err(Error::NotSupported),
        }
    }

    pub(super) fn stream(&mut self) -> Option<&mut Stream> {
        match &mut self.kind {
            Kind::Stream(stream) => Some(stream),
            Kind::Native(_) | Kind::Datagram(_) | Kind::Face(_) => None,
        }
    }

    /// Whether it uses none of the transport's sockets of its own.
    fn is_accepted(&self) -> bool {
        matches!(
            self.kind,
            Kind::Stream(Stream {
                port: None,
                role: Role::Connected(_),
            })
        )
    }

    #[inline]
    pub(super) fn service(&mut self) -> Result<&mut Service, Error> {
        match &mut self.kind {
            Kind::Native(service) => Ok(service),
            Kind::Datagram(_) | Kind::Stream(_) | Kind::Face(_) => Err(Error::NotSupported),
        }
    }
}

impl Stream {
    fn new() -> Self {
        Self {
            port: None,
            role: Role::Idle,
        }
    }

    /// One that a peer opened.
    pub(super) fn accepted(channel: ChannelKey) -> Self {
        Self {
            port: None,
            role: Role::Connected(channel),
        }
    }

    pub(super) fn channel(&self) -> Option<ChannelKey> {
        match self.role {
            Role::Connected(channel) => Some(channel),
            Role::Idle | Role::Listening(_) | Role::Connecting(_) => None,
        }
    }
}

impl Service {
    /// The request with this id and from this client, if it is the one popped last.
    #[inline]
    pub(super) fn latest(&self, id: u64, peer: Addr) -> Option<RpcKey> {
        match self.latest {
            Some((its_id, its_peer, rpc)) if its_id == id && its_peer == peer => Some(rpc),
            Some(_) | None => None,
        }
    }
}

impl Queues {
    /// Files a queue under the lowest free descriptor.
    pub(super) fn insert(&mut self, queue: Queue) -> QDesc {
        let free = self.by_qd.iter().position(Option::is_none);
        let index = free.unwrap_or(self.by_qd.len());
        if index == self.by_qd.len() {
            self.by_qd.push(None);
        }
        self.by_qd[index] = Some(queue);
        QDesc(FIRST_QD + index as u32)
    }

    /// Queues with sockets of their own, or about to have one; those accepted share theirs.
    pub(super) fn socket_count(&self) -> usize {
        let queues = self.by_qd.iter().flatten();
        queues.filter(|queue| !queue.is_accepted()).count()
    }

    #[inline]
    pub(super) fn get(&self, qd: QDesc) -> Result<&Queue, Error> {
        let index = qd.0.checked_sub(FIRST_QD).ok_or(Error::BadDescriptor)?;
        let queue = self.by_qd.get(index as usize).and_then(Option::as_ref);
        queue.ok_or(Error::BadDescriptor)
    }

    #[inline]
    pub(super) fn get_mut(&mut self, qd: QDesc) -> Result<&mut Queue, Error> {
        let index = qd.0.checked_sub(FIRST_QD).ok_or(Error::BadDescriptor)?;
        let queue = self.by_qd.get_mut(index as usize).and_then(Option::as_mut);
        queue.ok_or(Error::BadDescriptor)
    }

    pub(super) fn remove(&mut self, qd: QDesc) -> Option<Queue> {
        let index = qd.0.checked_sub(FIRST_QD)? as usize;
        let queue = self.by_qd.get_mut(index)?.take()?;
        if let Some(socket) = queue.socket {
            self.by_socket[socket.index() as usize] = None;
        }
        Some(queue)
    }

    /// Takes a queue's socket away from it.
    pub(super) fn leave(&mut self, qd: QDesc) -> Option<SocketKey> {
        let socket = self.get_mut(qd).ok()?.socket.take()?;
        self.by_socket[socket.index() as usize] = None;
        Some(socket)
    }

    /// Lets events of `socket` find their queue.
    pub(super) fn join(&mut self, qd: QDesc, socket: SocketKey) -> Result<(), Error> {
        self.get_mut(qd)?.socket = Some(socket);
        let index = socket.index() as usize;
        if self.by_socket.len() <= index {
            self.by_socket.resize(index + 1, None);
        }
        self.by_socket[index] = Some(qd);
        Ok(())
    }

    #[inline]
    pub(super) fn of_socket(&self, socket: SocketKey) -> Option<QDesc> {
        let qd = (*self.by_socket.get(socket.index() as usize)?)?;
        (self.get(qd).ok()?.socket == Some(socket)).then_some(qd)
    }

    /// The queue of a socket, with its descriptor.
    #[inline]
    pub(super) fn of_socket_mut(&mut self, socket: SocketKey) -> Option<(QDesc, &mut Queue)> {
        let qd = (*self.by_socket.get(socket.index() as usize)?)?;
        let queue = self.get_mut(qd).ok()?;
        (queue.socket == Some(socket)).then_some((qd, queue))
    }

    /// Descriptors in use, lowest first, as of now.
    pub(super) fn qds(&self) -> Vec<QDesc> {
        let indexes = self.by_qd.iter().enumerate();
        indexes
            .filter(|(_, queue)| queue.is_some())
            .map(|(index, _)| QDesc(FIRST_QD + index as u32))
            .collect()
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = (QDesc, &mut Queue)> {
        let indexes = self.by_qd.iter_mut().enumerate();
        indexes.filter_map(|(index, queue)| Some((QDesc(FIRST_QD + index as u32), queue.as_mut()?)))
    }
}
