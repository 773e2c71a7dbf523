//! The buffers the application holds, under handles that are checked each time they come back.

use std::ptr;

use crate::addr::Addr;
use crate::arena::Arena;
use crate::channel::Piece;
use crate::error::Error;
use crate::homa::{Endpoint, Message, Notify, Payload, RunKey, SocketKey};
use crate::mem::{Buf, Buffers};
use crate::runtime::{Handles, QToken};
use crate::slots::Key;
use crate::wire::homa::MAX_MESSAGE_LEN;

use super::datagram::Open;
use super::result::{MessageInfo, MessageKind, Sga, SgaHandle, SgaView};

/// Buffers held at once. The pages and send buffers behind them are bounded elsewhere.
const SGAS_MAX: usize = 1 << 20;

/// All buffers the application holds.
#[derive(Debug)]
pub(super) struct Sgas {
    slots: Arena<Held>,
    handles: Handles,
}

pub(super) type SgaKey = Key<Held>;

/// One buffer the application holds.
#[derive(Debug)]
pub(super) struct Held {
    base: *mut u8,
    len: u32,
    /// If it was allocated.
    buf: Option<Buf>,
    /// If it was received.
    received: Received,
}

/// A message that was popped, and what it belongs to.
#[derive(Clone, Copy, Debug, Default)]
struct Received {
    run: RunKey,
    id: u64,
    peer: Addr,
    labels: Labels,
}

/// What we know of a received message besides.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Labels {
    pub(super) socket: SocketKey,
    pub(super) kind: MessageKind,
    pub(super) cookie: u64,
    /// The datagram request that a push of this buffer answers.
    pub(super) open: Option<Key<Open>>,
}

/// What goes with a received message that the application freed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Freed {
    pub(super) run: RunKey,
    pub(super) open: Option<(SocketKey, Key<Open>)>,
}

/// A message on its way out, with a reference of ours on its bytes.
#[derive(Debug)]
pub(super) enum Outgoing {
    /// Ours alone: the application's bytes are free already.
    Copied(Buf),
    Shared(Buf),
    /// Bytes of a run. Whoever keeps this beyond the call must retain the run.
    Received {
        run: RunKey,
        start: u32,
        len: u32,
    },
}

impl Sgas {
    pub(super) fn new(chance: u64) -> Self {
        Self {
            slots: Arena::new(SGAS_MAX),
            handles: Handles::new(chance),
        }
    }

    pub(super) fn is_full(&self) -> bool {
        self.slots.is_full()
    }

    pub(super) fn insert_buf(&mut self, buf: Buf) -> Result<SgaKey, Error> {
        let (key, held) = self.slots.enter().ok_or(Error::Exhausted)?;
        held.base = buf.as_mut_ptr();
        held.len = buf.len() as u32; // A buffer's length fits: the longest is 1 MiB.
        held.buf = Some(buf);
        Ok(key)
    }

    /// A received message, of which the application gets to see `len_max` bytes.
    #[inline(always)]
    pub(super) fn insert_received(
        &mut self,
        homa: &Endpoint,
        message: &Message,
        len_max: u32,
        labels: Labels,
    ) -> Result<SgaKey, Error> {
        let (key, held) = self.slots.enter().ok_or(Error::Exhausted)?;
        held.base = homa.region().address(message.offset as usize).as_ptr();
        held.len = message.len.min(len_max);
        held.received.run = message.run;
        held.received.id = message.id.0;
        held.received.peer = message.peer;
        held.received.labels = labels;
        Ok(key)
    }

    /// A message of a channel, or a part of it.
    pub(super) fn insert_piece(&mut self, homa: &Endpoint, piece: &Piece) -> Result<SgaKey, Error> {
        let (key, held) = self.slots.enter().ok_or(Error::Exhausted)?;
        held.base = homa.region().address(piece.offset as usize).as_ptr();
        held.len = piece.len;
        held.received = Received {
            run: piece.run,
            ..Received::default()
        };
        Ok(key)
    }

    /// The end of a stream: no bytes, to be freed all the same.
    pub(super) fn insert_end(&mut self, homa: &Endpoint) -> Result<SgaKey, Error> {
        let end = Piece {
            run: RunKey::default(),
            offset: 0,
            len: 0,
        };
        self.insert_piece(homa, &end)
    }

    /// Ends the application's hold; `Invalid` if there is none. Tells what else must be let go:
    /// a received message's run, and the datagram request of that socket which is still open.
    #[inline(always)]
    pub(super) fn remove(&mut self, handle: u64) -> Result<Option<Freed>, Error> {
        let key = self.handles.key(handle).ok_or(Error::Invalid)?;
        let held = self.slots.leave(key).ok_or(Error::Invalid)?;
        if held.buf.is_some() {
            held.buf = None;
            return Ok(None);
        }
        let received = &held.received;
        Ok(Some(Freed {
            run: received.run,
            open: received
                .labels
                .open
                .map(|open| (received.labels.socket, open)),
        }))
    }

    /// As the application sees it; a null one if it was freed, which only its holder can do.
    #[inline(always)]
    pub(super) fn describe(&self, key: SgaKey) -> Sga {
        let handle = SgaHandle(self.handles.number(key));
        let held = self.slots.get(key);
        Sga {
            handle,
            ptr: held.map_or(ptr::null_mut(), |held| held.base),
            len: held.map_or(0, |held| held.len),
            peer: held.and_then(Held::received).map(|received| received.peer),
        }
    }

    #[inline(always)]
    pub(super) fn info(&self, handle: u64) -> Result<MessageInfo, Error> {
        let held = self.get(handle)?;
        let received = held.received().ok_or(Error::Invalid)?;
        Ok(MessageInfo {
            kind: received.labels.kind,
            id: received.id,
            cookie: received.labels.cookie,
            len: held.len,
            error: 0,
            peer: received.peer,
        })
    }

    /// The datagram request that a push of this buffer from `socket` answers.
    pub(super) fn open_of(&self, handle: u64, socket: SocketKey) -> Option<Key<Open>> {
        let labels = &self.get(handle).ok()?.received()?.labels;
        labels.open.filter(|_| labels.socket == socket)
    }

    /// The bytes of a view as a message to send: copied if they are not more than `copy_max`.
    #[inline(always)]
    pub(super) fn outgoing(
        &self,
        homa: &Endpoint,
        buffers: &Buffers,
        view: &SgaView,
        copy_max: u32,
    ) -> Result<Outgoing, Error> {
        let (held, start) = self.resolve(view)?;
        // With no memory left for a copy the bytes go by reference, which only completes later.
        if view.len <= copy_max
            && let Some(copy) = buffers.copy_of(held.bytes(homa, start, view.len))
        {
            return Ok(Outgoing::Copied(copy));
        }
        held.share(homa, start, view.len)
    }

    /// The bytes of a view as a message to send, by reference.
    #[inline(always)]
    pub(super) fn shared(&self, homa: &Endpoint, view: &SgaView) -> Result<Outgoing, Error> {
        let (held, start) = self.resolve(view)?;
        held.share(homa, start, view.len)
    }

    /// The bytes of a view.
    #[inline(always)]
    pub(super) fn bytes<'a>(
        &'a self,
        homa: &'a Endpoint,
        view: &SgaView,
    ) -> Result<&'a [u8], Error> {
        let (held, start) = self.resolve(view)?;
        Ok(held.bytes(homa, start, view.len))
    }

    /// Writes to the start of a buffer that no message on its way refers to.
    pub(super) fn fill(&mut self, handle: u64, bytes: &[u8]) -> Result<(), Error> {
        let key = self.handles.key(handle).ok_or(Error::Invalid)?;
        let held = self.slots.get_mut(key).ok_or(Error::Invalid)?;
        let buf = held.buf.as_mut().ok_or(Error::Invalid)?;
        let out = buf.make_mut().and_then(|out| out.get_mut(..bytes.len()));
        out.ok_or(Error::Invalid)?.copy_from_slice(bytes);
        Ok(())
    }

    #[inline(always)]
    fn get(&self, handle: u64) -> Result<&Held, Error> {
        let key = self.handles.key(handle).ok_or(Error::Invalid)?;
        self.slots.get(key).ok_or(Error::Invalid)
    }

    /// The buffer of a view and where in it the view starts. The view must lie within it and not
    /// be empty.
    #[inline(always)]
    fn resolve(&self, view: &SgaView) -> Result<(&Held, u32), Error> {
        let held = self.get(view.handle)?;
        if view.len > MAX_MESSAGE_LEN {
            return Err(Error::MessageTooLong);
        }
        // Of one that begins before the buffer this is huge.
        let start = view.ptr.addr().wrapping_sub(held.base.addr());
        let len = held.len as usize;
        if view.len > 0 && start <= len && view.len as usize <= len - start {
            Ok((held, start as u32)) // Not more than `held.len`.
        } else {
            Err(Error::Invalid)
        }
    }
}

impl Default for Held {
    fn default() -> Self {
        Self {
            base: ptr::null_mut(),
            len: 0,
            buf: None,
            received: Received::default(),
        }
    }
}

impl Held {
    #[inline]
    fn received(&self) -> Option<&Received> {
        match self.buf {
            Some(_) => None,
            None => Some(&self.received),
        }
    }

    /// Bytes that are within the buffer.
    #[inline(always)]
    fn bytes<'a>(&'a self, homa: &'a Endpoint, start: u32, len: u32) -> &'a [u8] {
        let (start, len) = (start as usize, len as usize);
        match &self.buf {
            Some(buf) => &buf[start..start + len],
            None => {
                let region = homa.region();
                let offset = self.base.addr() - region.address(0).as_ptr().addr();
                region.bytes(offset + start, len)
            }
        }
    }

    /// Bytes of the run before those that the application sees: a channel's header, and what it
    /// popped before.
    fn before(&self, homa: &Endpoint) -> Result<u32, Error> {
        let (offset, _) = homa.place(self.received.run).ok_or(Error::Invalid)?;
        let first = homa.region().address(offset as usize).as_ptr();
        Ok((self.base.addr() - first.addr()) as u32) // Within the run.
    }

    /// A reference to bytes that are within the buffer.
    #[inline(always)]
    fn share(&self, homa: &Endpoint, start: u32, len: u32) -> Result<Outgoing, Error> {
        Ok(match &self.buf {
            Some(buf) => {
                let range = start as usize..(start + len) as usize;
                Outgoing::Shared(buf.view(range).ok_or(Error::Invalid)?)
            }
            None => Outgoing::Received {
                run: self.received.run,
                start: self.before(homa)? + start,
                len,
            },
        })
    }
}

impl Outgoing {
    /// Another reference, for the transport.
    pub(super) fn payload(&self) -> Payload {
        match self {
            Self::Copied(buf) | Self::Shared(buf) => Payload::Buffer(buf.clone()),
            &Self::Received { run, start, len } => Payload::Received { run, start, len },
        }
    }

    /// Our reference becomes the transport's. For a run it takes one of its own.
    #[inline]
    pub(super) fn into_payload(self) -> Payload {
        match self {
            Self::Copied(buf) | Self::Shared(buf) => Payload::Buffer(buf),
            Self::Received { run, start, len } => Payload::Received { run, start, len },
        }
    }

    /// When the application's bytes are its own again.
    pub(super) const fn notify(&self, qt: QToken) -> Notify {
        match self {
            Self::Copied(_) => Notify::Transmitted(qt.0),
            Self::Shared(_) | Self::Received { .. } => Notify::Delivered(qt.0),
        }
    }
}
