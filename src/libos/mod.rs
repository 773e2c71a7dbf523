//! Sockets, tokens and buffers over the transport: the library OS that applications see.
//!
//! [`LibOSOver`] is that over any device and clock; `LibOS` is the one over a DPDK port. Nothing
//! happens but within its calls: the `wait` functions turn the loop.
//!
//! Every operation gives a [`QToken`]. Buffers are named by handles, so that one freed twice, or
//! one of somebody else, is an error and no crash.

mod datagram;
mod desk;
mod face;
mod native;
mod params;
mod queue;
mod result;
mod sga;
mod sockets;
#[cfg(feature = "dpdk")]
mod start;
mod stream;
#[cfg(test)]
mod tests;
mod waiting;

use std::fmt;

use crate::addr::{Addr, Ip};
use crate::channel;
use crate::device::Device;
use crate::error::Error;
use crate::homa::{self, Endpoint};
use crate::net;
use crate::runtime::{Clock, Deadline, Idleness, Poller};
use crate::time::{Duration, Instant};
use crate::wire::homa::MAX_MESSAGE_LEN;

use desk::Desk;

#[cfg(feature = "dpdk")]
pub use crate::error::StartError;
pub use crate::mem::Region;
pub use crate::runtime::{QToken, Waker};
pub use face::{HomaInfo, HomaRpc, Received, Side, Wanted};
pub use params::Params;
pub use queue::IPPROTO_HOMA;
pub use result::{
    MessageInfo, MessageKind, OperationResult, QDesc, QResult, Sga, SgaHandle, SgaView, Stats,
};
#[cfg(feature = "dpdk")]
pub use start::LibOS;

/// A library OS over one device. It belongs to the thread that made it.
pub struct LibOSOver<D: Device, C: Clock> {
    poller: Poller<D>,
    clock: C,
    desk: Desk,
    idleness: Idleness,
    waker: Waker,
    sockets_max: usize,
    /// Waits since the last turn.
    unturned: u32,
}

impl<D: Device, C: Clock> LibOSOver<D, C> {
    /// Joins a device, the network's and the transport's settings, receive memory and a clock.
    pub fn over(
        device: D,
        clock: C,
        net: net::Params,
        homa: homa::Params,
        params: Params,
        region: Region,
    ) -> Result<Self, Error> {
        Self::over_devices(vec![(device, net)], clock, homa, params, region)
    }

    /// The same over several devices, each with the network's settings on it.
    pub fn over_devices(
        devices: Vec<(D, net::Params)>,
        mut clock: C,
        homa: homa::Params,
        params: Params,
        region: Region,
    ) -> Result<Self, Error> {
        params.validate()?;
        let now = clock.now();
        let sockets_max = homa.sockets_max as usize;
        Ok(Self {
            poller: Poller::over(devices, homa, region, now)?,
            clock,
            idleness: Idleness::new(params.yield_after_turns),
            desk: Desk::new(params, now)?,
            waker: Waker::default(),
            sockets_max,
            unturned: 0,
        })
    }

    // ---- sockets

    /// Opens a queue. `AF_INET`, `SOCK_DGRAM` and protocol 0 or 17: paired datagrams;
    /// `SOCK_DGRAM` and `IPPROTO_HOMA` (146, or 0xFD): native calls; `AF_INET`, `SOCK_STREAM` and
    /// protocol 0 or 6: connections. All else is `NotSupported`.
    pub fn socket(&mut self, domain: i32, kind: i32, protocol: i32) -> Result<QDesc, Error> {
        self.desk.socket(domain, kind, protocol, self.sockets_max)
    }

    /// Gives a queue a port, 0 for an automatic one, on our address or on all of them; from now
    /// on it takes requests. Errors, in this order: `AddressInUse`; `Invalid` if it is bound
    /// already; `AddressNotAvailable`; for a stream without address or port `NotSupported`.
    pub fn bind(&mut self, qd: QDesc, addr: Addr) -> Result<(), Error> {
        let is_ours = addr.ip.is_unspecified() || self.poller.is_own(addr.ip);
        self.desk.bind(self.poller.homa(), qd, addr, is_ours)
    }

    /// Lets peers connect to a bound stream; so many of them may wait to be accepted. Errors, in
    /// this order: `Invalid` for a backlog below 1, `NotSupported` for others than streams,
    /// `NoDestination` without an address, `AddressInUse` if it listens or has a peer.
    pub fn listen(&mut self, qd: QDesc, backlog: i32) -> Result<(), Error> {
        self.desk.listen(self.poller.homa(), qd, backlog)
    }

    /// Asks for the next connection; `Invalid` if the queue does not listen.
    pub fn accept(&mut self, qd: QDesc) -> Result<QToken, Error> {
        self.desk.accept(self.poller.homa(), qd)
    }

    /// Connects a stream to a listening one. Errors: `NotSupported` for others than streams;
    /// `Listening`, `Connecting`, `AlreadyConnected`. The token fails with `ConnectionRefused`,
    /// `HostUnreachable`, `PeerTimedOut`; then the queue may try again.
    pub fn connect(&mut self, qd: QDesc, to: Addr) -> Result<QToken, Error> {
        let qt = self.desk.connect(self.poller.homa(), qd, to)?;
        self.send();
        Ok(qt)
    }

    /// The address given to `bind`, with the port the queue has; all zero if it has none yet.
    pub fn getsockname(&mut self, qd: QDesc) -> Result<Addr, Error> {
        self.desk.getsockname(self.poller.homa(), qd)
    }

    /// Whom a stream is connected to; `NotConnected` for all others.
    pub fn getpeername(&mut self, qd: QDesc) -> Result<Addr, Error> {
        self.desk.getpeername(qd)
    }

    /// Ends a queue. Pops and calls under way fail with `Canceled`; then the loop is turned until
    /// peers have confirmed what was pushed, at most as long as the queue lingers; pushes not
    /// confirmed by then fail with `Canceled` too.
    pub fn close(&mut self, qd: QDesc) -> Result<(), Error> {
        self.desk.begin_close(self.poller.homa(), qd)?;
        let linger = self.linger(qd)?;
        self.turn_until(linger, |desk, homa| desk.is_settled(homa, qd));
        self.desk.end_close(self.poller.homa(), qd);
        Ok(())
    }

    /// As [`Self::close`], with a token that has completed, for whoever waits for one.
    pub fn async_close(&mut self, qd: QDesc) -> Result<QToken, Error> {
        self.desk.queues.get(qd)?;
        if self.desk.tokens.is_full() {
            return Err(Error::Exhausted);
        }
        self.close(qd)?;
        self.desk.closed(qd)
    }

    /// How long close may wait for peers.
    pub fn linger(&self, qd: QDesc) -> Result<Duration, Error> {
        let linger = self.desk.queues.get(qd)?.linger;
        Ok(linger.unwrap_or(self.desk.params.linger))
    }

    /// Sets what [`Self::linger`] tells; zero: close drops what is not confirmed at once;
    /// `None`: as `Params` say.
    pub fn set_linger(&mut self, qd: QDesc, linger: Option<Duration>) -> Result<(), Error> {
        self.desk.queues.get_mut(qd)?.linger = linger;
        Ok(())
    }

    // ---- messages

    /// Sends a message to the peer of a stream, which gets all of them in order. The buffer may be
    /// freed at any time; its bytes must stay until the token completes, which is when they were
    /// sent: while the peer is 32 messages or 256 KiB behind, not before it pops some. Errors:
    /// `NotConnected`; the token fails with `ConnectionReset` or `PeerTimedOut`.
    ///
    /// On a datagram queue: a token that fails with `NoDestination`.
    pub fn push(&mut self, qd: QDesc, view: &SgaView) -> Result<QToken, Error> {
        let qt = self.desk.push(self.poller.homa(), qd, view)?;
        self.send();
        Ok(qt)
    }

    /// Sends a datagram: the reply to one that was popped, if there is such a one, or a new one.
    /// The buffer may be freed at any time. Its bytes must stay until the token completes: for
    /// short messages once a copy is on its way, for long ones once the peer has them.
    pub fn pushto(&mut self, qd: QDesc, view: &SgaView, to: Addr) -> Result<QToken, Error> {
        let qt = self.desk.pushto(self.poller.homa(), qd, view, to)?;
        self.send();
        Ok(qt)
    }

    /// Asks for the next whole message. Of one longer than `size` the rest is cut off; on a stream
    /// it is what the next pop gets. A stream whose peer closed it ends with messages of no bytes,
    /// which must be freed too.
    #[inline]
    pub fn pop(&mut self, qd: QDesc, size: Option<usize>) -> Result<QToken, Error> {
        self.desk.pop(self.poller.homa(), qd, size)
    }

    /// Starts a call on a native queue: its token and the RPC's id. The token completes as a pop
    /// of the response, or fails. `Exhausted` if too many RPCs are alive.
    #[inline]
    pub fn call(
        &mut self,
        qd: QDesc,
        request: &SgaView,
        to: Addr,
        cookie: u64,
    ) -> Result<(QToken, u64), Error> {
        let started = self
            .desk
            .call(self.poller.homa(), qd, request, to, cookie)?;
        self.send();
        Ok(started)
    }

    /// Answers a request popped from a native queue. If its client is gone this succeeds all the
    /// same; a request that was answered before, or is still to be popped, is `Invalid`. Without
    /// a token the bytes of a long response must stay unchanged until the buffer is freed.
    #[inline]
    pub fn reply(
        &mut self,
        qd: QDesc,
        id: u64,
        peer: Addr,
        response: &SgaView,
        want_token: bool,
    ) -> Result<Option<QToken>, Error> {
        let homa = self.poller.homa();
        let qt = self.desk.reply(homa, qd, id, peer, response, want_token)?;
        self.send();
        Ok(qt)
    }

    /// What is known of a popped message; `Invalid` for other buffers.
    #[inline]
    pub fn info(&self, handle: u64) -> Result<MessageInfo, Error> {
        self.desk.sgas.info(handle)
    }

    /// Ends the call with this id, or all calls of the queue for 0. Their tokens fail with
    /// `Canceled`, or with the errno `error` if it is not 0.
    pub fn abort(&mut self, qd: QDesc, id: u64, error: i32) -> Result<(), Error> {
        self.desk.abort(self.poller.homa(), qd, id, error)
    }

    // ---- buffers

    /// A buffer of 1 to 1,000,000 bytes, with any content.
    pub fn sgaalloc(&mut self, len: usize) -> Result<Sga, Error> {
        if len == 0 {
            return Err(Error::Invalid);
        }
        if len > MAX_MESSAGE_LEN as usize {
            return Err(Error::MessageTooLong);
        }
        let mut buf = self.desk.buffers.alloc(len);
        if buf.is_none() {
            // What was confirmed meanwhile gives its memory back within a turn.
            self.turn();
            buf = self.desk.buffers.alloc(len);
        }
        let key = self.desk.sgas.insert_buf(buf.ok_or(Error::NoMemory)?)?;
        Ok(self.desk.sgas.describe(key))
    }

    /// A buffer that holds a copy of `bytes`.
    pub fn sga_of(&mut self, bytes: &[u8]) -> Result<Sga, Error> {
        let sga = self.sgaalloc(bytes.len())?;
        self.desk.sgas.fill(sga.handle.into(), bytes)?;
        Ok(sga)
    }

    /// A buffer's bytes, those of the view. `Invalid` if it is none of ours, or the view is not
    /// within it.
    #[inline]
    pub fn sga_bytes(&self, view: &SgaView) -> Result<&[u8], Error> {
        self.desk.sgas.bytes(self.poller.endpoint(), view)
    }

    /// Ends the application's hold on a buffer, at any time; messages on their way keep its
    /// bytes. `Invalid` if it was freed before or never was one of ours.
    #[inline]
    pub fn sgafree(&mut self, handle: u64) -> Result<(), Error> {
        self.desk.sgafree(self.poller.homa(), handle)
    }

    // ---- the rest

    /// What ends a wait from another thread or a signal handler.
    pub fn waker(&self) -> Waker {
        self.waker.clone()
    }

    pub fn local_ip(&self) -> Ip {
        self.poller.local_ip()
    }

    pub const fn stats(&self) -> &Stats {
        &self.desk.stats
    }

    /// What connections counted.
    pub fn channel_stats(&self) -> &channel::Stats {
        self.desk.channels.stats()
    }

    pub const fn poller(&self) -> &Poller<D> {
        &self.poller
    }

    /// The device itself, for those who measure it; what they receive is lost to the queues.
    pub fn device_mut(&mut self) -> &mut D {
        self.poller.device_mut()
    }

    /// Sends what was just given, unless results wait: then the application has more to do, and
    /// the next turn sends all of it in one burst.
    #[inline]
    fn send(&mut self) {
        if !self.desk.tokens.has_results() {
            self.poller.send(self.desk.now);
            self.desk.drain(self.poller.homa());
        }
    }

    /// One turn of the loop; tells its time.
    pub(super) fn turn(&mut self) -> Instant {
        let now = self.clock.now();
        let desk = &mut self.desk;
        let since = now.since(desk.now);
        desk.now = now;
        let frames = self
            .poller
            .turn_with(now, |homa, event| desk.on_event(homa, event));
        let is_behind = self.poller.is_behind();
        self.desk.end_turn(self.poller.homa(), since, is_behind);
        self.idleness.on_turn(frames);
        self.unturned = 0;
        now
    }

    /// Turns until `is_settled`, but not longer than `at_most`.
    fn turn_until(
        &mut self,
        at_most: Duration,
        mut is_settled: impl FnMut(&mut Desk, &Endpoint) -> bool,
    ) {
        let mut deadline = Deadline::new(Some(at_most));
        while at_most > Duration::ZERO && !is_settled(&mut self.desk, self.poller.homa()) {
            let now = self.turn();
            if deadline.is_over(now) {
                return;
            }
        }
    }
}

impl<D: Device, C: Clock> Drop for LibOSOver<D, C> {
    /// Ends all queues as [`LibOSOver::close`] does, with one linger for all of them.
    fn drop(&mut self) {
        if std::thread::panicking() {
            return;
        }
        let qds = self.desk.queues.qds();
        let mut longest = Duration::ZERO;
        for &qd in &qds {
            longest = longest.max(self.linger(qd).unwrap_or(Duration::ZERO));
            if self.desk.begin_close(self.poller.homa(), qd).is_err() {
                return; // Cannot be: the descriptors were just listed.
            }
        }
        self.turn_until(longest, |desk, homa| {
            qds.iter().all(|&qd| desk.is_settled(homa, qd))
        });
    }
}

impl<D: Device, C: Clock> fmt::Debug for LibOSOver<D, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "LibOSOver({}, {:?})",
            self.poller.local_ip(),
            self.desk.tokens
        )
    }
}
