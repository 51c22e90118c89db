/* Says why one of two plans is faster, in the words of those who train: by which parts of the step
 * they differ (compute, bubble, exposed communication by what it is for), and in which words of
 * their layouts. Input: the reports of two plans, of other models, batches or clusters, too.
 */
#ifndef SBP_PLANNER_REPORT_PLAN_CONTRAST_H
#define SBP_PLANNER_REPORT_PLAN_CONTRAST_H

#include "planner/report/report.h"

enum { SBP_CONTRAST_PARTS = 10 };
struct sbp_contrast_part {
    const char *what;  /* "exposed gradient reduction (DP)" */
    double seconds[2]; /* of a device, mean over stages, in the first plan and in the second */
    double saved_s;    /* what the faster plan takes less; below 0: more */
};

struct sbp_contrast {
    const struct sbp_report *report[2]; /* borrowed */
    int faster;       /* 0, 1; -1: the same rate but for rounding, or rates of other units */
    double step_s[2]; /* the second, with all its parts, is scaled to the batch of the first */
    bool same_unit;   /* both train tokens, images or samples; else there is no more than this */
    bool same_batch;  /* and both steps as many of them */
    int count;        /* parts that differ, what is saved most first */
    struct sbp_contrast_part part[SBP_CONTRAST_PARTS];
};
void sbp_contrast_make(const struct sbp_report *first, const struct sbp_report *second,
                       struct sbp_contrast *contrast);

/* "bubble -677 ms, compute -387 ms (model at 569 TFLOP/s a device, not 504 TFLOP/s); against it ...
 * +48 ms"; "" where neither is faster. Returns buffer (SBP_CONTRAST_BYTES). */
#define SBP_CONTRAST_BYTES 512
const char *sbp_contrast_reasons(const struct sbp_contrast *contrast, char *buffer);
/* The words of plan `which`, 0 or 1, that the other's layout does not have: "cluster a100-8 of 8
 * devices, TP 4, DP 2"; "" where there are none. Returns buffer (SBP_CONTRAST_BYTES). */
const char *sbp_contrast_words(const struct sbp_contrast *contrast, int which, char *buffer);

#endif
