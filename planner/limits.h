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

/* Calls of the enumeration between two looks at the clock, which at every call would take most of
 * the time (bench scale: ResNet-50). */
enum { SBP_SPACE_CLOCK_PERIOD = 256 };

/* Remembered prices of collectives, as a power of two: 192 KiB, which stay in a core's cache (bench
 * scale). */
enum { SBP_SPACE_PRICE_MEMO_BITS = 13 };

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
#define SBP_BOUNDS_FEW_CELLS          2e5
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

/* ---- outer ----------------------------------------------------------------------------------- */

#endif
