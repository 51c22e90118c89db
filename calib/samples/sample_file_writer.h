/* Keeping a calibration's samples while it runs (rank 0): a new file, or an older one gone on with.
 *
 * Every result is written in one piece as it is done, so that a killed program loses the cell under
 * way and no more.
 */
#ifndef SBP_CALIB_SAMPLES_SAMPLE_FILE_WRITER_H
#define SBP_CALIB_SAMPLES_SAMPLE_FILE_WRITER_H

#include "calib/samples/sample_file.h"
#include "calib/samples/sweep.h"

struct sbp_writer_options {
    const char *path;  /* of the samples */
    const char *merge; /* samples that go in front; NULL: none */
    const struct sbp_rank_placement *placement;
    bool fresh; /* drops an unfinished calibration */
};

struct sbp_sample_writer {
    char path[4096];
    int file; /* -1: closed */
    double start_s, synced_s;
    bool resumes;
    int measured;   /* cells of the sessions that this one resumes */
    double spent_s; /* on them */
    bool *done;     /* (runs, sweep's cells): those; owned */
};

/* Opens or makes the file and writes the session's line. An unfinished calibration of the same
 * ranks, settings and seed is gone on with; one of others is refused (E_USAGE) unless fresh, and
 * one to merge of another backend or device always.
 * E_IO, E_INPUT: the file or the one to merge is no file of samples; E_MEMORY. */
enum sbp_status sbp_writer_open(struct sbp_sample_writer *writer,
                                const struct sbp_writer_options *options,
                                const struct sbp_calibration_origin *origin,
                                const struct sbp_sample_sweep *sweep,
                                struct sbp_diag *diag) SBP_MUST_USE;
/* Appends a result (context: the writer), as sbp_measuring.take. E_IO, E_MEMORY. */
enum sbp_status sbp_writer_take(void *writer, const struct sbp_result *result,
                                struct sbp_diag *diag) SBP_MUST_USE;
/* Appends the end of the session. E_IO, E_MEMORY. */
enum sbp_status sbp_writer_end(struct sbp_sample_writer *writer, bool finished,
                               struct sbp_diag *diag) SBP_MUST_USE;
void sbp_writer_close(struct sbp_sample_writer *writer);

#endif
