/* Connections as a C program meets them, across a network.
 *
 *     streams server --config FILE    echoes, counts or hangs up, as a connection's messages ask
 *     streams client --config FILE    runs the tests
 */

#define _POSIX_C_SOURCE 200809L

#include <arpa/inet.h>
#include <demi/libos.h>
#include <demi/sga.h>
#include <demi/wait.h>
#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>

#include "expect.h"

enum { PORT = 10008, TOKENS_MAX = 4096, LONGEST = 1000000 };

static const struct timespec AT_ONCE = {0}, PATIENCE = {.tv_sec = 20};

static struct sockaddr_in server_address(uint16_t port)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(port)};
    inet_pton(AF_INET, "10.0.0.1", &address.sin_addr);
    return address;
}

static int stream(void)
{
    int qd = -1;
    EXPECT(0, demi_socket(&qd, AF_INET, SOCK_STREAM, 0));
    return qd;
}

/* Waits for one operation, which must end like this. */
static demi_qresult_t finish(demi_qtoken_t token, demi_opcode_t opcode, int64_t ret)
{
    demi_qresult_t result = {0};
    EXPECT(0, demi_wait(&result, token, &PATIENCE));
    REQUIRE(result.qr_opcode == opcode);
    REQUIRE(result.qr_ret == ret);
    REQUIRE(result.qr_qt == token);
    return result;
}

static uint8_t byte_at(uint32_t len, int number, uint32_t at)
{
    return (uint8_t)(len * 31 + (uint32_t)number * 7 + at + at / 251);
}

static demi_qtoken_t push(int qd, uint32_t len, int number)
{
    demi_qtoken_t token = 0;
    demi_sgarray_t sga = demi_sgaalloc(len);
    uint8_t *bytes = sga.sga_segs[0].sgaseg_buf;
    for (uint32_t at = 0; at < len; at++)
        bytes[at] = byte_at(len, number, at);
    EXPECT(0, demi_push(&token, qd, &sga));
    EXPECT(0, demi_sgafree(&sga)); /* The push has a reference of its own. */
    return token;
}

static demi_qtoken_t pop(int qd)
{
    demi_qtoken_t token = 0;
    EXPECT(0, demi_pop(&token, qd));
    return token;
}

static void check_message(demi_sgarray_t sga, uint32_t len, int number)
{
    const uint8_t *bytes = sga.sga_segs[0].sgaseg_buf;
    uint32_t wrong = 0;
    REQUIRE(sga.sga_numsegs == 1);
    REQUIRE(sga.sga_segs[0].sgaseg_len == len);
    REQUIRE(sga.sga_addr.sin_port == 0 && sga.sga_addr.sin_family == 0);
    for (uint32_t at = 0; at < len && at < sga.sga_segs[0].sgaseg_len; at++)
        wrong += bytes[at] != byte_at(len, number, at);
    REQUIRE(wrong == 0);
    EXPECT(0, demi_sgafree(&sga));
    EXPECT(EINVAL, demi_sgafree(&sga));
}

static void expect_message(int qd, uint32_t len, int number)
{
    check_message(finish(pop(qd), DEMI_OPC_POP, 0).qr_value.sga, len, number);
}

static int connected(void)
{
    struct sockaddr_in address = server_address(PORT), peer = {0};
    socklen_t size = sizeof peer;
    demi_qtoken_t token;
    int qd = stream();
    EXPECT(ENOTCONN, demi_getpeername(qd, (struct sockaddr *)&peer, &size));
    EXPECT(0, demi_connect(&token, qd, (struct sockaddr *)&address, sizeof address));
    demi_qresult_t result = finish(token, DEMI_OPC_CONNECT, 0);
    REQUIRE(result.qr_qd == qd);
    EXPECT(0, demi_getpeername(qd, (struct sockaddr *)&peer, &size));
    REQUIRE(peer.sin_port == address.sin_port);
    REQUIRE(peer.sin_addr.s_addr == address.sin_addr.s_addr);
    EXPECT(EISCONN, demi_connect(&token, qd, (struct sockaddr *)&address, sizeof address));
    return qd;
}

/* --- the server: a message of 2 bytes asks for a count, one of 3 bytes for the end --- */

static volatile sig_atomic_t must_stop;

static void on_signal(int signal)
{
    (void)signal;
    must_stop = 1;
    demi_wake();
}

static demi_qtoken_t tokens[TOKENS_MAX];
static int token_count;
static uint32_t received[TOKENS_MAX]; /* Messages of each queue, by its descriptor. */

static void add(demi_qtoken_t token)
{
    if (token_count == TOKENS_MAX)
        exit(3);
    tokens[token_count++] = token;
}

static void on_message(int qd, demi_sgarray_t sga)
{
    demi_qtoken_t token;
    uint32_t len = sga.sga_segs[0].sgaseg_len;
    if (len == 2) {
        add(push(qd, received[qd % TOKENS_MAX], 0));
    } else if (len > 3) {
        received[qd % TOKENS_MAX]++;
        EXPECT(0, demi_push(&token, qd, &sga));
        add(token);
    } else if (len == 1) {
        received[qd % TOKENS_MAX]++;
    }
    EXPECT(0, demi_sgafree(&sga));
    if (len == 0 || len == 3)
        EXPECT(0, demi_close(qd));
    else
        add(pop(qd));
}

static void serve(void)
{
    struct sockaddr_in address = server_address(PORT);
    struct sigaction action = {.sa_handler = on_signal};
    demi_qtoken_t token;
    int listener = stream();
    EXPECT(0, demi_bind(listener, (struct sockaddr *)&address, sizeof address));
    EXPECT(EINVAL, demi_accept(&token, listener));
    EXPECT(0, demi_listen(listener, 16));
    EXPECT(EADDRINUSE, demi_listen(listener, 16));
    EXPECT(EOPNOTSUPP, demi_connect(&token, listener, (struct sockaddr *)&address, sizeof address));
    EXPECT(0, demi_accept(&token, listener));
    add(token);
    sigaction(SIGTERM, &action, NULL);
    puts("ready");
    fflush(stdout);
    while (!must_stop) {
        demi_qresult_t result;
        int at;
        int error = demi_wait_any(&result, &at, tokens, token_count, NULL);
        if (error == EINTR)
            continue;
        EXPECT(0, error);
        tokens[at] = tokens[--token_count];
        if (result.qr_opcode == DEMI_OPC_ACCEPT) {
            struct sockaddr_in from = result.qr_value.ares.addr;
            REQUIRE(result.qr_qd == listener);
            REQUIRE(from.sin_family == AF_INET && from.sin_port != 0);
            received[result.qr_value.ares.qd % TOKENS_MAX] = 0;
            add(pop(result.qr_value.ares.qd));
            EXPECT(0, demi_accept(&token, listener));
            add(token);
        } else if (result.qr_opcode == DEMI_OPC_POP) {
            on_message(result.qr_qd, result.qr_value.sga);
        } else if (result.qr_opcode == DEMI_OPC_FAILED && result.qr_ret != ECANCELED) {
            demi_close(result.qr_qd); /* Its peer was reset on purpose. */
        }
    }
    EXPECT(0, demi_close(listener));
}

/* --- the tests --- */

static void ping_pong(void)
{
    static const uint32_t lens[] = {4, 100, 1424, 1425, 10000, 70000, LONGEST - 40, LONGEST};
    int qd = connected();
    for (int round = 0; round < 10; round++) {
        for (size_t i = 0; i < sizeof lens / sizeof lens[0]; i++) {
            demi_qtoken_t sent = push(qd, lens[i], round);
            expect_message(qd, lens[i], round);
            finish(sent, DEMI_OPC_PUSH, 0);
        }
    }
    EXPECT(0, demi_close(qd));
}

/* Many pushes that nobody waits for until all are made: the order holds. */
static void push_pop(void)
{
    enum { COUNT = 1000 };
    static demi_qtoken_t sent[COUNT];
    int qd = connected();
    for (int i = 0; i < COUNT; i++)
        sent[i] = push(qd, 4 + (uint32_t)(i * 37) % 3000, i);
    for (int i = 0; i < COUNT; i++)
        expect_message(qd, 4 + (uint32_t)(i * 37) % 3000, i);
    for (int i = COUNT - 1; i >= 0; i--)
        finish(sent[i], DEMI_OPC_PUSH, 0);
    EXPECT(0, demi_close(qd));
}

/* Nothing comes back until a count is asked for. */
static void one_way(void)
{
    enum { COUNT = 5000 };
    int qd = connected();
    for (int i = 0; i < COUNT; i++)
        finish(push(qd, 1, i), DEMI_OPC_PUSH, 0);
    finish(push(qd, 2, 0), DEMI_OPC_PUSH, 0);
    expect_message(qd, COUNT, 0);
    EXPECT(0, demi_close(qd));
}

static void many_connections(void)
{
    enum { COUNT = 200 };
    int qds[COUNT];
    for (int i = 0; i < COUNT; i++)
        qds[i] = connected();
    for (int i = 0; i < COUNT; i++)
        finish(push(qds[i], 2000, i), DEMI_OPC_PUSH, 0);
    for (int i = COUNT - 1; i >= 0; i--)
        expect_message(qds[i], 2000, i);
    for (int i = 0; i < COUNT; i += 2)
        EXPECT(0, demi_close(qds[i]));
    for (int i = COUNT - 1; i > 0; i -= 2)
        EXPECT(0, demi_close(qds[i]));
}

static void close_and_wait(void)
{
    struct sockaddr_in address = server_address(PORT);
    demi_qresult_t result;
    demi_qtoken_t token, second;

    /* Pops that wait are canceled, at once and once. */
    int qd = connected();
    token = pop(qd);
    second = pop(qd);
    EXPECT(ETIMEDOUT, demi_wait(&result, token, &AT_ONCE));
    EXPECT(0, demi_close(qd));
    EXPECT(EBADF, demi_close(qd));
    EXPECT(EBADF, demi_pop(&token, qd));
    EXPECT(0, demi_wait(&result, second, &AT_ONCE));
    REQUIRE(result.qr_opcode == DEMI_OPC_FAILED && result.qr_ret == ECANCELED);
    REQUIRE(result.qr_qd == qd);
    EXPECT(EINVAL, demi_wait(&result, second, &AT_ONCE));

    /* What was pushed before a close arrives, and its token is good afterwards. */
    qd = connected();
    token = push(qd, 50000, 1);
    EXPECT(0, demi_close(qd));
    finish(token, DEMI_OPC_PUSH, 0);

    /* Connecting is given up. */
    qd = stream();
    EXPECT(0, demi_connect(&token, qd, (struct sockaddr *)&address, sizeof address));
    EXPECT(EINPROGRESS, demi_connect(&second, qd, (struct sockaddr *)&address, sizeof address));
    EXPECT(0, demi_close(qd));
    finish(token, DEMI_OPC_FAILED, ECANCELED);

    /* The peer hangs up: what it sent before still comes, then the end, as often as one asks. */
    qd = connected();
    finish(push(qd, 5000, 3), DEMI_OPC_PUSH, 0);
    finish(push(qd, 3, 0), DEMI_OPC_PUSH, 0);
    expect_message(qd, 5000, 3);
    for (int i = 0; i < 3; i++) {
        demi_sgarray_t end = finish(pop(qd), DEMI_OPC_POP, 0).qr_value.sga;
        REQUIRE(end.sga_numsegs == 1 && end.sga_segs[0].sgaseg_len == 0);
        EXPECT(0, demi_sgafree(&end));
    }
    /* Nobody is there to read this: the first may be sent, the last cannot. */
    for (int i = 0; i < 50; i++) {
        token = push(qd, 100, 0);
        EXPECT(0, demi_wait(&result, token, &PATIENCE));
    }
    REQUIRE(result.qr_opcode == DEMI_OPC_FAILED && result.qr_ret == ECONNRESET);
    EXPECT(0, demi_close(qd));

    /* Listening ends. */
    struct sockaddr_in here = address;
    inet_pton(AF_INET, "10.0.0.2", &here.sin_addr);
    qd = stream();
    EXPECT(0, demi_bind(qd, (struct sockaddr *)&here, sizeof here));
    EXPECT(0, demi_listen(qd, 1));
    EXPECT(0, demi_accept(&token, qd));
    EXPECT(ETIMEDOUT, demi_wait(&result, token, &AT_ONCE));
    EXPECT(0, demi_close(qd));
    finish(token, DEMI_OPC_FAILED, ECANCELED);
}

static void refused(void)
{
    struct sockaddr_in address = server_address(9);
    demi_qtoken_t token;
    int qd = stream();
    EXPECT(0, demi_connect(&token, qd, (struct sockaddr *)&address, sizeof address));
    finish(token, DEMI_OPC_FAILED, ECONNREFUSED);
    memset(&address.sin_addr, 0, sizeof address.sin_addr);
    EXPECT(0, demi_connect(&token, qd, (struct sockaddr *)&address, sizeof address));
    finish(token, DEMI_OPC_FAILED, ECONNREFUSED);
    inet_pton(AF_INET, "10.0.0.77", &address.sin_addr);
    EXPECT(0, demi_connect(&token, qd, (struct sockaddr *)&address, sizeof address));
    finish(token, DEMI_OPC_FAILED, EHOSTUNREACH);
    address = server_address(PORT);
    EXPECT(0, demi_connect(&token, qd, (struct sockaddr *)&address, sizeof address));
    finish(token, DEMI_OPC_CONNECT, 0);
    EXPECT(0, demi_close(qd));
}

int main(int argc, char *argv[])
{
    struct demi_args args = {.argc = argc, .argv = argv, .callback = NULL};
    if (argc < 2 || demi_init(&args) != 0)
        return 2;
    if (strcmp(argv[1], "server") == 0) {
        serve();
        return failures != 0;
    }
    ping_pong();
    push_pop();
    one_way();
    many_connections();
    close_and_wait();
    refused();
    return failures != 0;
}
