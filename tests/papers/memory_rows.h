/* Measured memory of training runs, as others published it: one row each, read from a table that
 * lies beside the project (comma-separated, first line names, values in quotes where they hold
 * commas). */
#ifndef SBP_TESTS_PAPERS_MEMORY_ROWS_H
#define SBP_TESTS_PAPERS_MEMORY_ROWS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

struct memory_row {
    char id[48], model[64], what[128], shard[64], recompute[32], precision[16], note[640];
    int64_t layers, hidden, heads, vocabulary, sequence; /* 0: not stated, as all that follow */
    int64_t devices, tensor, pipeline, data;
    int64_t micro_batch; /* sequences of one replica */
    int64_t global_batch;
    double bytes;       /* measured; 0: no number */
    bool out_of_memory; /* the run's answer */
    bool measured;      /* and not computed */
};

/* *rows is owned by the caller (free). E_IO: no such file; E_INPUT names line and column. */
enum sbp_status memory_rows_read(const char *path, struct memory_row **rows, int *count,
                                 struct sbp_diag *diag) SBP_MUST_USE;

#endif
