/* One calibration from its first barrier to its last sample, on every rank.
 *
 * Rank 0 decides (may the result be written, is there an unfinished calibration to continue) and
 * writes the samples; all ranks measure.
 */
#ifndef SBP_CALIB_MEASURE_SESSION_H
#define SBP_CALIB_MEASURE_SESSION_H

#include "base/signals.h"
#include "calib/measure/compute.h"
#include "calib/measure/settings.h"
#include "executor/comm/comm.h"

#define SBP_PATH_BYTES 4096

/* Shared by main and the ranks of this process. Ranks read the first part; only rank 0 writes the
 * rest. */
struct sbp_calibration_session {
    const struct sbp_measure_settings *settings;
    const struct sbp_compute_ops *compute; /* on which the ranks compute */
    const char *command;
    /* Kept for the kernels of this process until its ranks have the memory they need; NULL: used.
     */
    _Atomic(void *) space;
    int64_t space_bytes;
    struct sbp_done *progress; /* cells; rank 0 counts them. NULL: nobody asks */

    bool is_root;            /* this process holds rank 0 */
    enum sbp_status verdict; /* of rank 0, found before measuring */
    struct sbp_diag diag;
    bool has_older; /* --diff; owned */
    struct sbp_record older;
    char record_path[SBP_PATH_BYTES]; /* of the file of samples */
    bool planned;                     /* --dry-run: plan is set, nothing was measured */
    struct sbp_sweep_options plan;
};

/* A rank's main (executor/comm/comm.h); argument: the session. */
enum sbp_status sbp_session_rank(const struct sbp_comm_ops *ops, struct sbp_comm *comm,
                                 void *session, struct sbp_diag *diag) SBP_MUST_USE;
void sbp_session_free(struct sbp_calibration_session *session);

#endif
