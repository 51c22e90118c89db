/* The search of one cut held against every labelled strategy of a small instance, priced one by
 * one.
 */
#ifndef SBP_TESTS_SEARCH_CHECK_H
#define SBP_TESTS_SEARCH_CHECK_H

#include "planner/inner/cut_solve.h"
#include "small_instance.h"

struct tally {
    int run, optimal, loose, infeasible, refused, skipped;
    int64_t strategies;
    double plan_gap, bound_gap; /* largest, as shares of the brute force's least */
    int plans_off, bounds_off;
};

/* Opens an instance for the exact solver; seed and the rest of the request are the caller's. */
void open_exact(struct small_instance *instance, enum small_kind kind, int linears, int outer,
                int inner);
/* The plan found is legal, in the space, fits, and costs what the outcome says; else the test
 * fails. */
void check_plan(struct small_instance *instance, const struct sbp_outcome *outcome);
/* Searches, and counts what it finds in the tally; fails the test where it is wrong. An instance of
 * more than `most` strategies is skipped. */
void check_search(struct small_instance *instance, int64_t most, struct tally *tally);
void print_tally(const char *what, const struct tally *tally);

#endif
