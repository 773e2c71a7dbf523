/* Made from src/capi by tests/headers.rs: change it there, not here. */

#ifndef DEMI_HOMA_H_IS_INCLUDED
#define DEMI_HOMA_H_IS_INCLUDED

#include <stddef.h>
#include <poll.h>
#include <stdint.h>
#include <netinet/in.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <demi/types.h>

/**
 * The protocol that selects native RPC in demi_socket(). 146, Linux's number, does so, too. What
 * stands in the IP header is set in the configuration.
 */
#ifndef IPPROTO_HOMA
#define IPPROTO_HOMA 0xFD
#endif

/* The constants and structures of Linux Homa's user interface. If the module's own header came
 * before this one, they are there already; if it comes after, it finds its guard set. Today's
 * header has other structures than that of 2022: after it, the homa_ calls are not declared. */
#ifdef _UAPI_LINUX_HOMA_H
#define _HOMA_H
#define DEMI_HOMA_WITHOUT_CALLS
#else
#define _UAPI_LINUX_HOMA_H
#endif

#ifndef _HOMA_H
#define _HOMA_H

typedef union sockaddr_in_union sockaddr_in_union;

/**
 * Most bytes of a message.
 */
#define HOMA_MAX_MESSAGE_LENGTH 1000000

/**
 * Binary logarithm of the size of a page of receive buffers.
 */
#define HOMA_BPAGE_SHIFT 16

/**
 * Bytes in a page of receive buffers.
 */
#define HOMA_BPAGE_SIZE (1 << HOMA_BPAGE_SHIFT)

/**
 * Most pages that a message needs.
 */
#define HOMA_MAX_BPAGES 16

/**
 * Ports below are for servers, from here on for clients, which get them automatically.
 */
#define HOMA_MIN_DEFAULT_PORT 32768

/**
 * Flag of homa_recvmsg_args: a request will do.
 */
#define HOMA_RECVMSG_REQUEST 1

/**
 * Flag of homa_recvmsg_args: a response will do.
 */
#define HOMA_RECVMSG_RESPONSE 2

/**
 * Flag of homa_recvmsg_args: do not wait.
 */
#define HOMA_RECVMSG_NONBLOCKING 4

/**
 * All flags of homa_recvmsg_args.
 */
#define HOMA_RECVMSG_VALID_FLAGS 7

/**
 * Socket option: the buffer region, a homa_set_buf_args.
 */
#define SO_HOMA_SET_BUF 10

/**
 * Do not pace output: hand every packet to the device at once.
 */
#define HOMA_FLAG_DONT_THROTTLE 2

/**
 * An IPv4 or an IPv6 address.
 */
union sockaddr_in_union {
    /**
     * To look at the family.
     */
    struct sockaddr sa;
    /**
     * If it is AF_INET.
     */
    struct sockaddr_in in4;
    /**
     * If it is AF_INET6.
     */
    struct sockaddr_in6 in6;
};

/**
 * What sending takes and gives.
 */
struct homa_sendmsg_args {
    /**
     * In: 0 for a request, or the id of the request that this message answers. Out, for a
     * request: its id.
     */
    uint64_t id;
    /**
     * In, for a request: comes back with the response.
     */
    uint64_t completion_cookie;
};

/**
 * What receiving takes and gives.
 */
struct homa_recvmsg_args {
    /**
     * In: the RPC whose message is wanted, or 0. Out: the RPC whose message came.
     */
    uint64_t id;
    /**
     * Out: the cookie of the request that a response answers; 0 with a request.
     */
    uint64_t completion_cookie;
    /**
     * In: HOMA_RECVMSG_ flags.
     */
    int flags;
    /**
     * How many bpage_offsets count. In: pages given back. Out: pages of the message.
     */
    uint32_t num_bpages;
    /**
     * Must be 0.
     */
    uint32_t _pad[2];
    /**
     * Where in the buffer region the parts of the message are. All but the last are full pages;
     * they belong to the application until it passes them in again.
     */
    uint32_t bpage_offsets[HOMA_MAX_BPAGES];
};

/**
 * What aborting takes.
 */
struct homa_abort_args {
    /**
     * The RPC to abort, or 0 for all client RPCs of the socket.
     */
    uint64_t id;
    /**
     * 0: the RPCs are forgotten. An errno: they complete with it.
     */
    int error;
    /**
     * Must be 0.
     */
    int _pad1;
    /**
     * Must be 0.
     */
    uint64_t _pad2[2];
};

/**
 * The buffer region of a socket.
 */
struct homa_set_buf_args {
    /**
     * First byte, at a page boundary.
     */
    void *start;
    /**
     * Bytes.
     */
    size_t length;
};

#endif  /* _HOMA_H */

/**
 * Socket option, an int: whether a socket that is not bound takes requests.
 */
#ifndef SO_HOMA_SERVER
#define SO_HOMA_SERVER 11
#endif

/* Requests of the module's ioctl calls, kept as numbers for programs that name them. */
#ifndef HOMAIOCABORT
#define HOMAIOCABORT _IOWR(0x89, 0xe3, struct homa_abort_args)
#endif
#ifndef HOMAIOCREPLY
#define HOMAIOCREPLY _IOWR(0x89, 0xe2, struct homa_reply_args)
#endif
#ifndef HOMAIOCFREEZE
#define HOMAIOCFREEZE _IO(0x89, 0xef)
#endif

#ifndef DEMI_HOMA_WITHOUT_CALLS

/**
 * Socket option, an int of HOMA_FLAG_ bits, which hold for all sockets of the thread.
 */
#define SO_HOMA_FLAGS 12

/**
 * Flag of homa_rpc_info: the incoming message waits for pages.
 */
#define HOMA_RPC_BUF_STALL 1

/**
 * Flag of homa_rpc_info: homa_recvmsg() would bring it.
 */
#define HOMA_RPC_RX_READY 4

/**
 * Flag of homa_rpc_info: a request that was received and not answered.
 */
#define HOMA_RPC_IN_SERVICE 16

/**
 * Bytes of the text in a homa_info, its end included.
 */
#define HOMA_ERROR_MSG_SIZE 128

/**
 * How an RPC is.
 */
struct homa_rpc_info {
    /**
     * Even for a call, odd for a request of another.
     */
    uint64_t id;
    /**
     * Of a call; else 0.
     */
    uint64_t completion_cookie;
    /**
     * The other side, in the form of the socket's family.
     */
    sockaddr_in_union peer;
    /**
     * 0, or the errno with which it failed.
     */
    int32_t error;
    /**
     * Bytes of our message; 0 if there is none.
     */
    uint32_t tx_length;
    /**
     * Those that went out.
     */
    uint32_t tx_sent;
    /**
     * Those that may.
     */
    uint32_t tx_granted;
    /**
     * Bytes of the other side's message; 0 if nothing of it came.
     */
    uint32_t rx_length;
    /**
     * Those that did not come.
     */
    uint32_t rx_remaining;
    /**
     * Those that may come without a further grant.
     */
    uint32_t rx_granted;
    /**
     * Gaps before bytes that came.
     */
    uint32_t rx_gaps;
    /**
     * Bytes of all gaps.
     */
    uint32_t rx_gap_bytes;
    /**
     * HOMA_RPC_ bits.
     */
    uint32_t flags;
    /**
     * 0.
     */
    uint32_t _pad;
};

/**
 * How a socket is.
 */
struct homa_info {
    /**
     * In: sizeof(struct homa_info).
     */
    uint32_t size;
    /**
     * Its port; 0 once it is shut down.
     */
    uint32_t port;
    /**
     * Bytes of the region that messages could have now.
     */
    uint64_t bpool_avail_bytes;
    /**
     * Bytes of the region that are used, whole pages; 0 without one.
     */
    uint64_t bpool_bytes;
    /**
     * In: room for that many as the next says, or NULL. Out: what fits, by id.
     */
    struct homa_rpc_info *rpc_info;
    /**
     * In: how many fit.
     */
    uint32_t rpc_info_length;
    /**
     * Out: how many RPCs there are, which may be more.
     */
    uint32_t num_rpcs;
    /**
     * Out: why the last call that failed did, which errno tells too roughly; empty if none did.
     */
    char error_msg[HOMA_ERROR_MSG_SIZE];
};

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/**
 * Sets an option of a Homa socket. Level IPPROTO_HOMA:
 *
 * SO_HOMA_SET_BUF, a homa_set_buf_args: the region to receive into, once. It starts at a page
 * boundary and has at least 2,065,536 bytes (two messages and a bpage), 4 GiB at most. Until the
 * socket is closed or shut down only homa_recvmsg() says which of it may be read.
 * SO_HOMA_SERVER, an int: whether it takes requests, as a bound socket does.
 * SO_HOMA_FLAGS, an int: HOMA_FLAG_DONT_THROTTLE, for all sockets of the thread.
 *
 * Level SOL_SOCKET: SO_RCVTIMEO and SO_SNDTIMEO, a struct timeval: how long homa_recvmsg() and
 * sending wait; zero is for ever.
 *
 * Returns 0, or -1: EBADF, ENOTSUP no Homa socket, or another level, EINVAL a NULL pointer, a
 * wrong size or value (homa_info() says why), ENOPROTOOPT another option, ESHUTDOWN, or ENOSYS.
 */
int homa_setsockopt(int sockfd, int level, int optname, const void *optval, socklen_t optlen);

/**
 * Gets an option, see homa_setsockopt(), and writes its size into `optlen`. SO_HOMA_SET_BUF tells
 * the region as far as it is used, whole pages; NULL and 0 if there is none.
 *
 * Returns 0, or -1: EBADF, ENOTSUP, EINVAL a NULL pointer or too small a size, ENOPROTOOPT,
 * ESHUTDOWN, or ENOSYS.
 */
int homa_getsockopt(int sockfd, int level, int optname, void *optval, socklen_t *optlen);

/**
 * Tells how a socket and its RPCs are. The caller sets `size`, and `rpc_info` with its length.
 *
 * Returns 0, or -1: EBADF, ENOTSUP no Homa socket, EINVAL a NULL pointer, or too small a size, or
 * ENOSYS.
 */
int homa_info(int sockfd, struct homa_info *info);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/**
 * Makes a socket: AF_INET or AF_INET6, SOCK_DGRAM, IPPROTO_HOMA. With SOCK_NONBLOCK none of its
 * calls waits. It has an automatic port, which demi_getsockname() tells, and needs a region to
 * receive into, see homa_setsockopt().
 *
 * The descriptor is 500 or more and no descriptor of the kernel: close it by homa_close() only.
 *
 * Returns it, or -1: EAFNOSUPPORT, ENOTSUP another type, EPROTONOSUPPORT, EAGAIN too many sockets,
 * EADDRNOTAVAIL no automatic port is left, or ENOSYS.
 */
int homa_socket(int domain, int type, int protocol);

/**
 * Gives a socket a port of 1 to 32,767 on one of our addresses, or on all of them, and lets it
 * take requests. Port 0 changes nothing. It may be bound again, and keeps what it has on errors.
 *
 * Returns 0, or -1: EBADF, ENOTSUP no Homa socket, EINVAL a NULL pointer, or a port that is
 * automatic, EADDRINUSE, EADDRNOTAVAIL not an address of ours, EAFNOSUPPORT, ESHUTDOWN, or ENOSYS.
 */
int homa_bind(int sockfd, const sockaddr_in_union *addr);

/**
 * Sends a request of 1 to 1,000,000 bytes, which are the application's again when this returns.
 * Its id is written to `id` unless that is NULL; the cookie comes back with the response.
 *
 * While memory to send from is short (`memory.send_bytes`) it waits, unless the socket does not.
 *
 * Returns 0, or -1 and nothing was sent: EBADF, ENOTSUP no Homa socket, EINVAL a NULL pointer, a
 * wrong length, or no host or port to send to, EAFNOSUPPORT not the socket's family, EAGAIN no
 * memory in time, or too many calls not received, EINTR by demi_wake(), ESHUTDOWN, or ENOSYS.
 */
int homa_send(int sockfd,
              const void *message_buf,
              size_t length,
              const sockaddr_in_union *dest_addr,
              uint64_t *id,
              uint64_t completion_cookie);

/**
 * As homa_send(), a message put together from `iovcnt` parts, 1,024 at most.
 */
int homa_sendv(int sockfd,
               const struct iovec *iov,
               int iovcnt,
               const sockaddr_in_union *dest_addr,
               uint64_t *id,
               uint64_t completion_cookie);

/**
 * Sends what `args` says: with id 0 a request, as homa_sendv(), whose id is written there; else
 * the reply to the request with that id, as homa_replyv(), whose cookie must be 0.
 *
 * Returns 0, or -1 with errno as those do.
 */
int homa_sendmsg(int sockfd,
                 struct homa_sendmsg_args *args,
                 const struct iovec *iov,
                 int iovcnt,
                 const sockaddr_in_union *dest_addr);

/**
 * Answers the request that came with `id` from `dest_addr` by 1 to 1,000,000 bytes, which are
 * the application's again when this returns. To answer one that is gone succeeds and does nothing.
 *
 * Returns `length`, or -1 and the request stays: EBADF, ENOTSUP no Homa socket, EINVAL a NULL
 * pointer, a wrong length, an even id, or a request that was not received or was answered before,
 * EAFNOSUPPORT, EAGAIN no memory in time, EINTR by demi_wake(), ESHUTDOWN, or ENOSYS.
 */
ssize_t homa_reply(int sockfd,
                   const void *message_buf,
                   size_t length,
                   const sockaddr_in_union *dest_addr,
                   uint64_t id);

/**
 * As homa_reply(), a message put together from `iovcnt` parts, 1,024 at most.
 */
ssize_t homa_replyv(int sockfd,
                    const struct iovec *iov,
                    int iovcnt,
                    const sockaddr_in_union *dest_addr,
                    uint64_t id);

/**
 * Receives a message: of the call with `args->id`, or, by the flags, any request or any response.
 *
 * First the pages that `args` names are taken back, also if the rest fails; then it waits, unless
 * HOMA_RECVMSG_NONBLOCKING or the socket says otherwise. The message's id, cookie and pages are
 * written to `args`, its sender to `src_addr` unless that is NULL; `*addrlen` says how many bytes
 * fit there, and then how many the address has; if it is NULL, a whole sockaddr_in_union fits.
 *
 * The pages belong to the application until it names each of their offsets in a later call. They
 * need not be adjacent. Pages that are not given back stop the senders once no others are left.
 *
 * Returns the message's length, or -1. If a call of ours failed, its errno, with its id, cookie
 * and peer: ENOTCONN, EHOSTUNREACH, EPROTONOSUPPORT, ETIMEDOUT, ENOMEM it waited too long for
 * pages, or that of homa_abort(). Else no message came, and id and cookie are 0: EINVAL no such
 * call, ENOMEM there is no region, EAGAIN nothing came in time, EINTR by demi_wake(). Or else
 * nothing was taken back, and `args` is as it was: EBADF, ENOTSUP no Homa socket, EINVAL a NULL
 * pointer, unknown flags, `_pad`, neither id nor flags, or an offset that the application does
 * not have; ESHUTDOWN, or ENOSYS.
 */
ssize_t homa_recvmsg(int sockfd,
                     struct homa_recvmsg_args *args,
                     sockaddr_in_union *src_addr,
                     size_t *addrlen);

/**
 * Ends the call `id` of this socket, or with 0 all of them. With error 0 they are forgotten, else
 * homa_recvmsg() brings them with that errno. Requests of others are left alone.
 *
 * Returns 0, or -1: EBADF, ENOTSUP no Homa socket, EINVAL a negative error or no such call,
 * ESHUTDOWN, or ENOSYS.
 */
int homa_abort(int sockfd, uint64_t id, int error);

/**
 * As homa_abort(), by a structure whose `_pad1` and `_pad2` must be 0, or else EINVAL.
 */
int homa_abortp(int fd, struct homa_abort_args *args);

/**
 * Ends all RPCs of a socket at once. All its calls but homa_close() and homa_info() then fail with
 * ESHUTDOWN, also the one that waits just now, if this is called from a signal handler. Its region
 * is not touched any more. A second time it does nothing.
 *
 * Returns 0, or -1: EBADF, ENOTSUP no Homa socket, EBUSY too many at once from signal handlers, or
 * ENOSYS.
 */
int homa_shutdown(int sockfd);

/**
 * Closes a socket. Calls that are not over are forgotten; responses that nobody confirmed yet are
 * waited for, at most as long as SO_LINGER says, see demi_setsockopt(). When this returns, the
 * region is all the application's.
 *
 * Returns 0, or -1: EBADF, ENOTSUP no Homa socket, or ENOSYS.
 */
int homa_close(int sockfd);

/**
 * Waits until a descriptor is ready, `timeout_ms` at most, or for ever if that is negative; 0 is
 * a look. As poll(2), for descriptors of this library only: others get POLLNVAL.
 *
 * A Homa socket has POLLIN when a message or a failed call waits to be received, POLLIN and
 * POLLHUP once it is shut down, and POLLOUT while there is memory to send the longest message.
 * Descriptors of demi_socket() have POLLIN when one of their operations is done or a message waits
 * to be popped, and always POLLOUT: so one loop serves both.
 *
 * Returns how many are ready, 0 after the time, or -1: EINVAL a NULL pointer or too many, EINTR by
 * demi_wake(), or ENOSYS.
 */
int homa_poll(struct pollfd *fds, nfds_t nfds, int timeout_ms);

/**
 * Asks the hosts that this one talks with to freeze their traces, as HOMAIOCFREEZE does. Here
 * nothing is frozen, since there is no such trace.
 *
 * Returns 0, or -1: EBADF, ENOTSUP no Homa socket, ESHUTDOWN, or ENOSYS.
 */
int homa_freeze(int sockfd);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* DEMI_HOMA_WITHOUT_CALLS */

/**
 * Value of `kind` in demi_homa_msg_info: a request, which wants a reply.
 */
#define DEMI_HOMA_REQUEST 1

/**
 * Value of `kind` in demi_homa_msg_info: a response.
 */
#define DEMI_HOMA_RESPONSE 2

/**
 * What is known of a message that was popped.
 */
struct demi_homa_msg_info {
    /**
     * In: sizeof(struct demi_homa_msg_info).
     */
    uint32_t size;
    /**
     * DEMI_HOMA_REQUEST or DEMI_HOMA_RESPONSE.
     */
    uint32_t kind;
    /**
     * The RPC's id: even at the client, odd at the server.
     */
    uint64_t id;
    /**
     * The cookie of the request that a response answers; 0 with a request.
     */
    uint64_t completion_cookie;
    /**
     * Bytes of the message.
     */
    uint32_t length;
    /**
     * 0, or the errno with which the RPC ended.
     */
    int32_t error;
    /**
     * The other side's address, in network byte order.
     */
    struct sockaddr_storage peer;
};

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/**
 * Sends a request of 1 to 1,000,000 bytes to a server; an unbound socket gets a port of its own
 * first.
 *
 * The token completes as DEMI_OPC_POP with the response, which the application frees, or as
 * DEMI_OPC_FAILED: ENOTCONN nobody listens on that port, EHOSTUNREACH no route to the host, or it
 * does not answer ARP, EMSGSIZE a router says that our packets are too long for its next link, so
 * that the MTU must be set to less, ETIMEDOUT the server fell silent, ECANCELED or the errno of
 * demi_homa_abort(). `flags` must be 0. The RPC's id is written to `id_out` unless that is NULL.
 *
 * Ownership: the request's array stays the caller's, who frees it, at once if it likes; its bytes
 * must not change until the token completes. The response's array is the application's, which
 * frees it.
 *
 * Returns 0, EBADF, EINVAL a NULL pointer, a wrong size, flags, an address without a host or a
 * port, or an array as demi_push(), ENOTSUP another family or kind of socket, EMSGSIZE, EAGAIN too
 * many pending operations, or ENOSYS.
 */
int demi_homa_call(demi_qtoken_t *qt,
                   int qd,
                   const demi_sgarray_t *req,
                   const struct sockaddr *dst,
                   socklen_t len,
                   uint64_t completion_cookie,
                   uint32_t flags,
                   uint64_t *id_out);

/**
 * Answers the request `id` of `peer`, both as demi_homa_info() tells them, by 1 to 1,000,000
 * bytes.
 *
 * With a NULL `qt` there is no token; else it completes as DEMI_OPC_PUSH once the bytes are the
 * application's again. To answer an RPC that is gone succeeds and does nothing. After an error the
 * request is still in service: the client waits for another answer, such as a shorter one after
 * EMSGSIZE.
 *
 * Ownership: the response's array stays the caller's, who frees it, at once if it likes, and it
 * may be the request's own. Without a token the bytes of a response of more than 4,096 bytes must
 * not change before.
 *
 * Returns 0, EBADF, EINVAL a NULL pointer, a wrong size, or array as demi_push(), ENOTSUP another
 * family or kind of socket, EMSGSIZE, EAGAIN too many pending operations, or ENOSYS.
 */
int demi_homa_reply(demi_qtoken_t *qt,
                    int qd,
                    uint64_t id,
                    const struct sockaddr *peer,
                    socklen_t len,
                    const demi_sgarray_t *rsp);

/**
 * Tells what is known of a popped message while its array lives. The caller sets `out->size`.
 *
 * Returns 0, EINVAL a NULL pointer, too small a size, or an array that is null, freed, foreign, or
 * not popped, or ENOSYS.
 */
int demi_homa_info(const demi_sgarray_t *sga, struct demi_homa_msg_info *out);

/**
 * Gives up the RPC `id`, or with 0 all that this socket has called: their tokens complete as
 * DEMI_OPC_FAILED with `error`, or ECANCELED if that is 0.
 *
 * Returns 0, EBADF, EINVAL a negative error or no such RPC, ENOTSUP another kind of socket, or
 * ENOSYS.
 */
int demi_homa_abort(int qd, uint64_t id, int error);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* DEMI_HOMA_H_IS_INCLUDED */
