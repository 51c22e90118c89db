/* The tuning constants of the search: how long it looks, how much it holds, what it takes for near.
 *
 * None of them decides what is legal or what a plan costs: they trade time for gaps. Each says its
 * unit, why it is what it is, and the benchmark that shows a change of it (./dev bench front,
 * scale, search or needed).
 */
#ifndef SBP_PLANNER_LIMITS_H
#define SBP_PLANNER_LIMITS_H

#include <stdint.h>

/* ---- problem --------------------------------------------------------------------------------- */

/* Clock and progress of every solver: a look at the clock must cost nothing beside the work between
 * two looks, and a stop must not be noticed late (bench search). */
#define SBP_PROBLEM_CHECK_S     5e-3               /* s between looks at the clock */
#define SBP_PROBLEM_PROGRESS_S  0.1                /* s between reports to the caller */
#define SBP_PROBLEM_FIRST_CHECK 16                 /* evaluations before the first look */
#define SBP_PROBLEM_LAST_CHECK  (INT64_C(1) << 24) /* evaluations between looks, at most */
#define SBP_PROBLEM_LABEL_CHECK 1024 /* labels between looks: thinning them is quadratic */

/* Round-off, as a share of the numbers that are compared (bench front). */
#define SBP_PROBLEM_ROUND_OFF        1e-12 /* of bounds and costs that are long sums */
#define SBP_PROBLEM_EXCESS_ROUND_OFF 1e-9  /* of the excess after many moves: then summed anew */
#define SBP_PROBLEM_PEAK_PRECISION   1e-9  /* of the least possible peak, where bisection ends */
#define SBP_PROBLEM_LEAST_GAIN       1e-13 /* of costs: a descent could cycle on less */

/* exact (bench front: it solves every row). */
#define SBP_PROBLEM_EXACT_BYTES      ((double)(1 << 30)) /* of tables, and again of labels */
#define SBP_PROBLEM_COUNTED_DEGREE   64   /* neighbours: above, fill-in is taken as degree^2 */
#define SBP_PROBLEM_WIDE_UPDATE      4000 /* variables: above, scores two edges away grow stale */
#define SBP_PROBLEM_PRICE_ROUNDS     60   /* passes over the tables that raise the bound */
#define SBP_PROBLEM_PRICE_DECAY      0.7  /* factor of the step when a round gains nothing */
#define SBP_PROBLEM_TARGET_RISE      0.1  /* share of the bound to aim above it, without a choice */
#define SBP_PROBLEM_POINTS_ALONE     8    /* points of time tried alone before the costly proof */
#define SBP_PROBLEM_DESCENT_RESTARTS 16   /* of the descent that looks for an upper bound */
/* Evaluations of that descent, and of the one that finds some choice after a stop. */
#define SBP_PROBLEM_DESCENT_EVALUATIONS INT64_C(1000000)
#define SBP_PROBLEM_STOPPED_EVALUATIONS INT64_C(200000)

/* exhaustive, in assignments: refused above (bench search: 7 * 10^7 of them). */
#define SBP_PROBLEM_UNLIMITED_SIZE 1e12 /* without a limit of time or evaluations */
#define SBP_PROBLEM_LIMITED_SIZE   1e18 /* under a limit; counts still fit an int64_t */

/* ilp (tests/oracle/test_solvers.c; no benchmark). */
#define SBP_PROBLEM_ILP_COLUMNS  50000 /* above, GLPK's first relaxation alone may take minutes */
#define SBP_PROBLEM_ILP_SCALE    1e4   /* largest coefficient: GLPK's tolerances are absolute */
#define SBP_PROBLEM_ILP_MARGIN   1e-6 /* share of the capacity given up if GLPK passed it by 1e-7 */
#define SBP_PROBLEM_ILP_SLICE_MS 200  /* ms of relaxation between looks at flag and clock */

/* Local searches (bench search: the chain, solver by solver). */
#define SBP_PROBLEM_RESTARTS      100 /* of either search, unless the caller says otherwise */
#define SBP_PROBLEM_START_DRAWS   32  /* draws of a value until one is not forbidden by itself */
#define SBP_PROBLEM_EXCESS_GROWTH 4.0 /* of the price of excess after an end over capacity */
#define SBP_PROBLEM_EXCESS_RISES  12  /* of that price within one restart */
/* Table look-ups of `random`, within these numbers of assignments. */
#define SBP_PROBLEM_RANDOM_LOOK_UPS 1e8
#define SBP_PROBLEM_RANDOM_LEAST    INT64_C(1000)
#define SBP_PROBLEM_RANDOM_MOST     INT64_C(1000000)
/* Moves of Metropolis-Hastings for each value of each variable, within these numbers of moves. */
#define SBP_PROBLEM_MOVES_PER_VALUE 2000
#define SBP_PROBLEM_LEAST_MOVES     1e6
#define SBP_PROBLEM_MOST_MOVES      1e8
/* Moves sampled to learn the scale of costs, uphill ones kept, and the quantile of their costs that
 * is taken as the scale. */
#define SBP_PROBLEM_SCALE_MOVES    4096
#define SBP_PROBLEM_SCALE_UPHILL   512
#define SBP_PROBLEM_SCALE_QUANTILE 0.1
/* Factors of beta, a restart each: the best one differs between problems by more than ten. */
#define SBP_PROBLEM_BETA_LADDER 1, 4, 16, 0.25

/* Turns of a matrix game, in each of which both sides answer (bench front: tiny-gpt). */
#define SBP_PROBLEM_GAME_TURNS 4000

/* minimax (bench front). */
#define SBP_PROBLEM_MINIMAX_VARIABLES 400  /* each is a level of the recursion */
#define SBP_PROBLEM_MINIMAX_MIXTURES  10   /* of the problems, that bound partial choices */
#define SBP_PROBLEM_MINIMAX_TURNS     40   /* mixtures solved until their bound stands still, */
#define SBP_PROBLEM_MINIMAX_CLOSE     1e-6 /* as a share of it */
#define SBP_PROBLEM_MINIMAX_KEPT      (1 << 18)           /* partial choices kept to compare with */
#define SBP_PROBLEM_MINIMAX_SCANS     64                  /* of them that one is compared with */
#define SBP_PROBLEM_MINIMAX_BYTES     ((double)(1 << 26)) /* tables of one problem */
#define SBP_PROBLEM_MINIMAX_ALL_BYTES ((double)(1 << 29)) /* tables of all problems together */

/* ---- paths ----------------------------------------------------------------------------------- */

/* Mixtures of paths (bench front: tiny-gpt on dgx-a100-8x8, resnet-50 on eight devices). */
#define SBP_PATHS_ALONE  3  /* paths that are searched along by themselves before mixtures are */
#define SBP_PATHS_ROUNDS 16 /* searches along paths and mixtures of one cut of the step */
#define SBP_PATHS_MOST   40 /* paths, and plans, that a mixture may know */

/* Micro-batches x stages of a message-driven step that are traced: 32 MiB of scratch (bench
 * front). */
#define SBP_PATHS_DRIVEN_WORKS (INT64_C(1) << 20)

/* ---- space ----------------------------------------------------------------------------------- */

/* ---- pricing --------------------------------------------------------------------------------- */

/* ---- bounds ---------------------------------------------------------------------------------- */

/* ---- labels ---------------------------------------------------------------------------------- */

/* ---- inner ----------------------------------------------------------------------------------- */

/* ---- outer ----------------------------------------------------------------------------------- */

#endif
