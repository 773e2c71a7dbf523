//! Stream sockets: connections, which are message channels.

use crate::addr::{Addr, Ip};
use crate::channel::{ChannelKey, Channels, Event};
use crate::error::Error;
use crate::homa::{Endpoint, Message, RpcKey, SocketKey};
use crate::runtime::QToken;

use super::desk::{Completion, Desk, Operation, Pending};
use super::queue::{Kind, Queue, Role, Stream};
use super::result::{OperationResult, QDesc, SgaView};

impl Desk {
    /// The second half of bind: the address is ours, and the queue has none.
    pub(super) fn bind_stream(
        &mut self,
        homa: &mut Endpoint,
        qd: QDesc,
        addr: Addr,
    ) -> Result<(), Error> {
        if addr.ip.is_unspecified() || addr.port == 0 {
            return Err(Error::NotSupported);
        }
        let stream = self.queues.get_mut(qd)?.stream();
        if stream.is_none_or(|stream| stream.port.is_some()) {
            return Err(Error::Invalid); // Connecting gave it a port.
        }
        let port = self.channels.open_port(homa, addr.port)?;
        let queue = self.queues.get_mut(qd)?;
        if let Some(stream) = queue.stream() {
            stream.port = Some(port);
            queue.bound = Some(addr.ip);
        }
        Ok(())
    }

    pub(super) fn listen(
        &mut self,
        homa: &mut Endpoint,
        qd: QDesc,
        backlog: i32,
    ) -> Result<(), Error> {
        let queue = self.queues.get_mut(qd)?;
        let backlog = usize::try_from(backlog).unwrap_or(0);
        if backlog == 0 {
            return Err(Error::Invalid);
        }
        let stream = queue.stream().ok_or(Error::NotSupported)?;
        match (stream.role, stream.port) {
            (Role::Idle, None) => Err(Error::NoDestination),
            (Role::Idle, Some(port)) => {
                stream.role = Role::Listening(port);
                self.channels.listen(homa, port, backlog);
                Ok(())
            }
            (Role::Listening(_) | Role::Connecting(_) | Role::Connected(_), _) => {
                Err(Error::AddressInUse)
            }
        }
    }

    pub(super) fn accept(&mut self, homa: &mut Endpoint, qd: QDesc) -> Result<QToken, Error> {
        let stream = self.queues.get_mut(qd)?.stream().ok_or(Error::Invalid)?;
        let Role::Listening(port) = stream.role else {
            return Err(Error::Invalid);
        };
        let qt = self.start(qd, Operation::Accept)?;
        self.channels.accept(port, qt.0);
        self.drain_channels(homa);
        Ok(qt)
    }

    pub(super) fn connect(
        &mut self,
        homa: &mut Endpoint,
        qd: QDesc,
        to: Addr,
    ) -> Result<QToken, Error> {
        let stream = self.queues.get_mut(qd)?.stream();
        let stream = stream.ok_or(Error::NotSupported)?;
        match stream.role {
            Role::Idle => {}
            Role::Listening(_) => return Err(Error::Listening),
            Role::Connecting(_) => return Err(Error::Connecting),
            Role::Connected(_) => return Err(Error::AlreadyConnected),
        }
        let port = match stream.port {
            Some(port) => port,
            None => *stream.port.insert(self.channels.open_port(homa, 0)?),
        };
        let qt = self.start(qd, Operation::Connect)?;
        if to.port == 0 || to.ip.is_unspecified() {
            // Nobody listens nowhere.
            self.complete(qt, Completion::Failed(Error::ConnectionRefused));
            return Ok(qt);
        }
        match self.channels.connect(self.now, homa, port, to, qt.0) {
            Ok(channel) => {
                if let Some(stream) = self.queues.get_mut(qd)?.stream() {
                    stream.role = Role::Connecting(channel);
                }
                Ok(qt)
            }
            Err(error) => {
                self.tokens.withdraw(qt);
                Err(error)
            }
        }
    }

    pub(super) fn getpeername(&mut self, qd: QDesc) -> Result<Addr, Error> {
        let stream = self.queues.get_mut(qd)?.stream();
        let channel = stream.and_then(|stream| stream.channel());
        let peer = channel.and_then(|channel| self.channels.peer(channel));
        peer.ok_or(Error::NotConnected)
    }

    /// The address given to `bind`, or of an accepted connection to its listener, with the port.
    pub(super) fn stream_name(&mut self, homa: &Endpoint, qd: QDesc) -> Result<Addr, Error> {
        let queue = self.queues.get_mut(qd)?;
        let bound = queue.bound;
        let Some(stream) = queue.stream() else {
            return Err(Error::NotSupported);
        };
        let of_channel = stream.channel().and_then(|key| self.channels.socket(key));
        let port = stream.port.or(of_channel).and_then(|port| homa.port(port));
        Ok(Addr {
            ip: bound.unwrap_or(Ip::UNSPECIFIED_V4),
            port: port.unwrap_or(0),
        })
    }

    pub(super) fn push_stream(
        &mut self,
        homa: &mut Endpoint,
        qd: QDesc,
        view: &SgaView,
        channel: Option<ChannelKey>,
    ) -> Result<QToken, Error> {
        let outgoing = self.sgas.shared(homa, view)?;
        let channel = channel.ok_or(Error::NotConnected)?;
        let qt = self.start(qd, Operation::Push)?;
        let payload = outgoing.into_payload();
        self.channels.push(self.now, homa, channel, payload, qt.0);
        self.drain_channels(homa);
        Ok(qt)
    }

    pub(super) fn pop_stream(
        &mut self,
        homa: &mut Endpoint,
        qd: QDesc,
        len_max: u32,
        channel: Option<ChannelKey>,
    ) -> Result<QToken, Error> {
        let channel = channel.ok_or(Error::NotConnected)?;
        if self.sgas.is_full() {
            return Err(Error::Exhausted);
        }
        let qt = self.start(qd, Operation::Pop)?;
        self.channels.pop(self.now, homa, channel, len_max, qt.0);
        self.drain_channels(homa);
        Ok(qt)
    }

    pub(super) fn begin_close_stream(&mut self, homa: &mut Endpoint, role: Role) {
        match role {
            Role::Idle => {}
            Role::Listening(port) => self.channels.unlisten(self.now, homa, port),
            Role::Connecting(channel) | Role::Connected(channel) => {
                if let Some(port) = self.channels.socket(channel) {
                    homa.send_saved_acks(port);
                }
                self.channels.begin_close(self.now, homa, channel);
            }
        }
        self.drain_channels(homa);
    }

    pub(super) fn is_stream_settled(&self, role: Role) -> bool {
        match role {
            Role::Idle => true,
            Role::Listening(port) => self.channels.is_unlistened(port),
            Role::Connecting(channel) | Role::Connected(channel) => {
                self.channels.is_settled(channel)
            }
        }
    }

    pub(super) fn end_close_stream(&mut self, homa: &mut Endpoint, stream: &Stream) {
        match stream.role {
            Role::Idle => {}
            Role::Listening(port) => self.channels.end_unlisten(self.now, homa, port),
            Role::Connecting(channel) | Role::Connected(channel) => {
                self.channels.end_close(self.now, homa, channel);
            }
        }
        if let Some(port) = stream.port {
            self.channels.leave(self.now, homa, port);
        }
    }

    #[cold]
    pub(super) fn on_channel_request(
        &mut self,
        homa: &mut Endpoint,
        socket: SocketKey,
        rpc: RpcKey,
    ) {
        self.channels.handle_request(self.now, homa, socket, rpc);
        self.drain_channels(homa);
    }

    #[cold]
    pub(super) fn on_channel_response(&mut self, homa: &mut Endpoint, tag: u64, message: &Message) {
        self.channels.handle_response(self.now, homa, tag, message);
        self.drain_channels(homa);
    }

    /// A call failed, or a channel's request.
    #[inline(never)]
    pub(super) fn on_call_failed(&mut self, homa: &mut Endpoint, tag: u64, error: Error) {
        if Channels::is_tag(tag) {
            self.channels.handle_failure(self.now, homa, tag, error);
            self.drain_channels(homa);
        } else {
            self.complete(QToken(tag), Completion::Failed(error));
        }
    }

    #[cold]
    pub(super) fn on_channel_released(
        &mut self,
        homa: &mut Endpoint,
        tag: u64,
        result: Result<(), Error>,
    ) {
        if Channels::is_tag(tag) {
            self.channels.handle_released(tag, result);
            self.drain_channels(homa);
        }
    }

    /// What time brings to connections.
    #[inline(never)]
    pub(super) fn turn_channels(&mut self, homa: &mut Endpoint) {
        self.channels.handle_timeout(self.now, homa);
        self.drain_channels(homa);
    }

    fn drain_channels(&mut self, homa: &mut Endpoint) {
        while let Some(event) = self.channels.poll_event() {
            self.on_channel_event(homa, event);
        }
    }

    fn on_channel_event(&mut self, homa: &mut Endpoint, event: Event) {
        let (tag, end) = match event {
            Event::Connected { tag } => {
                self.set_connected(tag, true);
                (tag, Completion::Connect)
            }
            Event::NotConnected { tag, error } => {
                self.set_connected(tag, false);
                (tag, Completion::Failed(error))
            }
            Event::Accepted { tag, channel, .. } => {
                let stream = Kind::Stream(Stream::accepted(channel));
                let mut queue = Queue::new(stream);
                let listener = self.tokens.pending(QToken(tag)).map(|op| op.qd);
                if let Some(listener) = listener.and_then(|qd| self.queues.get(qd).ok()) {
                    (queue.bound, queue.linger) = (listener.bound, listener.linger);
                }
                (tag, Completion::Accept(self.queues.insert(queue)))
            }
            Event::Pushed { tag } => (tag, Completion::Push),
            Event::Popped { tag, piece } => match self.sgas.insert_piece(homa, &piece) {
                Ok(sga) => (tag, Completion::PopStream(sga)),
                Err(error) => {
                    homa.release(self.now, piece.run);
                    (tag, Completion::Failed(error))
                }
            },
            Event::Ended { tag } => {
                let sga = self.sgas.insert_end(homa);
                (
                    tag,
                    sga.map_or_else(Completion::Failed, Completion::PopStream),
                )
            }
            Event::Failed { tag, error } => (tag, Completion::Failed(error)),
        };
        self.complete(QToken(tag), end);
    }

    /// The queue whose connect has this tag has a peer now, or none.
    fn set_connected(&mut self, tag: u64, is_connected: bool) {
        let Some(qd) = self.tokens.pending(QToken(tag)).map(|op| op.qd) else {
            return;
        };
        if let Ok(queue) = self.queues.get_mut(qd)
            && let Some(stream) = queue.stream()
            && let Role::Connecting(channel) = stream.role
        {
            stream.role = match is_connected {
                true => Role::Connected(channel),
                false => Role::Idle,
            };
        }
    }

    /// The result of an accept, as the application sees it.
    #[cold]
    pub(super) fn describe_accepted(&self, qd: QDesc) -> OperationResult {
        let peer = match self.queues.get(qd).map(|queue| &queue.kind) {
            Ok(Kind::Stream(stream)) => stream.channel(),
            Ok(Kind::Datagram(_) | Kind::Native(_) | Kind::Face(_)) | Err(_) => None,
        };
        let peer = peer.and_then(|channel| self.channels.peer(channel));
        OperationResult::Accept {
            qd,
            peer: peer.unwrap_or_default(),
        }
    }

    fn start(&mut self, qd: QDesc, kind: Operation) -> Result<QToken, Error> {
        self.tokens.start(Pending {
            kind,
            ..Pending::push(qd)
        })
    }
}
