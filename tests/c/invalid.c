/* Each call with each bad argument, after demi_init: the errno, and that nothing was written. */

#define _GNU_SOURCE

#include "calls.h"

static const int NO_QUEUES[] = {-1, 0, 3, 499, 600, INT32_MAX};
#define FOR_EACH_BAD_QUEUE(qd)                                                                     \
    for (const int *qd = NO_QUEUES; qd < NO_QUEUES + sizeof NO_QUEUES / sizeof *NO_QUEUES; qd++)

static void sockets(void)
{
    int qd = -7;
    EXPECT(EINVAL, demi_socket(NULL, AF_INET, SOCK_DGRAM, 0));
    EXPECT(EINVAL, demi_socket(NULL, -1, -1, -1));
    EXPECT(ENOTSUP, demi_socket(&qd, -1, SOCK_DGRAM, 0));
    EXPECT(ENOTSUP, demi_socket(&qd, AF_UNIX, SOCK_DGRAM, 0));
    EXPECT(ENOTSUP, demi_socket(&qd, AF_INET, -1, 0));
    EXPECT(ENOTSUP, demi_socket(&qd, AF_INET, SOCK_DGRAM | SOCK_NONBLOCK, 0));
    EXPECT(ENOTSUP, demi_socket(&qd, AF_INET, SOCK_SEQPACKET, 0));
    EXPECT(ENOTSUP, demi_socket(&qd, AF_INET, SOCK_RAW, 0));
    EXPECT(ENOTSUP, demi_socket(&qd, AF_INET, SOCK_RDM, 0));
    EXPECT(ENOTSUP, demi_socket(&qd, AF_INET, SOCK_DGRAM, IPPROTO_TCP));
    EXPECT(ENOTSUP, demi_socket(&qd, AF_INET6, SOCK_STREAM, 0));
    EXPECT(ENOTSUP, demi_socket(&qd, AF_INET, SOCK_STREAM, IPPROTO_UDP));
    EXPECT(ENOTSUP, demi_socket(&qd, AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0));
    REQUIRE(qd == -7);

    /* Descriptors count from 500, the lowest free one first. */
    int first = new_socket(0), second = new_socket(0);
    REQUIRE(first == 500 && second == 501);
    EXPECT(0, demi_close(first));
    REQUIRE(new_socket(0) == 500);
    EXPECT(0, demi_close(500));
    EXPECT(EBADF, demi_close(500));
    EXPECT(0, demi_close(501));
    FOR_EACH_BAD_QUEUE(none)
        EXPECT(EBADF, demi_close(*none));
    EXPECT(0, demi_socket(&qd, AF_INET, SOCK_DGRAM, IPPROTO_UDP));
    EXPECT(0, demi_close(qd));
    EXPECT(0, demi_socket(&qd, AF_INET, SOCK_DGRAM, 146));
    EXPECT(0, demi_close(qd));
}

static void binding(void)
{
    int qd = new_socket(0), other = new_socket(0);
    struct sockaddr_in any = in4("0.0.0.0", 1000), foreign = in4("192.0.2.1", 1000);
    struct sockaddr *addr = (struct sockaddr *)&any;
    FOR_EACH_BAD_QUEUE(none)
        EXPECT(EBADF, demi_bind(*none, addr, sizeof any));
    EXPECT(EINVAL, demi_bind(qd, NULL, sizeof any));
    EXPECT(EINVAL, demi_bind(qd, addr, 0));
    EXPECT(EINVAL, demi_bind(qd, addr, sizeof any - 1));
    EXPECT(EINVAL, demi_bind(qd, addr, (socklen_t)-1));
    EXPECT(EADDRNOTAVAIL, demi_bind(qd, (struct sockaddr *)&foreign, sizeof foreign));
    any.sin_family = AF_UNIX;
    EXPECT(ENOTSUP, demi_bind(qd, addr, sizeof any));
    any.sin_family = AF_INET6; /* Shorter than such an address is. */
    EXPECT(EINVAL, demi_bind(qd, addr, sizeof any));
    any.sin_family = AF_INET;
    EXPECT(0, demi_bind(qd, addr, sizeof any));
    EXPECT(EADDRINUSE, demi_bind(other, addr, sizeof any));
    any.sin_port = htons(1001);
    EXPECT(EINVAL, demi_bind(qd, addr, sizeof any));
    EXPECT(0, demi_close(qd));
    EXPECT(0, demi_close(other));
}

static void streams_only(void)
{
    demi_qtoken_t qt = 7;
    int qd = bound_socket(0, 1000);
    struct sockaddr_in peer = in4("10.0.0.2", 1000);
    struct sockaddr *addr = (struct sockaddr *)&peer;
    FOR_EACH_BAD_QUEUE(none) {
        EXPECT(EBADF, demi_listen(*none, 1));
        EXPECT(EBADF, demi_accept(&qt, *none));
        EXPECT(EBADF, demi_connect(&qt, *none, addr, sizeof peer));
    }
    EXPECT(ENOTSUP, demi_listen(qd, 1));
    EXPECT(EINVAL, demi_accept(&qt, qd));
    EXPECT(EINVAL, demi_accept(NULL, qd));
    EXPECT(EINVAL, demi_connect(NULL, qd, addr, sizeof peer));
    EXPECT(EINVAL, demi_connect(&qt, qd, NULL, sizeof peer));
    EXPECT(EINVAL, demi_connect(&qt, qd, addr, 1));
    EXPECT(ENOTSUP, demi_connect(&qt, qd, addr, sizeof peer));

    int stream = -7;
    struct sockaddr_in here = in4("10.0.0.2", 1001);
    demi_sgarray_t sga = demi_sgaalloc(8);
    EXPECT(0, demi_socket(&stream, AF_INET, SOCK_STREAM, IPPROTO_TCP));
    EXPECT(EINVAL, demi_listen(stream, 0));
    EXPECT(EINVAL, demi_listen(stream, -1));
    EXPECT(EDESTADDRREQ, demi_listen(stream, 1));
    EXPECT(EINVAL, demi_accept(&qt, stream));
    EXPECT(ENOTCONN, demi_push(&qt, stream, &sga));
    EXPECT(ENOTCONN, demi_pop(&qt, stream));
    EXPECT(ENOTSUP, demi_pushto(&qt, stream, &sga, addr, sizeof peer));
    here.sin_port = 0;
    EXPECT(ENOTSUP, demi_bind(stream, (struct sockaddr *)&here, sizeof here));
    here = in4("0.0.0.0", 1001);
    EXPECT(ENOTSUP, demi_bind(stream, (struct sockaddr *)&here, sizeof here));
    EXPECT(EADDRINUSE, demi_bind(stream, addr, sizeof peer)); /* The datagram socket's. */
    here = in4("10.0.0.2", 1001);
    EXPECT(0, demi_bind(stream, (struct sockaddr *)&here, sizeof here));
    EXPECT(0, demi_listen(stream, 1));
    EXPECT(EADDRINUSE, demi_listen(stream, 1));
    EXPECT(EOPNOTSUPP, demi_connect(&qt, stream, addr, sizeof peer));
    EXPECT(ENOTCONN, demi_push(&qt, stream, &sga));
    EXPECT(0, demi_close(stream));
    EXPECT(0, demi_sgafree(&sga));

    int memqd = -7;
    EXPECT(EINVAL, demi_create_pipe(NULL, "pipe"));
    EXPECT(EINVAL, demi_create_pipe(&memqd, NULL));
    EXPECT(ENOTSUP, demi_create_pipe(&memqd, "pipe"));
    EXPECT(EINVAL, demi_open_pipe(NULL, "pipe"));
    EXPECT(EINVAL, demi_open_pipe(&memqd, NULL));
    EXPECT(ENOTSUP, demi_open_pipe(&memqd, "pipe"));
    REQUIRE(qt == 7 && memqd == -7);
    EXPECT(0, demi_close(qd));
}

static void names(void)
{
    int qd = bound_socket(0, 1000);
    struct sockaddr_in6 room;
    struct sockaddr *addr = (struct sockaddr *)&room;
    socklen_t len = sizeof(struct sockaddr_in), short_len = len - 1, long_len = len + 1;
    FOR_EACH_BAD_QUEUE(none) {
        EXPECT(EBADF, demi_getsockname(*none, addr, &len));
        EXPECT(EBADF, demi_getpeername(*none, addr, &len));
    }
    EXPECT(EINVAL, demi_getsockname(qd, NULL, &len));
    EXPECT(EINVAL, demi_getsockname(qd, addr, NULL));
    EXPECT(EINVAL, demi_getsockname(qd, addr, &short_len));
    EXPECT(EINVAL, demi_getsockname(qd, addr, &long_len));
    EXPECT(EINVAL, demi_getpeername(qd, NULL, &len));
    EXPECT(EINVAL, demi_getpeername(qd, addr, NULL));
    EXPECT(EINVAL, demi_getpeername(qd, addr, &short_len));
    EXPECT(ENOTCONN, demi_getpeername(qd, addr, &len));
    EXPECT(0, demi_getsockname(qd, addr, &len));
    REQUIRE(len == 16 && room.sin6_family == AF_INET && room.sin6_port == htons(1000));
    EXPECT(0, demi_close(qd));
}

static void options(void)
{
    int qd = new_socket(0);
    struct linger linger = {.l_onoff = 1, .l_linger = 2}, got = {0};
    socklen_t len = sizeof got, short_len = len - 1;
    FOR_EACH_BAD_QUEUE(none) {
        EXPECT(EBADF, demi_setsockopt(*none, SOL_SOCKET, SO_LINGER, &linger, len));
        EXPECT(EBADF, demi_getsockopt(*none, SOL_SOCKET, SO_LINGER, &got, &len));
    }
    EXPECT(EINVAL, demi_setsockopt(qd, SOL_SOCKET, SO_LINGER, NULL, len));
    EXPECT(EINVAL, demi_setsockopt(qd, SOL_SOCKET, SO_LINGER, &linger, short_len));
    EXPECT(ENOPROTOOPT, demi_setsockopt(qd, SOL_SOCKET, SO_RCVBUF, &linger, len));
    EXPECT(ENOPROTOOPT, demi_setsockopt(qd, IPPROTO_HOMA, SO_HOMA_SET_BUF, &linger, len));
    EXPECT(ENOTSUP, demi_setsockopt(qd, IPPROTO_IP, 1, &linger, len));
    EXPECT(EINVAL, demi_getsockopt(qd, SOL_SOCKET, SO_LINGER, NULL, &len));
    EXPECT(EINVAL, demi_getsockopt(qd, SOL_SOCKET, SO_LINGER, &got, NULL));
    EXPECT(EINVAL, demi_getsockopt(qd, SOL_SOCKET, SO_LINGER, &got, &short_len));
    EXPECT(ENOPROTOOPT, demi_getsockopt(qd, SOL_SOCKET, SO_RCVBUF, &got, &len));
    EXPECT(ENOTSUP, demi_getsockopt(qd, IPPROTO_IP, 1, &got, &len));
    EXPECT(0, demi_setsockopt(qd, SOL_SOCKET, SO_LINGER, &linger, len));
    EXPECT(0, demi_getsockopt(qd, SOL_SOCKET, SO_LINGER, &got, &len));
    REQUIRE(got.l_onoff == 1 && got.l_linger == 2);
    linger.l_linger = -1;
    EXPECT(EINVAL, demi_setsockopt(qd, SOL_SOCKET, SO_LINGER, &linger, len));
    EXPECT(0, demi_close(qd));
}

static void buffers(void)
{
    demi_sgarray_t none = demi_sgaalloc(0), huge = demi_sgaalloc(1000001);
    REQUIRE(none.sga_buf == NULL && none.sga_numsegs == 0);
    REQUIRE(huge.sga_buf == NULL && huge.sga_segs[0].sgaseg_buf == NULL);
    REQUIRE(demi_sgaalloc(SIZE_MAX).sga_numsegs == 0);
    EXPECT(EINVAL, demi_sgafree(NULL));
    EXPECT(EINVAL, demi_sgafree(&none));

    demi_sgarray_t sga = demi_sgaalloc(1000000), same = sga, foreign = sga;
    REQUIRE(sga.sga_buf != NULL && sga.sga_numsegs == 1);
    REQUIRE(sga.sga_segs[0].sgaseg_len == 1000000);
    foreign.sga_buf = &foreign;
    EXPECT(EINVAL, demi_sgafree(&foreign));
    EXPECT(0, demi_sgafree(&sga));
    EXPECT(EINVAL, demi_sgafree(&sga));
    EXPECT(EINVAL, demi_sgafree(&same));
}

/* Hands `bad` to every call that sends; the good arguments beside it are `sga`'s. */
static void expect_all(int wanted, int qd, int native, const demi_sgarray_t *bad)
{
    demi_qtoken_t qt = 7;
    struct sockaddr_in peer = in4("10.0.0.2", 1000);
    struct sockaddr *addr = (struct sockaddr *)&peer;
    EXPECT(wanted, demi_push(&qt, qd, bad));
    EXPECT(wanted, demi_pushto(&qt, qd, bad, addr, sizeof peer));
    EXPECT(wanted, demi_homa_call(&qt, native, bad, addr, sizeof peer, 0, 0, NULL));
    EXPECT(wanted, demi_homa_reply(NULL, native, 1, addr, sizeof peer, bad));
    REQUIRE(qt == 7);
}

static void bad_arrays(void)
{
    int qd = bound_socket(0, 1000), native = bound_socket(IPPROTO_HOMA, 1001);
    demi_sgarray_t sga = demi_sgaalloc(100), bad = {0};
    expect_all(EINVAL, qd, native, NULL);
    expect_all(EINVAL, qd, native, &bad);
    bad = sga, bad.sga_numsegs = 0;
    expect_all(EINVAL, qd, native, &bad);
    bad = sga, bad.sga_numsegs = 2;
    expect_all(EINVAL, qd, native, &bad);
    bad = sga, bad.sga_buf = NULL;
    expect_all(EINVAL, qd, native, &bad);
    bad = sga, bad.sga_buf = &bad;
    expect_all(EINVAL, qd, native, &bad);
    bad = sga, bad.sga_segs[0].sgaseg_buf = NULL;
    expect_all(EINVAL, qd, native, &bad);
    bad = sga, bad.sga_segs[0].sgaseg_buf = &bad;
    expect_all(EINVAL, qd, native, &bad);
    bad = sga, bad.sga_segs[0].sgaseg_len = 0;
    expect_all(EINVAL, qd, native, &bad);
    bad = sga, bad.sga_segs[0].sgaseg_len = 101;
    expect_all(EINVAL, qd, native, &bad);
    bad = sga, bad.sga_segs[0].sgaseg_buf = (char *)bad.sga_segs[0].sgaseg_buf + 1;
    expect_all(EINVAL, qd, native, &bad);
    bad = sga, bad.sga_segs[0].sgaseg_buf = (char *)bad.sga_segs[0].sgaseg_buf - 1;
    expect_all(EINVAL, qd, native, &bad);
    EXPECT(0, demi_sgafree(&sga));
    expect_all(EINVAL, qd, native, &sga);
    EXPECT(0, demi_close(qd));
    EXPECT(0, demi_close(native));
}

static void sending(void)
{
    demi_qtoken_t qt = 7;
    demi_qresult_t result;
    int qd = bound_socket(0, 1000), native = bound_socket(IPPROTO_HOMA, 1001);
    demi_sgarray_t sga = demi_sgaalloc(100);
    struct sockaddr_in peer = in4("10.0.0.2", 1000), local = {.sin_family = AF_UNIX};
    struct sockaddr *addr = (struct sockaddr *)&peer, *other = (struct sockaddr *)&local;
    FOR_EACH_BAD_QUEUE(none) {
        EXPECT(EBADF, demi_push(&qt, *none, &sga));
        EXPECT(EBADF, demi_pushto(&qt, *none, &sga, addr, sizeof peer));
        EXPECT(EBADF, demi_pop(&qt, *none));
        EXPECT(EBADF, demi_homa_call(&qt, *none, &sga, addr, sizeof peer, 0, 0, NULL));
        EXPECT(EBADF, demi_homa_reply(NULL, *none, 1, addr, sizeof peer, &sga));
        EXPECT(EBADF, demi_homa_abort(*none, 0, 0));
    }
    EXPECT(EINVAL, demi_push(NULL, qd, &sga));
    EXPECT(EINVAL, demi_pop(NULL, qd));
    EXPECT(EINVAL, demi_pushto(NULL, qd, &sga, addr, sizeof peer));
    EXPECT(EINVAL, demi_pushto(&qt, qd, &sga, NULL, sizeof peer));
    EXPECT(EINVAL, demi_pushto(&qt, qd, &sga, addr, sizeof peer - 1));
    EXPECT(EINVAL, demi_pushto(&qt, qd, &sga, addr, (socklen_t)-1));
    EXPECT(ENOTSUP, demi_pushto(&qt, qd, &sga, other, sizeof local));
    EXPECT(ENOTSUP, demi_pushto(&qt, native, &sga, addr, sizeof peer));
    EXPECT(ENOTSUP, demi_push(&qt, native, &sga));
    struct sockaddr_in nowhere[] = {in4("10.0.0.2", 0), in4("0.0.0.0", 1000)};
    for (int i = 0; i < 2; i++) {
        struct sockaddr *to = (struct sockaddr *)&nowhere[i];
        EXPECT(EINVAL, demi_pushto(&qt, qd, &sga, to, sizeof peer));
        EXPECT(EINVAL, demi_homa_call(&qt, native, &sga, to, sizeof peer, 0, 0, NULL));
    }

    EXPECT(EINVAL, demi_homa_call(NULL, native, &sga, addr, sizeof peer, 0, 0, NULL));
    EXPECT(EINVAL, demi_homa_call(&qt, native, &sga, NULL, sizeof peer, 0, 0, NULL));
    EXPECT(EINVAL, demi_homa_call(&qt, native, &sga, addr, 0, 0, 0, NULL));
    EXPECT(EINVAL, demi_homa_call(&qt, native, &sga, addr, sizeof peer, 0, 1, NULL));
    EXPECT(ENOTSUP, demi_homa_call(&qt, native, &sga, other, sizeof local, 0, 0, NULL));
    EXPECT(ENOTSUP, demi_homa_call(&qt, qd, &sga, addr, sizeof peer, 0, 0, NULL));
    EXPECT(EINVAL, demi_homa_reply(NULL, native, 1, NULL, sizeof peer, &sga));
    EXPECT(EINVAL, demi_homa_reply(NULL, native, 1, addr, 0, &sga));
    EXPECT(ENOTSUP, demi_homa_reply(NULL, qd, 1, addr, sizeof peer, &sga));
    EXPECT(EINVAL, demi_homa_abort(native, 0, -1));

    struct demi_homa_msg_info info = {.size = sizeof info, .kind = 7};
    EXPECT(EINVAL, demi_homa_info(NULL, &info));
    EXPECT(EINVAL, demi_homa_info(&sga, NULL));
    EXPECT(EINVAL, demi_homa_info(&sga, &info)); /* It was not popped. */
    info.size--;
    EXPECT(EINVAL, demi_homa_info(&sga, &info));
    REQUIRE(qt == 7 && info.kind == 7);

    int unbound = new_socket(0);
    EXPECT(EDESTADDRREQ, demi_pop(&qt, unbound));
    EXPECT(0, demi_close(unbound));

    /* A push that needs an address fails as an operation, not as a call. */
    EXPECT(0, demi_push(&qt, qd, &sga));
    EXPECT(0, demi_wait(&result, qt, &AT_ONCE));
    REQUIRE(result.qr_opcode == DEMI_OPC_FAILED && result.qr_ret == EDESTADDRREQ);
    REQUIRE(result.qr_qd == qd && result.qr_qt == qt && result.qr_value.sga.sga_numsegs == 0);
    EXPECT(0, demi_sgafree(&sga));
    EXPECT(0, demi_close(qd));
    EXPECT(0, demi_close(native));
}

static void waiting(void)
{
    demi_qtoken_t qt, tokens[2];
    demi_qresult_t result = {.qr_qd = 7};
    int at = -7, qd = bound_socket(0, 1000);
    struct timespec negative = {.tv_sec = -1}, malformed = {.tv_nsec = 1000000000};
    EXPECT(0, demi_pop(&qt, qd));
    tokens[0] = qt, tokens[1] = 12345;

    EXPECT(EINVAL, demi_wait(NULL, qt, &AT_ONCE));
    EXPECT(EINVAL, demi_wait(&result, 0, &AT_ONCE));
    EXPECT(EINVAL, demi_wait(&result, UINT64_MAX, &AT_ONCE));
    EXPECT(EINVAL, demi_wait(&result, qt, &negative));
    EXPECT(EINVAL, demi_wait(&result, qt, &malformed));
    EXPECT(ETIMEDOUT, demi_wait(&result, qt, &AT_ONCE));
    EXPECT(EINVAL, demi_wait_any(NULL, &at, tokens, 1, &AT_ONCE));
    EXPECT(EINVAL, demi_wait_any(&result, NULL, tokens, 1, &AT_ONCE));
    EXPECT(EINVAL, demi_wait_any(&result, &at, NULL, 1, &AT_ONCE));
    EXPECT(EINVAL, demi_wait_any(&result, &at, tokens, -1, &AT_ONCE));
    EXPECT(EINVAL, demi_wait_any(&result, &at, tokens, 1, &malformed));
    EXPECT(EINVAL, demi_wait_any(&result, &at, tokens, 2, &AT_ONCE));
    EXPECT(ETIMEDOUT, demi_wait_any(&result, &at, tokens, 1, &AT_ONCE));
    EXPECT(ETIMEDOUT, demi_wait_any(&result, &at, NULL, 0, &AT_ONCE));
    EXPECT(EINVAL, demi_wait_next_n(NULL, 1, &at, &AT_ONCE));
    EXPECT(EINVAL, demi_wait_next_n(&result, 1, NULL, &AT_ONCE));
    EXPECT(EINVAL, demi_wait_next_n(&result, 0, &at, &AT_ONCE));
    EXPECT(EINVAL, demi_wait_next_n(&result, -1, &at, &AT_ONCE));
    EXPECT(EINVAL, demi_wait_next_n(&result, 1, &at, &negative));
    REQUIRE(result.qr_qd == 7 && at == -7);
    EXPECT(ETIMEDOUT, demi_wait_next_n(&result, 1, &at, &AT_ONCE));
    REQUIRE(result.qr_qd == 7 && at == 0);

    /* Close ends what is pending, at once and once. */
    EXPECT(0, demi_close(qd));
    EXPECT(0, demi_wait_any(&result, &at, tokens, 1, &AT_ONCE));
    REQUIRE(at == 0 && result.qr_opcode == DEMI_OPC_FAILED && result.qr_ret == ECANCELED);
    REQUIRE(result.qr_qd == qd && result.qr_qt == qt);
    EXPECT(EINVAL, demi_wait(&result, qt, &AT_ONCE));
}

int main(int argc, char *argv[])
{
    struct demi_args args = {.argc = argc, .argv = argv, .callback = NULL};
    if (demi_init(&args) != 0)
        return 2;
    sockets();
    binding();
    streams_only();
    names();
    options();
    buffers();
    bad_arrays();
    sending();
    waiting();
    return failures != 0;
}
