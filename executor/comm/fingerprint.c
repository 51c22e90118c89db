#include "executor/comm/fingerprint.h"

#include <stdio.h>

#include "base/math/random.h"

enum { TAG_FINGERPRINT = 30 };

struct sbp_circle sbp_fingerprint_circle(const int *ranks, int count, int rank)
{
    int own = 0;
    while (own < count - 1 && ranks[own] != rank)
        own++;
    return (struct sbp_circle){
        .before = ranks[(own + count - 1) % count],
        .behind = ranks[(own + 1) % count],
        .group = sbp_hash_bytes(ranks, (uint64_t)count * sizeof *ranks),
    };
}

/* The first thing that two calls differ in; NULL: nothing. */
static const char *difference(const struct sbp_fingerprint *a, const struct sbp_fingerprint *b)
{
    const struct {
        const char *what;
        bool differs;
    } checks[] = {
        {"kind", a->kind != b->kind || a->to_owner != b->to_owner},
        {"group", a->group != b->group},
        {"count", a->count != b->count},
        {"element type", a->element_bytes != b->element_bytes},
        {"reduction", a->reduction != b->reduction},
        {"owner", a->owner != b->owner},
        {"step", a->step != b->step},
        {"task", a->task != b->task},
    };
    for (size_t i = 0; i < sizeof checks / sizeof *checks; i++)
        if (checks[i].differs)
            return checks[i].what;
    return NULL;
}

/* "all-reduce of 16 elements of 4 bytes at backward h1.mlp.fc1 [3] of step 2" */
static void describe(const struct sbp_fingerprint *one, char *text, size_t size)
{
    const bool is_reduce = one->kind == SBP_BROADCAST_COLL && one->to_owner != 0;
    (void)snprintf(text, size, "%s of %lld elements of %lld bytes at %.159s of step %lld",
                   is_reduce ? "reduce" : sbp_collective_name((enum sbp_collective)one->kind),
                   (long long)one->count, (long long)one->element_bytes, one->name,
                   (long long)one->at_step);
}

enum sbp_status sbp_fingerprint_compare(const struct sbp_endpoint *host,
                                        const struct sbp_circle *circle,
                                        const struct sbp_fingerprint *own, struct sbp_diag *diag)
{
    const int rank = host->ops->rank(host->comm);
    struct sbp_fingerprint other;
    char here[320], there[320];
    if (circle->before == rank)
        return SBP_OK;
    enum sbp_status status =
        host->ops->send(host->comm, circle->behind, TAG_FINGERPRINT, own, sizeof *own);
    if (status == SBP_OK)
        status =
            host->ops->receive(host->comm, circle->before, TAG_FINGERPRINT, &other, sizeof other);
    if (status != SBP_OK)
        return sbp_fail(diag, status, "comparing collectives: %s", host->ops->reason(host->comm));
    const char *const what = difference(own, &other);
    if (what == NULL)
        return SBP_OK;
    describe(own, here, sizeof here);
    describe(&other, there, sizeof there);
    return sbp_fail(diag, SBP_E_INTERNAL,
                    "ranks %d and %d come to collectives of another %s: rank %d to %s, rank %d to "
                    "%s",
                    circle->before, rank, what, rank, here, circle->before, there);
}
