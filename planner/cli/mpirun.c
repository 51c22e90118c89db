#include "planner/cli/mpirun.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/signals.h"

#define ANSWER_S 1 /* in which rank 0 says how far it is */

enum { OUT, ERR, STREAMS };
enum { CARRIED = sizeof SBP_SIGNAL_MARK - 1, PIECE = 8192 };

/* mpirun prints on a stream, and what it prints passes through a pipe. */
struct stream {
    int from, into; /* the pipe */
    char text[CARRIED +
              PIECE]; /* the end of the last piece, which may hold half a mark, and the next */
    bool any, marked;
    int reason; /* why the first write failed; 0: none did */
};

struct job {
    const struct sbp_mpirun *mpirun;
    pid_t process;
    sigset_t before; /* the mask of signals */
    double asked_s;  /* when rank 0 was asked how far it is; 0: not yet */
    bool passed;     /* the signal went on to mpirun */
    struct stream stream[STREAMS];
};

/* ---- the child ------------------------------------------------------------------------------- */

static enum sbp_status become(const struct job *job, struct sbp_diag *diag)
{
    char *const *words = job->mpirun->words;
    if (setpgid(0, 0) == 0 && prctl(PR_SET_PDEATHSIG, SIGTERM) == 0 &&
        dup2(job->stream[OUT].into, STDOUT_FILENO) >= 0 &&
        dup2(job->stream[ERR].into, STDERR_FILENO) >= 0) {
        sbp_signals_restore(); /* one that came by now ends the child */
        sbp_signals_release(&job->before);
        (void)execvp(words[0], words);
    }
    return sbp_fail(diag, SBP_E_IO, "%s: cannot be started: %s", words[0], strerror(errno));
}

/* ---- what it prints -------------------------------------------------------------------------- */

static void pass_on(struct stream *stream, int to, size_t count)
{
    const char *text = stream->text + CARRIED;
    while (count > 0 && stream->reason == 0) {
        const ssize_t written = write(to, text, count);
        if (written >= 0) {
            text += written;
            count -= (size_t)written;
        } else if (errno != EINTR) {
            stream->reason = errno;
        }
    }
}

/* False at the end. */
static bool pump(struct stream *stream, int to)
{
    const ssize_t count = read(stream->from, stream->text + CARRIED, PIECE);
    if (count < 0)
        return errno == EINTR;
    stream->any = stream->any || count > 0;
    stream->marked = stream->marked || memmem(stream->text, CARRIED + (size_t)count,
                                              SBP_SIGNAL_MARK, CARRIED) != NULL;
    pass_on(stream, to, (size_t)count);
    memmove(stream->text, stream->text + count, CARRIED);
    return count > 0;
}

/* The first signal that came goes on to mpirun, once rank 0 has said how far it is. */
static void pass_signal(struct job *job)
{
    const int stop = *job->mpirun->stop;
    if (stop == 0 || job->passed)
        return;
    if (job->asked_s == 0) {
        job->asked_s = sbp_clock_s();
        (void)kill(job->process, SBP_SIGNAL_ASKS); /* fails where it has ended */
    } else if (job->stream[ERR].marked || sbp_clock_s() - job->asked_s >= ANSWER_S) {
        (void)kill(job->process, stop);
        job->passed = true;
    }
}

/* Until mpirun has closed both streams. Signals come within ppoll alone. */
static void watch(struct job *job)
{
    struct pollfd polled[STREAMS];
    int open = STREAMS;
    for (int i = 0; i < STREAMS; i++)
        polled[i] = (struct pollfd){.fd = job->stream[i].from, .events = POLLIN};
    while (open > 0) {
        static const struct timespec soon = {.tv_nsec = 50000000};
        pass_signal(job);
        const bool waits = job->asked_s > 0 && !job->passed;
        if (ppoll(polled, STREAMS, waits ? &soon : NULL, &job->before) < 0)
            continue;
        for (int i = 0; i < STREAMS; i++)
            if (polled[i].revents != 0 &&
                !pump(&job->stream[i], i == OUT ? STDOUT_FILENO : STDERR_FILENO)) {
                polled[i].fd = -1;
                open--;
            }
    }
}

/* ---- how it ended ---------------------------------------------------------------------------- */

static enum sbp_status ended_by(const struct job *job, const char *who, int number,
                                struct sbp_diag *diag)
{
    return sbp_fail(diag, sbp_signals_status(number), "%s: %s was ended by signal %d (%s)%s",
                    job->mpirun->command, who, number, strsignal(number),
                    number == SIGKILL ? ", as the system does when memory is short" : "");
}

/* mpirun ends with 1 where it is interrupted itself, whatever the signal, and where a rank's answer
 * is no, which it printed before. */
static enum sbp_status explain(const struct job *job, int code, struct sbp_diag *diag)
{
    const char *command = job->mpirun->command;
    const int stop = *job->mpirun->stop;
    if (stop != 0)
        return sbp_fail(diag, sbp_signals_status(stop), "%s: interrupted by %s", command,
                        sbp_signals_name(stop));
    if (code > 128 && code <= 128 + SIGRTMAX)
        return ended_by(job, "a rank", code - 128, diag);
    if (code == 1 && job->stream[OUT].any)
        return SBP_NO;
    if (code == 1)
        return sbp_fail(diag, sbp_signals_status(SIGTERM),
                        "%s: mpirun ended without a result, as it does when it is interrupted",
                        command);
    return sbp_fail(diag, SBP_E_BACKEND, "%s: mpirun ended with exit status %d", command, code);
}

static enum sbp_status finish(const struct job *job, struct sbp_diag *diag)
{
    const int reason = job->stream[OUT].reason;
    int ended = 0;
    pid_t waited;
    do
        waited = waitpid(job->process, &ended, 0);
    while (waited < 0 && errno == EINTR);
    if (waited < 0)
        return sbp_fail(diag, SBP_E_IO, "mpirun: %s", strerror(errno));
    if (WIFSIGNALED(ended) && *job->mpirun->stop == 0)
        return ended_by(job, "mpirun", WTERMSIG(ended), diag);
    const int code = WIFSIGNALED(ended) ? 128 + WTERMSIG(ended) : WEXITSTATUS(ended);
    const enum sbp_status status = code == 0 ? SBP_OK : explain(job, code, diag);
    return reason != 0 && status >= 0 ? sbp_fail(diag, SBP_E_IO, "%s: standard output: %s",
                                                 job->mpirun->command, strerror(reason))
                                      : status;
}

/* ---- both ------------------------------------------------------------------------------------ */

/* Pipes that would take the numbers of standard streams would be lost under them. */
static enum sbp_status open_streams(struct job *job, struct sbp_diag *diag)
{
    for (int i = 0; i < STREAMS; i++) {
        int ends[2];
        if (fcntl(STDOUT_FILENO, F_GETFD) < 0 || fcntl(STDERR_FILENO, F_GETFD) < 0 ||
            pipe2(ends, O_CLOEXEC) != 0)
            return sbp_fail(diag, SBP_E_IO, "%s: standard output: %s", job->mpirun->command,
                            strerror(errno));
        job->stream[i].from = ends[0];
        job->stream[i].into = ends[1];
    }
    return SBP_OK;
}

static void close_end(int *end)
{
    if (*end >= 0)
        (void)close(*end);
    *end = -1;
}

static enum sbp_status run(struct job *job, struct sbp_diag *diag)
{
    SBP_TRY(open_streams(job, diag));
    (void)fflush(stdout);
    (void)fflush(stderr);
    job->process = fork();
    if (job->process < 0)
        return sbp_fail(diag, SBP_E_IO, "mpirun: cannot be started: %s", strerror(errno));
    if (job->process == 0)
        return become(job, diag);
    for (int i = 0; i < STREAMS; i++)
        close_end(&job->stream[i].into);
    watch(job);
    return finish(job, diag);
}

enum sbp_status sbp_mpirun_run(const struct sbp_mpirun *mpirun, struct sbp_diag *diag)
{
    struct job job = {.mpirun = mpirun,
                      .stream = {{.from = -1, .into = -1}, {.from = -1, .into = -1}}};
    sbp_signals_hold(&job.before);
    const enum sbp_status status = run(&job, diag);
    for (int i = 0; i < STREAMS; i++) {
        close_end(&job.stream[i].from);
        close_end(&job.stream[i].into);
    }
    sbp_signals_release(&job.before);
    return status;
}
