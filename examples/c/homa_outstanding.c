/* Many requests at once by the calls of the Linux Homa module: responses come in any order, and the
 * cookie of each finds what the client knows of its request.
 *
 *     homa_echo server --config server.toml
 *     homa_outstanding client --config client.toml --outstanding 64
 *
 * Requests of all `--sizes` are mixed, so that short ones overtake long ones; the client checks
 * every byte, and prints how many responses came before that to an older request.
 *
 * Build: cc homa_outstanding.c $(pkg-config --cflags --libs demihoma) -o homa_outstanding
 */

#define _POSIX_C_SOURCE 200809L

#include "homa_example.h"

/* What is known of a request on its way; its address is the request's cookie. */
struct context {
    uint64_t id;
    uint32_t size;
    int sequence;
};

static void ask(const struct options *options, struct homa_socket *homa, struct context *context,
                int sequence)
{
    static char bytes[HOMA_MAX_MESSAGE_LENGTH];
    sockaddr_in_union server = {.in4 = options->server};
    context->sequence = sequence;
    context->size = options->sizes[sequence % options->size_count];
    fill(bytes, context->size, sequence);
    /* The bytes are ours again when this returns, so that one buffer is enough. */
    check_call(options, "homa_send",
               homa_send(homa->fd, bytes, context->size, &server, &context->id,
                         (uint64_t)(uintptr_t)context));
}

/* Asks `--count` times, with as many requests outstanding as may be; false if bytes were wrong. */
static bool run_client(const struct options *options)
{
    static struct context contexts[OUTSTANDING_MAX];
    struct homa_socket homa = open_socket(options);
    struct homa_recvmsg_args args = {0};
    int asked = 0, wrong = 0, overtaking = 0, newest = -1;
    for (; asked < options->outstanding && asked < options->count; asked++)
        ask(options, &homa, &contexts[asked], asked);
    for (int answered = 0; answered < options->count; answered++) {
        args.id = 0;
        args.flags = HOMA_RECVMSG_RESPONSE;
        ssize_t length = homa_recvmsg(homa.fd, &args, NULL, NULL);
        check_call(options, "a request failed", length);
        struct context *context = (struct context *)(uintptr_t)args.completion_cookie;
        if (args.id != context->id ||
            !is_message(&homa, &args, (size_t)length, context->size, context->sequence))
            wrong++;
        if (context->sequence < newest)
            overtaking++;
        else
            newest = context->sequence;
        if (asked < options->count)
            ask(options, &homa, context, asked++);
    }
    close_socket(options, &homa);
    printf("%d requests, %d at once: %d responses wrong, %d after those to newer requests\n",
           options->count, options->outstanding, wrong, overtaking);
    return wrong == 0;
}

int main(int argc, char *argv[])
{
    struct options options = parse_options("homa_outstanding", argc, argv);
    struct demi_args args = {.argc = argc, .argv = argv, .callback = NULL};
    if (options.is_server) {
        fputs("homa_outstanding: its server is that of homa_echo\n", stderr);
        return EXIT_FAILURE;
    }
    if (demi_init(&args) != 0) /* Has said what is wrong. */
        return EXIT_FAILURE;
    return run_client(&options) ? EXIT_SUCCESS : EXIT_FAILURE;
}
