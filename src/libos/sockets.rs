//! What an application asks of sockets: open, bind, push, pop, close.

use crate::addr::{Addr, Ip};
use crate::error::Error;
use crate::homa::{Endpoint, SocketKey};
use crate::runtime::QToken;
use crate::time::Instant;

use super::desk::{Completion, Desk, Operation, Pending};
use super::queue::{Arrival, HeldPush, Kind, Queue};
use super::result::{QDesc, SgaView};
use super::sga::Outgoing;

impl Desk {
    pub(super) fn socket(
        &mut self,
        domain: i32,
        kind: i32,
        protocol: i32,
        sockets_max: usize,
    ) -> Result<QDesc, Error> {
        let kind = Kind::of(domain, kind, protocol, &self.params)?;
        if self.queues.socket_count() >= sockets_max {
            return Err(Error::Exhausted);
        }
        Ok(self.queues.insert(Queue::new(kind)))
    }

    pub(super) fn bind(
        &mut self,
        homa: &mut Endpoint,
        qd: QDesc,
        addr: Addr,
        is_ours: bool,
    ) -> Result<(), Error> {
        let queue = self.queues.get(qd)?;
        if let Kind::Face(_) = queue.kind {
            return Err(Error::NotSupported); // `homa_bind` knows its rules.
        }
        let (socket, is_bound) = (queue.socket, queue.bound.is_some());
        if is_bound || !is_ours {
            // A port in use is told first, whatever else is wrong.
            if addr.port != 0 {
                let probe = homa.open(addr.port)?;
                homa.close(self.now, probe);
            }
            return Err(if is_bound {
                Error::Invalid
            } else {
                Error::AddressNotAvailable
            });
        }
        if self.queues.get_mut(qd)?.stream().is_some() {
            return self.bind_stream(homa, qd, addr);
        }
        let socket = match socket {
            // It has an automatic port already, which is as good as another one.
            Some(socket) if addr.port == 0 => socket,
            Some(socket) => {
                homa.bind(socket, addr.port)?;
                socket
            }
            None => self.open(homa, qd, addr.port)?,
        };
        homa.set_server(socket, true);
        self.queues.get_mut(qd)?.bound = Some(addr.ip);
        Ok(())
    }

    /// Gives a queue its socket in the transport.
    fn open(&mut self, homa: &mut Endpoint, qd: QDesc, port: u16) -> Result<SocketKey, Error> {
        let socket = homa.open(port)?;
        self.queues.join(qd, socket)?;
        // A native socket serves once it is bound; a datagram one takes whatever comes.
        let accepts = matches!(self.queues.get(qd)?.kind, Kind::Datagram(_));
        homa.set_server(socket, accepts);
        Ok(socket)
    }

    /// The socket of a queue, on an automatic port if it has none yet.
    pub(super) fn socket_of(&mut self, homa: &mut Endpoint, qd: QDesc) -> Result<SocketKey, Error> {
        match self.queues.get(qd)?.socket {
            Some(socket) => Ok(socket),
            None => self.open(homa, qd, 0),
        }
    }

    pub(super) fn getsockname(&mut self, homa: &Endpoint, qd: QDesc) -> Result<Addr, Error> {
        let queue = self.queues.get_mut(qd)?;
        if queue.stream().is_some() {
            return self.stream_name(homa, qd);
        }
        let port = queue.socket.and_then(|socket| homa.port(socket));
        Ok(Addr {
            ip: queue.bound.unwrap_or(Ip::UNSPECIFIED_V4),
            port: port.unwrap_or(0),
        })
    }

    /// Sends to the peer of a stream. On a datagram socket, a token that says that it has none.
    pub(super) fn push(
        &mut self,
        homa: &mut Endpoint,
        qd: QDesc,
        view: &SgaView,
    ) -> Result<QToken, Error> {
        if let Some(stream) = self.queues.get_mut(qd)?.stream() {
            let channel = stream.channel();
            return self.push_stream(homa, qd, view, channel);
        }
        self.queues.get_mut(qd)?.datagram()?;
        self.sgas.shared(homa, view)?;
        let qt = self.tokens.start(Pending::push(qd))?;
        self.complete(qt, Completion::Failed(Error::NoDestination));
        Ok(qt)
    }

    pub(super) fn pushto(
        &mut self,
        homa: &mut Endpoint,
        qd: QDesc,
        view: &SgaView,
        to: Addr,
    ) -> Result<QToken, Error> {
        self.queues.get_mut(qd)?.datagram()?;
        check_destination(to)?;
        if self.tokens.is_full() {
            return Err(Error::Exhausted);
        }
        let copy_max = self.params.push_copy_max_bytes;
        let outgoing = self.sgas.outgoing(homa, &self.buffers, view, copy_max)?;
        let socket = self.socket_of(homa, qd)?;
        let qt = self.tokens.start(Pending::push(qd))?;
        let popped = self.sgas.open_of(view.handle, socket);
        let queue = self.queues.get_mut(qd)?;
        let datagram = queue.datagram()?;
        if let Some(rpc) = datagram.pairing.answer(popped, to) {
            let (payload, notify) = (outgoing.payload(), outgoing.notify(qt));
            if let Err(error) = homa.send_response(self.now, rpc, payload, notify) {
                self.complete(qt, Completion::Failed(error));
            }
        } else if !datagram.held.is_empty() || !self.send_datagram(homa, qd, to, &outgoing, qt) {
            self.hold(homa, qd, HeldPush { outgoing, to, qt })?;
        }
        Ok(qt)
    }

    /// Keeps a push until others are confirmed.
    fn hold(&mut self, homa: &mut Endpoint, qd: QDesc, push: HeldPush) -> Result<(), Error> {
        self.stats.pushes_held += 1;
        push.outgoing.retain(homa);
        let datagram = self.queues.get_mut(qd)?.datagram()?;
        if datagram.held.is_empty() {
            self.holding.push(qd);
        }
        datagram.held.push_back(push);
        Ok(())
    }

    #[inline]
    pub(super) fn pop(
        &mut self,
        homa: &mut Endpoint,
        qd: QDesc,
        size: Option<usize>,
    ) -> Result<QToken, Error> {
        let len_max = match size {
            Some(0) => return Err(Error::Invalid),
            Some(size) => u32::try_from(size).unwrap_or(u32::MAX),
            None => u32::MAX,
        };
        let queue = self.queues.get_mut(qd)?;
        let can_receive = match queue.kind {
            Kind::Datagram(_) => queue.socket.is_some(),
            Kind::Native(_) => queue.bound.is_some(),
            Kind::Stream(ref stream) => {
                let channel = stream.channel();
                return self.pop_stream(homa, qd, len_max, channel);
            }
            Kind::Face(_) => return Err(Error::NotSupported),
        };
        if !can_receive {
            return Err(Error::NoDestination);
        }
        let qt = self.tokens.start(Pending {
            kind: Operation::Pop,
            len_max,
            ..Pending::push(qd)
        })?;
        queue.arrivals.wait(qt);
        if queue.arrivals.has_come() {
            self.deliver(homa, qd);
        }
        Ok(qt)
    }

    #[inline]
    pub(super) fn sgafree(&mut self, homa: &mut Endpoint, handle: u64) -> Result<(), Error> {
        let Some(freed) = self.sgas.remove(handle)? else {
            return Ok(());
        };
        homa.release(self.now, freed.run);
        if let Some((socket, open)) = freed.open
            && let Some(qd) = self.queues.of_socket(socket)
            && let Ok(datagram) = self.queues.get_mut(qd)?.datagram()
        {
            datagram.pairing.on_freed(open, self.lived);
        }
        Ok(())
    }

    /// The first half of close: no more requests, pops and calls are over, peers get the replies
    /// they still wait for. What was pushed may still be confirmed.
    pub(super) fn begin_close(&mut self, homa: &mut Endpoint, qd: QDesc) -> Result<(), Error> {
        let queue = self.queues.get_mut(qd)?;
        if let Some(socket) = queue.socket {
            homa.set_server(socket, false);
            homa.send_saved_acks(socket);
        }
        if let Kind::Face(mailbox) = &queue.kind {
            for rpc in mailbox.pending() {
                homa.forget(self.now, rpc);
            }
        }
        if let Kind::Datagram(datagram) = &mut queue.kind {
            while let Some(rpc) = datagram.pairing.poll_open() {
                if homa.send_empty_response(self.now, rpc).is_ok() {
                    self.stats.empty_replies += 1;
                }
            }
        }
        if let Kind::Stream(stream) = &queue.kind {
            let role = stream.role;
            self.begin_close_stream(homa, role);
        }
        let pending = self.tokens.iter_pending();
        let over: Vec<_> = pending
            .filter(|(_, op)| op.qd == qd && op.kind != Operation::Push)
            .map(|(qt, &op)| (qt, op))
            .collect();
        for (qt, op) in over {
            if op.kind == Operation::Call {
                homa.forget(self.now, op.rpc);
            }
            self.complete(qt, Completion::Failed(Error::Canceled));
        }
        Ok(())
    }

    /// Whether nothing that was pushed to this queue is still on its way.
    pub(super) fn is_settled(&mut self, homa: &Endpoint, qd: QDesc) -> bool {
        let Ok(queue) = self.queues.get(qd) else {
            return true;
        };
        let holds_back = match &queue.kind {
            Kind::Datagram(datagram) => !datagram.held.is_empty(),
            Kind::Native(_) | Kind::Face(_) => false,
            Kind::Stream(stream) => return self.is_stream_settled(stream.role),
        };
        !holds_back && queue.socket.is_none_or(|socket| homa.is_settled(socket))
    }

    /// A token of a close that is over.
    pub(super) fn closed(&mut self, qd: QDesc) -> Result<QToken, Error> {
        let qt = self.tokens.start(Pending::push(qd))?;
        self.complete(qt, Completion::Close);
        Ok(qt)
    }

    /// The second half of close: whatever is still under way is over, and the descriptor is free.
    pub(super) fn end_close(&mut self, homa: &mut Endpoint, qd: QDesc) {
        let Some(mut queue) = self.queues.remove(qd) else {
            return;
        };
        self.holding.retain(|&holding| holding != qd);
        if let Kind::Datagram(datagram) = &mut queue.kind {
            for held in datagram.held.drain(..) {
                held.outgoing.release(homa, self.now);
            }
        }
        if let Kind::Stream(stream) = &queue.kind {
            self.end_close_stream(homa, stream);
        }
        for arrival in queue.arrivals.drain_came() {
            if let Arrival::Response(message) = arrival {
                homa.release(self.now, message.run);
            }
        }
        if let Some(socket) = queue.socket {
            homa.close(self.now, socket);
        }
        let pending = self.tokens.iter_pending();
        let over: Vec<_> = pending
            .filter(|(_, op)| op.qd == qd)
            .map(|(qt, _)| qt)
            .collect();
        for qt in over {
            self.complete(qt, Completion::Failed(Error::Canceled));
        }
    }
}

impl Outgoing {
    /// Keeps the bytes beyond the call that got them from the application.
    fn retain(&self, homa: &mut Endpoint) {
        if let &Self::Received { run, .. } = self {
            homa.retain(run);
        }
    }

    /// Undoes [`Self::retain`].
    pub(super) fn release(self, homa: &mut Endpoint, now: Instant) {
        if let Self::Received { run, .. } = self {
            homa.release(now, run);
        }
    }
}

/// A place where a message can go.
pub(super) fn check_destination(to: Addr) -> Result<(), Error> {
    if to.port == 0 || to.ip.is_unspecified() {
        return Err(Error::Invalid);
    }
    Ok(())
}
