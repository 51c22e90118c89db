/* From samples to measured points: medians of runs, and which runs to leave out.
 *
 * A run's time of a cell is the median of its repetitions, a cell's time is the median of those of
 * its good runs: what a program that runs then has to expect. Or both are the least: what the
 * machine takes by itself, where other programs run beside the calibration. A run is bad when it
 * was slow as a whole: the middle one of its cells took SBP_BAD_RUN times as long as the other runs
 * say, or more. It needs three runs to tell; bad ones are left out, two that differ are both kept
 * and flagged.
 */
#ifndef SBP_CALIB_SAMPLES_POINTS_H
#define SBP_CALIB_SAMPLES_POINTS_H

#include "calib/measure/compute.h"
#include "calib/samples/measured.h"
#include "calib/samples/sample_file.h"

#define SBP_BAD_RUN 1.25

enum sbp_statistic { SBP_OF_MEDIANS, SBP_OF_LEAST };
extern const char *const sbp_points_statistics[]; /* NULL-ended */

/* One pass over the cells, of one chain of sessions. */
struct sbp_sample_run {
    int chain, run;
    int cells;       /* collectives that it measured */
    int compared;    /* of them, those that other runs measured, too */
    double slowdown; /* median over those of its time / the median of all runs' times; 1: none */
    bool bad;        /* left out */
};

struct sbp_sample_runs {
    int count;
    struct sbp_sample_run *run; /* (count), in order; in the measured points' arena */
};

/* A source is a chain of sessions. Points of a source stand together, in the order of
 * sbp_cell_compare. spread: half the range of the runs' medians over the time, or with one run half
 * its interval. Whether a run is bad is told by medians. *measured is owned by the caller
 * (sbp_points_free), runs with it. E_MEMORY. */
enum sbp_status sbp_points(const struct sbp_record *record, enum sbp_statistic statistic,
                           struct sbp_measured *measured, struct sbp_sample_runs *runs,
                           struct sbp_diag *diag) SBP_MUST_USE;

/* Compute of all runs: the samples of each shape are the medians of the good runs. Zeros for what
 * was not measured. */
void sbp_points_compute(const struct sbp_record *record, const struct sbp_sample_runs *runs,
                        struct sbp_compute_times *times);

#endif
