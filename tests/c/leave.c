/* A client that ends right after its last wait, and a server that must miss nothing.
 *
 *     leave server --config FILE             ends well once it has had all of both kinds
 *     leave client --config FILE --by HOW    HOW: return, exit, close or thread
 *
 * First datagrams that nobody answers, the last of them long; then calls whose answers are long, so
 * that the server knows of their end only if somebody acknowledges them. */

#define _GNU_SOURCE

#include <pthread.h>
#include <stdlib.h>

#include "calls.h"

enum { DATAGRAMS = 200, CALLS = 20, LONG = 50000 };

static uint32_t size_of(int number)
{
    return number % 10 == 9 ? LONG : 100;
}

static demi_sgarray_t array_of(uint32_t size, int number)
{
    demi_sgarray_t sga = demi_sgaalloc(size);
    REQUIRE(sga.sga_numsegs == 1);
    if (sga.sga_numsegs == 1)
        memset(sga.sga_segs[0].sgaseg_buf, number, size);
    return sga;
}

static demi_qresult_t wait_for(demi_qtoken_t qt, int opcode)
{
    demi_qresult_t result = {0};
    EXPECT(0, demi_wait(&result, qt, &PATIENCE));
    REQUIRE((int)result.qr_opcode == opcode);
    if (failures != 0)
        exit(EXIT_FAILURE);
    return result;
}

/* --- server --- */

static void take_datagrams(int qd)
{
    static int times[DATAGRAMS];
    for (int i = 0; i < DATAGRAMS; i++) {
        demi_qtoken_t qt;
        EXPECT(0, demi_pop(&qt, qd));
        demi_sgarray_t got = wait_for(qt, DEMI_OPC_POP).qr_value.sga;
        const unsigned char *bytes = got.sga_segs[0].sgaseg_buf;
        uint32_t size = got.sga_segs[0].sgaseg_len;
        int number = bytes[0];
        REQUIRE(number < DATAGRAMS && size == size_of(number) && bytes[size - 1] == number);
        if (number < DATAGRAMS)
            REQUIRE(times[number]++ == 0);
        EXPECT(0, demi_sgafree(&got));
    }
}

static void answer_calls(int qd)
{
    demi_qtoken_t replies[CALLS];
    for (int i = 0; i < CALLS; i++) {
        demi_qtoken_t qt;
        struct demi_homa_msg_info info = {.size = sizeof info};
        EXPECT(0, demi_pop(&qt, qd));
        demi_sgarray_t request = wait_for(qt, DEMI_OPC_POP).qr_value.sga;
        demi_sgarray_t response = array_of(LONG, i);
        EXPECT(0, demi_homa_info(&request, &info));
        EXPECT(0, demi_homa_reply(&replies[i], qd, info.id, (struct sockaddr *)&info.peer,
                                  sizeof info.peer, &response));
        EXPECT(0, demi_sgafree(&request));
        EXPECT(0, demi_sgafree(&response));
    }
    /* Each completes only once the client, which is gone by now, is known to have it. */
    for (int i = 0; i < CALLS; i++)
        wait_for(replies[i], DEMI_OPC_PUSH);
}

static void serve(void)
{
    int datagrams = bound_socket(0, 7000), native = bound_socket(IPPROTO_HOMA, 7001);
    puts("ready");
    fflush(stdout);
    take_datagrams(datagrams);
    answer_calls(native);
    EXPECT(0, demi_close(datagrams));
    EXPECT(0, demi_close(native));
}

/* --- client --- */

static struct demi_args args;
static const char *way = "return";

static int push_all(void)
{
    struct sockaddr_in to = in4("10.0.0.1", 7000);
    int qd = new_socket(0);
    demi_qtoken_t first = 0;
    for (int i = 0; i < DATAGRAMS; i++) {
        demi_qtoken_t qt;
        demi_sgarray_t sga = array_of(size_of(i), i);
        EXPECT(0, demi_pushto(&qt, qd, &sga, (struct sockaddr *)&to, sizeof to));
        EXPECT(0, demi_sgafree(&sga));
        if (i == 0)
            first = qt;
    }
    /* Its bytes are ours again; no more is known of any of them. */
    wait_for(first, DEMI_OPC_PUSH);
    return qd;
}

static int call_all(void)
{
    struct sockaddr_in to = in4("10.0.0.1", 7001);
    int qd = new_socket(IPPROTO_HOMA);
    demi_qtoken_t calls[CALLS];
    demi_sgarray_t sga = array_of(100, 1);
    for (int i = 0; i < CALLS; i++)
        EXPECT(0, demi_homa_call(&calls[i], qd, &sga, (struct sockaddr *)&to, sizeof to, 0, 0,
                                 NULL));
    for (int i = 0; i < CALLS; i++)
        wait_for(calls[i], DEMI_OPC_POP);
    return qd;
}

static void *ask(void *unused)
{
    if (demi_init(&args) != 0)
        exit(2);
    int datagrams = push_all(), native = call_all();
    if (strcmp(way, "close") == 0) {
        EXPECT(0, demi_close(datagrams));
        EXPECT(0, demi_close(native));
        _Exit(failures != 0); /* Nothing that exit does helps. */
    }
    if (strcmp(way, "exit") == 0)
        exit(failures != 0);
    return unused;
}

int main(int argc, char *argv[])
{
    args = (struct demi_args){.argc = argc, .argv = argv};
    if (argc > 1 && strcmp(argv[1], "server") == 0) {
        if (demi_init(&args) != 0)
            return 2;
        serve();
        return failures != 0;
    }
    if (argc > 2)
        way = argv[argc - 1];
    if (strcmp(way, "thread") == 0) {
        pthread_t thread;
        REQUIRE(pthread_create(&thread, NULL, ask, NULL) == 0);
        REQUIRE(pthread_join(thread, NULL) == 0); /* With the thread its runtime ends. */
        _Exit(failures != 0);
    }
    ask(NULL);
    return failures != 0;
}
