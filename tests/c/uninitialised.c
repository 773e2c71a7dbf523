/* Before demi_init every call is refused, whatever its arguments, and nothing is written. */

#include <demi/homa.h>
#include <demi/libos.h>
#include <demi/sga.h>
#include <demi/wait.h>
#include <errno.h>

#include "expect.h"

static void calls_without_init_are_refused(void)
{
    int number = -7;
    uint64_t id = 7;
    demi_qtoken_t token = 7;
    demi_qresult_t result = {0};
    demi_sgarray_t sga = {0};
    struct demi_homa_msg_info info = {.size = sizeof info};
    struct linger linger = {0};
    socklen_t len = sizeof linger;
    struct sockaddr_in in4 = {.sin_family = AF_INET};
    struct sockaddr *addr = (struct sockaddr *)&in4;

    EXPECT(ENOSYS, demi_socket(&number, AF_INET, SOCK_DGRAM, 0));
    EXPECT(ENOSYS, demi_listen(500, 1));
    EXPECT(ENOSYS, demi_bind(500, addr, sizeof in4));
    EXPECT(ENOSYS, demi_accept(&token, 500));
    EXPECT(ENOSYS, demi_connect(&token, 500, addr, sizeof in4));
    EXPECT(ENOSYS, demi_close(500));
    EXPECT(ENOSYS, demi_push(&token, 500, &sga));
    EXPECT(ENOSYS, demi_pushto(&token, 500, &sga, addr, sizeof in4));
    EXPECT(ENOSYS, demi_pop(&token, 500));
    EXPECT(ENOSYS, demi_setsockopt(500, SOL_SOCKET, SO_LINGER, &linger, len));
    EXPECT(ENOSYS, demi_getsockopt(500, SOL_SOCKET, SO_LINGER, &linger, &len));
    EXPECT(ENOSYS, demi_getpeername(500, addr, &len));
    EXPECT(ENOSYS, demi_getsockname(500, addr, &len));
    EXPECT(ENOSYS, demi_create_pipe(&number, "pipe"));
    EXPECT(ENOSYS, demi_open_pipe(&number, "pipe"));
    EXPECT(ENOSYS, demi_sgafree(&sga));
    EXPECT(ENOSYS, demi_wait(&result, 1, NULL));
    EXPECT(ENOSYS, demi_wait_any(&result, &number, &token, 1, NULL));
    EXPECT(ENOSYS, demi_wait_next_n(&result, 1, &number, NULL));
    EXPECT(ENOSYS, demi_homa_call(&token, 500, &sga, addr, sizeof in4, 0, 0, &id));
    EXPECT(ENOSYS, demi_homa_reply(&token, 500, 1, addr, sizeof in4, &sga));
    EXPECT(ENOSYS, demi_homa_info(&sga, &info));
    EXPECT(ENOSYS, demi_homa_abort(500, 0, 0));
    REQUIRE(number == -7 && id == 7 && token == 7 && len == sizeof linger);
}

static void bad_arguments_without_init_are_refused_the_same(void)
{
    EXPECT(ENOSYS, demi_socket(NULL, -1, -1, -1));
    EXPECT(ENOSYS, demi_bind(-1, NULL, 0));
    EXPECT(ENOSYS, demi_push(NULL, -1, NULL));
    EXPECT(ENOSYS, demi_pushto(NULL, -1, NULL, NULL, (socklen_t)-1));
    EXPECT(ENOSYS, demi_getpeername(-1, NULL, NULL));
    EXPECT(ENOSYS, demi_sgafree(NULL));
    EXPECT(ENOSYS, demi_wait(NULL, 0, NULL));
    EXPECT(ENOSYS, demi_wait_any(NULL, NULL, NULL, -1, NULL));
    EXPECT(ENOSYS, demi_homa_info(NULL, NULL));
}

static void a_buffer_without_init_is_null(void)
{
    demi_sgarray_t sga = demi_sgaalloc(1);
    REQUIRE(sga.sga_buf == NULL && sga.sga_numsegs == 0);
    REQUIRE(sga.sga_segs[0].sgaseg_buf == NULL && sga.sga_segs[0].sgaseg_len == 0);
}

static void a_bad_configuration_is_an_errno(void)
{
    char program[] = "uninitialised", option[] = "--config", file[] = "/nonexistent/demi.toml";
    char *const words[] = {program, option, file, NULL};
    struct demi_args args = {.argc = 3, .argv = words, .callback = NULL};
    EXPECT(ENOENT, demi_init(&args));
    args.argc = 2; /* The name is missing. */
    EXPECT(EINVAL, demi_init(&args));
}

int main(void)
{
    REQUIRE(demi_version() == DEMIHOMA_VERSION);
    demi_wake(); /* Has nobody to wake. */
    calls_without_init_are_refused();
    bad_arguments_without_init_are_refused_the_same();
    a_buffer_without_init_is_null();
    a_bad_configuration_is_an_errno();
    calls_without_init_are_refused(); /* A failed init leaves it so. */
    return failures != 0;
}
