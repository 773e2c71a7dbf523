/* Messages there and back, written as for Demikernel: a datagram socket, push, pop and wait.
 *
 *     echo server --config server.toml
 *     echo client --config client.toml
 *
 * demihoma carries each exchange as one Homa RPC: the datagram that the server sends to a client
 * that waits for an answer becomes the response. So messages may be up to 1,000,000 bytes long, and
 * none is lost. The client checks every byte and prints round trip times.
 *
 * Build: cc echo.c $(pkg-config --cflags --libs demihoma) -o echo
 */

#define _POSIX_C_SOURCE 200809L

#include <demi/libos.h>
#include <demi/sga.h>
#include <demi/wait.h>

#include "example.h"

/* Sends a popped message back to where it came from, and frees it. */
static void send_back(const struct options *options, int qd, demi_sgarray_t *sga)
{
    demi_qtoken_t push;
    struct sockaddr_in from = sga->sga_addr; /* A copy: members of packed structs are unaligned. */
    int error = demi_pushto(&push, qd, sga, (const struct sockaddr *)&from, sizeof from);
    if (error != 0) /* One client's trouble must not end the service of the others. */
        fprintf(stderr, "%s: demi_pushto: %s\n", options->program, strerror(error));
    /* The push has a reference of its own, so the message may be freed at once. */
    check(options, "demi_sgafree", demi_sgafree(sga));
}

static void run_server(const struct options *options)
{
    int qd;
    demi_qtoken_t pop;
    struct sockaddr_in any = {
        .sin_family = AF_INET,
        .sin_port = options->server.sin_port,
        .sin_addr.s_addr = htonl(INADDR_ANY),
    };
    check(options, "demi_socket", demi_socket(&qd, AF_INET, SOCK_DGRAM, 0));
    check(options, "demi_bind", demi_bind(qd, (const struct sockaddr *)&any, sizeof any));
    check(options, "demi_pop", demi_pop(&pop, qd));
    catch_signals();
    puts("ready");
    fflush(stdout);

    while (!must_stop) {
        demi_qresult_t result;
        int count;
        /* Whichever completes next: the pop, or one of the pushes before. */
        int error = demi_wait_next_n(&result, 1, &count, NULL);
        if (error == EINTR)
            continue;
        check(options, "demi_wait_next_n", error);
        if (result.qr_opcode == DEMI_OPC_POP) {
            demi_sgarray_t message = result.qr_value.sga;
            send_back(options, qd, &message);
        } else if (result.qr_opcode == DEMI_OPC_FAILED) {
            fprintf(stderr, "%s: %s failed: %s\n", options->program,
                    result.qr_qt == pop ? "a pop" : "a push", strerror((int)result.qr_ret));
        }
        if (result.qr_qt == pop)
            check(options, "demi_pop", demi_pop(&pop, qd));
    }
    check(options, "demi_close", demi_close(qd));
}

/* Waits for the answer, and for the push that asked for it. Gives the answer. */
static demi_sgarray_t wait_for_both(const struct options *options, demi_qtoken_t push,
                                    demi_qtoken_t pop)
{
    demi_qtoken_t tokens[2] = {push, pop};
    demi_sgarray_t answer = {0};
    struct timespec patience = {.tv_sec = 5};
    for (int pending = 2; pending > 0; pending--) {
        demi_qresult_t result;
        int at;
        check(options, "no answer came", demi_wait_any(&result, &at, tokens, pending, &patience));
        if (result.qr_opcode == DEMI_OPC_FAILED)
            fail(options, tokens[at] == push ? "the push failed" : "the pop failed",
                 (int)result.qr_ret);
        if (result.qr_opcode == DEMI_OPC_POP)
            answer = result.qr_value.sga;
        tokens[at] = tokens[pending - 1]; /* The other one is left. */
    }
    return answer;
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
    check(options, "demi_pushto",
          demi_pushto(&push, qd, &message, (const struct sockaddr *)&options->server,
                      sizeof options->server));
    check(options, "demi_pop", demi_pop(&pop, qd));
    demi_sgarray_t answer = wait_for_both(options, push, pop);
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
    bool all_right = true;
    /* Not bound: the first push gives the socket a port of its own. */
    check(options, "demi_socket", demi_socket(&qd, AF_INET, SOCK_DGRAM, 0));
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
    struct options options = parse_options("echo", argc, argv);
    struct demi_args args = {.argc = argc, .argv = argv, .callback = NULL};
    if (demi_init(&args) != 0) /* Has said what is wrong. */
        return EXIT_FAILURE;
    if (options.is_server) {
        run_server(&options);
        return EXIT_SUCCESS;
    }
    if (!run_client(&options)) {
        fputs("echo: some messages came back changed\n", stderr);
        return EXIT_FAILURE;
    }
    return EXIT_SUCCESS;
}
