/* Models and clusters of the oracles, from texts and from shipped files, and plans of them. What is
 * refused fails the test.
 */
#ifndef SBP_TESTS_ORACLE_PLAN_H
#define SBP_TESTS_ORACLE_PLAN_H

#include <math.h>

#include "planner/plan/plan.h"

/* Sums in another order differ by this share. */
#define CLOSE 1e-9

static inline bool is_close(double a, double b)
{
    return fabs(a - b) <= CLOSE * fmax(fabs(a), fabs(b));
}

struct cJSON;

/* The tree of a text; the caller's. */
struct cJSON *parsed(const char *text);
/* The tree of configs/FOLDER/NAME.json; the caller's. */
struct cJSON *shipped(const char *folder, const char *name);
/* A plan without a strategy. Takes the trees; the plan is the caller's to free. */
void begin_plan(struct cJSON *model, struct cJSON *cluster, struct sbp_plan *plan);
/* Compiles the plan's strategy and returns the totals of one step. */
struct sbp_totals compiled_totals(const struct sbp_plan *plan);

#endif
