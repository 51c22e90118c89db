/* Ends a calibration: fits the samples, writes the cluster file and prints a summary. Input: a file
 * of samples. Output: a cluster file and a printed summary. The samples are the only input, so that
 * anybody can fit them again in another way. */
#ifndef SBP_CALIB_OUTPUT_FIT_AND_WRITE_H
#define SBP_CALIB_OUTPUT_FIT_AND_WRITE_H

#include "calib/fit/level_fit.h"
#include "calib/samples/points.h"
#include "calib/samples/sample_file.h"

/* Curves by group shape, or one alpha and beta (AutoDDL, section 3.2). */
enum sbp_fit_method { SBP_METHOD_CURVES, SBP_METHOD_PAPER };
extern const char *const sbp_fit_methods[]; /* NULL-ended */

struct sbp_fit_and_write_options {
    const char *output; /* cluster file; NULL: none is written */
    const char *name;   /* of the cluster; NULL: the samples', or where they give none the file's */
    enum sbp_fit_method method;
    enum sbp_fit_weights weights; /* of the errors of the paper's method */
    enum sbp_statistic statistic;
    bool json, quiet; /* print the cluster file, or nothing, instead of tables */
};

/* Sets the option -o; refuses names of sample files, which must not be overwritten. */
bool sbp_fit_and_write_set_output(void *field, const char *name);
#define SBP_FIT_AND_WRITE_OUTPUT                                                                   \
    .set = sbp_fit_and_write_set_output,                                                           \
    .legal = "a file name that does not end in .jsonl, as samples "                                \
             "do"

/* Names a cluster by its file: "dir/polaris.json" is "polaris". */
void sbp_fit_and_write_name(const char *path, char *name, size_t size);

/* The largest cluster that options accept. */
#define SBP_MOST_NODES          1000000
#define SBP_MOST_RANKS_PER_NODE 1024

/* Prints on standard output. E_INPUT: the samples do not determine what is fitted; E_IO, E_MEMORY,
 * E_RANGE. */
enum sbp_status sbp_fit_and_write(const struct sbp_record *record,
                                  const struct sbp_fit_and_write_options *options,
                                  struct sbp_diag *diag) SBP_MUST_USE;

#endif
