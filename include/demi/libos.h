/* Made from src/capi by tests/headers.rs: change it there, not here. */

#ifndef DEMI_LIBOS_H_IS_INCLUDED
#define DEMI_LIBOS_H_IS_INCLUDED

#include <demi/types.h>

/**
 * The version of these headers: what demi_version() gave when they were made.
 */
#define DEMIHOMA_VERSION ((0 << 16) | (1 << 8) | 0)

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/**
 * The version of the library: major * 65536 + minor * 256 + patch. A program may compare it with
 * DEMIHOMA_VERSION, which the headers it was compiled with define.
 *
 * Works at any time, in any thread.
 */
uint32_t demi_version(void);

/**
 * Starts the library for the calling thread. What it makes may be used by this thread only.
 *
 * All other calls give ENOSYS before it and in threads that did not call it, and EBUSY in a signal
 * handler that interrupted another call. They write their outputs on success only.
 *
 * Of the arguments only `--config FILE` is read; without it the environment variable CONFIG_PATH
 * names the file, and without that the defaults hold. `args` may be NULL. Over the file stand
 * variables such as DEMIHOMA_NETWORK_INTERFACE=eth1.
 *
 * Ownership: the arguments are used during the call only. What the library takes it gives back as
 * the thread ends; in the main thread, by exit(), and then it waits for messages that were pushed
 * until the peers have them, at most as long as SO_LINGER says.
 *
 * Returns 0, or after one line on stderr that says what is wrong: EEXIST this thread called it
 * before; ENOENT, EINVAL bad configuration; ENODEV no such interface; EADDRINUSE the interface is
 * in use; EPERM a privilege is missing; EIO the device failed; or another errno.
 */
int demi_init(const struct demi_args *args);

/**
 * Makes a socket and writes its queue descriptor, which is 500 or more and no file descriptor.
 *
 * AF_INET with SOCK_DGRAM: paired datagrams; with SOCK_DGRAM and protocol IPPROTO_HOMA: native
 * RPC, see demi/homa.h; with SOCK_STREAM: connections, which carry whole messages and which only
 * this library speaks.
 *
 * Returns 0, EINVAL a NULL pointer, ENOTSUP no such kind of socket, EAGAIN too many sockets, or
 * ENOSYS.
 */
int demi_socket(int *sockqd_out, int domain, int type, int protocol);

/**
 * Makes a stream passive: peers may connect to it, and `backlog` of them at a time wait to be
 * accepted; others have to try again.
 *
 * Returns 0, EBADF, EINVAL a backlog below 1, ENOTSUP not a stream, EDESTADDRREQ not bound,
 * EADDRINUSE listening, connecting or connected already, or ENOSYS.
 */
int demi_listen(int sockqd, int backlog);

/**
 * Gives a socket its local address; the wildcard stands for the runtime's address. Streams and
 * datagrams share the ports. That of a listening socket is in use until its connections are
 * closed too.
 *
 * Returns 0, EBADF, EINVAL a NULL pointer, a wrong size, or already bound, EADDRINUSE,
 * EADDRNOTAVAIL not an address of ours, ENOTSUP another family, or a stream without address or
 * port, or ENOSYS.
 */
int demi_bind(int sockqd, const struct sockaddr *addr, socklen_t size);

/**
 * Asks for the next connection: a new queue descriptor, and the peer's address.
 *
 * Returns 0, EBADF, EINVAL a NULL pointer or not listening, EAGAIN too many pending operations, or
 * ENOSYS.
 */
int demi_accept(demi_qtoken_t *qt_out, int sockqd);

/**
 * Connects a stream to a listening one.
 *
 * Completes as DEMI_OPC_FAILED with ECONNREFUSED nobody listens there, EHOSTUNREACH no way to the
 * host, or ETIMEDOUT no answer in the configured time; then the socket may try again.
 *
 * Returns 0, EBADF, EINVAL a NULL pointer or a wrong size, EOPNOTSUPP listening, EINPROGRESS
 * connecting, EISCONN connected, ENOTSUP not a stream or another family, EAGAIN too many pending
 * operations, connections or ports, or ENOSYS.
 */
int demi_connect(demi_qtoken_t *qt_out, int sockqd, const struct sockaddr *addr, socklen_t size);

/**
 * Closes a queue. What is pending on it completes as DEMI_OPC_FAILED with ECANCELED; its tokens
 * are still to be waited for. Messages that nobody confirmed yet are waited for, at most as long
 * as SO_LINGER says. Peers of a stream get what was pushed, and then its end.
 *
 * Returns 0, EBADF, or ENOSYS.
 */
int demi_close(int qd);

/**
 * Sends a message of 1 to 1,000,000 bytes on a connected queue, after those pushed before.
 *
 * The array may be freed at once; its bytes must not change until the push has completed, which is
 * when they were sent. While the peer is 32 messages or 256 KiB behind with its pops, pushes wait.
 * Completes as DEMI_OPC_FAILED with ECONNRESET the peer is gone, or ETIMEDOUT it is silent for
 * too long; on a datagram socket with EDESTADDRREQ.
 *
 * Ownership: the array stays the caller's, who frees it, at once if it likes: the push keeps the
 * bytes by a reference of its own.
 *
 * Returns 0, EBADF, EINVAL a NULL pointer, or an array that is null, freed, foreign, empty or
 * out of its buffer's range, EMSGSIZE, ENOTCONN, EAGAIN too many pending operations, or ENOSYS.
 */
int demi_push(demi_qtoken_t *qt_out, int qd, const demi_sgarray_t *sga);

/**
 * Sends a datagram of 1 to 1,000,000 bytes; an unbound socket gets a port of its own first.
 *
 * A datagram to a peer whose request was popped here and is not answered yet becomes the
 * response to it; any other is a request. The array may be freed at once; its bytes must not
 * change until the push has completed: up to 4,096 bytes are copied, of more the peer must be
 * known to have them. A datagram that fails after its push completed is only counted.
 *
 * Ownership: the array stays the caller's, who frees it, at once if it likes: the push keeps the
 * bytes by a reference of its own. The array may be one that was popped.
 *
 * Returns 0, EBADF, EINVAL as demi_push(), a wrong size, or an address without a host or a port,
 * ENOTSUP another family or kind of socket, EMSGSIZE, EAGAIN too many pending operations, or
 * ENOSYS.
 */
int demi_pushto(demi_qtoken_t *qt_out,
                int sockqd,
                const demi_sgarray_t *sga,
                const struct sockaddr *dest_addr,
                socklen_t size);

/**
 * Asks for the next message, which comes whole, as the result of the token.
 *
 * Ownership: the message's array is the application's, which frees it by demi_sgafree(). Until
 * then its pages are not used for others.
 *
 * Once the peer has closed a stream and all its messages were popped, each pop gives an array of
 * one segment with no bytes, which must be freed too. Completes as DEMI_OPC_FAILED with ECONNRESET
 * or ETIMEDOUT as demi_push().
 *
 * Returns 0, EBADF, EINVAL a NULL pointer, EDESTADDRREQ a datagram socket that is not bound,
 * ENOTCONN a stream that is not connected, EAGAIN too many pending operations, or ENOSYS.
 */
int demi_pop(demi_qtoken_t *qt_out, int qd);

/**
 * Sets an option: SOL_SOCKET's SO_LINGER, a `struct linger`, how long demi_close() and exit wait
 * for messages that nobody confirmed yet; off stands for the configured time.
 *
 * Returns 0, EBADF, EINVAL a NULL pointer, a wrong size or value, ENOTSUP another level,
 * ENOPROTOOPT another option, or ENOSYS.
 */
int demi_setsockopt(int qd, int level, int optname, const void *optval, socklen_t optlen);

/**
 * Gets an option, see demi_setsockopt(), and writes its size into `optlen`. SO_LINGER is always
 * on, with the seconds that hold.
 *
 * Returns 0, EBADF, EINVAL a NULL pointer or too small a size, ENOTSUP another level, ENOPROTOOPT
 * another option, or ENOSYS.
 */
int demi_getsockopt(int qd, int level, int optname, void *optval, socklen_t *optlen);

/**
 * Writes the peer's address. `*addrlen` must be the exact size, 16 for AF_INET, and stays so.
 *
 * Returns 0, EBADF, EINVAL a NULL pointer or a wrong size, ENOTCONN, or ENOSYS.
 */
int demi_getpeername(int qd, struct sockaddr *addr, socklen_t *addrlen);

/**
 * Writes the socket's own address. `*addrlen` must be the exact size, 16 for AF_INET, and stays.
 *
 * Returns 0, EBADF, EINVAL a NULL pointer or a wrong size, or ENOSYS.
 */
int demi_getsockname(int qd, struct sockaddr *addr, socklen_t *addrlen);

/**
 * Memory queues, within one host, are not offered.
 *
 * Returns ENOTSUP memory queues are not offered, EINVAL a NULL pointer, or ENOSYS.
 */
int demi_create_pipe(int *memqd_out, const char *name);

/**
 * Memory queues, within one host, are not offered.
 *
 * Returns ENOTSUP memory queues are not offered, EINVAL a NULL pointer, or ENOSYS.
 */
int demi_open_pipe(int *memqd_out, const char *name);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* DEMI_LIBOS_H_IS_INCLUDED */
