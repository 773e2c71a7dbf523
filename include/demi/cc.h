/* Attributes for compilers and code checkers, as programs written for Demikernel use them. */

#ifndef DEMI_CC_H_IS_INCLUDED
#define DEMI_CC_H_IS_INCLUDED

/* Source annotations, which say something to Microsoft's tools only. */
#ifndef _In_
#define _In_
#endif
#ifndef _In_z_
#define _In_z_
#endif
#ifndef _In_opt_
#define _In_opt_
#endif
#ifndef _In_reads_
#define _In_reads_(count)
#endif
#ifndef _In_reads_bytes_
#define _In_reads_bytes_(size)
#endif
#ifndef _Inout_
#define _Inout_
#endif
#ifndef _Out_
#define _Out_
#endif
#ifndef _Out_writes_
#define _Out_writes_(count)
#endif
#ifndef _Out_writes_to_
#define _Out_writes_to_(size, count)
#endif
#ifndef _Out_writes_to_opt_
#define _Out_writes_to_opt_(size, count)
#endif
#ifndef _Deref_pre_z_
#define _Deref_pre_z_
#endif

/* Arguments, counted from one, that must not be NULL. Our own headers do not use it: a NULL is
 * answered by EINVAL, and must not make the compiler assume anything. */
#ifndef ATTR_NONNULL
#if defined(__GNUC__)
#define ATTR_NONNULL(...) __attribute__((nonnull(__VA_ARGS__)))
#else
#define ATTR_NONNULL(...)
#endif
#endif

/* Results that must not be ignored. */
#ifndef ATTR_NODISCARD
#if defined(__GNUC__)
#define ATTR_NODISCARD __attribute__((warn_unused_result))
#else
#define ATTR_NODISCARD
#endif
#endif

#endif /* DEMI_CC_H_IS_INCLUDED */
