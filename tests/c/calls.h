/* What the test programs share besides the checks: sockets, and each call once. */

#ifndef CALLS_H_IS_INCLUDED
#define CALLS_H_IS_INCLUDED

#include <demi/homa.h>
#include <demi/libos.h>
#include <demi/sga.h>
#include <demi/wait.h>
#include <arpa/inet.h>
#include <errno.h>

#include "expect.h"

static const struct timespec AT_ONCE = {0};
/* Twenty times what any of it takes, or more. */
static const struct timespec PATIENCE = {.tv_sec = 20};

static inline struct sockaddr_in in4(const char *ip, int port)
{
    struct sockaddr_in addr = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    inet_pton(AF_INET, ip, &addr.sin_addr);
    return addr;
}

static inline int new_socket(int protocol)
{
    int qd = -1;
    EXPECT(0, demi_socket(&qd, AF_INET, SOCK_DGRAM, protocol));
    return qd;
}

static inline int bound_socket(int protocol, int port)
{
    int qd = new_socket(protocol);
    struct sockaddr_in addr = in4("0.0.0.0", port);
    EXPECT(0, demi_bind(qd, (struct sockaddr *)&addr, sizeof addr));
    return qd;
}

/* Every call with good arguments where that is possible: each must be refused, and the same. */
static inline void expect_every_call(int wanted)
{
    int number = -7;
    uint64_t id = 7;
    demi_qtoken_t token = 7;
    demi_qresult_t result = {.qr_qd = 7};
    demi_sgarray_t sga = {0};
    struct demi_homa_msg_info info = {.size = sizeof info, .kind = 7};
    struct linger linger = {0};
    socklen_t len = sizeof linger;
    struct sockaddr_in in = in4("10.0.0.1", 1000);
    struct sockaddr *addr = (struct sockaddr *)&in;

    EXPECT(wanted, demi_socket(&number, AF_INET, SOCK_DGRAM, 0));
    EXPECT(wanted, demi_listen(500, 1));
    EXPECT(wanted, demi_bind(500, addr, sizeof in));
    EXPECT(wanted, demi_accept(&token, 500));
    EXPECT(wanted, demi_connect(&token, 500, addr, sizeof in));
    EXPECT(wanted, demi_close(500));
    EXPECT(wanted, demi_push(&token, 500, &sga));
    EXPECT(wanted, demi_pushto(&token, 500, &sga, addr, sizeof in));
    EXPECT(wanted, demi_pop(&token, 500));
    EXPECT(wanted, demi_setsockopt(500, SOL_SOCKET, SO_LINGER, &linger, len));
    EXPECT(wanted, demi_getsockopt(500, SOL_SOCKET, SO_LINGER, &linger, &len));
    EXPECT(wanted, demi_getpeername(500, addr, &len));
    EXPECT(wanted, demi_getsockname(500, addr, &len));
    EXPECT(wanted, demi_create_pipe(&number, "pipe"));
    EXPECT(wanted, demi_open_pipe(&number, "pipe"));
    REQUIRE(demi_sgaalloc(1).sga_buf == NULL);
    EXPECT(wanted, demi_sgafree(&sga));
    EXPECT(wanted, demi_wait(&result, 1, NULL));
    EXPECT(wanted, demi_wait_any(&result, &number, &token, 1, NULL));
    EXPECT(wanted, demi_wait_next_n(&result, 1, &number, NULL));
    EXPECT(wanted, demi_homa_call(&token, 500, &sga, addr, sizeof in, 0, 0, &id));
    EXPECT(wanted, demi_homa_reply(&token, 500, 1, addr, sizeof in, &sga));
    EXPECT(wanted, demi_homa_info(&sga, &info));
    EXPECT(wanted, demi_homa_abort(500, 0, 0));

    /* A caller who may not call is told so, whatever the arguments are. */
    EXPECT(wanted, demi_socket(NULL, -1, -1, -1));
    EXPECT(wanted, demi_bind(-1, NULL, 0));
    EXPECT(wanted, demi_accept(NULL, -1));
    EXPECT(wanted, demi_connect(NULL, -1, NULL, 0));
    EXPECT(wanted, demi_push(NULL, -1, NULL));
    EXPECT(wanted, demi_pushto(NULL, -1, NULL, NULL, (socklen_t)-1));
    EXPECT(wanted, demi_pop(NULL, -1));
    EXPECT(wanted, demi_setsockopt(-1, -1, -1, NULL, 0));
    EXPECT(wanted, demi_getsockopt(-1, -1, -1, NULL, NULL));
    EXPECT(wanted, demi_getpeername(-1, NULL, NULL));
    EXPECT(wanted, demi_getsockname(-1, NULL, NULL));
    EXPECT(wanted, demi_create_pipe(NULL, NULL));
    EXPECT(wanted, demi_open_pipe(NULL, NULL));
    EXPECT(wanted, demi_sgafree(NULL));
    EXPECT(wanted, demi_wait(NULL, 0, NULL));
    EXPECT(wanted, demi_wait_any(NULL, NULL, NULL, -1, NULL));
    EXPECT(wanted, demi_wait_next_n(NULL, -1, NULL, NULL));
    EXPECT(wanted, demi_homa_call(NULL, -1, NULL, NULL, 0, 0, 1, NULL));
    EXPECT(wanted, demi_homa_reply(NULL, -1, 0, NULL, 0, NULL));
    EXPECT(wanted, demi_homa_info(NULL, NULL));
    EXPECT(wanted, demi_homa_abort(-1, 0, -1));
    REQUIRE(number == -7 && id == 7 && token == 7 && len == sizeof linger);
    REQUIRE(result.qr_qd == 7 && info.kind == 7);
}

#endif /* CALLS_H_IS_INCLUDED */
