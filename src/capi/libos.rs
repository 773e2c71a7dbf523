//! `demi/libos.h`: the runtime, sockets and their operations.
//!
//! # Safety
//!
//! Each pointer is NULL, or points to what its type says (arrays and bytes as many as the number
//! beside it says), which nobody else touches during the call. Alignment is not asked for.

use std::ffi::{CStr, OsStr, c_char, c_int, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use libc::{sockaddr, socklen_t};

use super::address::{AddrRoom, read_addr};
use super::boundary::{Out, install, queue, read, read_view, to_c_queue, with_libos};
use super::homa_types::{IPPROTO_HOMA, IPPROTO_HOMA_IANA};
use super::types::{demi_args, demi_qtoken_t, demi_sgarray_t};
use crate::config::Config;
use crate::error::Error;
use crate::libos::LibOS;
use crate::time::Duration;

/// The version of the library: major * 65536 + minor * 256 + patch. A program may compare it with
/// DEMIHOMA_VERSION, which the headers it was compiled with define.
///
/// Works at any time, in any thread.
#[unsafe(no_mangle)]
pub extern "C" fn demi_version() -> u32 {
    const fn number(digits: &str) -> u32 {
        let (mut value, mut at) = (0, 0);
        while at < digits.len() {
            value = value * 10 + (digits.as_bytes()[at] - b'0') as u32;
            at += 1;
        }
        value
    }
    const MAJOR: u32 = number(env!("CARGO_PKG_VERSION_MAJOR"));
    const MINOR: u32 = number(env!("CARGO_PKG_VERSION_MINOR"));
    const PATCH: u32 = number(env!("CARGO_PKG_VERSION_PATCH"));
    MAJOR << 16 | MINOR << 8 | PATCH
}

/// Starts the library for the calling thread. What it makes may be used by this thread only.
///
/// All other calls give ENOSYS before it and in threads that did not call it, and EBUSY in a signal
/// handler that interrupted another call. They write their outputs on success only.
///
/// Of the arguments only `--config FILE` is read; without it the environment variable CONFIG_PATH
/// names the file, and without that the defaults hold. `args` may be NULL. Over the file stand
/// variables such as DEMIHOMA_NETWORK_INTERFACE=eth1.
///
/// Ownership: the arguments are used during the call only. What the library takes it gives back as
/// the thread ends; in the main thread, by exit(), and then it waits for messages that were pushed
/// until the peers have them, at most as long as SO_LINGER says.
///
/// Returns 0, or after one line on stderr that says what is wrong: EEXIST this thread called it
/// before; ENOENT, EINVAL bad configuration; ENODEV no such interface; EADDRINUSE the interface is
/// in use; EPERM a privilege is missing; EIO the device failed; or another errno.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn demi_init(args: *const demi_args) -> c_int {
    let started = install(|| {
        // SAFETY: NULL or readable, and `argc` strings at `argv`, says the header.
        let path = unsafe { config_path(args) }?;
        let config = Config::load(path.map(Path::new)).map_err(|error| Refusal {
            errno: error.errno(),
            text: error.to_string(),
        })?;
        LibOS::new(&config).map_err(|error| Refusal {
            errno: error.error().errno(),
            text: error.to_string(),
        })
    });
    match started {
        Ok(()) => 0,
        Err(Refusal { errno, text }) => {
            eprintln!("demihoma: {text}");
            errno
        }
    }
}

/// Why there is no runtime, for the program and for its user.
#[derive(Debug)]
struct Refusal {
    errno: c_int,
    text: String,
}

impl From<Error> for Refusal {
    fn from(error: Error) -> Self {
        let text = match error {
            Error::Exists => "demi_init: this thread has called it before".into(),
            error => format!("demi_init: {error}"),
        };
        Self {
            errno: error.errno(),
            text,
        }
    }
}

/// The word after the first `--config`.
///
/// # Safety
/// `args` is NULL or points to readable `demi_args`; its strings live as long as the result.
unsafe fn config_path<'a>(args: *const demi_args) -> Result<Option<&'a OsStr>, Refusal> {
    if args.is_null() {
        return Ok(None);
    }
    // SAFETY: not NULL, so readable.
    let demi_args { argc, argv, .. } = unsafe { read(args) }?;
    let mut words = (0..usize::try_from(argc).unwrap_or(0)).map_while(|at| {
        // SAFETY: `argv`, unless NULL, has `argc` elements; each is NULL or a C string.
        unsafe { word(argv, at) }
    });
    while let Some(word) = words.next() {
        if word == "--config" {
            return words.next().map(Some).ok_or_else(|| Refusal {
                errno: libc::EINVAL,
                text: "--config lacks the name of a file".into(),
            });
        }
        if let Some(path) = word.as_bytes().strip_prefix(b"--config=") {
            return Ok(Some(OsStr::from_bytes(path)));
        }
    }
    Ok(None)
}

/// # Safety
/// `argv` is NULL or has an element `at`, which is NULL or a C string that outlives the result.
unsafe fn word<'a>(argv: *const *mut c_char, at: usize) -> Option<&'a OsStr> {
    if argv.is_null() {
        return None;
    }
    // SAFETY: says our caller.
    let start = unsafe { argv.add(at).read_unaligned() };
    // SAFETY: not NULL, so a C string.
    (!start.is_null()).then(|| OsStr::from_bytes(unsafe { CStr::from_ptr(start) }.to_bytes()))
}

/// Makes a socket and writes its queue descriptor, which is 500 or more and no file descriptor.
///
/// AF_INET with SOCK_DGRAM: paired datagrams; with SOCK_DGRAM and protocol IPPROTO_HOMA: native
/// RPC, see demi/homa.h; with SOCK_STREAM: connections, which carry whole messages and which only
/// this library speaks.
///
/// Returns 0, EINVAL a NULL pointer, ENOTSUP no such kind of socket, EAGAIN too many sockets, or
/// ENOSYS.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn demi_socket(
    sockqd_out: *mut c_int,
    domain: c_int,
    r#type: c_int,
    protocol: c_int,
) -> c_int {
    with_libos(|libos| {
        // SAFETY: NULL or writable, says the header.
        let sockqd_out = unsafe { Out::new(sockqd_out) }?;
        sockqd_out.write(to_c_queue(libos.socket(domain, r#type, protocol)?));
        Ok(())
    })
}

/// Makes a stream passive: peers may connect to it, and `backlog` of them at a time wait to be
/// accepted; others have to try again.
///
/// Returns 0, EBADF, EINVAL a backlog below 1, ENOTSUP not a stream, EDESTADDRREQ not bound,
/// EADDRINUSE listening, connecting or connected already, or ENOSYS.
#[unsafe(no_mangle)]
pub extern "C" fn demi_listen(sockqd: c_int, backlog: c_int) -> c_int {
    with_libos(|libos| libos.listen(queue(sockqd)?, backlog))
}

/// Gives a socket its local address; the wildcard stands for the runtime's address. Streams and
/// datagrams share the ports. That of a listening socket is in use until its connections are
/// closed too.
///
/// Returns 0, EBADF, EINVAL a NULL pointer, a wrong size, or already bound, EADDRINUSE,
/// EADDRNOTAVAIL not an address of ours, ENOTSUP another family, or a stream without address or
/// port, or ENOSYS.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn demi_bind(sockqd: c_int, addr: *const sockaddr, size: socklen_t) -> c_int {
    with_libos(|libos| {
        // SAFETY: NULL or `size` readable bytes, says the header.
        let addr = unsafe { read_addr(addr, size) }?;
        libos.bind(queue(sockqd)?, addr)
    })
}

/// Asks for the next connection: a new queue descriptor, and the peer's address.
///
/// Returns 0, EBADF, EINVAL a NULL pointer or not listening, EAGAIN too many pending operations, or
/// ENOSYS.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn demi_accept(qt_out: *mut demi_qtoken_t, sockqd: c_int) -> c_int {
    with_libos(|libos| {
        // SAFETY: NULL or writable, says the header.
        let qt_out = unsafe { Out::new(qt_out) }?;
        qt_out.write(libos.accept(queue(sockqd)?)?.0);
        Ok(())
    })
}

/// Connects a stream to a listening one.
///
/// Completes as DEMI_OPC_FAILED with ECONNREFUSED nobody listens there, EHOSTUNREACH no way to the
/// host, or ETIMEDOUT no answer in the configured time; then the socket may try again.
///
/// Returns 0, EBADF, EINVAL a NULL pointer or a wrong size, EOPNOTSUPP listening, EINPROGRESS
/// connecting, EISCONN connected, ENOTSUP not a stream or another family, EAGAIN too many pending
/// operations, connections or ports, or ENOSYS.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn demi_connect(
    qt_out: *mut demi_qtoken_t,
    sockqd: c_int,
    addr: *const sockaddr,
    size: socklen_t,
) -> c_int {
    with_libos(|libos| {
        // SAFETY: NULL or writable, says the header.
        let qt_out = unsafe { Out::new(qt_out) }?;
        // SAFETY: NULL or `size` readable bytes, says the header.
        let addr = unsafe { read_addr(addr, size) }?;
        qt_out.write(libos.connect(queue(sockqd)?, addr)?.0);
        Ok(())
    })
}

/// Closes a queue. What is pending on it completes as DEMI_OPC_FAILED with ECANCELED; its tokens
/// are still to be waited for. Messages that nobody confirmed yet are waited for, at most as long
/// as SO_LINGER says. Peers of a stream get what was pushed, and then its end.
///
/// Returns 0, EBADF, or ENOSYS.
#[unsafe(no_mangle)]
pub extern "C" fn demi_close(qd: c_int) -> c_int {
    with_libos(|libos| libos.close(queue(qd)?))
}

/// Sends a message of 1 to 1,000,000 bytes on a connected queue, after those pushed before.
///
/// The array may be freed at once; its bytes must not change until the push has completed, which is
/// when they were sent. While the peer is 32 messages or 256 KiB behind with its pops, pushes wait.
/// Completes as DEMI_OPC_FAILED with ECONNRESET the peer is gone, or ETIMEDOUT it is silent for
/// too long; on a datagram socket with EDESTADDRREQ.
///
/// Ownership: the array stays the caller's, who frees it, at once if it likes: the push keeps the
/// bytes by a reference of its own.
///
/// Returns 0, EBADF, EINVAL a NULL pointer, or an array that is null, freed, foreign, empty or
/// out of its buffer's range, EMSGSIZE, ENOTCONN, EAGAIN too many pending operations, or ENOSYS.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn demi_push(
    qt_out: *mut demi_qtoken_t,
    qd: c_int,
    sga: *const demi_sgarray_t,
) -> c_int {
    with_libos(|libos| {
        // SAFETY: NULL or writable, says the header.
        let qt_out = unsafe { Out::new(qt_out) }?;
        // SAFETY: NULL or readable, says the header.
        let view = unsafe { read_view(sga) }?;
        qt_out.write(libos.push(queue(qd)?, &view)?.0);
        Ok(())
    })
}

/// Sends a datagram of 1 to 1,000,000 bytes; an unbound socket gets a port of its own first.
///
/// A datagram to a peer whose request was popped here and is not answered yet becomes the
/// response to it; any other is a request. The array may be freed at once; its bytes must not
/// change until the push has completed: up to 4,096 bytes are copied, of more the peer must be
/// known to have them. A datagram that fails after its push completed is only counted.
///
/// Ownership: the array stays the caller's, who frees it, at once if it likes: the push keeps the
/// bytes by a reference of its own. The array may be one that was popped.
///
/// Returns 0, EBADF, EINVAL as demi_push(), a wrong size, or an address without a host or a port,
/// ENOTSUP another family or kind of socket, EMSGSIZE, EAGAIN too many pending operations, or
/// ENOSYS.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn demi_pushto(
    qt_out: *mut demi_qtoken_t,
    sockqd: c_int,
    sga: *const demi_sgarray_t,
    dest_addr: *const sockaddr,
    size: socklen_t,
) -> c_int {
    with_libos(|libos| {
        // SAFETY: NULL or writable, says the header.
        let qt_out = unsafe { Out::new(qt_out) }?;
        // SAFETY: NULL or readable, says the header.
        let view = unsafe { read_view(sga) }?;
        // SAFETY: NULL or `size` readable bytes, says the header.
        let to = unsafe { read_addr(dest_addr, size) }?;
        qt_out.write(libos.pushto(queue(sockqd)?, &view, to)?.0);
        Ok(())
    })
}

/// Asks for the next message, which comes whole, as the result of the token.
///
/// Ownership: the message's array is the application's, which frees it by demi_sgafree(). Until
/// then its pages are not used for others.
///
/// Once the peer has closed a stream and all its messages were popped, each pop gives an array of
/// one segment with no bytes, which must be freed too. Completes as DEMI_OPC_FAILED with ECONNRESET
/// or ETIMEDOUT as demi_push().
///
/// Returns 0, EBADF, EINVAL a NULL pointer, EDESTADDRREQ a datagram socket that is not bound,
/// ENOTCONN a stream that is not connected, EAGAIN too many pending operations, or ENOSYS.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn demi_pop(qt_out: *mut demi_qtoken_t, qd: c_int) -> c_int {
    with_libos(|libos| {
        // SAFETY: NULL or writable, says the header.
        let qt_out = unsafe { Out::new(qt_out) }?;
        qt_out.write(libos.pop(queue(qd)?, None)?.0);
        Ok(())
    })
}

/// Sets an option: SOL_SOCKET's SO_LINGER, a `struct linger`, how long demi_close() and exit wait
/// for messages that nobody confirmed yet; off stands for the configured time.
///
/// Returns 0, EBADF, EINVAL a NULL pointer, a wrong size or value, ENOTSUP another level,
/// ENOPROTOOPT another option, or ENOSYS.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn demi_setsockopt(
    qd: c_int,
    level: c_int,
    optname: c_int,
    optval: *const c_void,
    optlen: socklen_t,
) -> c_int {
    with_libos(|libos| {
        if optval.is_null() {
            return Err(Error::Invalid);
        }
        let qd = queue(qd)?;
        libos.linger(qd)?; // A bad descriptor is told before a bad option.
        check_option(level, optname)?;
        if (optlen as usize) < size_of::<libc::linger>() {
            return Err(Error::Invalid);
        }
        // SAFETY: not NULL, and `optlen` bytes may be read, says the header.
        let linger = unsafe { read(optval.cast::<libc::linger>()) }?;
        let secs = u64::try_from(linger.l_linger).map_err(|_| Error::Invalid)?;
        libos.set_linger(qd, (linger.l_onoff != 0).then(|| Duration::secs(secs)))
    })
}

/// Gets an option, see demi_setsockopt(), and writes its size into `optlen`. SO_LINGER is always
/// on, with the seconds that hold.
///
/// Returns 0, EBADF, EINVAL a NULL pointer or too small a size, ENOTSUP another level, ENOPROTOOPT
/// another option, or ENOSYS.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn demi_getsockopt(
    qd: c_int,
    level: c_int,
    optname: c_int,
    optval: *mut c_void,
    optlen: *mut socklen_t,
) -> c_int {
    const LEN: socklen_t = size_of::<libc::linger>() as socklen_t;
    with_libos(|libos| {
        // SAFETY: NULL or `*optlen` writable bytes, says the header; compared below.
        let value = unsafe { Out::new(optval.cast::<libc::linger>()) }?;
        // SAFETY: NULL or readable, says the header.
        let room = unsafe { read(optlen) }?;
        // SAFETY: NULL or writable, says the header.
        let len_out = unsafe { Out::new(optlen) }?;
        let linger = libos.linger(queue(qd)?)?;
        check_option(level, optname)?;
        if room < LEN {
            return Err(Error::Invalid);
        }
        let secs = linger.as_nanos().div_ceil(1_000_000_000);
        value.write(libc::linger {
            l_onoff: 1,
            l_linger: c_int::try_from(secs).unwrap_or(c_int::MAX),
        });
        len_out.write(LEN);
        Ok(())
    })
}

fn check_option(level: c_int, optname: c_int) -> Result<(), Error> {
    match (level, optname) {
        (libc::SOL_SOCKET, libc::SO_LINGER) => Ok(()),
        (libc::SOL_SOCKET | IPPROTO_HOMA | IPPROTO_HOMA_IANA, _) => Err(Error::NoSuchOption),
        _ => Err(Error::NotSupported),
    }
}

/// Writes the peer's address. `*addrlen` must be the exact size, 16 for AF_INET, and stays so.
///
/// Returns 0, EBADF, EINVAL a NULL pointer or a wrong size, ENOTCONN, or ENOSYS.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn demi_getpeername(
    qd: c_int,
    addr: *mut sockaddr,
    addrlen: *mut socklen_t,
) -> c_int {
    with_libos(|libos| {
        // SAFETY: NULL, or usable and `*addrlen` writable bytes, says the header.
        let room = unsafe { AddrRoom::new(addr, addrlen) }?;
        room.write(libos.getpeername(queue(qd)?)?)
    })
}

/// Writes the socket's own address. `*addrlen` must be the exact size, 16 for AF_INET, and stays.
///
/// Returns 0, EBADF, EINVAL a NULL pointer or a wrong size, or ENOSYS.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn demi_getsockname(
    qd: c_int,
    addr: *mut sockaddr,
    addrlen: *mut socklen_t,
) -> c_int {
    with_libos(|libos| {
        // SAFETY: NULL, or usable and `*addrlen` writable bytes, says the header.
        let room = unsafe { AddrRoom::new(addr, addrlen) }?;
        room.write(libos.getsockname(queue(qd)?)?)
    })
}

/// Memory queues, within one host, are not offered.
///
/// Returns ENOTSUP memory queues are not offered, EINVAL a NULL pointer, or ENOSYS.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn demi_create_pipe(memqd_out: *mut c_int, name: *const c_char) -> c_int {
    no_pipe(memqd_out, name)
}

/// Memory queues, within one host, are not offered.
///
/// Returns ENOTSUP memory queues are not offered, EINVAL a NULL pointer, or ENOSYS.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn demi_open_pipe(memqd_out: *mut c_int, name: *const c_char) -> c_int {
    no_pipe(memqd_out, name)
}

fn no_pipe(memqd_out: *mut c_int, name: *const c_char) -> c_int {
    with_libos(|_| match memqd_out.is_null() || name.is_null() {
        true => Err(Error::Invalid),
        false => Err(Error::NotSupported),
    })
}
