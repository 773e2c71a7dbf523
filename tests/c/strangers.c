/* Who may call when: other threads, signal handlers, a second runtime in the same process. */

#define _GNU_SOURCE

#include <pthread.h>
#include <signal.h>
#include <sys/time.h>

#include "calls.h"

static struct demi_args args;
static pthread_t owner; /* Of the runtime. */

static void *call_from_a_thread_without_runtime(void *unused)
{
    expect_every_call(ENOSYS);
    return unused;
}

/* The interface belongs to the first thread, so this one gets none, and is told so. */
static void *begin_a_second_runtime(void *unused)
{
    EXPECT(EADDRINUSE, demi_init(&args));
    expect_every_call(ENOSYS);
    return unused;
}

static void *wake(void *unused)
{
    demi_wake();
    return unused;
}

static void in_a_thread(void *(*body)(void *))
{
    pthread_t thread;
    REQUIRE(pthread_create(&thread, NULL, body, NULL) == 0);
    REQUIRE(pthread_join(thread, NULL) == 0);
}

static volatile sig_atomic_t times_handled;

static volatile sig_atomic_t is_expected;

/* Signals from now on, one every 5 ms; or none any more. */
static void set_alarm(int is_on)
{
    struct itimerval often = {0};
    is_expected = is_on;
    if (is_on)
        often.it_value.tv_usec = often.it_interval.tv_usec = 5000;
    setitimer(ITIMER_REAL, &often, NULL);
}

/* `expect` prints on failure only, which is worth more here than being safe in a handler. */
static void call_from_a_handler(int signal)
{
    int qd = -1;
    if (!pthread_equal(pthread_self(), owner)) {
        pthread_kill(owner, signal); /* DPDK has threads too, and any may get it. */
        return;
    }
    if (!is_expected)
        return; /* One that was still on its way. */
    if (demi_socket(&qd, AF_INET, SOCK_DGRAM, 0) == 0) {
        EXPECT(0, demi_close(qd)); /* It came between two calls; the next one will not. */
        return;
    }
    set_alarm(0);
    expect_every_call(EBUSY);
    EXPECT(EBUSY, demi_init(&args));
    times_handled++;
    demi_wake();
}

/* Waits for what never comes, until a handler that also tries to call in ends it. */
static void a_handler_ends_a_wait_and_cannot_call(void)
{
    demi_qtoken_t qt;
    demi_qresult_t result;
    int at, count, qd = bound_socket(0, 1000);
    struct sigaction action = {.sa_handler = call_from_a_handler, .sa_flags = SA_RESTART};
    EXPECT(0, demi_pop(&qt, qd));
    REQUIRE(sigaction(SIGALRM, &action, NULL) == 0);
    set_alarm(1);
    EXPECT(EINTR, demi_wait(&result, qt, NULL));
    set_alarm(1);
    EXPECT(EINTR, demi_wait_any(&result, &at, &qt, 1, &PATIENCE));
    set_alarm(1);
    EXPECT(EINTR, demi_wait_next_n(&result, 1, &count, NULL));
    REQUIRE(count == 0 && times_handled == 3);
    EXPECT(ETIMEDOUT, demi_wait(&result, qt, &AT_ONCE)); /* The token is still good. */

    /* Woken before it waits: that is not lost either, and ends one wait only. */
    in_a_thread(wake);
    EXPECT(EINTR, demi_wait(&result, qt, &PATIENCE));
    EXPECT(ETIMEDOUT, demi_wait(&result, qt, &AT_ONCE));
    EXPECT(0, demi_close(qd));
    EXPECT(0, demi_wait(&result, qt, &AT_ONCE));
    REQUIRE(result.qr_opcode == DEMI_OPC_FAILED && result.qr_ret == ECANCELED);
}

/* Between calls a handler of the runtime's own thread may call in. */
static volatile int opened = -1;

static void open_in_a_handler(int signal)
{
    int qd = -1;
    (void)signal;
    EXPECT(0, demi_socket(&qd, AF_INET, SOCK_DGRAM, 0));
    opened = qd;
}

static void a_handler_between_calls_may_call(void)
{
    struct sigaction action = {.sa_handler = open_in_a_handler};
    REQUIRE(sigaction(SIGUSR1, &action, NULL) == 0);
    REQUIRE(raise(SIGUSR1) == 0);
    EXPECT(0, demi_close(opened));
}

static void never_called(const char *name, uint32_t len, uint64_t nanos)
{
    (void)name, (void)len, (void)nanos;
    REQUIRE(!"the profiler's callback is not called");
}

int main(int argc, char *argv[])
{
    args = (struct demi_args){.argc = argc, .argv = argv, .callback = never_called};
    owner = pthread_self();
    in_a_thread(call_from_a_thread_without_runtime);
    EXPECT(0, demi_init(&args));
    EXPECT(EEXIST, demi_init(&args));
    EXPECT(EEXIST, demi_init(NULL));
    in_a_thread(call_from_a_thread_without_runtime);
    in_a_thread(begin_a_second_runtime);
    a_handler_ends_a_wait_and_cannot_call();
    a_handler_between_calls_may_call();
    return failures != 0;
}
