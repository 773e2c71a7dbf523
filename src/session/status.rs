//! What statuses on the wire and in completions mean: 0, or a negative errno.

/// No path is left, and the user wanted no waiting.
pub const ABORTED: i32 = -libc::ECONNABORTED;
/// No answer in time.
pub const TIMED_OUT: i32 = -libc::ETIMEDOUT;
/// The path or the session is not known, or is over.
pub const NOT_CONNECTED: i32 = -libc::ENOTCONN;
/// The server's answer made no sense.
pub const RESET: i32 = -libc::ECONNRESET;
/// Something of it is still closing, or too much at once: come again.
pub const BUSY: i32 = -libc::EBUSY;
/// The name belongs to another session.
pub const EXISTS: i32 = -libc::EEXIST;
/// The session is not here: this is another server, or none that knows it.
pub const NO_SUCH_SESSION: i32 = -libc::ENXIO;
/// Of another life of the server, or of an earlier attempt.
pub const STALE: i32 = -libc::ESTALE;
/// The server that knew what became of the request is gone.
pub const OWNER_DEAD: i32 = -libc::EOWNERDEAD;
/// Fenced off, or the session closes.
pub const CANCELED: i32 = -libc::ECANCELED;
/// The server's application does not want the session.
pub const NOT_PERMITTED: i32 = -libc::EPERM;
/// The server is paused.
pub const PAUSED: i32 = -libc::ENETDOWN;
/// Nonsense.
pub const PROTOCOL: i32 = -libc::EPROTO;
/// Another major version.
pub const VERSION: i32 = -libc::EPROTONOSUPPORT;
/// A wish that cannot be met.
pub const INVALID: i32 = -libc::EINVAL;
/// The request ran, but what it read is not kept any more.
pub const NO_DATA: i32 = -libc::ENODATA;
/// No memory for one more session.
pub const NO_MEMORY: i32 = -libc::ENOMEM;
/// Too many paths.
pub const TOO_MANY_PATHS: i32 = -libc::EMFILE;
/// Answered already, or by a later copy.
pub const ALREADY: i32 = -libc::EALREADY;
/// The session closes.
pub const SHUTDOWN: i32 = -libc::ESHUTDOWN;
/// The handler gave its request up without an answer.
pub const DROPPED: i32 = -libc::EIO;
/// The link is down.
pub const LINK_DOWN: i32 = -libc::ENETUNREACH;

/// Whether an attempt to open a path that ended so may be made again by itself.
pub const fn is_retryable(status: i32) -> bool {
    !matches!(
        status,
        VERSION | EXISTS | INVALID | NO_SUCH_SESSION | TOO_MANY_PATHS | NOT_PERMITTED
    )
}
