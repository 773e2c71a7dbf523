//! The calls that Demikernel's Rust programs make.

use std::ffi::c_int;
use std::net::{SocketAddr, SocketAddrV4};
use std::time::Duration;

use super::super::boundary::{to_qresult, to_sgarray, view_of};
use super::{LibOS, LibOSName, to_addr, to_duration, unsupported};
use crate::config::Config;
use crate::error::Error;
use crate::libos::{QDesc, QToken};
use crate::runtime::fail::Fail;
use crate::runtime::types::{demi_callback_t, demi_qresult_t, demi_sgarray_t};

/// What can be set about a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SocketOption {
    /// How long close, and the end of the program, wait for peers to confirm what was pushed;
    /// `None` stands for the configured time, and is never what is got.
    Linger(Option<Duration>),
}

impl LibOS {
    /// Starts with the settings of the file that `CONFIG_PATH` names, and of the environment.
    ///
    /// # Errors
    /// As [`LibOS::with`], and for bad settings; the cause is one line.
    pub fn new(_name: LibOSName, _profiler: Option<demi_callback_t>) -> Result<Self, Fail> {
        Self::with(&Config::load(None)?)
    }

    /// Opens a queue: see [`LibOSOver::socket`](crate::libos::LibOSOver::socket).
    pub fn socket(&mut self, domain: c_int, kind: c_int, protocol: c_int) -> Result<QDesc, Fail> {
        Ok(self.os().socket(domain, kind, protocol)?)
    }

    pub fn bind(&mut self, qd: QDesc, local: SocketAddr) -> Result<(), Fail> {
        Ok(self.os().bind(qd, to_addr(local))?)
    }

    pub fn listen(&mut self, qd: QDesc, backlog: usize) -> Result<(), Fail> {
        let backlog = c_int::try_from(backlog).unwrap_or(c_int::MAX);
        Ok(self.os().listen(qd, backlog)?)
    }

    pub fn accept(&mut self, qd: QDesc) -> Result<QToken, Fail> {
        Ok(self.os().accept(qd)?)
    }

    pub fn connect(&mut self, qd: QDesc, remote: SocketAddr) -> Result<QToken, Fail> {
        Ok(self.os().connect(qd, to_addr(remote))?)
    }

    /// Ends a queue: see [`LibOSOver::close`](crate::libos::LibOSOver::close).
    pub fn close(&mut self, qd: QDesc) -> Result<(), Fail> {
        Ok(self.os().close(qd)?)
    }

    /// The same, and a token that has completed.
    pub fn async_close(&mut self, qd: QDesc) -> Result<QToken, Fail> {
        Ok(self.os().async_close(qd)?)
    }

    /// Sends a message on a connected queue.
    pub fn push(&mut self, qd: QDesc, sga: &demi_sgarray_t) -> Result<QToken, Fail> {
        Ok(self.os().push(qd, &view_of(sga)?)?)
    }

    /// Sends a datagram: see [`LibOSOver::pushto`](crate::libos::LibOSOver::pushto).
    pub fn pushto(
        &mut self,
        qd: QDesc,
        sga: &demi_sgarray_t,
        to: SocketAddr,
    ) -> Result<QToken, Fail> {
        Ok(self.os().pushto(qd, &view_of(sga)?, to_addr(to))?)
    }

    /// Asks for the next message; of one longer than `size` the rest is cut off.
    pub fn pop(&mut self, qd: QDesc, size: Option<usize>) -> Result<QToken, Fail> {
        Ok(self.os().pop(qd, size)?)
    }

    /// The result under `qt`, which is thereby used up; without a timeout it waits for ever. The
    /// result of an operation that failed has the opcode `DEMI_OPC_FAILED`.
    ///
    /// # Errors
    /// ETIMEDOUT the token stays valid; EINTR likewise; EINVAL no such token.
    pub fn wait(&mut self, qt: QToken, timeout: Option<Duration>) -> Result<demi_qresult_t, Fail> {
        let result = self.os().wait(qt, timeout.map(to_duration))?;
        Ok(to_qresult(&result))
    }

    /// Of the tokens passed, the one that completed first: its place and its result.
    pub fn wait_any(
        &mut self,
        qts: &[QToken],
        timeout: Option<Duration>,
    ) -> Result<(usize, demi_qresult_t), Fail> {
        let (place, result) = self.os().wait_any(qts, timeout.map(to_duration))?;
        Ok((place, to_qresult(&result)))
    }

    /// Results of any tokens, oldest first, to `acceptor` until it says `false`.
    pub fn wait_next_n(
        &mut self,
        mut acceptor: impl FnMut(demi_qresult_t) -> bool,
        timeout: Option<Duration>,
    ) -> Result<(), Fail> {
        let accept = |result: crate::libos::QResult| acceptor(to_qresult(&result));
        Ok(self.os().wait_next_n(accept, timeout.map(to_duration))?)
    }

    /// One turn of the loop.
    pub fn poll(&mut self) {
        // Without tokens, and without time, a wait is just that.
        let _timed_out = self.os().wait_any(&[], Some(crate::time::Duration::ZERO));
    }

    /// A buffer of 1 to 1,000,000 bytes, with any content.
    pub fn sgaalloc(&mut self, size: usize) -> Result<demi_sgarray_t, Fail> {
        Ok(to_sgarray(&self.os().sgaalloc(size)?))
    }

    /// Ends the program's hold on a buffer, at any time.
    pub fn sgafree(&mut self, sga: demi_sgarray_t) -> Result<(), Fail> {
        Ok(self.os().sgafree(sga.sga_buf.addr() as u64)?)
    }

    pub fn set_socket_option(&mut self, qd: QDesc, option: SocketOption) -> Result<(), Fail> {
        let SocketOption::Linger(linger) = option;
        Ok(self.os().set_linger(qd, linger.map(to_duration))?)
    }

    /// The option of the same kind, as it is.
    pub fn get_socket_option(
        &mut self,
        qd: QDesc,
        option: SocketOption,
    ) -> Result<SocketOption, Fail> {
        let SocketOption::Linger(_) = option;
        let linger = Duration::from_nanos(self.os().linger(qd)?.as_nanos());
        Ok(SocketOption::Linger(Some(linger)))
    }

    pub fn getpeername(&mut self, qd: QDesc) -> Result<SocketAddrV4, Fail> {
        let peer = self.os().getpeername(qd)?;
        let ip = peer.ip.as_v4().ok_or(Error::FamilyNotSupported)?;
        Ok(SocketAddrV4::new(ip, peer.port))
    }

    /// Memory queues are not offered.
    pub fn create_pipe(&mut self, _name: &str) -> Result<QDesc, Fail> {
        Err(unsupported("there are no pipes"))
    }

    /// Memory queues are not offered.
    pub fn open_pipe(&mut self, _name: &str) -> Result<QDesc, Fail> {
        Err(unsupported("there are no pipes"))
    }
}
