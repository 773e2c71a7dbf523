//! The homa face: the calls of the Linux module, for programs that were written for it.
//!
//! Messages come into a region that the application lends, one for each socket, and are its own
//! until it gives them back; there are no tokens. Calls wait by turning the loop, as all waits do,
//! so that descriptors of both faces live side by side.

mod desk;
mod info;
mod mailbox;

use std::ptr::NonNull;

use crate::addr::Addr;
use crate::device::Device;
use crate::error::Error;
use crate::homa::{Endpoint, Notify, Payload};
use crate::mem::{Buf, Region};
use crate::runtime::{Clock, Deadline};
use crate::time::Duration;

use super::LibOSOver;
use super::desk::Desk;
use super::queue::Kind;
use super::result::QDesc;

pub use info::{HomaInfo, HomaRpc};
pub(super) use mailbox::Mailbox;
pub use mailbox::{Received, Wanted};

/// How long a socket's calls wait. `None`: for ever.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    Send,
    Receive,
}

impl<D: Device, C: Clock> LibOSOver<D, C> {
    /// Opens a socket of the homa face on an automatic port: `AF_INET` or `AF_INET6`,
    /// `SOCK_DGRAM`, `IPPROTO_HOMA`. With `SOCK_NONBLOCK` its calls do not wait.
    pub fn homa_socket(&mut self, domain: i32, kind: i32, protocol: i32) -> Result<QDesc, Error> {
        let homa = self.poller.homa();
        self.desk
            .homa_socket(homa, (domain, kind, protocol), self.sockets_max)
    }

    /// Gives a socket a port of 1 to 32,767, and lets it take requests; port 0 changes nothing.
    /// It may be bound again. Errors: `Shutdown`, `FamilyNotSupported`, `AddressNotAvailable`,
    /// `Invalid` for another port, `AddressInUse`; then it keeps what it has.
    pub fn homa_bind(&mut self, qd: QDesc, addr: Addr, family: i32) -> Result<(), Error> {
        let is_ours = addr.ip.is_unspecified() || self.poller.is_own(addr.ip);
        let homa = self.poller.homa();
        let bound = self.desk.homa_bind(homa, qd, (addr, family), is_ours);
        self.desk.told(qd, bound)
    }

    /// Lends a socket the region that its messages come into, once. `Invalid` with a reason in
    /// [`HomaInfo`] if it has one, or this one is too small or too large.
    pub fn homa_lend(&mut self, qd: QDesc, region: Region) -> Result<(), Error> {
        let lent = self.desk.homa_lend(self.poller.homa(), qd, region);
        self.desk.told(qd, lent)?;
        self.send();
        Ok(())
    }

    /// The region of a socket, and how much of it is used; `None` if it has none yet.
    pub fn homa_region(&mut self, qd: QDesc) -> Result<Option<(NonNull<u8>, usize)>, Error> {
        let socket = self.desk.open_socket(qd)?;
        let lent = self.poller.homa().lent(socket);
        Ok(lent.and_then(|lent| Some((lent.region()?.address(0), lent.used_bytes()))))
    }

    /// Sets whether a socket takes requests.
    pub fn homa_set_server(&mut self, qd: QDesc, is_server: bool) -> Result<(), Error> {
        let set = self.desk.homa_set_server(self.poller.homa(), qd, is_server);
        self.desk.told(qd, set)
    }

    /// The family of a socket: `AF_INET` or `AF_INET6`.
    pub fn homa_family(&mut self, qd: QDesc) -> Result<i32, Error> {
        Ok(self.desk.mailbox(qd)?.family)
    }

    pub fn homa_is_server(&mut self, qd: QDesc) -> Result<bool, Error> {
        Ok(self.desk.mailbox(qd)?.is_server)
    }

    /// Sets whether long messages wait until the NIC has sent what it was given before: of this
    /// whole runtime, whose NIC it is.
    pub fn homa_set_throttling(&mut self, qd: QDesc, is_on: bool) -> Result<(), Error> {
        self.desk.open_socket(qd)?;
        self.poller.homa().set_throttling(is_on);
        Ok(())
    }

    pub fn homa_is_throttling(&mut self, qd: QDesc) -> Result<bool, Error> {
        self.desk.mailbox(qd)?;
        Ok(self.poller.homa().is_throttling())
    }

    /// How long a socket's calls wait before they give up with `Exhausted`; `None`: for ever.
    pub fn homa_set_timeout(
        &mut self,
        qd: QDesc,
        side: Side,
        timeout: Option<Duration>,
    ) -> Result<(), Error> {
        *self.timeout_of(qd, side)? = timeout;
        Ok(())
    }

    pub fn homa_timeout(&mut self, qd: QDesc, side: Side) -> Result<Option<Duration>, Error> {
        self.timeout_of(qd, side).copied()
    }

    fn timeout_of(&mut self, qd: QDesc, side: Side) -> Result<&mut Option<Duration>, Error> {
        let mailbox = self.desk.mailbox(qd)?;
        Ok(match side {
            Side::Send => &mut mailbox.send_timeout,
            Side::Receive => &mut mailbox.receive_timeout,
        })
    }

    /// Sends a request of `len` bytes, which `fill` writes, and tells its id. While there is no
    /// memory for it, or no RPC, it waits. Errors: `Shutdown`, `FamilyNotSupported`, `Invalid`,
    /// `Exhausted`, `Interrupted`; then nothing was sent.
    pub fn homa_send(
        &mut self,
        qd: QDesc,
        (to, family): (Addr, i32),
        len: usize,
        fill: impl FnMut(&mut [u8]),
        cookie: u64,
    ) -> Result<u64, Error> {
        let checked = self.desk.check_send(qd, (to, family), len);
        self.desk.told(qd, checked)?;
        let timeout = self.homa_timeout(qd, Side::Send)?;
        let buf = self.filled(timeout, len, fill)?;
        let id = self.wait_for(timeout, |desk, homa| {
            desk.homa_call(homa, qd, to, &buf, cookie)
        })?;
        self.send();
        Ok(id)
    }

    /// Answers the request that came with `id` from `client`. If that is gone this succeeds all
    /// the same. Errors as [`Self::homa_send`]; the request stays then.
    pub fn homa_reply(
        &mut self,
        qd: QDesc,
        client: Addr,
        id: u64,
        len: usize,
        fill: impl FnMut(&mut [u8]),
    ) -> Result<(), Error> {
        let found = self.desk.find_request(self.poller.homa(), qd, id, client);
        let found = found.and_then(|rpc| desk::check_len(len).map(|()| rpc));
        let Some(rpc) = self.desk.told(qd, found)? else {
            return Ok(());
        };
        let timeout = self.homa_timeout(qd, Side::Send)?;
        let payload = Payload::Buffer(self.filled(timeout, len, fill)?);
        let homa = self.poller.homa();
        // Its client may have gone away in the meantime, which is no error.
        homa.send_response(self.desk.now, rpc, payload, Notify::Never)?;
        self.send();
        Ok(())
    }

    /// A buffer of `len` bytes that `fill` wrote, once there is memory for it.
    fn filled(
        &mut self,
        timeout: Option<Duration>,
        len: usize,
        mut fill: impl FnMut(&mut [u8]),
    ) -> Result<Buf, Error> {
        let mut buf = self.wait_for(timeout, |desk, _| Ok(desk.buffers.alloc(len)))?;
        if let Some(bytes) = buf.make_mut() {
            fill(bytes);
        }
        Ok(buf)
    }

    /// Takes back parts of messages that the application had. `Invalid`, and none is taken, if it
    /// had not one of them, or names one twice.
    pub fn homa_give_back(&mut self, qd: QDesc, offsets: &[u32]) -> Result<(), Error> {
        let socket = self.desk.open_socket(qd)?;
        if offsets.is_empty() {
            return Ok(());
        }
        let now = self.desk.now;
        let given = self.poller.homa().take_back(now, socket, offsets);
        let given = given.map_err(|error| mailbox::Refusal {
            error,
            text: "an offset is not one that recvmsg gave and that was not given back since",
        });
        self.desk.told(qd, given)
    }

    /// Waits for what is wanted. Errors: `Shutdown`; `Invalid` if no call of this socket has the
    /// id; `NoMemory` if there is no region that a message could come into; `Exhausted` after the
    /// socket's time; `Interrupted`. A call that failed is no error of this: see [`Received`].
    pub fn homa_receive(&mut self, qd: QDesc, wanted: &Wanted) -> Result<Received, Error> {
        self.waker.check()?;
        let timeout = match wanted.waits {
            true => self.homa_timeout(qd, Side::Receive)?,
            false => Some(Duration::ZERO),
        };
        self.wait_for(timeout, |desk, homa| {
            let received = desk.homa_receive(homa, qd, wanted)?;
            if received.is_none() && !desk.has_region(homa, qd)? {
                return Err(Error::NoMemory);
            }
            Ok(received)
        })
    }

    /// Ends the call with that id, or with 0 all of the socket. With `error` 0 they are forgotten,
    /// else they are over with that errno. Requests stay. `Invalid` for an unknown id.
    pub fn homa_abort(&mut self, qd: QDesc, id: u64, error: i32) -> Result<(), Error> {
        let homa = self.poller.homa();
        let aborted = self.desk.homa_abort(homa, qd, id, error);
        self.desk.told(qd, aborted)
    }

    /// Ends all RPCs of a socket: from now on its calls fail with `Shutdown`, but for close, and
    /// its region is not touched any more. A second time it does nothing.
    pub fn homa_shutdown(&mut self, qd: QDesc) -> Result<(), Error> {
        self.desk.homa_shutdown(self.poller.homa(), qd)?;
        self.send();
        Ok(())
    }

    /// Closes a socket of the homa face, as [`Self::close`].
    pub fn homa_close(&mut self, qd: QDesc) -> Result<(), Error> {
        self.desk.mailbox(qd)?;
        self.close(qd)
    }

    /// Asks the peers to freeze their traces.
    pub fn homa_freeze(&mut self, qd: QDesc) -> Result<(), Error> {
        let socket = self.desk.open_socket(qd)?;
        self.poller.homa().freeze_peers(socket);
        self.send();
        Ok(())
    }

    /// Waits until one of the descriptors is ready, and tells how many are; 0 after the time.
    ///
    /// A socket of the homa face is readable when something came or it is shut down, and writable
    /// when there is memory to send the longest message. Any other queue is readable when an
    /// operation on it is done, or a message waits to be popped, and always writable.
    pub fn homa_poll(
        &mut self,
        polled: &mut [libc::pollfd],
        timeout: Option<Duration>,
    ) -> Result<usize, Error> {
        self.waker.check()?;
        let ready = self.wait_for(timeout, |desk, homa| {
            let mut ready = 0;
            for one in &mut *polled {
                one.revents = desk.readiness(homa, one.fd, one.events);
                ready += usize::from(one.revents != 0);
            }
            Ok((ready > 0).then_some(ready))
        });
        match ready {
            Err(Error::Exhausted) => Ok(0),
            other => other,
        }
    }

    /// Turns the loop until `attempt` gives something; `Exhausted` after the time.
    fn wait_for<T>(
        &mut self,
        timeout: Option<Duration>,
        mut attempt: impl FnMut(&mut Desk, &mut Endpoint) -> Result<Option<T>, Error>,
    ) -> Result<T, Error> {
        self.begin_wait();
        if let Some(found) = attempt(&mut self.desk, self.poller.homa())? {
            return Ok(found);
        }
        let mut deadline = Deadline::new(timeout);
        loop {
            self.waker.check()?;
            let now = self.turn();
            if let Some(found) = attempt(&mut self.desk, self.poller.homa())? {
                return Ok(found);
            }
            if deadline.is_over(now) {
                return Err(Error::Exhausted);
            }
        }
    }
}

impl Desk {
    fn has_region(&mut self, homa: &Endpoint, qd: QDesc) -> Result<bool, Error> {
        let lent = homa.lent(self.open_socket(qd)?);
        Ok(lent.is_some_and(|lent| lent.region().is_some()))
    }

    /// What poll(2) would say of a descriptor.
    fn readiness(&mut self, homa: &Endpoint, fd: i32, events: i16) -> i16 {
        let Ok(fd) = u32::try_from(fd) else {
            return 0; // A negative one stands for none.
        };
        let qd = QDesc(fd);
        let Ok(queue) = self.queues.get_mut(qd) else {
            return libc::POLLNVAL;
        };
        let (is_readable, is_writable, is_shut) = match &mut queue.kind {
            Kind::Face(mailbox) => (
                mailbox.is_shut || mailbox.has_arrivals(homa),
                self.buffers.has_room(),
                mailbox.is_shut,
            ),
            Kind::Datagram(_) | Kind::Native(_) | Kind::Stream(_) => {
                let has_come = queue.arrivals.has_come();
                let is_done = || self.tokens.has_result(|done| done.qd == qd);
                (has_come || is_done(), true, false)
            }
        };
        let bit = |is_set: bool, event: i16| if is_set { event } else { 0 };
        let asked = bit(is_readable, libc::POLLIN | libc::POLLRDNORM)
            | bit(is_writable, libc::POLLOUT | libc::POLLWRNORM);
        asked & events | bit(is_shut, libc::POLLHUP)
    }
}
