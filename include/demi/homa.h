/* Made from src/capi by tests/headers.rs: change it there, not here. */

#ifndef DEMI_HOMA_H_IS_INCLUDED
#define DEMI_HOMA_H_IS_INCLUDED

#include <stddef.h>
#include <stdint.h>
#include <netinet/in.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <demi/types.h>

/**
 * The protocol that selects native RPC in demi_socket(). 146, Linux's number, does so, too. What
 * stands in the IP header is set in the configuration.
 */
#ifndef IPPROTO_HOMA
#define IPPROTO_HOMA 0xFD
#endif

/* The constants and structures of Linux Homa's user interface. If the module's own header came
 * before this one, they are there already; if it comes after, it finds its guard set. */
#ifdef _UAPI_LINUX_HOMA_H
#define _HOMA_H
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
 * demi_homa_abort(). The request's array may be freed at once; its bytes must not change until
 * the token completes. `flags` must be 0. The RPC's id is written to `id_out` unless that is
 * NULL.
 *
 * Returns 0, EBADF, EINVAL a NULL pointer, a wrong size, flags, or array as demi_push(), ENOTSUP
 * another family or kind of socket, EMSGSIZE, EAGAIN too many pending operations, or ENOSYS.
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
 * application's again. The response's array may be freed at once, and may be the request's own.
 * To answer an RPC that is gone succeeds and does nothing. After an error the request is still in
 * service: the client waits for another answer, such as a shorter one after EMSGSIZE.
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
