/* Checks and bookkeeping that every communication backend needs.
 *
 * MPI and NCCL crash on wrong arguments or take them for something else, so that each call is
 * checked here first. The functions stand in a header because the backend for GPUs is a module of
 * its own, which links to nothing of the others.
 */
#ifndef SBP_EXECUTOR_COMM_COMM_BACKEND_H
#define SBP_EXECUTOR_COMM_COMM_BACKEND_H

#include <limits.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include "base/math/half.h"
#include "base/math/numeric.h"
#include "base/status.h"

/* Bytes of one element. */
static inline int64_t sbp_comm_real_bytes(enum sbp_real real)
{
    return real == SBP_F64 ? 8 : real == SBP_F32 ? 4 : 2;
}

/* Where an element stands. */
static inline void *sbp_comm_place(void *buffer, int64_t element, enum sbp_real real)
{
    return (unsigned char *)buffer + element * sbp_comm_real_bytes(real);
}

static inline const void *sbp_comm_place_const(const void *buffer, int64_t element,
                                               enum sbp_real real)
{
    return (const unsigned char *)buffer + element * sbp_comm_real_bytes(real);
}

/* An element of 16 bits as a number, and rounded back. */
static inline float sbp_comm_load_half(uint16_t bits, enum sbp_real real)
{
    return real == SBP_REAL_BF16 ? sbp_half_from_bf16(bits) : sbp_half_from_fp16(bits);
}

static inline uint16_t sbp_comm_store_half(float value, enum sbp_real real)
{
    return real == SBP_REAL_BF16 ? sbp_half_to_bf16(value) : sbp_half_to_fp16(value);
}

/* Checks a collective of `count` elements, of at most 8 bytes, per member: the bytes of the whole
 * group fit, and buffers are there unless they are empty. E_BACKEND names the call. */
static inline enum sbp_status sbp_comm_check_call(const char *call, int members, int64_t count,
                                                  const void *buffer, const void *other,
                                                  struct sbp_diag *diag)
{
    int64_t bytes;
    if (count < 0 || __builtin_mul_overflow(count, (int64_t)members * 8, &bytes))
        return sbp_fail(diag, SBP_E_BACKEND, "%s: count %lld is out of range", call,
                        (long long)count);
    if (count > 0 && (buffer == NULL || other == NULL))
        return sbp_fail(diag, SBP_E_BACKEND, "%s: no buffer", call);
    return SBP_OK;
}

/* Checks a message to or from one of `ranks` ranks with a tag from 0 to `largest_tag`. */
static inline enum sbp_status sbp_comm_check_message(int ranks, int peer, int tag, int largest_tag,
                                                     const void *buffer, int64_t bytes,
                                                     struct sbp_diag *diag)
{
    if (peer < 0 || peer >= ranks)
        return sbp_fail(diag, SBP_E_BACKEND, "message: no rank %d", peer);
    if (tag < 0 || tag > largest_tag)
        return sbp_fail(diag, SBP_E_BACKEND, "message: tag %d, legal are 0 to %d", tag,
                        largest_tag);
    if (bytes < 0 || bytes > PTRDIFF_MAX / 2 || (bytes > 0 && buffer == NULL))
        return sbp_fail(diag, SBP_E_BACKEND, "message: no buffer of %lld bytes", (long long)bytes);
    return SBP_OK;
}

/* Makes room for one more group in an array of `count` entries. Returns the array, which may have
 * moved; NULL when memory is out, and the old array stays. */
static inline void *sbp_comm_reserve_group(void *groups, size_t entry_bytes, int count,
                                           int *capacity, struct sbp_diag *diag)
{
    if (count < *capacity)
        return groups;
    const int wanted = *capacity == 0 ? 16 : *capacity > INT_MAX / 2 ? INT_MAX : 2 * *capacity;
    void *larger = wanted > count ? realloc(groups, (size_t)wanted * entry_bytes) : NULL;
    if (larger == NULL)
        (void)sbp_fail(diag, SBP_E_MEMORY, "%d groups: out of memory", wanted);
    else
        *capacity = wanted;
    return larger;
}

#endif
