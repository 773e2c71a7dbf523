/* Made from src/capi by tests/headers.rs: change it there, not here. */

#ifndef DEMI_WAIT_H_IS_INCLUDED
#define DEMI_WAIT_H_IS_INCLUDED

#include <time.h>
#include <demi/types.h>
struct timespec;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/**
 * Waits for one operation and uses up its token.
 *
 * A timeout of NULL is infinite; of zero, a look. An operation that failed is a success here:
 * 0, with the opcode DEMI_OPC_FAILED and the errno in `qr_ret`.
 *
 * Ownership: an array in the result is the application's, which frees it by demi_sgafree().
 *
 * Returns 0, ETIMEDOUT the token stays valid, EINTR by demi_wake(), likewise, EINVAL a NULL
 * pointer, no such token, or a malformed timeout, or ENOSYS.
 */
int demi_wait(demi_qresult_t *qr_out, demi_qtoken_t qt, const struct timespec *timeout);

/**
 * Waits for any of several operations, uses up the token of the one that completed first, and
 * writes its place in the array. Without tokens it waits out the timeout.
 *
 * Ownership: as demi_wait(). The tokens are read during the call only; the library remembers where
 * the array was, so it is quickest to pass the same one again with that one token replaced.
 *
 * Returns 0, ETIMEDOUT and EINTR as demi_wait(), EINVAL a NULL pointer, a negative number, a
 * malformed timeout, or, if none is ready, an invalid token among them (4 are looked at in each
 * turn of the loop), or ENOSYS.
 */
int demi_wait_any(demi_qresult_t *qr_out,
                  int *ready_offset,
                  const demi_qtoken_t *qts,
                  int num_qts,
                  const struct timespec *timeout);

/**
 * Waits until the array is full or the time is up, whatever the operations are; writes results,
 * oldest completion first, and how many.
 *
 * Ownership: as demi_wait(), for each of the results.
 *
 * Returns 0 the array is full, ETIMEDOUT or EINTR (demi_wake()) with as many results as
 * `num_qrs_out` says, whose tokens are used up, EINVAL a NULL pointer, a number below 1, or a
 * malformed timeout, or ENOSYS.
 */
int demi_wait_next_n(demi_qresult_t *qr_out,
                     int num_qrs,
                     int *num_qrs_out,
                     const struct timespec *timeout);

/**
 * Ends the wait that each runtime of the process is in, or else its next one, with EINTR. The way
 * to end a server: call it from a signal handler or from any thread.
 */
void demi_wake(void);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* DEMI_WAIT_H_IS_INCLUDED */
