/* Messages there and back over connections, written as for Demikernel: a stream socket, listen and
 * accept or connect, push, pop and wait.
 *
 *     stream server --config server.toml
 *     stream client --config client.toml
 *
 * A connection keeps the order of its messages, as TCP does, and their bounds too: each pop gives
 * what one push sent, up to 1,000,000 bytes. A program for TCP, which cannot count on that, works
 * all the same. Both sides must run on demihoma. The client checks every byte and prints round trip
 * times.
 *
 * Build: cc stream.c $(pkg-config --cflags --libs demihoma) -o stream
 */

#define _POSIX_C_SOURCE 200809L

#include <demi/libos.h>
#include <demi/sga.h>
#include <demi/wait.h>

#include "example.h"

enum { BACKLOG = 16, TOKENS_MAX = 4096 };

/* The operations under way, in the order that demi_wait_any() wants. */
struct tokens {
    demi_qtoken_t all[TOKENS_MAX];
    int count;
};

static void add(const struct options *options, struct tokens *tokens, demi_qtoken_t token)
{
    if (tokens->count == TOKENS_MAX)
        fail(options, "too many connections for this example", EAGAIN);
    tokens->all[tokens->count++] = token;
}

/* A client has gone, or is lost: the other connections go on. */
static void hang_up(const struct options *options, int qd)
{
    int error = demi_close(qd);
    if (error != 0 && error != EBADF) /* Another of its operations has failed before. */
        fail(options, "demi_close", error);
}

static void pop_next(const struct options *options, struct tokens *tokens, int qd)
{
    demi_qtoken_t pop;
    check(options, "demi_pop", demi_pop(&pop, qd));
    add(options, tokens, pop);
}

static void accept_next(const struct options *options, struct tokens *tokens, int listener)
{
    demi_qtoken_t accept;
    check(options, "demi_accept", demi_accept(&accept, listener));
    add(options, tokens, accept);
}

/* Sends a popped message back, and asks for the next. */
static void send_back(const struct options *options, struct tokens *tokens, int qd,
                      demi_sgarray_t *sga)
{
    demi_qtoken_t push;
    bool is_end = sga->sga_segs[0].sgaseg_len == 0; /* The client has closed its side. */
    if (!is_end) {
        check(options, "demi_push", demi_push(&push, qd, sga));
        add(options, tokens, push);
    }
    /* The push has a reference of its own, so the message may be freed at once. */
    check(options, "demi_sgafree", demi_sgafree(sga));
    if (is_end)
        hang_up(options, qd);
    else
        pop_next(options, tokens, qd);
}

static void run_server(const struct options *options)
{
    static struct tokens tokens;
    int listener;
    check(options, "demi_socket", demi_socket(&listener, AF_INET, SOCK_STREAM, 0));
    check(options, "demi_bind (does --server name this side?)",
          demi_bind(listener, (const struct sockaddr *)&options->server, sizeof options->server));
    check(options, "demi_listen", demi_listen(listener, BACKLOG));
    accept_next(options, &tokens, listener);
    catch_signals();
    puts("ready");
    fflush(stdout);

    while (!must_stop) {
        demi_qresult_t result;
        int at;
        int error = demi_wait_any(&result, &at, tokens.all, tokens.count, NULL);
        if (error == EINTR)
            continue;
        check(options, "demi_wait_any", error);
        tokens.all[at] = tokens.all[--tokens.count];
        if (result.qr_opcode == DEMI_OPC_ACCEPT) {
            pop_next(options, &tokens, result.qr_value.ares.qd);
            accept_next(options, &tokens, listener);
        } else if (result.qr_opcode == DEMI_OPC_POP) {
            demi_sgarray_t message = result.qr_value.sga;
            send_back(options, &tokens, result.qr_qd, &message);
        } else if (result.qr_opcode == DEMI_OPC_FAILED && result.qr_ret != ECANCELED) {
            fprintf(stderr, "%s: a connection failed: %s\n", options->program,
                    strerror((int)result.qr_ret));
            hang_up(options, result.qr_qd);
        }
    }
    check(options, "demi_close", demi_close(listener));
}

/* Waits for an operation that must succeed. */
static demi_qresult_t finish(const struct options *options, const char *what, demi_qtoken_t token)
{
    demi_qresult_t result;
    check(options, what, demi_wait(&result, token, NULL));
    if (result.qr_opcode == DEMI_OPC_FAILED)
        fail(options, what, (int)result.qr_ret);
    return result;
}

/* One message there and back; adds what it took to the result. */
static void exchange(const struct options *options, int qd, int sequence, struct result *result)
{
    demi_qtoken_t push, pop;
    demi_sgarray_t message = demi_sgaalloc(result->size);
    if (message.sga_numsegs == 0)
        fail(options, "demi_sgaalloc", ENOMEM);
    fill(message.sga_segs[0].sgaseg_buf, result->size, sequence);

    double started_us = now_us();
    check(options, "demi_pop", demi_pop(&pop, qd));
    check(options, "demi_push", demi_push(&push, qd, &message));
    finish(options, "a push", push);
    demi_sgarray_t answer = finish(options, "a pop", pop).qr_value.sga;
    double round_us = now_us() - started_us;

    if (!is_right(answer.sga_segs[0].sgaseg_buf, answer.sga_segs[0].sgaseg_len, result->size,
                  sequence))
        result->wrong++;
    check(options, "demi_sgafree", demi_sgafree(&answer));
    check(options, "demi_sgafree", demi_sgafree(&message));
    result->round_us[result->count++] = round_us;
    result->elapsed_us += round_us;
}

static bool run_client(const struct options *options)
{
    int qd;
    demi_qtoken_t connect;
    bool all_right = true;
    check(options, "demi_socket", demi_socket(&qd, AF_INET, SOCK_STREAM, 0));
    check(options, "demi_connect",
          demi_connect(&connect, qd, (const struct sockaddr *)&options->server,
                       sizeof options->server));
    finish(options, "connecting", connect);
    for (int i = 0; i < options->size_count; i++) {
        struct result result = start_result(options, options->sizes[i]);
        while (result.count < options->count) {
            exchange(options, qd, result.count, &result);
            show_progress(options, &result);
        }
        if (i == 0)
            print_header(options);
        print_result(options, &result);
        all_right = all_right && result.wrong == 0;
    }
    check(options, "demi_close", demi_close(qd));
    return all_right;
}

int main(int argc, char *argv[])
{
    struct options options = parse_options("stream", argc, argv);
    struct demi_args args = {.argc = argc, .argv = argv, .callback = NULL};
    if (demi_init(&args) != 0) /* Has said what is wrong. */
        return EXIT_FAILURE;
    if (options.is_server) {
        run_server(&options);
        return EXIT_SUCCESS;
    }
    if (!run_client(&options)) {
        fputs("stream: some messages came back changed\n", stderr);
        return EXIT_FAILURE;
    }
    return EXIT_SUCCESS;
}
