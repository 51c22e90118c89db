/* The end of a calibration: fits what a file of samples holds, writes the cluster file and prints
 * it. It asks the samples alone, so that they can be fitted again in another way, anywhere.
 */
#ifndef SBP_CALIB_OUTPUT_FIT_AND_WRITE_H
#define SBP_CALIB_OUTPUT_FIT_AND_WRITE_H

#include "calib/fit/level_fit.h"
#include "calib/samples/points.h"
#include "calib/samples/sample_file.h"

struct sbp_finish_options {
    const char *output;           /* cluster file; NULL: none is written */
    const char *name;             /* of the cluster; NULL: the samples' */
    bool is_paper;                /* one alpha and beta instead of curves by group shape */
    enum sbp_fit_weights weights; /* of the errors of is_paper */
    enum sbp_statistic statistic;
    bool json, quiet; /* print the cluster file, or nothing, instead of tables */
};

/* A file name that is not of samples, which nothing may overwrite. */
bool sbp_finish_set_output(struct sbp_finish_options *options, const char *name);
/* "curves", "paper"; "median", "least"; "relative", "symmetric", "none"; false: of no other name.
 */
bool sbp_finish_set_method(struct sbp_finish_options *options, const char *name);
bool sbp_finish_set_statistic(struct sbp_finish_options *options, const char *name);
bool sbp_finish_set_weights(struct sbp_finish_options *options, const char *name);

/* Prints on standard output. E_INPUT: the samples do not determine what is fitted; E_IO, E_MEMORY,
 * E_RANGE. */
enum sbp_status sbp_finish(const struct sbp_record *record,
                           const struct sbp_finish_options *options,
                           struct sbp_diag *diag) SBP_MUST_USE;

#endif
