//! Counted send buffers out of a pool with size classes.

use std::alloc::{self, Layout};
use std::cell::Cell;
use std::fmt;
use std::ops::{Deref, Range};
use std::ptr::NonNull;
use std::rc::Rc;
use std::slice;

/// Bytes that fit each size class. Steps of four waste at most three quarters of a block, and
/// keep the blocks of an RPC's usual sizes few enough to stay in the cache.
const CLASSES: [usize; 8] = [256, 1024, 4096, 16_384, 65_536, 262_144, 524_288, 1_048_576];

/// A block's bytes start this far behind its header, on a cache line of their own.
const HEADER_LEN: usize = 64;

/// A pool of send buffers. Copies of it are the same pool; it belongs to one thread.
#[derive(Clone)]
pub struct Buffers {
    pool: Rc<Pool>,
}

/// A view of a counted block of bytes; the block goes back to its pool with its last view.
///
/// The owner may write through [`Self::as_mut_ptr`] as long as the application's contract holds:
/// bytes that were pushed are not changed until the push completes.
pub struct Buf {
    block: NonNull<Block>,
    start: u32,
    len: u32,
}

struct Pool {
    /// For each class, the first of the blocks nobody holds; each names the next one.
    free: [Cell<Option<NonNull<Block>>>; CLASSES.len()],
    /// Bytes of all blocks, those on the free lists included.
    taken_bytes: Cell<usize>,
    bytes_max: usize,
}

#[repr(align(64))]
struct Block {
    views: Cell<u32>,
    class: usize,
    /// The next block of the free list, while the block is on it.
    next: Cell<Option<NonNull<Block>>>,
    /// One strong count of the pool while the block is out, so that the pool outlives it.
    pool: Cell<Option<NonNull<Pool>>>,
}

const _: () = assert!(size_of::<Block>() == HEADER_LEN);

impl Buffers {
    /// A pool that takes at most `bytes_max` bytes from the system, when they are first needed.
    pub fn new(bytes_max: usize) -> Self {
        Self {
            pool: Rc::new(Pool {
                free: [const { Cell::new(None) }; CLASSES.len()],
                taken_bytes: Cell::new(0),
                bytes_max,
            }),
        }
    }

    /// The longest buffer [`Self::alloc`] gives.
    pub const fn len_max() -> usize {
        CLASSES[CLASSES.len() - 1]
    }

    /// A buffer of `len` bytes, zero or what was in it before; `None` if it is too long or the
    /// pool is used up.
    #[inline]
    pub fn alloc(&self, len: usize) -> Option<Buf> {
        let class = CLASSES.iter().position(|&bytes| len <= bytes)?;
        let block = match self.pool.pop(class) {
            Some(block) => block,
            None => self.pool.take_block(class)?,
        };
        // SAFETY: blocks on the free list, and new ones, are ours alone and initialised.
        let header = unsafe { block.as_ref() };
        header.views.set(1);
        let pool = Rc::into_raw(Rc::clone(&self.pool));
        header.pool.set(NonNull::new(pool.cast_mut()));
        Some(Buf {
            block,
            start: 0,
            len: len as u32,
        })
    }

    /// A buffer that holds a copy of `bytes`.
    #[inline]
    pub fn copy_of(&self, bytes: &[u8]) -> Option<Buf> {
        let mut buf = self.alloc(bytes.len())?;
        buf.make_mut()?.copy_from_slice(bytes);
        Some(buf)
    }

    /// Whether the longest buffer could be had now, or in a small pool half of what there is.
    pub fn has_room(&self) -> bool {
        let wanted = Self::len_max().min(self.pool.bytes_max / 2);
        let bytes_max = self.pool.bytes_max;
        // Idle blocks need only be counted if they matter.
        self.taken_bytes() + wanted <= bytes_max || self.used_bytes() + wanted <= bytes_max
    }

    /// Bytes of all blocks that exist, idle ones included.
    pub fn taken_bytes(&self) -> usize {
        self.pool.taken_bytes.get()
    }

    /// Bytes of the blocks that somebody holds.
    pub fn used_bytes(&self) -> usize {
        self.taken_bytes() - self.pool.idle_bytes()
    }
}

impl Pool {
    /// Takes a block off its free list.
    #[inline]
    fn pop(&self, class: usize) -> Option<NonNull<Block>> {
        let block = self.free[class].get()?;
        // SAFETY: blocks on a free list live, and nobody else knows them.
        self.free[class].set(unsafe { block.as_ref() }.next.take());
        Some(block)
    }

    /// Puts a block that nobody holds on its free list.
    #[inline]
    fn push(&self, block: NonNull<Block>) {
        // SAFETY: the block lives; the last who held it gives it here.
        let header = unsafe { block.as_ref() };
        header
            .next
            .set(self.free[header.class].replace(Some(block)));
    }

    fn idle_bytes(&self) -> usize {
        let mut bytes = 0;
        for list in &self.free {
            let mut block = list.get();
            while let Some(idle) = block {
                // SAFETY: blocks on a free list live, and nobody writes to them.
                let header = unsafe { idle.as_ref() };
                bytes += CLASSES[header.class];
                block = header.next.get();
            }
        }
        bytes
    }

    fn take_block(&self, class: usize) -> Option<NonNull<Block>> {
        let bytes = CLASSES[class];
        if self.taken_bytes.get() + bytes > self.bytes_max {
            self.give_back_idle(bytes);
        }
        if self.taken_bytes.get() + bytes > self.bytes_max {
            return None;
        }
        let layout = Block::layout(class);
        // SAFETY: the layout's size is not zero.
        let block: NonNull<Block> = NonNull::new(unsafe { alloc::alloc_zeroed(layout) })?.cast();
        let header = Block {
            views: Cell::new(0),
            class,
            next: Cell::new(None),
            pool: Cell::new(None),
        };
        // SAFETY: just allotted, aligned and large enough for a `Block`.
        unsafe { block.write(header) };
        self.taken_bytes.set(self.taken_bytes.get() + bytes);
        Some(block)
    }

    /// Frees idle blocks, largest first, until `bytes` more may be taken.
    fn give_back_idle(&self, bytes: usize) {
        for class in (0..CLASSES.len()).rev() {
            while self.taken_bytes.get() + bytes > self.bytes_max {
                let Some(block) = self.pop(class) else { break };
                self.free_block(block);
            }
        }
    }

    fn free_block(&self, block: NonNull<Block>) {
        // SAFETY: the caller took the block off a free list, so nobody else knows it.
        let class = unsafe { block.as_ref() }.class;
        // SAFETY: allotted with this very layout in `take_block`.
        unsafe { alloc::dealloc(block.as_ptr().cast(), Block::layout(class)) };
        self.taken_bytes
            .set(self.taken_bytes.get() - CLASSES[class]);
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        for class in 0..CLASSES.len() {
            while let Some(block) = self.pop(class) {
                self.free_block(block);
            }
        }
    }
}

impl Block {
    const fn layout(class: usize) -> Layout {
        match Layout::from_size_align(HEADER_LEN + CLASSES[class], HEADER_LEN) {
            Ok(layout) => layout,
            Err(_) => panic!("each class is far below isize::MAX"),
        }
    }
}

impl Buf {
    #[inline]
    pub fn len(&self) -> usize {
        self.len as usize
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Where the view's bytes lie; valid while any view of the block lives.
    #[inline]
    pub fn as_mut_ptr(&self) -> *mut u8 {
        // SAFETY: `start` is within the block, see `alloc` and `view`.
        unsafe {
            self.block
                .as_ptr()
                .cast::<u8>()
                .add(HEADER_LEN + self.start as usize)
        }
    }

    /// Another view, of `range` of this one's bytes; `None` if it is not within them.
    #[inline]
    pub fn view(&self, range: Range<usize>) -> Option<Self> {
        if range.start > range.end || range.end > self.len() {
            return None;
        }
        let mut view = self.clone();
        view.start += range.start as u32;
        view.len = (range.end - range.start) as u32;
        Some(view)
    }

    /// The bytes, to write; `None` while other views of the block live.
    #[inline]
    pub fn make_mut(&mut self) -> Option<&mut [u8]> {
        if self.header().views.get() != 1 {
            return None;
        }
        // SAFETY: this is the only view, borrowed mutably, and covers `len` bytes of the block.
        Some(unsafe { slice::from_raw_parts_mut(self.as_mut_ptr(), self.len()) })
    }

    /// Ends the last view: the block is the pool's again.
    fn give_back(&mut self) {
        let header = self.header();
        let pool = header
            .pool
            .take()
            .expect("a block that is out knows its pool");
        // SAFETY: `alloc` turned one strong count into this pointer; it is taken back once.
        let pool = unsafe { Rc::from_raw(pool.as_ptr()) };
        pool.push(self.block);
    }

    #[inline]
    fn header(&self) -> &Block {
        // SAFETY: the block lives while a view of it does.
        unsafe { self.block.as_ref() }
    }
}

impl Deref for Buf {
    type Target = [u8];
    #[inline]
    fn deref(&self) -> &[u8] {
        // SAFETY: `len` bytes from there are the block's, and the application does not write to
        // them while we read: a program that breaks that contract races with itself only.
        unsafe { slice::from_raw_parts(self.as_mut_ptr(), self.len()) }
    }
}

impl Clone for Buf {
    #[inline]
    fn clone(&self) -> Self {
        let views = &self.header().views;
        views.set(
            views
                .get()
                .checked_add(1)
                .expect("far fewer than 2^32 views of a block"),
        );
        Self {
            block: self.block,
            start: self.start,
            len: self.len,
        }
    }
}

impl Drop for Buf {
    #[inline]
    fn drop(&mut self) {
        let views = &self.header().views;
        views.set(views.get() - 1);
        if views.get() == 0 {
            self.give_back();
        }
    }
}

impl fmt::Debug for Buf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "Buf({} bytes, {} views)",
            self.len,
            self.header().views.get()
        )
    }
}

impl fmt::Debug for Buffers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "Buffers({} of {} bytes)",
            self.taken_bytes(),
            self.pool.bytes_max
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_goes_back_with_its_last_view_and_is_used_first() {
        let buffers = Buffers::new(4096);
        let buf = buffers.copy_of(b"hello world").unwrap();
        let at = buf.as_mut_ptr();
        let view = buf.view(6..11).unwrap();
        drop(buf);
        assert_eq!((&*view, buffers.used_bytes()), (&b"world"[..], 256));
        drop(view);
        assert_eq!(buffers.used_bytes(), 0);
        assert_eq!(buffers.alloc(1).unwrap().as_mut_ptr(), at);
    }

    #[test]
    fn the_pool_keeps_to_its_limit_and_lets_idle_blocks_of_other_sizes_go() {
        let buffers = Buffers::new(4096);
        let held: Vec<_> = (0..4).map(|_| buffers.alloc(1000).unwrap()).collect();
        assert!(buffers.alloc(1).is_none());
        drop(held);
        assert!(buffers.alloc(4096).is_some());
        assert_eq!(buffers.taken_bytes(), 4096);
    }

    #[test]
    fn bytes_outlive_the_pool() {
        let buf = Buffers::new(4096).copy_of(b"still here").unwrap();
        assert_eq!(&*buf, b"still here");
    }

    #[test]
    fn a_view_stays_within_its_buffer_and_forbids_writing() {
        let mut buf = Buffers::new(4096).alloc(10).unwrap();
        let reversed = Range { start: 3, end: 2 };
        assert!(buf.view(0..11).is_none() && buf.view(reversed).is_none());
        let view = buf.view(10..10).unwrap();
        assert!(view.is_empty() && buf.make_mut().is_none());
    }

    #[test]
    fn the_longest_message_fits_and_more_does_not() {
        let buffers = Buffers::new(8 << 20);
        assert!(buffers.alloc(Buffers::len_max()).is_some());
        assert!(buffers.alloc(Buffers::len_max() + 1).is_none());
    }
}
