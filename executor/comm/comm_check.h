/* What the backends whose libraries would crash on it check of a collective call. In a header,
 * since the backend of GPUs is a module of its own.
 */
#ifndef SBP_EXECUTOR_COMM_COMM_CHECK_H
#define SBP_EXECUTOR_COMM_COMM_CHECK_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

/* count elements a member, of at most 8 bytes, in a group of so many members; a buffer of elements
 * is there. E_BACKEND, with the call's name. */
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

#endif
