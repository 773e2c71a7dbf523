/* What the examples of homa.h share: a socket with a region to receive into, and messages there. */

#ifndef HOMA_EXAMPLE_H_IS_INCLUDED
#define HOMA_EXAMPLE_H_IS_INCLUDED

#include <demi/homa.h>

#include "example.h"

enum { REGION_PAGES = 256 };

struct homa_socket {
    int fd;
    char *region;
};

/* These calls return -1 and set errno, as system calls do. */
static inline long check_call(const struct options *options, const char *what, long result)
{
    if (result < 0)
        fail(options, what, errno);
    return result;
}

static inline struct homa_socket open_socket(const struct options *options)
{
    size_t length = (size_t)REGION_PAGES * HOMA_BPAGE_SIZE;
    struct homa_socket homa = {.region = aligned_alloc(4096, length)};
    if (!homa.region)
        fail(options, "aligned_alloc", ENOMEM);
    homa.fd = (int)check_call(options, "homa_socket", homa_socket(AF_INET, SOCK_DGRAM, IPPROTO_HOMA));
    struct homa_set_buf_args buffers = {.start = homa.region, .length = length};
    check_call(options, "SO_HOMA_SET_BUF",
               homa_setsockopt(homa.fd, IPPROTO_HOMA, SO_HOMA_SET_BUF, &buffers, sizeof buffers));
    return homa;
}

static inline void close_socket(const struct options *options, struct homa_socket *homa)
{
    check_call(options, "homa_close", homa_close(homa->fd));
    free(homa->region); /* Not before: until then messages may come in. */
}

/* Where the message that `args` tells of lies: all of its pages but the last are full. */
static inline int message_parts(const struct homa_socket *homa,
                                const struct homa_recvmsg_args *args, size_t length,
                                struct iovec parts[HOMA_MAX_BPAGES])
{
    for (uint32_t i = 0; i < args->num_bpages; i++) {
        size_t here = length < HOMA_BPAGE_SIZE ? length : HOMA_BPAGE_SIZE;
        parts[i] = (struct iovec){.iov_base = homa->region + args->bpage_offsets[i], .iov_len = here};
        length -= here;
    }
    return (int)args->num_bpages;
}

/* Whether the message that `args` tells of is number `sequence` of that size. */
static inline bool is_message(const struct homa_socket *homa, const struct homa_recvmsg_args *args,
                              size_t length, uint32_t size, int sequence)
{
    static char bytes[HOMA_MAX_MESSAGE_LENGTH];
    struct iovec parts[HOMA_MAX_BPAGES];
    size_t done = 0;
    int count = message_parts(homa, args, length, parts);
    for (int i = 0; i < count; i++) {
        memcpy(bytes + done, parts[i].iov_base, parts[i].iov_len);
        done += parts[i].iov_len;
    }
    return is_right(bytes, (uint32_t)done, size, sequence);
}

#endif /* HOMA_EXAMPLE_H_IS_INCLUDED */
