/* One example for each call: tests/manual.rs compiles them, and puts them into its manual page.
 * Errors are looked at where that is the point; a program looks at all of them. */

#include <demi/homa.h>
#include <demi/libos.h>
#include <demi/sga.h>
#include <demi/wait.h>
#include <arpa/inet.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int argc, qd;
static char **argv;
static demi_qtoken_t qt;
static demi_qresult_t result;
static demi_sgarray_t sga;
static struct sockaddr_in peer;

void demi_version_example(void)
{
    if (demi_version() != DEMIHOMA_VERSION)
        fputs("the library is not that of the headers\n", stderr);
}

void demi_init_example(void)
{
    struct demi_args args = {.argc = argc, .argv = argv, .callback = NULL};
    if (demi_init(&args) != 0)
        exit(EXIT_FAILURE); /* It has said what is wrong. */
}

void demi_socket_example(void)
{
    int error = demi_socket(&qd, AF_INET, SOCK_DGRAM, 0);
    if (error != 0)
        fprintf(stderr, "demi_socket: %s\n", strerror(error));
}

void demi_bind_example(void)
{
    struct sockaddr_in here = {.sin_family = AF_INET, .sin_port = htons(7)};
    here.sin_addr.s_addr = htonl(INADDR_ANY);
    if (demi_bind(qd, (const struct sockaddr *)&here, sizeof here) == EADDRINUSE)
        fputs("another socket has port 7\n", stderr);
}

void demi_listen_example(void)
{
    if (demi_listen(qd, 16) == ENOTSUP)
        fputs("not a stream\n", stderr);
}

void demi_accept_example(void)
{
    if (demi_accept(&qt, qd) == 0 && demi_wait(&result, qt, NULL) == 0 &&
        result.qr_opcode == DEMI_OPC_ACCEPT)
        printf("connection %d\n", result.qr_value.ares.qd);
}

void demi_connect_example(void)
{
    if (demi_connect(&qt, qd, (const struct sockaddr *)&peer, sizeof peer) == 0 &&
        demi_wait(&result, qt, NULL) == 0 && result.qr_opcode == DEMI_OPC_FAILED)
        fprintf(stderr, "refused: %s\n", strerror((int)result.qr_ret));
}

void demi_close_example(void)
{
    if (demi_close(qd) == EBADF)
        fputs("closed before\n", stderr);
}

void demi_push_example(void)
{
    if (demi_push(&qt, qd, &sga) == 0)
        demi_sgafree(&sga); /* The push has a reference of its own. */
    demi_wait(&result, qt, NULL);
}

void demi_pushto_example(void)
{
    sga = demi_sgaalloc(5);
    memcpy(sga.sga_segs[0].sgaseg_buf, "hello", 5);
    demi_pushto(&qt, qd, &sga, (const struct sockaddr *)&peer, sizeof peer);
    demi_sgafree(&sga);
    demi_wait(&result, qt, NULL);
    if (result.qr_opcode == DEMI_OPC_FAILED)
        fprintf(stderr, "not sent: %s\n", strerror((int)result.qr_ret));
}

void demi_pop_example(void)
{
    demi_pop(&qt, qd);
    demi_wait(&result, qt, NULL);
    if (result.qr_opcode == DEMI_OPC_POP) {
        demi_sgarray_t message = result.qr_value.sga;
        fwrite(message.sga_segs[0].sgaseg_buf, 1, message.sga_segs[0].sgaseg_len, stdout);
        demi_sgafree(&message);
    }
}

void demi_setsockopt_example(void)
{
    struct linger linger = {.l_onoff = 1, .l_linger = 0}; /* Close without waiting. */
    demi_setsockopt(qd, SOL_SOCKET, SO_LINGER, &linger, sizeof linger);
}

void demi_getsockopt_example(void)
{
    struct linger linger;
    socklen_t len = sizeof linger;
    if (demi_getsockopt(qd, SOL_SOCKET, SO_LINGER, &linger, &len) == 0)
        printf("close waits for up to %d s\n", linger.l_linger);
}

void demi_getpeername_example(void)
{
    struct sockaddr_in addr;
    socklen_t len = sizeof addr;
    if (demi_getpeername(qd, (struct sockaddr *)&addr, &len) == ENOTCONN)
        fputs("no peer\n", stderr);
}

void demi_getsockname_example(void)
{
    struct sockaddr_in addr;
    socklen_t len = sizeof addr;
    if (demi_getsockname(qd, (struct sockaddr *)&addr, &len) == 0)
        printf("port %d\n", ntohs(addr.sin_port));
}

void demi_create_pipe_example(void)
{
    if (demi_create_pipe(&qd, "pipe") == ENOTSUP)
        fputs("use sockets\n", stderr);
}

void demi_open_pipe_example(void)
{
    if (demi_open_pipe(&qd, "pipe") == ENOTSUP)
        fputs("use sockets\n", stderr);
}

void demi_sgaalloc_example(void)
{
    sga = demi_sgaalloc(100);
    if (sga.sga_numsegs == 0)
        fputs("no memory, or no demi_init()\n", stderr);
    else
        memset(sga.sga_segs[0].sgaseg_buf, 0, sga.sga_segs[0].sgaseg_len);
}

void demi_sgafree_example(void)
{
    if (demi_sgafree(&sga) == EINVAL)
        fputs("freed before, or never ours\n", stderr);
}

void demi_wait_example(void)
{
    struct timespec one_sec = {.tv_sec = 1};
    int error = demi_wait(&result, qt, &one_sec);
    if (error == ETIMEDOUT)
        fputs("not yet; the token is still good\n", stderr);
    else if (error == 0 && result.qr_opcode == DEMI_OPC_FAILED)
        fprintf(stderr, "failed: %s\n", strerror((int)result.qr_ret));
}

void demi_wait_any_example(void)
{
    demi_qtoken_t tokens[2];
    int at;
    demi_pop(&tokens[0], qd);
    demi_pop(&tokens[1], qd);
    if (demi_wait_any(&result, &at, tokens, 2, NULL) == 0)
        demi_pop(&tokens[at], qd); /* Takes the place of the one that is used up. */
}

void demi_wait_next_n_example(void)
{
    demi_qresult_t results[16];
    struct timespec at_once = {0};
    int count = 0;
    demi_wait_next_n(results, 16, &count, &at_once); /* ETIMEDOUT: there were fewer. */
    for (int i = 0; i < count; i++)
        printf("operation %d on queue %d\n", (int)results[i].qr_opcode, results[i].qr_qd);
}

static void stop(int number)
{
    (void)number;
    demi_wake();
}

void demi_wake_example(void)
{
    signal(SIGTERM, stop); /* static void stop(int number) { demi_wake(); } */
    if (demi_wait(&result, qt, NULL) == EINTR)
        demi_close(qd);
}

void demi_homa_call_example(void)
{
    uint64_t id;
    demi_homa_call(&qt, qd, &sga, (const struct sockaddr *)&peer, sizeof peer, 42, 0, &id);
    demi_sgafree(&sga);
    demi_wait(&result, qt, NULL);
    if (result.qr_opcode == DEMI_OPC_POP) {
        demi_sgarray_t response = result.qr_value.sga;
        printf("%u bytes came back\n", response.sga_segs[0].sgaseg_len);
        demi_sgafree(&response);
    }
}

void demi_homa_reply_example(void)
{
    struct demi_homa_msg_info info = {.size = sizeof info};
    demi_sgarray_t request = result.qr_value.sga;
    demi_homa_info(&request, &info);
    demi_homa_reply(NULL, qd, info.id, (const struct sockaddr *)&info.peer, sizeof info.peer,
                    &request);
    demi_sgafree(&request);
}

void demi_homa_info_example(void)
{
    struct demi_homa_msg_info info = {.size = sizeof info};
    if (demi_homa_info(&sga, &info) == 0 && info.kind == DEMI_HOMA_RESPONSE)
        printf("the response to request %llu\n", (unsigned long long)info.completion_cookie);
}

void demi_homa_abort_example(void)
{
    demi_homa_abort(qd, 0, ECANCELED); /* All calls of this socket. */
}
