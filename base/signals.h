/* Signals: which ones stop a program, and what its files do meanwhile.
 *
 * SIGINT is Ctrl-C; SIGTERM and SIGHUP come from batch systems and from a terminal that closes.
 * They stop a program alike. A program that they ended exits with 128 and the signal's number: 130,
 * 143, 129. State is the program's: handlers and what they read stand beside its main.
 */
#ifndef SBP_BASE_SIGNALS_H
#define SBP_BASE_SIGNALS_H

#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "base/status.h"

/* A handler may read and write it, and so may all threads. */
_Static_assert(ATOMIC_INT_LOCK_FREE == 2, "integers are written without a lock");

/* Makes ranks print what they have finished before the launcher ends them: one that is interrupted
 * does not always pass on what they say last. mpirun sends this signal on to all. */
#define SBP_SIGNAL_ASKS SIGUSR1
#define SBP_SIGNAL_MARK ": interrupted: "
/* Stands before what is said of a rank that is gone, or does not go on. */
#define SBP_LOST_MARK ": lost: "
/* In what a run prints where its answer is no. */
#define SBP_FAILED_MARK "FAILED: "

/* How far a program is, for the handler that speaks when it ends; total is 0 before it begins. */
struct sbp_done {
    atomic_int done, total;
    atomic_int reported; /* it was said */
};

/* Calls `handler` (or SIG_DFL) for each signal that stops; SIGHUP stays ignored under nohup. A
 * write over the limit of a file's size fails from now on (EFBIG) instead of ending the program by
 * SIGXFSZ. Interrupted system calls go on. E_IO. */
enum sbp_status sbp_signals_catch(void (*handler)(int), struct sbp_diag *diag) SBP_MUST_USE;
/* Lets the signals end the program at once. Handlers may call it. */
void sbp_signals_restore(void);
/* Keeps the signals from this thread until sbp_signals_release; *before is the thread's mask. */
void sbp_signals_hold(sigset_t *before);
void sbp_signals_release(const sigset_t *before);

/* "SIGINT", "SIGTERM", "SIGHUP"; "signal" for others. */
const char *sbp_signals_name(int number);
/* Writes "PROGRAM: interrupted: 3 of 10 WHAT" and a newline to standard error, in one piece.
 * Handlers may call it. */
void sbp_signals_report(const char *program, struct sbp_done *progress, const char *what);
/* Answers a signal in a process of a job: the one that speaks (the launcher's first rank, or the
 * only process) says how far it is, once. Returns whether the signal ends the process:
 * SBP_SIGNAL_ASKS does not, and when all is done, which is about to be printed and written, only
 * the next signal does. For handlers. */
bool sbp_signals_answer(int number, const char *program, struct sbp_done *progress,
                        const char *what) SBP_MUST_USE;
/* The status of a program that the signal ended; see sbp_status_exit_code. */
enum sbp_status sbp_signals_status(int number);

#endif
