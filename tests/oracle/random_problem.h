/* Random pairwise problems of many shapes, and the truth about them by plain recursion: it shares
 * no code with the solvers, and costs and usages are summed here.
 */
#ifndef SBP_TESTS_RANDOM_PROBLEM_H
#define SBP_TESTS_RANDOM_PROBLEM_H

#include <math.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/math/random.h"
#include "planner/problem/problem.h"

enum { MOST_VARIABLES = 7, LAST_TIME = 12 };

/* Sums in another order differ by this share of what was summed. */
#define CLOSE 1e-9

enum shape { CHAIN, CHAIN_WITH_RESIDUALS, TREE, RANDOM_GRAPH, CYCLE, GRID, SHAPE_COUNT };
enum capacity { UNLIMITED, EVERYWHERE_LIVE, INTERVALS, CAPACITY_COUNT };

struct recipe {
    uint64_t seed;
    enum shape shape;
    enum capacity capacity;
    bool whole;       /* whole numbers, hence many ties */
    double forbidden; /* share of forbidden entries */
    double tightness; /* capacity as a share of the way from the least to the largest sum */
};

struct recipe draw_recipe(uint64_t seed);
double draw_cost(struct sbp_random *random, const struct recipe *recipe);
double draw_usage(struct sbp_random *random, const struct recipe *recipe);
/* An edge of random costs; the test fails when memory is out. */
void add_edge(struct sbp_problem *problem, struct sbp_random *random, const struct recipe *recipe,
              int a, int b);
/* 1 to MOST_VARIABLES variables with 1 to 4 choices each, fixed by the recipe alone. */
void build(const struct recipe *recipe, struct sbp_problem *problem);
void print_problem(const struct recipe *recipe, const struct sbp_problem *problem,
                   const char *solver);

struct truth {
    const struct sbp_problem *problem;
    int choice[MOST_VARIABLES + 1]; /* a reduced problem has one more */
    double cost;                    /* least of the feasible ones; INFINITY: none */
    double least_peak;              /* of the ones not forbidden; INFINITY: none */
    double assignments;
    double *costs; /* of the feasible ones, in no order; owned */
    int cost_count;
};
struct truth find_truth(const struct sbp_problem *problem);
void truth_free(struct truth *truth);

double plain_cost(const struct sbp_problem *problem, const int *choice);
double plain_peak(const struct sbp_problem *problem, const int *choice);

static inline bool is_close(double a, double b)
{
    return a == b || fabs(a - b) <= CLOSE * (1 + fabs(a) + fabs(b));
}

#endif
