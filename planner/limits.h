/* The tuning constants of the search: how long it looks, how much it holds, what it takes for near.
 *
 * None of them decides what is legal or what a plan costs: they trade time for gaps. Each says its
 * unit, why it is what it is, and the benchmark that shows a change of it (./dev bench front, scale,
 * search or needed).
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

/* ---- outer ----------------------------------------------------------------------------------- */

#endif
