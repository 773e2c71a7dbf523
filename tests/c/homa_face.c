/* The calls of homa.h, against the server of examples/c/homa_echo.c and against sockets of this
 * very process: sections SK, AP and PL of the rules, as a C program meets them. */

#define _GNU_SOURCE

#include <demi/homa.h>
#include <demi/libos.h>
#include <demi/sga.h>
#include <demi/wait.h>
#include <arpa/inet.h>
#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/time.h>
#include <unistd.h>

#include "expect.h"

/* The call must fail, and with this errno. */
#define FAILS(errno_wanted, call) EXPECT(errno_wanted, (call) == -1 ? errno : 0)
#define WORKS(call) EXPECT(0, (call) < 0 ? errno : 0)

enum { SMALLEST = 2 * HOMA_MAX_MESSAGE_LENGTH + HOMA_BPAGE_SIZE, ECHO_PORT = 10007 };

static char bytes[HOMA_MAX_MESSAGE_LENGTH + 1];

static sockaddr_in_union at(const char *ip, int port)
{
    sockaddr_in_union addr = {.in4 = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)}};
    inet_pton(AF_INET, ip, &addr.in4.sin_addr);
    return addr;
}

struct homa {
    int fd;
    char *region;
    size_t length;
};

static int set_region(int fd, void *start, size_t length)
{
    struct homa_set_buf_args args = {.start = start, .length = length};
    return homa_setsockopt(fd, IPPROTO_HOMA, SO_HOMA_SET_BUF, &args, sizeof args);
}

static struct homa open_homa(size_t length)
{
    struct homa homa = {.region = aligned_alloc(4096, length), .length = length};
    homa.fd = homa_socket(AF_INET, SOCK_DGRAM, IPPROTO_HOMA);
    REQUIRE(homa.fd >= 500);
    WORKS(set_region(homa.fd, homa.region, length));
    return homa;
}

static void close_homa(struct homa *homa)
{
    WORKS(homa_close(homa->fd));
    free(homa->region);
}

static void text_of(int fd, char text[HOMA_ERROR_MSG_SIZE])
{
    struct homa_info info = {.size = sizeof info};
    WORKS(homa_info(fd, &info));
    memcpy(text, info.error_msg, HOMA_ERROR_MSG_SIZE);
}

static uint64_t ask(int fd, const char *ip, int port, size_t length, uint64_t cookie)
{
    uint64_t id = 0;
    sockaddr_in_union to = at(ip, port);
    for (size_t i = 0; i < length; i++)
        bytes[i] = (char)(i * 7 + i / 251 + cookie);
    WORKS(homa_send(fd, bytes, length, &to, &id, cookie));
    REQUIRE(id != 0 && id % 2 == 0);
    return id;
}

static struct homa_recvmsg_args wanted(uint64_t id, int flags)
{
    return (struct homa_recvmsg_args){.id = id, .flags = flags};
}

static void give_back(int fd, struct homa_recvmsg_args *args)
{
    args->id = 0;
    args->flags = HOMA_RECVMSG_RESPONSE | HOMA_RECVMSG_NONBLOCKING;
    FAILS(EAGAIN, homa_recvmsg(fd, args, NULL, NULL));
    REQUIRE(args->num_bpages == 0);
}

static bool is_pattern(const struct homa *homa, const struct homa_recvmsg_args *args, size_t length)
{
    for (size_t i = 0; i < length; i++) {
        size_t where = args->bpage_offsets[i / HOMA_BPAGE_SIZE] + i % HOMA_BPAGE_SIZE;
        if (where >= homa->length ||
            homa->region[where] != (char)(i * 7 + i / 251 + args->completion_cookie))
            return false;
    }
    return true;
}

/* Rules SK-01, SK-02. */
static void sockets(void)
{
    FAILS(EAFNOSUPPORT, homa_socket(AF_UNIX, SOCK_DGRAM, IPPROTO_HOMA));
    FAILS(ENOTSUP, homa_socket(AF_INET, SOCK_STREAM, IPPROTO_HOMA));
    FAILS(EPROTONOSUPPORT, homa_socket(AF_INET, SOCK_DGRAM, IPPROTO_UDP));
    int one = homa_socket(AF_INET, SOCK_DGRAM, IPPROTO_HOMA);
    int two = homa_socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK, 146);
    REQUIRE(one >= 500 && two > one);
    struct sockaddr_in name;
    socklen_t length = sizeof name;
    EXPECT(0, demi_getsockname(one, (struct sockaddr *)&name, &length));
    REQUIRE(ntohs(name.sin_port) >= HOMA_MIN_DEFAULT_PORT);

    sockaddr_in_union addr = at("10.0.0.2", 80), other = at("10.0.0.9", 81);
    FAILS(EINVAL, homa_bind(one, NULL));
    FAILS(EBADF, homa_bind(3, &addr));
    FAILS(EADDRNOTAVAIL, homa_bind(one, &other));
    sockaddr_in_union automatic = at("10.0.0.2", HOMA_MIN_DEFAULT_PORT), none = at("0.0.0.0", 0);
    FAILS(EINVAL, homa_bind(one, &automatic));
    WORKS(homa_bind(one, &none));
    WORKS(homa_bind(one, &addr));
    WORKS(homa_bind(one, &addr));
    FAILS(EADDRINUSE, homa_bind(two, &addr));
    addr.in4.sin_port = htons(82);
    WORKS(homa_bind(one, &addr));
    addr.in4.sin_port = htons(80);
    WORKS(homa_bind(two, &addr));
    addr.in4.sin_family = AF_UNIX;
    FAILS(EAFNOSUPPORT, homa_bind(one, &addr));
    struct sockaddr_in6 in6 = {.sin6_family = AF_INET6, .sin6_port = htons(83)};
    FAILS(EAFNOSUPPORT, homa_bind(one, &(sockaddr_in_union){.in6 = in6}));
    /* Calls of one face refuse descriptors of the other. */
    demi_qtoken_t qt;
    int demi;
    EXPECT(ENOTSUP, demi_pop(&qt, one));
    EXPECT(0, demi_socket(&demi, AF_INET, SOCK_DGRAM, 0));
    FAILS(ENOTSUP, homa_close(demi));
    EXPECT(0, demi_close(demi));
    WORKS(homa_close(one));
    WORKS(homa_close(two));
    FAILS(EBADF, homa_close(two));
}

/* Rule PL-02, and the other options. */
static void options(void)
{
    int fd = homa_socket(AF_INET, SOCK_DGRAM, IPPROTO_HOMA);
    char *region = aligned_alloc(4096, SMALLEST + 4096), text[HOMA_ERROR_MSG_SIZE];
    struct homa_set_buf_args args = {0};
    struct homa_recvmsg_args receive = wanted(0, HOMA_RECVMSG_REQUEST);
    socklen_t length = sizeof args;
    WORKS(homa_getsockopt(fd, IPPROTO_HOMA, SO_HOMA_SET_BUF, &args, &length));
    REQUIRE(args.start == NULL && args.length == 0 && length == sizeof args);
    FAILS(ENOMEM, homa_recvmsg(fd, &receive, NULL, NULL));
    FAILS(EINVAL, set_region(fd, NULL, SMALLEST));
    FAILS(EINVAL, set_region(fd, region + 64, SMALLEST));
    text_of(fd, text);
    REQUIRE(strstr(text, "page boundary") != NULL);
    FAILS(EINVAL, set_region(fd, region, SMALLEST - 1));
    text_of(fd, text);
    REQUIRE(strstr(text, "too small") != NULL);
    FAILS(EINVAL, set_region(fd, region, (size_t)1 << 33));
    FAILS(EINVAL, homa_setsockopt(fd, IPPROTO_HOMA, SO_HOMA_SET_BUF, region, 8));
    WORKS(set_region(fd, region, SMALLEST));
    FAILS(EINVAL, set_region(fd, region, SMALLEST));
    WORKS(homa_getsockopt(fd, IPPROTO_HOMA, SO_HOMA_SET_BUF, &args, &length));
    REQUIRE(args.start == region && args.length == 31 * HOMA_BPAGE_SIZE);
    length--;
    FAILS(EINVAL, homa_getsockopt(fd, IPPROTO_HOMA, SO_HOMA_SET_BUF, &args, &length));

    int on = 1, value = -1;
    struct timeval time = {.tv_usec = 20000};
    length = sizeof value;
    WORKS(homa_setsockopt(fd, 146, SO_HOMA_SERVER, &on, sizeof on));
    WORKS(homa_getsockopt(fd, 146, SO_HOMA_SERVER, &value, &length));
    REQUIRE(value == 1);
    on = HOMA_FLAG_DONT_THROTTLE;
    WORKS(homa_setsockopt(fd, 146, SO_HOMA_FLAGS, &on, sizeof on));
    WORKS(homa_getsockopt(fd, 146, SO_HOMA_FLAGS, &value, &length));
    REQUIRE(value == HOMA_FLAG_DONT_THROTTLE);
    on = 5;
    FAILS(EINVAL, homa_setsockopt(fd, 146, SO_HOMA_FLAGS, &on, sizeof on));
    FAILS(ENOPROTOOPT, homa_setsockopt(fd, 146, 99, &on, sizeof on));
    FAILS(ENOTSUP, homa_setsockopt(fd, IPPROTO_TCP, 1, &on, sizeof on));
    FAILS(EBADF, homa_setsockopt(9, IPPROTO_TCP, 1, &on, sizeof on));
    FAILS(EINVAL, homa_setsockopt(fd, 146, SO_HOMA_SERVER, NULL, sizeof on));
    WORKS(homa_setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &time, sizeof time));
    FAILS(EAGAIN, homa_recvmsg(fd, &receive, NULL, NULL)); /* After 20 ms. */
    WORKS(homa_close(fd));
    free(region);
}

/* Rules AP-01 to AP-04: bad arguments leave everything as it was. */
static void bad_arguments(void)
{
    struct homa homa = open_homa(SMALLEST);
    sockaddr_in_union to = at("10.0.0.1", ECHO_PORT), no_port = at("10.0.0.1", 0);
    struct iovec parts[2] = {{bytes, 4}, {NULL, 4}};
    struct homa_sendmsg_args send = {0};
    uint64_t id = 77;
    FAILS(EINVAL, homa_send(homa.fd, bytes, 4, NULL, &id, 0));
    FAILS(EINVAL, homa_send(homa.fd, NULL, 4, &to, &id, 0));
    FAILS(EINVAL, homa_send(homa.fd, bytes, 0, &to, &id, 0));
    FAILS(EINVAL, homa_send(homa.fd, bytes, HOMA_MAX_MESSAGE_LENGTH + 1, &to, &id, 0));
    FAILS(EINVAL, homa_send(homa.fd, bytes, 4, &no_port, &id, 0));
    FAILS(EBADF, homa_send(4, bytes, 4, &to, &id, 0));
    FAILS(EINVAL, homa_sendv(homa.fd, parts, 2, &to, &id, 0));
    FAILS(EINVAL, homa_sendv(homa.fd, NULL, 1, &to, &id, 0));
    FAILS(EINVAL, homa_sendv(homa.fd, parts, 0, &to, &id, 0));
    FAILS(EINVAL, homa_sendv(homa.fd, parts, 1025, &to, &id, 0));
    FAILS(EINVAL, homa_sendmsg(homa.fd, NULL, parts, 1, &to));
    REQUIRE(id == 77);
    FAILS(EINVAL, homa_reply(homa.fd, bytes, 4, &to, 2));
    REQUIRE(homa_reply(homa.fd, bytes, 4, &to, 3) == 4); /* Its client went away, maybe. */
    REQUIRE(homa_replyv(homa.fd, parts, 1, &to, 3) == 4);
    send.id = 3;
    WORKS(homa_sendmsg(homa.fd, &send, parts, 1, &to));
    send.completion_cookie = 1;
    FAILS(EINVAL, homa_sendmsg(homa.fd, &send, parts, 1, &to));

    FAILS(EINVAL, homa_recvmsg(homa.fd, NULL, NULL, NULL));
    struct homa_recvmsg_args bad[] = {
        wanted(0, 0), wanted(0, HOMA_RECVMSG_NONBLOCKING), wanted(0, 8 | HOMA_RECVMSG_REQUEST),
        wanted(0, HOMA_RECVMSG_REQUEST), wanted(0, HOMA_RECVMSG_REQUEST),
        wanted(0, HOMA_RECVMSG_REQUEST | HOMA_RECVMSG_NONBLOCKING),
    };
    bad[3].num_bpages = HOMA_MAX_BPAGES + 1;
    bad[4]._pad[1] = 1;
    bad[5].num_bpages = 1; /* Of a page that it does not have. */
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        bad[i].completion_cookie = 5;
        struct homa_recvmsg_args before = bad[i];
        FAILS(EINVAL, homa_recvmsg(homa.fd, &bad[i], NULL, NULL));
        REQUIRE(memcmp(&before, &bad[i], sizeof before) == 0);
    }
    struct homa_recvmsg_args unknown = wanted(4444, 0);
    unknown.completion_cookie = 5;
    FAILS(EINVAL, homa_recvmsg(homa.fd, &unknown, NULL, NULL));
    REQUIRE(unknown.completion_cookie == 0 && unknown.id == 0);
    struct homa_abort_args abort = {.id = 0, ._pad1 = 1};
    FAILS(EINVAL, homa_abortp(homa.fd, &abort));
    FAILS(EINVAL, homa_abortp(homa.fd, NULL));
    FAILS(EINVAL, homa_abort(homa.fd, 4444, 5));
    FAILS(EINVAL, homa_abort(homa.fd, 0, -5));
    struct homa_info info = {.size = sizeof info - 1};
    FAILS(EINVAL, homa_info(homa.fd, &info));
    FAILS(EINVAL, homa_info(homa.fd, NULL));
    info.size = sizeof info;
    WORKS(homa_info(homa.fd, &info));
    REQUIRE(info.num_rpcs == 0 && info.bpool_avail_bytes == info.bpool_bytes);
    close_homa(&homa);
}

/* Rule AP-05, against another process. */
static void round_trips(void)
{
    static const size_t sizes[] = {1, 100, 1432, 1433, 65536, 65537, 150000, 1000000};
    enum { COUNT = sizeof sizes / sizeof *sizes };
    struct homa homa = open_homa(128 * HOMA_BPAGE_SIZE);
    uint64_t ids[COUNT];
    for (uint64_t i = 0; i < COUNT; i++)
        ids[i] = ask(homa.fd, "10.0.0.1", ECHO_PORT, sizes[i], i);
    /* One by its id, which may well be not the first to come; the others as they come. */
    struct homa_recvmsg_args args = wanted(ids[COUNT - 1], 0);
    sockaddr_in_union from;
    size_t length = sizeof from;
    REQUIRE(homa_recvmsg(homa.fd, &args, &from, &length) == 1000000);
    REQUIRE(args.id == ids[COUNT - 1] && args.completion_cookie == COUNT - 1);
    REQUIRE(args.num_bpages == HOMA_MAX_BPAGES && is_pattern(&homa, &args, 1000000));
    REQUIRE(length == sizeof from.in4 && ntohs(from.in4.sin_port) == ECHO_PORT);
    for (int seen = 1; seen < COUNT; seen++) {
        args.id = 0;
        args.flags = HOMA_RECVMSG_RESPONSE | HOMA_RECVMSG_REQUEST;
        ssize_t got = homa_recvmsg(homa.fd, &args, NULL, NULL);
        uint64_t which = args.completion_cookie;
        REQUIRE(which < COUNT && got == (ssize_t)sizes[which] && args.id == ids[which]);
        REQUIRE(got > 0 && is_pattern(&homa, &args, (size_t)got));
    }
    give_back(homa.fd, &args);
    /* Put together from parts, and by homa_sendmsg(). */
    struct iovec parts[3] = {{bytes, 3}, {NULL, 0}, {bytes + 3, 1997}};
    struct homa_sendmsg_args send = {.completion_cookie = 0};
    sockaddr_in_union to = at("10.0.0.1", ECHO_PORT);
    (void)ask(homa.fd, "10.0.0.1", ECHO_PORT, 2000, 0);
    WORKS(homa_sendmsg(homa.fd, &send, parts, 3, &to));
    for (int i = 0; i < 2; i++) {
        args.id = i == 0 ? send.id : 0;
        args.flags = i == 0 ? 0 : HOMA_RECVMSG_RESPONSE;
        REQUIRE(homa_recvmsg(homa.fd, &args, NULL, NULL) == 2000);
        REQUIRE(is_pattern(&homa, &args, 2000));
    }
    give_back(homa.fd, &args);
    struct homa_info info = {.size = sizeof info};
    WORKS(homa_info(homa.fd, &info));
    REQUIRE(info.num_rpcs == 0 && info.bpool_avail_bytes == 128 * HOMA_BPAGE_SIZE);
    close_homa(&homa);
}

/* Rules AP-08, RP-22. */
static void failures_and_aborts(void)
{
    struct homa homa = open_homa(SMALLEST);
    sockaddr_in_union from;
    size_t length = sizeof from;
    uint64_t id = ask(homa.fd, "10.0.0.1", 9, 10, 33);
    struct homa_recvmsg_args args = wanted(id, 0);
    FAILS(ENOTCONN, homa_recvmsg(homa.fd, &args, &from, &length));
    REQUIRE(args.id == id && args.completion_cookie == 33 && args.num_bpages == 0);
    REQUIRE(ntohs(from.in4.sin_port) == 9 && length == sizeof from.in4);
    id = ask(homa.fd, "10.0.0.77", 9, 10, 34);
    args = wanted(0, HOMA_RECVMSG_RESPONSE);
    FAILS(EHOSTUNREACH, homa_recvmsg(homa.fd, &args, NULL, NULL));
    REQUIRE(args.id == id && args.completion_cookie == 34);

    /* Nobody answers at this port of ours: its socket takes requests and says nothing. */
    struct homa server = open_homa(SMALLEST);
    sockaddr_in_union here = at("10.0.0.2", 50);
    WORKS(homa_bind(server.fd, &here));
    uint64_t first = ask(homa.fd, "10.0.0.2", 50, 10, 1);
    uint64_t second = ask(homa.fd, "10.0.0.2", 50, 10, 2);
    struct homa_abort_args abort = {.id = first, .error = 0};
    WORKS(homa_abortp(homa.fd, &abort));
    args = wanted(first, 0);
    FAILS(EINVAL, homa_recvmsg(homa.fd, &args, NULL, NULL));
    WORKS(homa_abort(homa.fd, 0, EPIPE));
    WORKS(homa_abort(server.fd, 0, EPIPE)); /* Its requests are no calls of its own. */
    args = wanted(second, 0);
    FAILS(EPIPE, homa_recvmsg(homa.fd, &args, NULL, NULL));
    REQUIRE(args.completion_cookie == 2);
    WORKS(homa_freeze(homa.fd));
    close_homa(&server);
    close_homa(&homa);
}

/* Rules PL-12, PL-15, PL-16: pages are the application's until it gives them back. */
static void pages(void)
{
    struct homa client = open_homa(64 * HOMA_BPAGE_SIZE), server = open_homa(SMALLEST);
    sockaddr_in_union here = at("10.0.0.2", 60), from;
    WORKS(homa_bind(server.fd, &here));
    uint64_t ids[3];
    for (int i = 0; i < 3; i++)
        ids[i] = ask(client.fd, "10.0.0.2", 60, 1000000, 0);
    struct homa_recvmsg_args args = wanted(0, HOMA_RECVMSG_REQUEST), look;
    REQUIRE(homa_recvmsg(server.fd, &args, &from, NULL) == 1000000);
    /* The others find no pages, for as long as we keep ours. */
    look = wanted(0, HOMA_RECVMSG_REQUEST);
    struct timeval time = {.tv_usec = 150000};
    WORKS(homa_setsockopt(server.fd, SOL_SOCKET, SO_RCVTIMEO, &time, sizeof time));
    FAILS(EAGAIN, homa_recvmsg(server.fd, &look, NULL, NULL));
    REQUIRE(is_pattern(&server, &args, 1000000));
    struct homa_rpc_info rpcs[8];
    struct homa_info info = {.size = sizeof info, .rpc_info = rpcs, .rpc_info_length = 8};
    WORKS(homa_info(server.fd, &info));
    int stalled = 0;
    for (uint32_t i = 0; i < info.num_rpcs; i++)
        stalled += (rpcs[i].flags & HOMA_RPC_BUF_STALL) != 0;
    REQUIRE(info.num_rpcs == 3 && stalled == 2);
    /* Wrong offsets change nothing. */
    struct homa_recvmsg_args wrong = args;
    wrong.id = 0;
    wrong.flags = HOMA_RECVMSG_REQUEST | HOMA_RECVMSG_NONBLOCKING;
    wrong.bpage_offsets[15] = wrong.bpage_offsets[0]; /* Twice the same. */
    FAILS(EINVAL, homa_recvmsg(server.fd, &wrong, NULL, NULL));
    wrong.bpage_offsets[15] = 20 * HOMA_BPAGE_SIZE; /* One that we do not have. */
    FAILS(EINVAL, homa_recvmsg(server.fd, &wrong, NULL, NULL));
    REQUIRE(wrong.num_bpages == HOMA_MAX_BPAGES);
    time.tv_sec = 10;
    WORKS(homa_setsockopt(server.fd, SOL_SOCKET, SO_RCVTIMEO, &time, sizeof time));
    for (int i = 0; i < 3; i++) {
        REQUIRE(homa_reply(server.fd, "ok", 2, &from, args.id) == 2);
        if (i < 2) {
            args.id = 0;
            REQUIRE(homa_recvmsg(server.fd, &args, &from, NULL) == 1000000);
            REQUIRE(is_pattern(&server, &args, 1000000));
        }
    }
    for (int i = 0; i < 3; i++) {
        look = wanted(ids[i], 0);
        REQUIRE(homa_recvmsg(client.fd, &look, NULL, NULL) == 2);
    }
    struct homa_recvmsg_args stale = args;
    give_back(server.fd, &args);
    stale.id = 0;
    FAILS(EINVAL, homa_recvmsg(server.fd, &stale, NULL, NULL));
    close_homa(&client);
    close_homa(&server);
}

/* Rule AP-09, and both faces in one loop. */
static void polling(void)
{
    struct homa homa = open_homa(SMALLEST);
    struct sockaddr_in echo = at("10.0.0.2", 90).in4;
    int demi, count;
    demi_qtoken_t pop, push;
    demi_qresult_t result;
    EXPECT(0, demi_socket(&demi, AF_INET, SOCK_DGRAM, 0));
    EXPECT(0, demi_bind(demi, (struct sockaddr *)&echo, sizeof echo));
    struct pollfd fds[] = {
        {homa.fd, POLLIN, 0}, {demi, POLLIN, 0}, {-1, POLLIN, 0}, {3, POLLIN, 0}};
    FAILS(EINVAL, homa_poll(NULL, 1, 0));
    REQUIRE(homa_poll(NULL, 0, 1) == 0);
    REQUIRE(homa_poll(fds, 3, 1) == 0);
    REQUIRE(homa_poll(fds, 4, 0) == 1 && fds[3].revents == POLLNVAL);
    fds[0].events = POLLIN | POLLOUT;
    REQUIRE(homa_poll(fds, 1, -1) == 1 && fds[0].revents == POLLOUT);
    fds[0].events = POLLIN;
    (void)ask(homa.fd, "10.0.0.1", ECHO_PORT, 1000, 4);
    EXPECT(0, demi_pop(&pop, demi));
    demi_sgarray_t sga = demi_sgaalloc(5);
    EXPECT(0, demi_pushto(&push, demi, &sga, (struct sockaddr *)&echo, sizeof echo));
    EXPECT(0, demi_sgafree(&sga));
    for (bool has_response = false, has_popped = false; !has_response || !has_popped;) {
        REQUIRE(homa_poll(fds, 2, 5000) > 0);
        if (fds[0].revents & POLLIN) {
            struct homa_recvmsg_args args = wanted(0, HOMA_RECVMSG_RESPONSE);
            REQUIRE(homa_recvmsg(homa.fd, &args, NULL, NULL) == 1000);
            has_response = true;
            give_back(homa.fd, &args);
        }
        if (fds[1].revents & POLLIN) {
            struct timespec at_once = {0};
            EXPECT(0, demi_wait_next_n(&result, 1, &count, &at_once));
            if (result.qr_opcode == DEMI_OPC_POP) {
                sga = result.qr_value.sga;
                EXPECT(0, demi_sgafree(&sga));
                has_popped = true;
            }
        }
        if (failures > 0)
            break;
    }
    EXPECT(0, demi_close(demi));
    close_homa(&homa);
}

static int shut_fd;

static void shut_on_signal(int signal)
{
    (void)signal;
    homa_shutdown(shut_fd);
}

static void wake_on_signal(int signal)
{
    (void)signal;
    demi_wake();
}

static void alarm_soon(void (*handler)(int))
{
    struct sigaction action = {.sa_handler = handler};
    struct itimerval timer = {.it_value = {.tv_usec = 20000}};
    sigaction(SIGALRM, &action, NULL);
    setitimer(ITIMER_REAL, &timer, NULL);
}

/* Rules SK-03, SK-04. */
static void interruptions(void)
{
    struct homa homa = open_homa(SMALLEST);
    struct homa_recvmsg_args args = wanted(0, HOMA_RECVMSG_REQUEST);
    struct pollfd fd = {homa.fd, POLLIN, 0};
    alarm_soon(wake_on_signal);
    FAILS(EINTR, homa_recvmsg(homa.fd, &args, NULL, NULL));
    alarm_soon(wake_on_signal);
    FAILS(EINTR, homa_poll(&fd, 1, -1));
    shut_fd = homa.fd;
    alarm_soon(shut_on_signal);
    FAILS(ESHUTDOWN, homa_recvmsg(homa.fd, &args, NULL, NULL));
    REQUIRE(homa_poll(&fd, 1, -1) == 1 && (fd.revents & POLLIN));
    WORKS(homa_shutdown(homa.fd));
    sockaddr_in_union to = at("10.0.0.1", ECHO_PORT);
    FAILS(ESHUTDOWN, homa_send(homa.fd, bytes, 4, &to, NULL, 0));
    FAILS(ESHUTDOWN, homa_abort(homa.fd, 0, 0));
    FAILS(ESHUTDOWN, homa_bind(homa.fd, &to));
    FAILS(ESHUTDOWN, homa_freeze(homa.fd));
    FAILS(ESHUTDOWN, set_region(homa.fd, homa.region, homa.length));
    FAILS(EBADF, homa_shutdown(3));
    close_homa(&homa);
    struct homa other = open_homa(SMALLEST);
    fd.fd = shut_fd = other.fd;
    alarm_soon(shut_on_signal);
    REQUIRE(homa_poll(&fd, 1, -1) == 1 && (fd.revents & POLLHUP));
    close_homa(&other);
}

/* Send memory is the runtime's: little more than 4 MiB by the settings of this test. */
static void send_memory(void)
{
    struct homa homa = open_homa(SMALLEST);
    sockaddr_in_union nobody = at("10.0.0.77", 9);
    struct pollfd fd = {homa.fd, POLLOUT, 0};
    struct timeval time = {.tv_usec = 2000};
    struct homa_recvmsg_args args = wanted(0, HOMA_RECVMSG_RESPONSE);
    WORKS(homa_setsockopt(homa.fd, SOL_SOCKET, SO_SNDTIMEO, &time, sizeof time));
    for (int i = 0; i < 4; i++)
        WORKS(homa_send(homa.fd, bytes, 1000000, &nobody, NULL, 0));
    FAILS(EAGAIN, homa_send(homa.fd, bytes, 1000000, &nobody, NULL, 0));
    REQUIRE(homa_poll(&fd, 1, 0) == 0);
    time.tv_usec = 0;
    WORKS(homa_setsockopt(homa.fd, SOL_SOCKET, SO_SNDTIMEO, &time, sizeof time));
    /* It waits until the first four fail, since no such host answers. */
    WORKS(homa_send(homa.fd, bytes, 1000000, &nobody, NULL, 0));
    for (int i = 0; i < 5; i++) {
        args.id = 0;
        FAILS(EHOSTUNREACH, homa_recvmsg(homa.fd, &args, NULL, NULL));
    }
    REQUIRE(homa_poll(&fd, 1, -1) == 1);
    close_homa(&homa);
}

int main(int argc, char *argv[])
{
    struct demi_args args = {.argc = argc, .argv = argv, .callback = NULL};
    FAILS(ENOSYS, homa_socket(AF_INET, SOCK_DGRAM, IPPROTO_HOMA));
    setenv("DEMIHOMA_MEMORY_SEND_BYTES", "4259840", 1);
    EXPECT(0, demi_init(&args));
    if (failures > 0)
        return EXIT_FAILURE;
    sockets();
    options();
    bad_arguments();
    round_trips();
    failures_and_aborts();
    pages();
    polling();
    interruptions();
    send_memory();
    return failures > 0 ? EXIT_FAILURE : EXIT_SUCCESS;
}
