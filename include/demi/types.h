/* Made from src/capi by tests/headers.rs: change it there, not here. */

#ifndef DEMI_TYPES_H_IS_INCLUDED
#define DEMI_TYPES_H_IS_INCLUDED

#include <stddef.h>
#include <stdint.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <demi/cc.h>

/**
 * Most segments in a scatter-gather array.
 */
#define DEMI_SGARRAY_MAXSIZE 1

/**
 * What kind of operation completed.
 */
enum demi_opcode {
    /**
     * None.
     */
    DEMI_OPC_INVALID = 0,
    /**
     * A push: the bytes are the application's again.
     */
    DEMI_OPC_PUSH,
    /**
     * A pop, or a call to a remote procedure: qr_value.sga holds the message.
     */
    DEMI_OPC_POP,
    /**
     * An accept: qr_value.ares holds the new connection.
     */
    DEMI_OPC_ACCEPT,
    /**
     * A connect.
     */
    DEMI_OPC_CONNECT,
    /**
     * A close.
     */
    DEMI_OPC_CLOSE,
    /**
     * Any of these, which failed: qr_ret holds the errno.
     */
    DEMI_OPC_FAILED,
};

/**
 * Names a pending operation until a wait has returned its result. Never 0 and never UINT64_MAX.
 */
typedef uint64_t demi_qtoken_t;

/**
 * A segment of a scatter-gather array.
 */
struct __attribute__((__packed__)) demi_sgaseg {
    /**
     * First byte. May be moved forward, within the buffer, before a push.
     */
    void *sgaseg_buf;
    /**
     * Size in bytes. May be reduced before a push.
     */
    uint32_t sgaseg_len;
};

typedef struct demi_sgaseg demi_sgaseg_t;

/**
 * A scatter-gather array: one buffer, from demi_sgaalloc() or a pop, that the application owns.
 */
struct __attribute__((__packed__)) demi_sgarray {
    /**
     * Reserved: names the buffer. Not an address; leave it as it is. NULL in a null array.
     */
    void *sga_buf;
    /**
     * Segments in use: 1, or 0 in a null array.
     */
    uint32_t sga_numsegs;
    /**
     * The segments.
     */
    demi_sgaseg_t sga_segs[DEMI_SGARRAY_MAXSIZE];
    /**
     * Who sent it, in network byte order, if it was popped and the sender has an IPv4 address.
     */
    struct sockaddr_in sga_addr;
};

typedef struct demi_sgarray demi_sgarray_t;

typedef enum demi_opcode demi_opcode_t;

/**
 * What an accept gives.
 */
struct __attribute__((__packed__)) demi_accept_result {
    /**
     * The new connection's queue descriptor.
     */
    int32_t qd;
    /**
     * The peer's address.
     */
    struct sockaddr_in addr;
};

typedef struct demi_accept_result demi_accept_result_t;

/**
 * What an operation gives beside its return code.
 */
union demi_qr_value {
    /**
     * The popped message, if the opcode is DEMI_OPC_POP.
     */
    demi_sgarray_t sga;
    /**
     * The accepted connection, if the opcode is DEMI_OPC_ACCEPT.
     */
    demi_accept_result_t ares;
};

/**
 * The result of an operation.
 */
struct __attribute__((__packed__)) demi_qresult {
    /**
     * What completed.
     */
    demi_opcode_t qr_opcode;
    /**
     * The queue it ran on.
     */
    int32_t qr_qd;
    /**
     * The token it had.
     */
    demi_qtoken_t qr_qt;
    /**
     * 0, or a positive errno if the opcode is DEMI_OPC_FAILED.
     */
    int64_t qr_ret;
    /**
     * What it gave: all zero unless the opcode says otherwise.
     */
    union demi_qr_value qr_value;
};

typedef struct demi_qresult demi_qresult_t;

/**
 * A profiler's callback: name, its length, nanoseconds. Accepted, not called.
 */
typedef void (*demi_callback_t)(const char*, uint32_t, uint64_t);

/**
 * What demi_init() takes.
 */
struct __attribute__((__packed__)) demi_args {
    /**
     * How many arguments.
     */
    int argc;
    /**
     * The program's arguments. `--config FILE` is used, all others are left to the program.
     */
    char *const *argv;
    /**
     * May be NULL.
     */
    demi_callback_t callback;
};

#endif  /* DEMI_TYPES_H_IS_INCLUDED */
