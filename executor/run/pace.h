/* The pace of a virtual device: a rank rests after it has computed, so that it takes `slowdown`
 * times its CPU time (costmodel/cluster/cluster.h).
 *
 * Ranks that share cores take turns, and wait for each other as the ranks of a parallel machine do
 * not. Where the slowdown is larger than the ranks a core has, each gets a core when it wants one,
 * so that the wall time of a step is that of a parallel machine of slower devices, as links of
 * virtual hosts are slower than the memory behind them. Sleeps that end late, and turns that came
 * late, are made up for by the rests that follow.
 */
#ifndef SBP_EXECUTOR_RUN_PACE_H
#define SBP_EXECUTOR_RUN_PACE_H

struct sbp_pace {
    double slowdown; /* >= 1; 1, or 0: ranks do not rest */
    double ahead_s;  /* that the rank is ahead of its device; negative: behind it */
};

/* After compute_s seconds of CPU time within spent_s seconds of the wall clock. Returns the seconds
 * for which the rank rested. */
double sbp_pace_rest(struct sbp_pace *pace, double compute_s, double spent_s);

#endif
