#include <stdio.h>
#include <string.h>

#include "executor/comm/fingerprint.h"
#include "tests/ranks/comm_checks.h"

enum { MOST_RANKS = 64 };

struct planted {
    const char *what;
    struct sbp_fingerprint other; /* of the last rank */
};

/* What a rank's neighbours say, whose calls differ: `what`, both ranks, and both calls. */
static bool names_it(const char *text, const char *what, int rank, int before)
{
    char expected[160];
    (void)snprintf(expected, sizeof expected,
                   "ranks %d and %d come to collectives of another %s: rank %d to ", before, rank,
                   what, rank);
    return strncmp(text, expected, strlen(expected)) == 0 &&
           strstr(text, "all-reduce of 16 elements of 4 bytes at sum of step 1") != NULL;
}

static enum sbp_status check_planted(const struct sbp_endpoint *host,
                                     const struct sbp_fingerprint *same,
                                     const struct planted *planted, struct sbp_diag *diag)
{
    int ranks[MOST_RANKS];
    struct sbp_diag found = {0};
    const int rank = host->ops->rank(host->comm), size = host->ops->size(host->comm);
    for (int r = 0; r < size; r++)
        ranks[r] = r;
    struct sbp_fingerprint own = rank == size - 1 ? planted->other : *same;
    struct sbp_circle circle = sbp_fingerprint_circle(ranks, size, rank);
    own.group += circle.group;
    const bool sees_it =
        size > 1 && planted->what != NULL && (rank == size - 1 || circle.behind == 1 % size);
    const enum sbp_status status = sbp_fingerprint_compare(host, &circle, &own, &found);
    if (status != (sees_it ? SBP_E_INTERNAL : SBP_OK) ||
        (sees_it && !names_it(found.text, planted->what, rank, circle.before)))
        return sbp_fail(diag, SBP_E_INTERNAL, "rank %d, %s planted: %s %s", rank,
                        planted->what == NULL ? "nothing" : planted->what, sbp_status_name(status),
                        found.text);
    return SBP_OK;
}

enum sbp_status comm_checks_fingerprints(const struct sbp_comm_ops *ops, struct sbp_comm *comm,
                                         void *argument, struct sbp_diag *diag)
{
    const struct sbp_endpoint host = ops->host(comm);
    const struct sbp_fingerprint same = {.kind = SBP_ALL_REDUCE,
                                         .count = 16,
                                         .element_bytes = 4,
                                         .task = 7,
                                         .at_step = 1,
                                         .name = "sum"};
    struct planted planted[] = {{NULL, same},           {"kind", same}, {"count", same},
                                {"element type", same}, {"task", same}, {"group", same},
                                {"reduction", same},    {NULL, same}};
    (void)argument;
    planted[1].other.kind = SBP_ALL_GATHER;
    planted[2].other.count = 15;
    planted[3].other.element_bytes = 8;
    planted[4].other.task = 8; /* the order of two calls that are alike */
    planted[5].other.group = 1;
    planted[6].other.reduction = SBP_MAX;
    for (size_t i = 0; i < sizeof planted / sizeof *planted; i++)
        SBP_TRY(check_planted(&host, &same, &planted[i], diag));
    return SBP_OK;
}
