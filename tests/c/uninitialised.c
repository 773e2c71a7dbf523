/* Before demi_init every call is refused, whatever its arguments, and nothing is written. A
 * demi_init that fails says why, leaves it so, and does no harm to the next one: the program ends
 * well if the last one, with the arguments of the program itself, succeeds. */

#define _GNU_SOURCE

#include <stdlib.h>
#include <unistd.h>

#include "calls.h"

static int init_with(char *first, char *second)
{
    char program[] = "uninitialised";
    char *const words[] = {program, first, second, NULL};
    struct demi_args args = {.argc = 1 + (first != NULL) + (second != NULL), .argv = words};
    return demi_init(&args);
}

/* What one line of a file makes of demi_init. */
static int init_from(const char *line)
{
    char option[] = "--config", file[] = "/tmp/demihoma-test-XXXXXX";
    int fd = mkstemp(file);
    REQUIRE(fd >= 0 && write(fd, line, strlen(line)) == (ssize_t)strlen(line));
    int error = init_with(option, file);
    close(fd);
    unlink(file);
    return error;
}

static void a_bad_configuration_is_an_errno(void)
{
    char option[] = "--config", glued[] = "--config=/nonexistent/demi.toml";
    char file[] = "/nonexistent/demi.toml", folder[] = "/tmp", zeroes[] = "/dev/zero";
    EXPECT(ENOENT, init_with(option, file));
    EXPECT(ENOENT, init_with(glued, NULL));
    EXPECT(EINVAL, init_with(option, NULL));
    REQUIRE(init_with(option, folder) > 0);
    REQUIRE(init_with(option, zeroes) > 0); /* No end: it must not be read to it. */

    static const char *const LINES[] = {
        "no toml at all", "[network", "[nonsense]\n", "[network]\nnonsense = 1\n",
        "[network]\nmtu_bytes = \"large\"\n", "[network]\nmtu_bytes = 1\n",
        "[network]\naddress = \"10.0.0\"\n", "[network]\nmac = \"zz:zz\"\n",
        "[network]\nbackend = \"pigeon\"\n", "[memory]\nreceive_bytes = -1\n", "\xff\xfe",
    };
    for (size_t i = 0; i < sizeof LINES / sizeof *LINES; i++)
        EXPECT(EINVAL, init_from(LINES[i]));

    setenv("CONFIG_PATH", "/nonexistent/demi.toml", 1);
    EXPECT(ENOENT, demi_init(NULL));
    unsetenv("CONFIG_PATH");
    EXPECT(ENODEV, demi_init(NULL)); /* Nobody named an interface. */
    setenv("DEMIHOMA_NETWORK_MTU_BYTES", "1", 1);
    EXPECT(EINVAL, demi_init(NULL));
    unsetenv("DEMIHOMA_NETWORK_MTU_BYTES");
}

static void odd_arguments_are_left_alone(void)
{
    struct demi_args none = {.argc = 3, .argv = NULL};
    struct demi_args negative = {.argc = -1, .argv = NULL};
    char *const holes[] = {NULL, NULL};
    struct demi_args hollow = {.argc = 2, .argv = holes};
    EXPECT(ENODEV, demi_init(&none));
    EXPECT(ENODEV, demi_init(&negative));
    EXPECT(ENODEV, demi_init(&hollow));
}

int main(int argc, char *argv[])
{
    REQUIRE(demi_version() == DEMIHOMA_VERSION);
    demi_wake(); /* Has nobody to wake. */
    expect_every_call(ENOSYS);
    a_bad_configuration_is_an_errno();
    odd_arguments_are_left_alone();
    expect_every_call(ENOSYS);
    if (argc > 1) {
        struct demi_args args = {.argc = argc, .argv = argv};
        EXPECT(ENODEV, init_from("[network]\ninterface = \"none0\"\n"));
        expect_every_call(ENOSYS);
        setenv("CONFIG_PATH", "/nonexistent/demi.toml", 1); /* The arguments come first. */
        EXPECT(0, demi_init(&args));
        EXPECT(EEXIST, demi_init(&args));
        EXPECT(0, demi_close(new_socket(0)));
    }
    return failures != 0;
}
