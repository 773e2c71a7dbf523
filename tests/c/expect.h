/* Checks for the test programs: each failure is told with its line, and counted. */

#ifndef EXPECT_H_IS_INCLUDED
#define EXPECT_H_IS_INCLUDED

#include <stdio.h>
#include <string.h>

static int failures;

/* The call must return this errno, or 0. */
#define EXPECT(errno_wanted, call) expect(__FILE__, __LINE__, #call, errno_wanted, call)
/* The condition must hold. */
#define REQUIRE(condition) require(__FILE__, __LINE__, #condition, condition)

static inline void expect(const char *file, int line, const char *call, int wanted, int got)
{
    if (got == wanted)
        return;
    failures++;
    fprintf(stderr, "%s:%d: %s gave %d (%s), not %d (%s)\n", file, line, call, got, strerror(got),
            wanted, strerror(wanted));
}

static inline void require(const char *file, int line, const char *condition, int holds)
{
    if (holds)
        return;
    failures++;
    fprintf(stderr, "%s:%d: %s does not hold\n", file, line, condition);
}

#endif /* EXPECT_H_IS_INCLUDED */
