/* Files that benchmarks give to the program: shipped clusters and models with other sizes, models
 * made from Hugging Face configs, in a temporary folder. */
#ifndef SBP_TESTS_BENCH_INPUTS_H
#define SBP_TESTS_BENCH_INPUTS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "base/text.h"

#define INPUTS_PATH_BYTES 512

struct inputs {
    char folder[INPUTS_PATH_BYTES / 2];
};

/* Makes the folder, under TMPDIR or /tmp; E_IO. */
enum sbp_status inputs_open(struct inputs *inputs, struct sbp_diag *diag) SBP_MUST_USE;
/* Removes it and the files in it. */
void inputs_close(struct inputs *inputs);

/* A shipped cluster of two levels with `count` (1 .. 4) level sizes instead, outermost first. The
 * innermost level is the shipped one's, those around it the shipped outer one's, each a hop further
 * out twice as far (alpha) and half as fast (beta); one level alone is the outer one. *path
 * (INPUTS_PATH_BYTES) is the file. E_IO, E_INPUT, E_MEMORY. */
enum sbp_status inputs_cluster(const struct inputs *inputs, const char *shipped,
                               const int64_t *sizes, int count, char *path,
                               struct sbp_diag *diag) SBP_MUST_USE;

/* A shipped model with another batch, in mixed precision; sequence 0 leaves it as it is. */
enum sbp_status inputs_model(const struct inputs *inputs, const char *shipped, int64_t batch,
                             int64_t sequence, char *path, struct sbp_diag *diag) SBP_MUST_USE;

/* The same from a config.json of `../shared/data/hf` by `program import hf`. E_INPUT: the program
 * failed; it is an error as well that the file is missing (inputs_has_config). */
enum sbp_status inputs_import(const struct inputs *inputs, const char *program, const char *config,
                              int64_t batch, int64_t sequence, char *path,
                              struct sbp_diag *diag) SBP_MUST_USE;
bool inputs_has_config(const char *config);

/* Any text as a file of the folder. */
enum sbp_status inputs_write(const struct inputs *inputs, const char *name,
                             const struct sbp_text *text, char *path,
                             struct sbp_diag *diag) SBP_MUST_USE;

#endif
