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

/* ---- paths ----------------------------------------------------------------------------------- */

/* ---- space ----------------------------------------------------------------------------------- */

/* ---- pricing --------------------------------------------------------------------------------- */

/* ---- bounds ---------------------------------------------------------------------------------- */

/* ---- labels ---------------------------------------------------------------------------------- */

/* ---- inner ----------------------------------------------------------------------------------- */

/* Share of a cost or a bound that is round-off: search and program add the same numbers in another
 * order. Rooms above inner use it, too (bench front). */
#define SBP_INNER_ROUND_OFF 1e-9

/* Plan's cost over its bound up to which no other way to look for a plan is tried (bench front). */
#define SBP_INNER_GOOD_RATIO 1.01

/* Rounds that tighten a dimension class whose labels do not divide it: a limit halves each time, so
 * that more rounds change nothing (bench front). */
enum { SBP_INNER_TIGHTENINGS = 16 };

/* Capacities that are tried between one whose plan fits and one whose plan does not; and, where
 * solving is quick, capacities in even steps above the one that fits (bench front: half memory). */
enum { SBP_INNER_CAPACITY_TRIALS = 12, SBP_INNER_SCAN_STEPS = 16 };

/* Share of a capacity by which two trials differ at least, and share of the limit that a plan may
 * leave unused: less is not worth a trial (bench front: half memory). */
#define SBP_INNER_NARROW 1e-3

/* Share of a bracket of capacities that a trial leaves on either side: the bracket then narrows
 * whatever the interpolation says (bench front: half memory). */
#define SBP_INNER_LEAST_PART 0.1

/* Cells of tables over pairs, at most: of spaces where all scan steps together take well under a
 * second; and of spaces where capacities are tried although the plan of least memory did not fit
 * (bench front: half memory). */
#define SBP_INNER_SCAN_CELLS  2e6
#define SBP_INNER_TRIAL_CELLS 5e7

/* Evaluations of the exact solver, at most: under the machine's capacity, where its answer bounds
 * the space; in a trial of another capacity; and without a capacity (bench front: half memory). */
#define SBP_INNER_BOUND_EVALUATIONS INT64_C(16000000)
#define SBP_INNER_TRIAL_EVALUATIONS INT64_C(2000000)
#define SBP_INNER_FREE_EVALUATIONS  INT64_C(100000000)

/* Cells of tables over pairs of spaces that are solved anew for every set of batch axes: each takes
 * milliseconds (bench front). */
#define SBP_INNER_ALIGNED_CELLS 1e5

/* Cells of tables over pairs that are solved without messages first; and under a capacity, where
 * labels multiply and only reduced tables have a budget (bench search). */
#define SBP_INNER_FEW_CELLS          5e4
#define SBP_INNER_FEW_CAPACITY_CELLS 1e3

/* Cells of the table that folding a rest state away may leave: 32 MiB (bench search). */
enum { SBP_INNER_FOLD_CELLS = 1 << 22 };

/* Share of an operator's working set that counts when the plan of least memory is looked for: only
 * the largest working set of a device counts in full, and none is known to be it (bench needed). */
#define SBP_INNER_WORKING_SHARE 0.3

/* Label branching: axes of the mesh, parts of the space, and cells of edge tables, at most (bench
 * front). */
enum { SBP_INNER_BRANCH_AXES = 5, SBP_INNER_BRANCH_PARTS = 20000 };
#define SBP_INNER_BRANCH_CELLS 4e6

/* Work of one label branching, in cells of tables: about a fifth of a second. A solve, and an
 * operator that is labelled, compiled and priced, count as so many cells (bench front). */
#define SBP_INNER_BRANCH_WORK       INT64_C(6000000)
#define SBP_INNER_WORK_PER_SOLVE    INT64_C(4000)
#define SBP_INNER_WORK_PER_OPERATOR INT64_C(400)

/* ---- outer ----------------------------------------------------------------------------------- */

/* Operators of the largest models that are cut anywhere, not only between blocks; and micro-batches
 * of a step, at most (bench front). */
enum { SBP_OUTER_FREE_CUT_OPERATORS = 256, SBP_OUTER_MICRO_BATCHES = 1 << 16 };

/* Share of the search's time limit that initial plans may take (bench front). */
#define SBP_OUTER_INITIAL_TIME 0.2

/* Cost over that of the cheapest initial plan up to which a candidate is searched first (bench
 * front: DeepSeek-V3). */
#define SBP_OUTER_PROMISING_RATIO 1.25

/* Candidates in a row that may be solved in vain among those searched first: where initial plans
 * are good, better ones are found soon (bench front). */
enum { SBP_OUTER_FIRST_PATIENCE = 4 };

/* Expected cost of a candidate's plan over its bound: of one that was bounded, one that was solved
 * without the limit of memory, and one whose first try found no plan (bench front: half memory). */
#define SBP_OUTER_EXPECTED_RATIO         1.5
#define SBP_OUTER_EXPECTED_RATIO_RELAXED 1.02
#define SBP_OUTER_EXPECTED_RATIO_TRIED   1.6

/* Expected cost over the least open bound up to which a dive is made (bench front: half memory). */
#define SBP_OUTER_DIVE_RATIO 2.0

/* Turns of the best-first order before the first dive, and turns that a solve counts as: a bound
 * takes milliseconds, a solve often a second (bench front: half memory). */
enum { SBP_OUTER_TURNS_BEFORE_DIVE = 64, SBP_OUTER_TURNS_PER_SOLVE = 16 };

/* Bound under the limit of memory over the bound without, up to which a candidate is solved without
 * the limit first: beyond, that says little more (bench front: half memory). */
#define SBP_OUTER_RELAX_RATIO 1.1

/* Cost over a candidate's bound up to which its plan is looked for before any plan is known (bench
 * front: half memory). */
#define SBP_OUTER_FIRST_TRY_RATIO 1.3

/* Share of the memory limit that a candidate needs at least by the memory model, from which on
 * working sets, which take longer to look at, may rule it out (bench needed). */
#define SBP_OUTER_TIGHT_SHARE 0.4

/* With several plans asked for, candidates that are divided beyond two for each plan; and, for more
 * of them, the operators of the candidates solved and the evaluations since the first division, a
 * second or two (bench front). */
enum { SBP_OUTER_SPARE_DIVISIONS = 8, SBP_OUTER_DIVISION_OPERATORS = 20000 };
#define SBP_OUTER_DIVISION_EVALUATIONS INT64_C(100000000)

/* Share of the search's time limit that the plan of least memory may take where less is left, and
 * share of that for bounds; and candidates that are solved for it: their bounds are close, so that
 * few mostly are enough (bench needed). */
#define SBP_OUTER_LEAST_MEMORY_TIME       0.1
#define SBP_OUTER_LEAST_MEMORY_BOUND_TIME 0.2
enum { SBP_OUTER_LEAST_MEMORY_SOLVES = 100 };

/* Path enumeration: cells of tables over pairs, cells looked at in a candidate, and the share of
 * the gap between bound and plan that is looked at first (bench front). */
#define SBP_OUTER_PATHS_CELLS       1e6
#define SBP_OUTER_PATHS_WORK        INT64_C(400000000)
#define SBP_OUTER_PATHS_FIRST_SHARE 0.125

#endif
