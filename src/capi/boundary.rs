//! Where C enters: who may call, what a pointer may be, and what goes back.

use std::cell::{OnceCell, RefCell};
use std::ffi::c_int;
use std::ptr::NonNull;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicI32, Ordering, compiler_fence};

use libc::timespec;

use super::address::{NO_SOCKADDR_IN, to_sockaddr_in};
use super::types::{
    demi_accept_result, demi_opcode, demi_qr_value, demi_qresult, demi_sgarray, demi_sgaseg,
};
use crate::error::Error;
use crate::libos::{LibOS, OperationResult, QDesc, QResult, Sga, SgaView, Waker};
use crate::time::Duration;

thread_local! {
    /// The runtime of this thread, once `demi_init` has made it. It is dropped as the thread ends,
    /// in the main thread by `exit`, and then lingers for messages that nobody confirmed yet.
    static LIBOS: RefCell<Option<LibOS>> = const { RefCell::new(None) };
}

/// Runs one call on this thread's runtime and turns its result into 0 or an errno.
pub(super) fn with_libos(call: impl FnOnce(&mut LibOS) -> Result<(), Error>) -> c_int {
    errno(try_with_libos(call))
}

/// Runs one call on this thread's runtime.
///
/// `NotInitialised` without one, or when the thread is ending; `Busy` from within another call,
/// that is, from a signal handler.
pub(super) fn try_with_libos<T>(
    call: impl FnOnce(&mut LibOS) -> Result<T, Error>,
) -> Result<T, Error> {
    LIBOS
        .try_with(|cell| {
            let mut runtime = cell.try_borrow_mut().map_err(|_| Error::Busy)?;
            // A signal handler of this thread must see the borrow before anything else happens.
            compiler_fence(Ordering::SeqCst);
            call(runtime.as_mut().ok_or(Error::NotInitialised)?)
        })
        .unwrap_or(Err(Error::NotInitialised))
}

/// Gives this thread a runtime, unless it has one.
pub(super) fn install<E: From<Error>>(make: impl FnOnce() -> Result<LibOS, E>) -> Result<(), E> {
    LIBOS
        .try_with(|cell| {
            let mut runtime = cell.try_borrow_mut().map_err(|_| Error::Busy)?;
            if runtime.is_some() {
                return Err(Error::Exists.into());
            }
            let made = make()?;
            Wakers::add(made.waker());
            let _ = WAKER.with(|waker| waker.set(made.waker())); // A thread has one runtime ever.
            *runtime = Some(made);
            Ok(())
        })
        .unwrap_or_else(|_| Err(Error::NotInitialised.into()))
}

/// Runs one call as a system call would: what it gives, or -1 and errno.
pub(super) fn system_call<T: From<i8>>(call: impl FnOnce(&mut LibOS) -> Result<T, Error>) -> T {
    let result = try_with_libos(|libos| {
        shut_down_pending(libos);
        call(libos)
    });
    result.unwrap_or_else(fail)
}

/// What a system call that failed gives.
fn fail<T: From<i8>>(error: Error) -> T {
    // SAFETY: the address of this thread's errno, always valid.
    unsafe { *libc::__errno_location() = error.errno() };
    T::from(-1)
}

/// Sockets that can be shut down at once from signal handlers that interrupted another call.
const PENDING_MAX: usize = 16;

thread_local! {
    /// Descriptors of sockets to shut down before anything else; 0 is none.
    static PENDING: [AtomicI32; PENDING_MAX] = const { [const { AtomicI32::new(0) }; PENDING_MAX] };
    /// Ends the wait of this thread's runtime.
    static WAKER: OnceCell<Waker> = const { OnceCell::new() };
}

/// Shuts a socket down, as soon as the call that this one interrupted, if it did, lets us.
pub(super) fn shut_down(sockfd: c_int) -> c_int {
    let result = try_with_libos(|libos| {
        shut_down_pending(libos);
        libos.homa_shutdown(queue(sockfd)?)
    });
    let result = match result {
        Err(Error::Busy) if sockfd > 0 => PENDING.with(|pending| {
            let is_free = |one: &&AtomicI32| {
                let set = one.compare_exchange(0, sockfd, Ordering::AcqRel, Ordering::Acquire);
                set.is_ok()
            };
            let filed = pending.iter().find(is_free).ok_or(Error::Busy)?;
            debug_assert_ne!(filed.load(Ordering::Relaxed), 0);
            let _ = WAKER.try_with(|waker| waker.get().map(Waker::wake));
            Ok(())
        }),
        other => other,
    };
    result.map_or_else(fail, |()| 0)
}

/// Shuts down what signal handlers asked for. True if there was anything.
fn shut_down_pending(libos: &mut LibOS) -> bool {
    PENDING.with(|pending| {
        let mut has_any = false;
        for one in pending {
            if one.load(Ordering::Relaxed) != 0 {
                has_any = true;
                // One that is no Homa socket, or closed by now, has nothing to shut down.
                let _ = queue(one.swap(0, Ordering::AcqRel)).map(|qd| libos.homa_shutdown(qd));
            }
        }
        has_any
    })
}

/// Runs a call that waits, anew if all that interrupted it was a socket to shut down.
pub(super) fn until_uninterrupted<T>(
    libos: &mut LibOS,
    mut call: impl FnMut(&mut LibOS) -> Result<T, Error>,
) -> Result<T, Error> {
    loop {
        match call(libos) {
            Err(Error::Interrupted) if shut_down_pending(libos) => {}
            result => return result,
        }
    }
}

pub(super) fn errno(result: Result<(), Error>) -> c_int {
    match result {
        Ok(()) => 0,
        Err(error) => error.errno(),
    }
}

/// All runtimes of the process, so that any thread or signal handler can end their waits.
///
/// A list that only grows, by a few bytes for each `demi_init`: reading it takes no lock, which a
/// signal handler could not wait for.
struct Wakers {
    first: Waker,
    rest: OnceLock<Box<Wakers>>,
}

static WAKERS: OnceLock<Box<Wakers>> = OnceLock::new();

impl Wakers {
    fn add(waker: Waker) {
        let mut entry = Box::new(Self {
            first: waker,
            rest: OnceLock::new(),
        });
        let mut end = &WAKERS;
        while let Err(still_ours) = end.set(entry) {
            entry = still_ours;
            end = &end.get().expect("it was set, or `set` had not failed").rest;
        }
    }
}

/// Ends the running, or else the next, wait of every runtime. Safe in a signal handler.
pub(super) fn wake_all() {
    let mut entry = WAKERS.get();
    while let Some(wakers) = entry {
        wakers.first.wake();
        entry = wakers.rest.get();
    }
}

/// Where a caller wants a result: not NULL, writable, perhaps unaligned, as in a packed struct.
#[derive(Debug)]
pub(super) struct Out<T>(NonNull<T>);

impl<T> Out<T> {
    /// `Invalid` if NULL.
    ///
    /// # Safety
    /// `ptr` is NULL or may be written while the value made here lives.
    pub(super) unsafe fn new(ptr: *mut T) -> Result<Self, Error> {
        NonNull::new(ptr).map(Self).ok_or(Error::Invalid)
    }

    pub(super) fn write(&self, value: T) {
        // SAFETY: writable, says the caller of `new`; alignment is not asked for.
        unsafe { self.0.write_unaligned(value) }
    }
}

/// Reads what a caller points to; `Invalid` if NULL.
///
/// # Safety
/// `ptr` is NULL or points to a valid `T`, which may be unaligned.
pub(super) unsafe fn read<T: Copy>(ptr: *const T) -> Result<T, Error> {
    let ptr = NonNull::new(ptr.cast_mut()).ok_or(Error::Invalid)?;
    // SAFETY: not NULL, so a valid `T`, says our caller.
    Ok(unsafe { ptr.read_unaligned() })
}

pub(super) fn queue(qd: c_int) -> Result<QDesc, Error> {
    u32::try_from(qd)
        .map(QDesc)
        .map_err(|_| Error::BadDescriptor)
}

/// NULL is `None`: wait for ever. More than a `Duration` holds, 584 years, counts as that.
///
/// # Safety
/// `ptr` is NULL or points to a valid `timespec`.
pub(super) unsafe fn read_timeout(ptr: *const timespec) -> Result<Option<Duration>, Error> {
    if ptr.is_null() {
        return Ok(None);
    }
    // SAFETY: passed on.
    let timeout = unsafe { read(ptr) }?;
    let secs = u64::try_from(timeout.tv_sec).map_err(|_| Error::Invalid)?;
    let nanos = u64::try_from(timeout.tv_nsec).map_err(|_| Error::Invalid)?;
    if nanos >= 1_000_000_000 {
        return Err(Error::Invalid);
    }
    let nanos = secs.saturating_mul(1_000_000_000).saturating_add(nanos);
    Ok(Some(Duration::nanos(nanos)))
}

/// What the caller wants to send. The runtime checks handle and range.
///
/// # Safety
/// `ptr` is NULL or points to a valid `demi_sgarray`.
pub(super) unsafe fn read_view(ptr: *const demi_sgarray) -> Result<SgaView, Error> {
    // SAFETY: passed on.
    view_of(&unsafe { read(ptr) }?)
}

pub(super) fn view_of(sga: &demi_sgarray) -> Result<SgaView, Error> {
    let [segment] = sga.sga_segs;
    let (buf, len) = (segment.sgaseg_buf, segment.sgaseg_len);
    if sga.sga_numsegs != 1 || sga.sga_buf.is_null() || buf.is_null() || len == 0 {
        return Err(Error::Invalid);
    }
    Ok(SgaView {
        handle: sga.sga_buf.addr() as u64,
        ptr: buf.cast(),
        len,
    })
}

pub(super) fn to_sgarray(sga: &Sga) -> demi_sgarray {
    let handle = u64::from(sga.handle) as usize; // 64-bit platforms only, as asserted below.
    demi_sgarray {
        sga_buf: std::ptr::without_provenance_mut(handle),
        sga_numsegs: 1,
        sga_segs: [demi_sgaseg {
            sgaseg_buf: sga.ptr.cast(),
            sgaseg_len: sga.len,
        }],
        sga_addr: sga.peer.and_then(to_sockaddr_in).unwrap_or(NO_SOCKADDR_IN),
    }
}

const _: () = assert!(
    size_of::<usize>() == size_of::<u64>(),
    "a handle must fit a pointer"
);

pub(super) fn to_qresult(result: &QResult) -> demi_qresult {
    let mut qr_value = demi_qr_value {
        sga: demi_sgarray::NULL,
    };
    let mut qr_ret = 0;
    let qr_opcode = match &result.result {
        OperationResult::Push => demi_opcode::DEMI_OPC_PUSH,
        OperationResult::Connect => demi_opcode::DEMI_OPC_CONNECT,
        OperationResult::Close => demi_opcode::DEMI_OPC_CLOSE,
        OperationResult::Pop(sga) => {
            qr_value.sga = to_sgarray(sga);
            demi_opcode::DEMI_OPC_POP
        }
        OperationResult::Accept { qd, peer } => {
            let addr = to_sockaddr_in(*peer).unwrap_or(NO_SOCKADDR_IN);
            qr_value.ares = demi_accept_result {
                qd: to_c_queue(*qd),
                addr,
            };
            demi_opcode::DEMI_OPC_ACCEPT
        }
        OperationResult::Failed(error) => {
            qr_ret = i64::from(error.errno());
            demi_opcode::DEMI_OPC_FAILED
        }
    };
    demi_qresult {
        qr_opcode,
        qr_qd: to_c_queue(result.qd),
        qr_qt: result.qt.0,
        qr_ret,
        qr_value,
    }
}

pub(super) fn to_c_queue(qd: QDesc) -> c_int {
    c_int::try_from(qd.0).expect("descriptors count up from 500, at most a table's size")
}
