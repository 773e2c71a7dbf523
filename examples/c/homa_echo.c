/* Messages there and back by the calls of the Linux Homa module, whose programs port by renaming
 * them: docs/linux-module.md has the list.
 *
 *     homa_echo server --config server.toml
 *     homa_echo client --config client.toml
 *
 * The client checks every byte and prints round trip times. With `--expect ENOTCONN` it exits 0
 * only if the first request ends in that error.
 *
 * Build: cc homa_echo.c $(pkg-config --cflags --libs demihoma) -o homa_echo
 */

#define _POSIX_C_SOURCE 200809L

#include "homa_example.h"

static void run_server(const struct options *options)
{
    struct homa_socket homa = open_socket(options);
    sockaddr_in_union any = {.in4 = {.sin_family = AF_INET,
                                     .sin_port = options->server.sin_port,
                                     .sin_addr.s_addr = htonl(INADDR_ANY)}};
    check_call(options, "homa_bind", homa_bind(homa.fd, &any));
    catch_signals();
    puts("ready");
    fflush(stdout);

    struct homa_recvmsg_args args = {0};
    while (!must_stop) {
        struct iovec parts[HOMA_MAX_BPAGES];
        sockaddr_in_union client;
        /* The pages of the last request are still named in `args`: this gives them back. */
        args.id = 0;
        args.flags = HOMA_RECVMSG_REQUEST;
        ssize_t length = homa_recvmsg(homa.fd, &args, &client, NULL);
        if (length < 0 && errno == EINTR)
            continue;
        check_call(options, "homa_recvmsg", length);
        int count = message_parts(&homa, &args, (size_t)length, parts);
        if (homa_replyv(homa.fd, parts, count, &client, args.id) < 0)
            perror("homa_echo: homa_replyv"); /* One client's trouble must not end the service. */
    }
    close_socket(options, &homa);
}

/* Ends the program if the request failed: well, if it failed as expected. */
static void check_outcome(const struct options *options, ssize_t length)
{
    if (options->expect != 0 && length < 0 && errno == options->expect) {
        printf("the request failed as expected: %s\n", strerror(errno));
        exit(EXIT_SUCCESS);
    }
    check_call(options, "the request failed", length);
    if (options->expect != 0) {
        fprintf(stderr, "homa_echo: the request succeeded, but should have failed: %s\n",
                strerror(options->expect));
        exit(EXIT_FAILURE);
    }
}

/* All messages of one size, one after the other. */
static struct result run_size(const struct options *options, struct homa_socket *homa,
                              uint32_t size)
{
    static char bytes[HOMA_MAX_MESSAGE_LENGTH];
    sockaddr_in_union server = {.in4 = options->server};
    struct result result = start_result(options, size);
    struct homa_recvmsg_args args = {0};
    while (result.count < options->count) {
        double sent_us = now_us();
        fill(bytes, size, result.count);
        check_call(options, "homa_send", homa_send(homa->fd, bytes, size, &server, &args.id, 0));
        args.flags = HOMA_RECVMSG_RESPONSE;
        ssize_t length = homa_recvmsg(homa->fd, &args, NULL, NULL);
        check_outcome(options, length);
        result.wrong += !is_message(homa, &args, (size_t)length, size, result.count);
        result.round_us[result.count++] = now_us() - sent_us;
        show_progress(options, &result);
    }
    /* Gives the last pages back; nothing else is to come. */
    args.id = 0;
    args.flags = HOMA_RECVMSG_RESPONSE | HOMA_RECVMSG_NONBLOCKING;
    (void)homa_recvmsg(homa->fd, &args, NULL, NULL);
    result.elapsed_us = now_us() - result.started_us;
    return result;
}

static bool run_client(const struct options *options)
{
    struct homa_socket homa = open_socket(options);
    bool all_right = true;
    for (int i = 0; i < options->size_count; i++) {
        struct result result = run_size(options, &homa, options->sizes[i]);
        if (i == 0)
            print_header(options);
        print_result(options, &result);
        all_right = all_right && result.wrong == 0;
    }
    close_socket(options, &homa);
    return all_right;
}

int main(int argc, char *argv[])
{
    struct options options = parse_options("homa_echo", argc, argv);
    struct demi_args args = {.argc = argc, .argv = argv, .callback = NULL};
    if (demi_init(&args) != 0) /* Has said what is wrong. */
        return EXIT_FAILURE;
    if (options.is_server) {
        run_server(&options);
        return EXIT_SUCCESS;
    }
    if (!run_client(&options)) {
        fputs("homa_echo: some messages did not come back as they were sent\n", stderr);
        return EXIT_FAILURE;
    }
    return EXIT_SUCCESS;
}
