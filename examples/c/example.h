/* What the example programs share, and what has nothing to do with demihoma: options, a test
 * pattern, times, a table of results, and errors that say what to do. */

#ifndef EXAMPLE_H_IS_INCLUDED
#define EXAMPLE_H_IS_INCLUDED

#include <arpa/inet.h>
#include <demi/libos.h>
#include <demi/wait.h>
#include <errno.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { SIZES_MAX = 64, COUNT_MAX = 10000000, OUTSTANDING_MAX = 512, MESSAGE_MAX = 1000000 };

struct options {
    const char *program;
    bool is_server;
    struct sockaddr_in server; /* --server */
    uint32_t sizes[SIZES_MAX]; /* --sizes */
    int size_count;
    int count;       /* --count, for each size */
    int outstanding; /* --outstanding */
    int expect;      /* --expect: the errno that must come, or 0 */
    bool json;       /* --json */
};

/* An error's name, and what its reader can do about it. */
static const struct error_help {
    int number;
    const char *name, *help;
} error_helps[] = {
    {ENOTCONN, "ENOTCONN", "nobody listens on that port: start the server first, check --server"},
    {EHOSTUNREACH, "EHOSTUNREACH",
     "no route, or no answer to ARP: check --server, the address and the interface in --config"},
    {ETIMEDOUT, "ETIMEDOUT",
     "the other side is silent: does the server run, and listen on that port?"},
    {ECANCELED, "ECANCELED", "the call was aborted"},
    {EADDRINUSE, "EADDRINUSE", "another program has it: end that one, or choose another"},
    {EADDRNOTAVAIL, "EADDRNOTAVAIL", "not an address of this side: check --config"},
    {EPERM, "EPERM", "run it as root, or within config/lab.sh"},
    {ENODEV, "ENODEV", "no such interface: check --config, or make one by config/lab.sh up"},
    {EAGAIN, "EAGAIN", "too much at once: ask for less, or raise the limit in --config"},
    {EMSGSIZE, "EMSGSIZE", "a message has at most 1,000,000 bytes"},
};

/* Says what failed and why, and ends the program. */
static inline void fail(const struct options *options, const char *what, int error)
{
    const char *help = "";
    for (size_t i = 0; i < sizeof error_helps / sizeof error_helps[0]; i++)
        if (error_helps[i].number == error)
            help = error_helps[i].help;
    fprintf(stderr, "%s: %s: %s%s%s\n", options->program, what, strerror(error), *help ? ": " : "",
            help);
    exit(EXIT_FAILURE);
}

/* As `fail`, unless the call returned 0. */
static inline void check(const struct options *options, const char *what, int error)
{
    if (error != 0)
        fail(options, what, error);
}

static inline void usage(const struct options *options, const char *problem)
{
    FILE *out = problem ? stderr : stdout;
    if (problem)
        fprintf(out, "%s: %s\n", options->program, problem);
    fprintf(out,
            "usage: %s server|client [--config FILE] [--server IP:PORT (10.0.0.1:10007)]\n"
            "       client: [--sizes BYTES,... (1,100,1424,1425,10000,100000,1000000)]\n"
            "               [--count N (1000)] [--json]\n"
            "       client of rpc: [--outstanding N (1)] [--expect ENOTCONN|EHOSTUNREACH|...]\n",
            options->program);
    exit(problem ? EXIT_FAILURE : EXIT_SUCCESS);
}

static inline long number(const struct options *options, const char *text, long max)
{
    char *end;
    long value = strtol(text, &end, 10);
    if (end == text || *end != '\0' || value < 1 || value > max) {
        fprintf(stderr, "%s: %s is no number from 1 to %ld\n", options->program, text, max);
        exit(EXIT_FAILURE);
    }
    return value;
}

static inline void parse_server(struct options *options, const char *text)
{
    char ip[INET_ADDRSTRLEN] = "";
    const char *colon = strrchr(text, ':');
    if (!colon || colon - text >= INET_ADDRSTRLEN)
        usage(options, "--server needs IP:PORT");
    memcpy(ip, text, (size_t)(colon - text));
    options->server.sin_family = AF_INET;
    options->server.sin_port = htons((uint16_t)number(options, colon + 1, 65535));
    if (inet_pton(AF_INET, ip, &options->server.sin_addr) != 1)
        usage(options, "--server needs an IPv4 address before the port");
}

static inline void parse_sizes(struct options *options, char *text)
{
    options->size_count = 0;
    for (char *word = strtok(text, ","); word; word = strtok(NULL, ",")) {
        if (options->size_count == SIZES_MAX)
            usage(options, "too many sizes");
        options->sizes[options->size_count++] = (uint32_t)number(options, word, MESSAGE_MAX);
    }
}

static inline void parse_expect(struct options *options, const char *text)
{
    for (size_t i = 0; i < sizeof error_helps / sizeof error_helps[0]; i++)
        if (strcmp(error_helps[i].name, text) == 0)
            options->expect = error_helps[i].number;
    if (options->expect == 0)
        usage(options, "--expect needs the name of an error, such as ENOTCONN");
}

static inline struct options parse_options(const char *program, int argc, char *argv[])
{
    struct options options = {.program = program, .count = 1000, .outstanding = 1};
    char sizes[] = "1,100,1424,1425,10000,100000,1000000";
    parse_sizes(&options, sizes);
    parse_server(&options, "10.0.0.1:10007");
    if (argc > 1 && (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0))
        usage(&options, NULL);
    if (argc < 2 || (strcmp(argv[1], "server") != 0 && strcmp(argv[1], "client") != 0))
        usage(&options, "first say server or client");
    options.is_server = strcmp(argv[1], "server") == 0;
    for (int i = 2; i < argc; i++) {
        const char *option = argv[i];
        if (strcmp(option, "--json") == 0) {
            options.json = true;
            continue;
        }
        char *value = argv[++i];
        if (!value)
            usage(&options, "the last option is unknown, or lacks its value");
        if (strcmp(option, "--server") == 0)
            parse_server(&options, value);
        else if (strcmp(option, "--sizes") == 0)
            parse_sizes(&options, value);
        else if (strcmp(option, "--count") == 0)
            options.count = (int)number(&options, value, COUNT_MAX);
        else if (strcmp(option, "--outstanding") == 0)
            options.outstanding = (int)number(&options, value, OUTSTANDING_MAX);
        else if (strcmp(option, "--expect") == 0)
            parse_expect(&options, value);
        else if (strcmp(option, "--config") != 0) /* Read by demi_init(). */
            usage(&options, "no such option");
    }
    return options;
}

static volatile sig_atomic_t must_stop;

static inline void on_signal(int signal)
{
    (void)signal;
    must_stop = 1;
    demi_wake(); /* The wait returns EINTR. */
}

/* Lets SIGTERM and SIGINT end the server in good order. */
static inline void catch_signals(void)
{
    struct sigaction action = {.sa_handler = on_signal};
    sigaction(SIGTERM, &action, NULL);
    sigaction(SIGINT, &action, NULL);
}

static inline double now_us(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e6 + (double)now.tv_nsec / 1e3;
}

/* The eight bytes at `at` of message number `sequence` of that size: the finalizer of SplitMix64,
 * so that no two messages, and no two places of one, look alike. */
static inline uint64_t pattern(uint32_t size, int sequence, uint32_t at)
{
    uint64_t word = ((uint64_t)size << 40) ^ ((uint64_t)sequence << 20) ^ (at / 8);
    word = (word ^ (word >> 30)) * 0xbf58476d1ce4e5b9;
    word = (word ^ (word >> 27)) * 0x94d049bb133111eb;
    return word ^ (word >> 31);
}

static inline void fill(void *bytes, uint32_t size, int sequence)
{
    for (uint32_t at = 0; at < size; at += 8) {
        uint64_t word = pattern(size, sequence, at);
        memcpy((char *)bytes + at, &word, size - at < 8 ? size - at : 8);
    }
}

static inline bool is_right(const void *bytes, uint32_t len, uint32_t size, int sequence)
{
    if (len != size)
        return false;
    for (uint32_t at = 0; at < size; at += 8) {
        uint64_t word = pattern(size, sequence, at);
        if (memcmp((const char *)bytes + at, &word, size - at < 8 ? size - at : 8) != 0)
            return false;
    }
    return true;
}

/* What came of the messages of one size. */
struct result {
    uint32_t size;
    int count;          /* came back, right or wrong */
    int wrong;          /* came back with another length or other bytes */
    double *round_us;   /* one for each that came back */
    double elapsed_us;  /* for all of them */
    double started_us;  /* and two times for `show_progress` */
    double shown_us;
};

static inline struct result start_result(const struct options *options, uint32_t size)
{
    struct result result = {.size = size, .started_us = now_us()};
    result.round_us = calloc((size_t)options->count, sizeof *result.round_us);
    if (!result.round_us)
        fail(options, "calloc", ENOMEM);
    return result;
}

/* A line that stays in its place, for those who watch and wait for more than two seconds. */
static inline void show_progress(const struct options *options, struct result *result)
{
    double now = now_us();
    if (now - result->started_us < 2e6 || now - result->shown_us < 2e5 || !isatty(STDERR_FILENO))
        return;
    result->shown_us = now;
    fprintf(stderr, "\r%d of %d messages of %u bytes \r", result->count, options->count,
            result->size);
}

static inline int compare_times(const void *a, const void *b)
{
    double left = *(const double *)a, right = *(const double *)b;
    return (left > right) - (left < right);
}

static inline void print_header(const struct options *options)
{
    if (!options->json)
        puts("    bytes    count     p50 us     p99 us     Gbps  wrong");
}

/* One line; a message's bits count twice, once for each direction. */
static inline void print_result(const struct options *options, struct result *result)
{
    qsort(result->round_us, (size_t)result->count, sizeof *result->round_us, compare_times);
    double p50 = result->round_us[(result->count - 1) * 50L / 100];
    double p99 = result->round_us[(result->count - 1) * 99L / 100];
    double gbps = 2.0 * 8.0 * result->size * result->count / result->elapsed_us / 1e3;
    const char *format = "%9u %8d %10.1f %10.1f %8.3f %6d\n";
    if (options->json)
        format = "{\"bytes\":%u,\"count\":%d,\"p50_us\":%.1f,\"p99_us\":%.1f,\"gbps\":%.3f,"
                 "\"wrong\":%d}\n";
    printf(format, result->size, result->count, p50, p99, gbps, result->wrong);
    fflush(stdout);
    free(result->round_us);
}

#endif /* EXAMPLE_H_IS_INCLUDED */
