/* Sockets, tokens and buffers run out: an errno or a null array, and all works again once some are
 * given back. The settings must allow 64 tokens and 4 MB to send. */

#define _GNU_SOURCE

#include <stdlib.h>

#include "calls.h"

enum { TOKENS_MAX = 64, SEND_BYTES = 4194304, MANY = 100000 };

static void sockets_run_out(void)
{
    static int qds[MANY];
    int count = 0, error, qd = -7;
    while ((error = demi_socket(&qds[count], AF_INET, SOCK_DGRAM, 0)) == 0 && count < MANY - 1)
        count++;
    REQUIRE(error == EAGAIN && count == 1024 && qds[0] == 500 && qds[1023] == 1523);
    EXPECT(EAGAIN, demi_socket(&qd, AF_INET, SOCK_DGRAM, IPPROTO_HOMA));
    REQUIRE(qd == -7);
    EXPECT(0, demi_close(qds[77]));
    EXPECT(0, demi_socket(&qd, AF_INET, SOCK_DGRAM, 0));
    REQUIRE(qd == qds[77]);
    for (int i = 0; i < count; i++)
        EXPECT(0, demi_close(qds[i]));
}

/* Every port from 1 to 65,535 can be bound, and a bind that fails takes none. */
static void ports_are_given_back(void)
{
    struct sockaddr_in foreign = in4("192.0.2.1", 40000), any = in4("0.0.0.0", 40000);
    int qd = new_socket(0);
    EXPECT(EADDRNOTAVAIL, demi_bind(qd, (struct sockaddr *)&foreign, sizeof foreign));
    EXPECT(0, demi_bind(qd, (struct sockaddr *)&any, sizeof any));
    EXPECT(0, demi_close(qd));
    static const int PORTS[] = {1, 2, 1023, 32767, 32768, 49152, 65534, 65535};
    for (size_t i = 0; i < sizeof PORTS / sizeof *PORTS; i++)
        for (int again = 0; again < 2; again++)
            EXPECT(0, demi_close(bound_socket(0, PORTS[i])));
}

static void tokens_run_out(void)
{
    demi_qtoken_t tokens[TOKENS_MAX], qt = 7;
    demi_qresult_t results[TOKENS_MAX];
    int count = -7, qd = bound_socket(0, 1000), native = bound_socket(IPPROTO_HOMA, 1001);
    struct sockaddr_in peer = in4("10.0.0.77", 9);
    struct sockaddr *addr = (struct sockaddr *)&peer;
    demi_sgarray_t sga = demi_sgaalloc(100);
    for (int i = 0; i < TOKENS_MAX; i++)
        EXPECT(0, demi_pop(&tokens[i], qd));
    EXPECT(EAGAIN, demi_pop(&qt, qd));
    EXPECT(EAGAIN, demi_push(&qt, qd, &sga));
    EXPECT(EAGAIN, demi_pushto(&qt, qd, &sga, addr, sizeof peer));
    EXPECT(EAGAIN, demi_homa_call(&qt, native, &sga, addr, sizeof peer, 0, 0, NULL));
    REQUIRE(qt == 7);
    EXPECT(ETIMEDOUT, demi_wait_next_n(results, TOKENS_MAX, &count, &AT_ONCE));
    REQUIRE(count == 0);

    /* Close ends them all, but their tokens live until somebody waited for them. */
    EXPECT(0, demi_close(qd));
    qd = bound_socket(0, 1000);
    EXPECT(EAGAIN, demi_pop(&qt, qd));
    EXPECT(0, demi_wait_next_n(results, TOKENS_MAX - 1, &count, &AT_ONCE));
    REQUIRE(count == TOKENS_MAX - 1);
    for (int i = 0; i < count; i++) {
        REQUIRE(results[i].qr_opcode == DEMI_OPC_FAILED && results[i].qr_ret == ECANCELED);
        REQUIRE(results[i].qr_qt == tokens[i]);
        EXPECT(EINVAL, demi_wait(results, tokens[i], &AT_ONCE));
    }
    EXPECT(0, demi_pop(&qt, qd));
    REQUIRE(qt != tokens[TOKENS_MAX - 1]);
    EXPECT(0, demi_wait(results, tokens[TOKENS_MAX - 1], &AT_ONCE));
    EXPECT(0, demi_close(qd));
    EXPECT(0, demi_wait(results, qt, &AT_ONCE));
    EXPECT(0, demi_close(native));
    EXPECT(0, demi_sgafree(&sga));
}

static void send_memory_runs_out(void)
{
    static demi_sgarray_t arrays[MANY];
    static const size_t SIZES[] = {1000000, 65536, 4096, 64};
    for (size_t i = 0; i < sizeof SIZES / sizeof *SIZES; i++) {
        int count = 0;
        while (count < MANY && (arrays[count] = demi_sgaalloc(SIZES[i])).sga_numsegs == 1)
            count++;
        REQUIRE(count > 0 && count < MANY);
        REQUIRE((size_t)count * SIZES[i] <= SEND_BYTES);
        REQUIRE(arrays[count].sga_buf == NULL && arrays[count].sga_segs[0].sgaseg_buf == NULL);
        EXPECT(EINVAL, demi_sgafree(&arrays[count]));
        for (int at = 0; at < count; at++)
            EXPECT(0, demi_sgafree(&arrays[at]));
        EXPECT(EINVAL, demi_sgafree(&arrays[0]));
    }
}

/* What is allocated and freed again and again costs nothing in the end. */
static void buffers_come_back(void)
{
    demi_sgarray_t arrays[1000];
    for (int round = 0; round < 100; round++) {
        size_t size = round % 2 == 0 ? 64 : 1280;
        for (int i = 0; i < 1000; i++) {
            arrays[i] = demi_sgaalloc(size);
            REQUIRE(arrays[i].sga_numsegs == 1 && arrays[i].sga_segs[0].sgaseg_len == size);
            memset(arrays[i].sga_segs[0].sgaseg_buf, i, size);
        }
        for (int i = 0; i < 1000; i++)
            EXPECT(0, demi_sgafree(&arrays[i]));
    }
}

int main(int argc, char *argv[])
{
    struct demi_args args = {.argc = argc, .argv = argv};
    setenv("DEMIHOMA_RUNTIME_TOKENS_MAX", "64", 1);
    setenv("DEMIHOMA_MEMORY_SEND_BYTES", "4194304", 1);
    if (demi_init(&args) != 0)
        return 2;
    sockets_run_out();
    ports_are_given_back();
    tokens_run_out();
    send_memory_runs_out();
    buffers_come_back();
    return failures != 0;
}
