/* What a verification found: the first value that is off, and the largest share of a bound used. */
#ifndef SBP_EXECUTOR_VERIFY_FINDING_H
#define SBP_EXECUTOR_VERIFY_FINDING_H

#include <stdbool.h>
#include <stdint.h>

struct sbp_finding {
    bool found;
    char what[32];   /* "gradient", "loss", "weight after the update", ... */
    char tensor[64]; /* name, or "" */
    int64_t index;   /* row-major in the whole tensor */
    int64_t rank;    /* whose value it is */
    int64_t step;    /* from 1 */
    double run, reference, bound;
};

/* One comparison after another. Sent between ranks as bytes: no pointers. */
struct sbp_findings {
    struct sbp_finding first;
    double worst_ratio; /* of |difference| / bound, where the bound is not 0 */
};

/* Describes a finding for people in one line; returns buffer. */
const char *sbp_finding_text(const struct sbp_finding *finding, char *buffer, int size);

/* Whether |run - reference| <= bound; keeps the worst ratio. NaN is
 * never near, and nothing is near within a bound that is not finite. */
bool sbp_findings_near(struct sbp_findings *findings, double run, double reference, double bound);

#endif
