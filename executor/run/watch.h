/* The watch over the ranks of a run: sees that they go on, and says which one does not.
 *
 * Ranks note on posts what they are at (executor/comm/post.h). Posts of one host are a board that
 * its processes share, so that each of them can say what the others are at. Every process has one
 * thread that watches. It ends the run when no rank of its host has noted anything for longer than
 * the deadline (a time in which the watch itself was stopped does not count, nor one in which rank
 * 0 waits for the reader of its rows), or when the launcher ends this process because another one
 * is gone; a signal that the user sent is answered by it, too. Nothing here ends a process: the
 * program's alarm does.
 *
 * MPI's blocking calls cannot be called off, and non-blocking ones are others than those that were
 * calibrated, so that the watch stands beside the calls instead of in them.
 */
#ifndef SBP_EXECUTOR_RUN_WATCH_H
#define SBP_EXECUTOR_RUN_WATCH_H

#include <pthread.h>

#include "base/signals.h"
#include "costmodel/program/task.h"
#include "executor/comm/channel.h"

/* Before the first step, and while rank 0 verifies, ranks of other hosts wait for what they cannot
 * see; so many deadlines long. */
enum { SBP_WATCH_PATIENCE = 10 };

/* How a run reaches the program that runs it, whose handlers of signals fill it. */
struct sbp_alarm {
    atomic_int signal;   /* that came and ends the program; 0: none */
    atomic_bool asked;   /* SBP_SIGNAL_ASKS came */
    atomic_bool watched; /* signals are answered by the watch */
    /* Ends the program, on the watch's thread: for a signal, or with the text of a fault, which is
     * "" where another process says it. Returns for SBP_SIGNAL_ASKS, and where the program ends by
     * itself at any moment. */
    void (*end)(int signal, const char *fault);
};

struct sbp_board;

struct sbp_watch {
    struct sbp_alarm *alarm; /* borrowed */
    const struct sbp_step *step;
    const struct sbp_tasks *tasks; /* (stages) of a step */
    int ranks;                     /* of all stages */
    double limit_s, deadline_s;    /* of a wait, the predicted step included; what was asked for */
    struct sbp_board *_Atomic board;
    struct sbp_board *own; /* until ranks share one */
    int64_t board_bytes;
    int *scratch;   /* (ranks) */
    double looks_s; /* the watch's last look, and since when it looks again and again */
    double awake_s;
    char host[64];
    pthread_t thread;
    bool is_started, answered;
    atomic_bool over;
};

/* Begins to watch the ranks of this process, which have no posts yet. E_MEMORY, E_BACKEND: no
 * thread. On failure nothing is left. */
enum sbp_status sbp_watch_start(struct sbp_watch *watch, struct sbp_alarm *alarm,
                                const struct sbp_step *step, const struct sbp_tasks *tasks,
                                double predicted_s, double deadline_s,
                                struct sbp_diag *diag) SBP_MUST_USE;
/* Ends the watch; its ranks have left, or never came. Nothing where none was started. */
void sbp_watch_stop(struct sbp_watch *watch);

/* Ranks that are processes of one host get a common board; collective over all ranks. Where a host
 * has no shared memory its ranks go on alone. Fails as the backend does. */
enum sbp_status sbp_watch_share(struct sbp_watch *watch, const struct sbp_comm_ops *ops,
                                struct sbp_comm *comm, struct sbp_diag *diag) SBP_MUST_USE;
/* A rank's post, of this process from now on; NULL where nobody watches. */
struct sbp_post *sbp_watch_post(struct sbp_watch *watch, int rank);

#endif
