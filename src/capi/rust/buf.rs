//! A buffer that frees itself.

use std::fmt;
use std::net::SocketAddr;
use std::ops::Deref;
use std::rc::Rc;
use std::slice;

use super::{Shared, to_socket};
use crate::libos::{Sga, SgaView};

/// Bytes to send, or a message that came. Dropping it frees it; messages on their way keep their
/// bytes. Nobody can write to it, so it may be sent, and read, at any time.
pub struct Buf {
    shared: Rc<Shared>,
    sga: Sga,
}

impl Buf {
    pub(super) fn new(shared: &Rc<Shared>, sga: Sga) -> Self {
        Self {
            shared: Rc::clone(shared),
            sga,
        }
    }

    /// Who sent it, if it was received.
    pub fn sender(&self) -> Option<SocketAddr> {
        self.sga.peer.map(to_socket)
    }

    pub(super) fn view(&self) -> SgaView {
        self.sga.view()
    }

    pub(super) fn handle(&self) -> u64 {
        self.sga.handle.into()
    }
}

impl Deref for Buf {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: the bytes are there until the handle is freed, which only the drop does, and
        // `shared` keeps the runtime they belong to. They were all written before: `LibOS::buf`
        // fills what it allots, and a message is shown once it is whole. Nobody writes to them
        // afterwards: the transport only reads what it sends, and the handle is not told.
        unsafe { slice::from_raw_parts(self.sga.ptr, self.sga.len as usize) }
    }
}

impl Drop for Buf {
    fn drop(&mut self) {
        self.shared.free(self.handle());
    }
}

impl fmt::Debug for Buf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Buf({} bytes", self.sga.len)?;
        match self.sender() {
            Some(sender) => write!(f, " from {sender})"),
            None => f.write_str(")"),
        }
    }
}
