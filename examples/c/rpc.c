/* Remote procedure calls by demihoma's native interface: a call's token completes with the response
 * or with the error that ended the call.
 *
 *     rpc server --config server.toml
 *     rpc client --config client.toml --outstanding 8
 *
 * The procedure returns its argument. The client checks every byte and prints the times from call
 * to response. With `--expect ENOTCONN` it exits 0 only if the first call ends in that error.
 *
 * Build: cc rpc.c $(pkg-config --cflags --libs demihoma) -o rpc
 */

#define _POSIX_C_SOURCE 200809L

#include <demi/homa.h>
#include <demi/libos.h>
#include <demi/sga.h>
#include <demi/wait.h>

#include "example.h"

static struct demi_homa_msg_info info_of(const struct options *options, const demi_sgarray_t *sga)
{
    struct demi_homa_msg_info info = {.size = sizeof info};
    check(options, "demi_homa_info", demi_homa_info(sga, &info));
    return info;
}

/* Runs the procedure: the response is the request itself. */
static void serve(const struct options *options, int qd, demi_sgarray_t *request)
{
    struct demi_homa_msg_info info = info_of(options, request);
    /* No token: nobody wants to know when the response's bytes may be overwritten. */
    int error = demi_homa_reply(NULL, qd, info.id, (const struct sockaddr *)&info.peer,
                                sizeof info.peer, request);
    if (error != 0) /* One client's trouble must not end the service of the others. */
        fprintf(stderr, "%s: demi_homa_reply: %s\n", options->program, strerror(error));
    /* The reply has a reference of its own, so the request may be freed at once. */
    check(options, "demi_sgafree", demi_sgafree(request));
}

static void run_server(const struct options *options)
{
    int qd;
    struct sockaddr_in any = {
        .sin_family = AF_INET,
        .sin_port = options->server.sin_port,
        .sin_addr.s_addr = htonl(INADDR_ANY),
    };
    check(options, "demi_socket", demi_socket(&qd, AF_INET, SOCK_DGRAM, IPPROTO_HOMA));
    check(options, "demi_bind", demi_bind(qd, (const struct sockaddr *)&any, sizeof any));
    catch_signals();
    puts("ready");
    fflush(stdout);

    demi_qtoken_t pop = 0;
    while (!must_stop) {
        demi_qresult_t result;
        if (pop == 0)
            check(options, "demi_pop", demi_pop(&pop, qd));
        int error = demi_wait(&result, pop, NULL);
        if (error == EINTR)
            continue; /* The token is still good. */
        check(options, "demi_wait", error);
        pop = 0;
        if (result.qr_opcode == DEMI_OPC_FAILED)
            fail(options, "the pop failed", (int)result.qr_ret);
        demi_sgarray_t request = result.qr_value.sga;
        serve(options, qd, &request);
    }
    check(options, "demi_close", demi_close(qd));
}

/* Calls the procedure; `sequence` comes back as the response's cookie. */
static demi_qtoken_t call(const struct options *options, int qd, uint32_t size, int sequence)
{
    demi_qtoken_t token;
    demi_sgarray_t request = demi_sgaalloc(size);
    if (request.sga_numsegs == 0)
        fail(options, "demi_sgaalloc", ENOMEM);
    fill(request.sga_segs[0].sgaseg_buf, size, sequence);
    check(options, "demi_homa_call",
          demi_homa_call(&token, qd, &request, (const struct sockaddr *)&options->server,
                         sizeof options->server, (uint64_t)sequence, 0, NULL));
    check(options, "demi_sgafree", demi_sgafree(&request));
    return token;
}

/* Ends the program if the call failed: well, if it failed as expected. */
static void check_outcome(const struct options *options, const demi_qresult_t *result)
{
    bool has_failed = result->qr_opcode == DEMI_OPC_FAILED;
    if (options->expect != 0 && has_failed && result->qr_ret == options->expect) {
        printf("the call failed as expected: %s\n", strerror(options->expect));
        exit(EXIT_SUCCESS);
    }
    if (has_failed)
        fail(options, "the call failed", (int)result->qr_ret);
    if (options->expect != 0) {
        fprintf(stderr, "%s: the call succeeded, but should have failed: %s\n", options->program,
                strerror(options->expect));
        exit(EXIT_FAILURE);
    }
}

/* Looks whether the response is what was sent, and frees it. */
static void take_response(const struct options *options, demi_sgarray_t *response,
                          struct result *result)
{
    struct demi_homa_msg_info info = info_of(options, response);
    int sequence = (int)info.completion_cookie;
    if (info.kind != DEMI_HOMA_RESPONSE ||
        !is_right(response->sga_segs[0].sgaseg_buf, info.length, result->size, sequence))
        result->wrong++;
    check(options, "demi_sgafree", demi_sgafree(response));
}

/* All calls of one size, as many at a time as asked for. */
static struct result run_size(const struct options *options, int qd, uint32_t size)
{
    struct result result = start_result(options, size);
    demi_qtoken_t tokens[OUTSTANDING_MAX];
    double called_us[OUTSTANDING_MAX]; /* Beside its token. */
    int called = 0, pending = 0;
    while (result.count < options->count) {
        while (pending < options->outstanding && called < options->count) {
            called_us[pending] = now_us();
            tokens[pending++] = call(options, qd, size, called++);
        }
        demi_qresult_t done;
        int at;
        /* No timeout is needed: every call ends, if need be in ETIMEDOUT. */
        check(options, "demi_wait_any", demi_wait_any(&done, &at, tokens, pending, NULL));
        result.round_us[result.count++] = now_us() - called_us[at];
        check_outcome(options, &done);
        demi_sgarray_t response = done.qr_value.sga;
        take_response(options, &response, &result);
        pending--; /* The last one takes the place of the one that is done. */
        tokens[at] = tokens[pending];
        called_us[at] = called_us[pending];
        show_progress(options, &result);
    }
    result.elapsed_us = now_us() - result.started_us;
    return result;
}

static bool run_client(const struct options *options)
{
    int qd;
    bool all_right = true;
    check(options, "demi_socket", demi_socket(&qd, AF_INET, SOCK_DGRAM, IPPROTO_HOMA));
    for (int i = 0; i < options->size_count; i++) {
        struct result result = run_size(options, qd, options->sizes[i]);
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
    struct options options = parse_options("rpc", argc, argv);
    struct demi_args args = {.argc = argc, .argv = argv, .callback = NULL};
    if (demi_init(&args) != 0) /* Has said what is wrong. */
        return EXIT_FAILURE;
    if (options.is_server) {
        run_server(&options);
        return EXIT_SUCCESS;
    }
    if (!run_client(&options)) {
        fputs("rpc: some responses were not what was sent\n", stderr);
        return EXIT_FAILURE;
    }
    return EXIT_SUCCESS;
}
