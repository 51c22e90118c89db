/* Writes a calibration's file of samples while rank 0 measures: a new file, or an unfinished one
 * that it continues.
 *
 * Every result is written in one piece as soon as it is measured, so that a killed program loses no
 * more than the cell under way.
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
    double spent_s; /* on those cells */
    bool *done;     /* (runs, sweep's cells): measured by those sessions; owned */
};

/* Opens or makes the file and writes the session's line. It resumes an unfinished calibration of
 * the same ranks, settings and seed; it refuses one of others (E_USAGE) unless fresh, and always
 * refuses to merge samples of another backend or device. E_IO, E_INPUT: the file or the one to
 * merge is no file of samples; E_MEMORY. */
enum sbp_status sbp_writer_open(struct sbp_sample_writer *writer,
                                const struct sbp_writer_options *options,
                                const struct sbp_calibration_origin *origin,
                                const struct sbp_sample_sweep *sweep,
                                struct sbp_diag *diag) SBP_MUST_USE;
/* Appends a result; a sbp_measuring.take whose context is the writer. E_IO, E_MEMORY. */
enum sbp_status sbp_writer_take(void *writer, const struct sbp_result *result,
                                struct sbp_diag *diag) SBP_MUST_USE;
/* Appends the end of the session. E_IO, E_MEMORY. */
enum sbp_status sbp_writer_end(struct sbp_sample_writer *writer, bool finished,
                               struct sbp_diag *diag) SBP_MUST_USE;
void sbp_writer_close(struct sbp_sample_writer *writer);

#endif
