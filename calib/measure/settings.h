/* Reads the command line of sbplan-calibrate. Input: the arguments. Output: the settings, or an
 * error when an option is unknown or out of range. The module also prints the help, which lists
 * options, ranges and defaults. */
#ifndef SBP_CALIB_MEASURE_SETTINGS_H
#define SBP_CALIB_MEASURE_SETTINGS_H

#include "base/launcher.h"
#include "base/options.h"
#include "calib/output/fit_and_write.h"

struct sbp_measure_settings {
    struct sbp_fit_and_write_options finish;
    const char *merge, *diff;      /* files of samples, or cluster files beside theirs; NULL */
    int64_t ranks;                 /* 0: not given */
    int64_t nodes, ranks_per_node; /* of a plan or job script; 0: not given */
    int64_t max_bytes, runs, seed;
    double budget_s;
    double nominal_bytes_per_s; /* of a port; 0: ask the system */
    unsigned kinds;             /* a bit for each collective; 0: all */
    enum sbp_backend backend;
    bool dry_run, print_sbatch, fresh, help;
};

/* E_USAGE. */
enum sbp_status sbp_settings_read(int argc, char **argv, struct sbp_measure_settings *settings,
                                  struct sbp_diag *diag) SBP_MUST_USE;
void sbp_settings_help(void);

#endif
