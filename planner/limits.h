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

/* Reduction: turns of all rules; the first two or three do nearly all (bench iopddl). */
#define SBP_PROBLEM_REDUCTION_ROUNDS 8
/* Entries of an edge that takes a variable's place, for each one of the variable's own edges. */
#define SBP_PROBLEM_FOLD_GROWTH 4.0

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

/* dual (bench iopddl). Passes of messages at the first prices and at later ones; iterations that
 * raise nothing until the step shrinks, and what counts as nothing, as a share of the bound; the
 * share of earlier iterations in the direction; as shares of the last scale that raised the bound,
 * the least of a round of steps, that of the widest round and, of one, of the first round, and the
 * one with which a round begins; the least rise of the bound that a step aims at. */
enum { SBP_PROBLEM_DUAL_FIRST_PASSES = 60, SBP_PROBLEM_DUAL_PASSES = 3 };
enum { SBP_PROBLEM_DUAL_PATIENCE = 8 };
#define SBP_PROBLEM_DUAL_GAIN        1e-7
#define SBP_PROBLEM_DUAL_SMOOTHING   0.8
#define SBP_PROBLEM_DUAL_LEAST_SCALE 0.125
#define SBP_PROBLEM_DUAL_FIRST_LEAST 1e-3
#define SBP_PROBLEM_DUAL_NEW_SCALE   4.0
#define SBP_PROBLEM_DUAL_LEAST_RISE  1e-6
#define SBP_PROBLEM_DUAL_OPEN        1e-9 /* share of the cost that a proof leaves open */
/* Iterations whose choices are repaired: the first ones, and each of so many. */
enum { SBP_PROBLEM_DUAL_EARLY = 5, SBP_PROBLEM_DUAL_TRY_EVERY = 10 };
/* Sweeps of single changes. */
enum { SBP_PROBLEM_DUAL_SWEEPS = 30 };
/* Turns of prices and of neighbourhoods: work of the first, in entries of all tables; growth; how
 * many there are without a limit of time or evaluations. */
#define SBP_PROBLEM_DUAL_FIRST_TURN  800.0
#define SBP_PROBLEM_DUAL_TURN_GROWTH 1.5
enum { SBP_PROBLEM_DUAL_TURNS = 6, SBP_PROBLEM_DUAL_WHOLE_TURNS = 2 };
/* Branching: values and entries of tables of the problems that it takes on; bytes of open parts;
 * scale of a part's first step, its factor where the bound does not rise, and the share of earlier
 * directions; iterations of prices in a part. */
#define SBP_PROBLEM_BRANCH_VALUES    20000
#define SBP_PROBLEM_BRANCH_ENTRIES   2e6
#define SBP_PROBLEM_BRANCH_BYTES     ((size_t)256 << 20)
#define SBP_PROBLEM_BRANCH_SCALE     0.3
#define SBP_PROBLEM_BRANCH_DECAY     0.9
#define SBP_PROBLEM_BRANCH_SMOOTHING 0.5
#define SBP_PROBLEM_BRANCH_SEARCH    0.25 /* work of neighbourhoods beside it, as a share */
enum { SBP_PROBLEM_BRANCH_ITERATIONS = 48 };
/* A neighbourhood: variables, random changes, variables that are looked at to repair a point, and
 * points that are repaired, at most. */
enum {
    SBP_PROBLEM_BALL_MOST = 41,
    SBP_PROBLEM_BALL_KICKS = 3,
    SBP_PROBLEM_BALL_RELIEFS = 64,
    SBP_PROBLEM_BALL_REPAIRS = 50
};

/* exhaustive, in assignments: refused above (bench search: 7 * 10^7 of them). */
#define SBP_PROBLEM_UNLIMITED_SIZE 1e12 /* without a limit of time or evaluations */
#define SBP_PROBLEM_LIMITED_SIZE   1e18 /* under a limit; counts still fit an int64_t */

/* ilp (tests/oracle/test_solvers.c and test_magnitudes.c; no benchmark). What can matter: the best
 * known cost less a first bound. */
#define SBP_PROBLEM_ILP_COLUMNS   50000 /* above, GLPK's first relaxation alone may take minutes */
#define SBP_PROBLEM_ILP_SCALE     1e4  /* what can matter, in GLPK, whose tolerances are absolute */
#define SBP_PROBLEM_ILP_CAP       8    /* times what can matter that an entry counts for at most */
#define SBP_PROBLEM_ILP_EXCESS    1e8  /* cost in GLPK of passing the capacity by as much again */
#define SBP_PROBLEM_ILP_TOLERANCE 1e-9 /* share of the cost that a proof leaves open */
#define SBP_PROBLEM_ILP_LEAST     1e-9 /* share of the capacity below which GLPK sees no usage */
#define SBP_PROBLEM_ILP_REBUILD   100  /* factor that less can matter by, for another program */
#define SBP_PROBLEM_ILP_SLICE_MS  200  /* ms of relaxation between looks at flag and clock */

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

/* Calls of the enumeration between two looks at the clock, which at every call would take most of
 * the time (bench scale: ResNet-50). */
enum { SBP_SPACE_CLOCK_PERIOD = 256 };

/* Tuples of all operators that are searched with every role: on 8 x 8 devices an operator has
 * 3,136. Beyond it no operator repeats work of its own accord (bench front). */
#define SBP_SPACE_MOST_OPEN_TUPLES 65000

/* Tuples of an operator above which all operators of a space keep to plain ones: in a search, and
 * where only some plan is looked for. Clusters of up to 2,048 x 8 devices have 7,251 at most (bench
 * front). Calls of the enumeration of a space, likewise: there at most 200,000. */
enum { SBP_SPACE_MOST_TUPLES = 500000, SBP_SPACE_FEW_TUPLES = 3000 };
#define SBP_SPACE_MOST_CALLS 20000000u

/* Plain tuples of an operator, at most; roles that share its mesh; and how many of these may keep
 * to a level (golden limit-time). */
enum { SBP_SPACE_MOST_PLAIN_TUPLES = 1000, SBP_SPACE_PLAIN_ROLES = 4, SBP_SPACE_LEVEL_ROLES = 1 };

/* Remembered prices of collectives, as a power of two: 192 KiB, which stay in a core's cache (bench
 * scale). */
enum { SBP_SPACE_PRICE_MEMO_BITS = 13 };

/* Work of the second pass of space full, in tuples that are solved: about two seconds, where memory
 * binds ten. When it is spent, the first pass's proof is the answer (bench front). */
#define SBP_OUTER_OPEN_WORK 2.2e6
/* Bounds of tuples, and evaluations of solvers, take so much of the work of solving a tuple. */
#define SBP_OUTER_BOUND_WORK      0.2
#define SBP_OUTER_EVALUATION_WORK 0.01

/* ---- pricing --------------------------------------------------------------------------------- */

/* Costs that differ by less than this share are the same costs, added up in another order. Bounds
 * and labels use it, too (bench front). */
#define SBP_PRICING_ROUND_OFF 1e-12

/* Remembered arithmetic of an operator, as a power of two: sizes repeat among many tuples (bench
 * scale). */
enum { SBP_PRICING_ARITHMETIC_MEMO_BITS = 9 };

/* Cells of a variable's dense array over patterns, at most: 4 MiB. Beyond it tuples are looked at
 * pair by pair (bench scale). */
enum { SBP_PRICING_MOST_PLACES = 1 << 20 };

/* Tuples that are looked at, each with all of an edge's other end, between two looks at the clock
 * (bench scale). */
enum { SBP_PRICING_CLOCK_PERIOD = 16 };
/* Likewise entries of the tables by families: each may take a price, some microseconds (gpt2-medium
 * on four levels of 720: one edge took 20 s). */
enum { SBP_PRICING_CLOCK_ENTRIES = 4096 };

/* Prices that the tables of all edges of a space remember together: 128 MiB (bench scale: ResNet-50
 * on 1,296 devices, which took 5.8 GB without a limit). */
enum { SBP_PRICING_MOST_SLOTS = 1 << 23 };

/* Kinds that a family of an edge may have, at most: more than any mesh
 * of today has (bench scale). */
enum { SBP_PRICING_MOST_KINDS = 1 << 12 };

/* Earlier edges that are compared in search of the same kinds: layers of one sort repeat within a
 * block (bench scale: a chain of 1,000 layers, 0.54 s without, 0.15 s with it). */
enum { SBP_PRICING_NEAR_EDGES = 8 };

/* Bytes of the price cache above which it is emptied between cuts (bench search: GPT-3 on 4,096
 * devices fills 148 MiB). */
#define SBP_PRICING_CACHE_BYTES ((size_t)512 << 20)

/* ---- bounds ---------------------------------------------------------------------------------- */

/* Share of the step's cost that all of the capacity is worth at the first price of memory: prices
 * then double or halve, so that the start matters little (bench front). */
#define SBP_BOUNDS_FIRST_PRICE 1e-3

/* Lagrangian bound: doublings or halvings that bracket a price, bisections inside the bracket, and
 * rounds over all memory stages. Sixteen bisections leave 2e-5 of the price (bench front). */
enum { SBP_BOUNDS_BRACKET_STEPS = 40, SBP_BOUNDS_BISECTIONS = 16, SBP_BOUNDS_PRICE_ROUNDS = 3 };

/* Message passing: double passes over the variables at most, and double passes in a row without
 * progress after which it ends (bench front). */
enum { SBP_BOUNDS_MOST_PASSES = 40, SBP_BOUNDS_MOST_STALLED = 3 };

/* Progress of a double pass: the lower bound rises by more than this share of the gap, or fewer
 * than this share of the cells are left (bench front). */
#define SBP_BOUNDS_PROGRESS_GAP   1e-2
#define SBP_BOUNDS_PROGRESS_CELLS 0.9

/* Cells of pairwise tables that the exact solver takes at once without a capacity; and under one,
 * where it keeps many partial plans for each cell (bench search). */
#define SBP_BOUNDS_FEW_CELLS          2e4
#define SBP_BOUNDS_FEW_CAPACITY_CELLS 1e3

/* Share of the lower bound that the gap may keep where memory binds: better prices would cost more
 * time than they save (bench front: half memory). */
#define SBP_BOUNDS_SMALL_GAP 1e-5

/* Share of a cost by which a choice must be better to be looked for: plans this close count as
 * equal (bench front). */
#define SBP_BOUNDS_EQUAL_COST 5e-10

/* Multipliers: evaluations of the bound at most; the factor by which a price goes while only one
 * side is known; the share of the first price below which it is 0; and the share by which two
 * prices differ at least (bench front: half memory). */
enum { SBP_BOUNDS_MULTIPLIER_STEPS = 24, SBP_BOUNDS_MULTIPLIER_FACTOR = 4 };
#define SBP_BOUNDS_MULTIPLIER_ZERO  1e-9
#define SBP_BOUNDS_MULTIPLIER_EQUAL 1e-7

/* Decoding: sweeps of single changes; rises of memory's price until a choice fits, and the factor
 * of a rise. Sixteen rises make memory 66 times as dear (bench front: half memory). */
enum { SBP_BOUNDS_DECODE_SWEEPS = 20, SBP_BOUNDS_DECODE_REPAIRS = 16 };
#define SBP_BOUNDS_DECODE_REPAIR_FACTOR 1.3

/* Polish: forced choices of a variable, moves of all variables, variables that a move may change,
 * and rounds. A round compares all pairs of moves (bench front: half memory). */
enum {
    SBP_BOUNDS_POLISH_EACH = 6,
    SBP_BOUNDS_POLISH_MOVES = 1024,
    SBP_BOUNDS_POLISH_CHANGES = 48,
    SBP_BOUNDS_POLISH_ROUNDS = 4
};

/* ---- labels ---------------------------------------------------------------------------------- */

/* Starts of the local search for labels, which ends sooner at the unlabelled price (bench search).
 */
enum { SBP_LABELS_STARTS = 40 };

/* Edges that one labelling scores at most: about a second (bench scale: ResNet-50 on 256 x 8
 * devices). */
#define SBP_LABELS_MOST_WORK INT64_C(4000000)

/* A new start exchanges each axis of the best labels with a chance of one in this many (bench
 * search). */
enum { SBP_LABELS_SHAKE_ONE_IN = 3 };

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
/* Before it branches, choices that do not fit are looked for where that takes no more than so. */
#define SBP_INNER_BAN_WORK (SBP_INNER_BRANCH_WORK / 10)

/* ---- outer ----------------------------------------------------------------------------------- */

/* Operators of the largest models that are cut anywhere, not only between blocks; and micro-batches
 * of a step, at most (bench front). */
enum { SBP_OUTER_FREE_CUT_OPERATORS = 256, SBP_OUTER_MICRO_BATCHES = 1 << 16 };

/* Share of the time limit after which a search with a plan ends: a labelling may go on for a
 * second, and the plan is checked and written (golden limit-time). */
#define SBP_OUTER_TIME_SHARE 0.97

/* Share of the search's time limit that initial plans may take (bench front). */
#define SBP_OUTER_INITIAL_TIME 0.2

/* Share of what is left of that time that one initial plan may take, so that all numbers of stages
 * get theirs; and micro-batches in a row that may cost more than the best one with as many stages
 * (bench front: DeepSeek-V3 on 16,384 devices, whose plan took 56 s a step without them). */
#define SBP_OUTER_SKETCH_TIME 0.2
enum { SBP_OUTER_SKETCH_PATIENCE = 2 };

/* Axes of the mesh above which plans by batch alone are made before other initial plans: 16,384
 * devices have 14 (golden limit-time). */
enum { SBP_OUTER_SMALL_AXES = 14 };

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

/* ---- commands -------------------------------------------------------------------------------- */

/* Seconds and bytes that a search may take unless its command line says otherwise: people wait a
 * minute, and laptops have the memory. Arenas may hold the given share of the bytes;
 * the rest is the heap's own, the model and what is printed. */
#define SBP_COMMANDS_TIME_LIMIT_S  60.0
#define SBP_COMMANDS_SEARCH_MEMORY 4294967296.0
#define SBP_COMMANDS_MEMORY_SHARE  0.8

#endif
