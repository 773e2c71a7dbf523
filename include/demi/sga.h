/* Made from src/capi by tests/headers.rs: change it there, not here. */

#ifndef DEMI_SGA_H_IS_INCLUDED
#define DEMI_SGA_H_IS_INCLUDED

#include <demi/types.h>

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/**
 * Gives a buffer of 1 to 1,000,000 bytes to write a message into: one segment of that size.
 *
 * A null array (no segments, NULL pointers) if the size is another, no memory is left, or this
 * thread has not called demi_init().
 *
 * Ownership: the array is the application's, which frees it by demi_sgafree(). Its bytes are
 * whatever they were.
 */
ATTR_NODISCARD demi_sgarray_t demi_sgaalloc(size_t size);

/**
 * Gives back a buffer of demi_sgaalloc() or of a pop; its bytes must not be touched afterwards.
 * Pushes that still need it keep it alive.
 *
 * Ownership: the array, and all copies of it, name nothing any more.
 *
 * Returns 0, EINVAL a NULL pointer, or an array that is null, foreign, or freed before, or ENOSYS.
 */
int demi_sgafree(demi_sgarray_t *sga);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* DEMI_SGA_H_IS_INCLUDED */
