#include "tests/bench/measure.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cjson/cJSON.h>

#include "base/clock.h"

enum { READ_BYTES = 1 << 16, MOST_BYTES = 1 << 28 };
#define LOOK_S            0.05              /* between looks at a child's processor time */
#define MOST_MEMORY_BYTES ((rlim_t)8 << 30) /* a machine may be shared */

/* The reading ends of the child's stdout and stderr. */
struct child {
    pid_t id;
    double cpu_s; /* after which it is asked to end; INFINITY: never */
    bool was_asked;
    struct pollfd output[2];
};

/* ---- starting ------------------------------------------------------------------------------- */

/* In the child: becomes the program, or says why not. Its own group, so that what it starts is
 * killed with it; it ends as well when this program does. */
static void become(const char *const *words, const int *out, const int *err)
{
    const struct rlimit memory = {MOST_MEMORY_BYTES, MOST_MEMORY_BYTES};
    const int nothing = open("/dev/null", O_RDONLY);
    if (setpgid(0, 0) == 0 && prctl(PR_SET_PDEATHSIG, SIGKILL) == 0 &&
        setrlimit(RLIMIT_AS, &memory) == 0 && nothing >= 0 && dup2(nothing, STDIN_FILENO) >= 0 &&
        dup2(out[1], STDOUT_FILENO) >= 0 && dup2(err[1], STDERR_FILENO) >= 0)
        (void)execv(words[0], (char *const *)(uintptr_t)words);
    (void)dprintf(STDERR_FILENO, "%s: %s\n", words[0], strerror(errno));
    _exit(127);
}

static enum sbp_status start(const char *const *words, struct child *child, struct sbp_diag *diag)
{
    int out[2], err[2] = {-1, -1};
    if (pipe2(out, O_CLOEXEC) != 0)
        return sbp_fail(diag, SBP_E_IO, "pipe: %s", strerror(errno));
    if (pipe2(err, O_CLOEXEC) != 0 || (child->id = fork()) < 0) {
        const int cause = errno;
        for (int i = 0; i < 2; i++) {
            (void)close(out[i]);
            (void)close(err[i]);
        }
        return sbp_fail(diag, SBP_E_IO, "starting %s: %s", words[0], strerror(cause));
    }
    if (child->id == 0)
        become(words, out, err);
    (void)close(out[1]);
    (void)close(err[1]);
    child->output[0] = (struct pollfd){.fd = out[0], .events = POLLIN};
    child->output[1] = (struct pollfd){.fd = err[0], .events = POLLIN};
    return SBP_OK;
}

/* ---- reading -------------------------------------------------------------------------------- */

/* Takes what lies ready in a pipe; at its end closes it, which poll then skips. */
static void take(struct pollfd *pipe, struct sbp_text *text)
{
    char bytes[READ_BYTES];
    const ssize_t length = read(pipe->fd, bytes, sizeof bytes);
    if (length > 0 && text->length < MOST_BYTES)
        sbp_text_add(text, "%.*s", (int)length, bytes);
    else if (length < 0 && errno == EINTR)
        return;
    if (length <= 0) {
        (void)close(pipe->fd);
        pipe->fd = -1;
    }
}

/* Asks a child to end that has used its processor time. */
static void ask_to_end(struct child *child)
{
    clockid_t clock;
    struct timespec used;
    if (child->was_asked || !isfinite(child->cpu_s) ||
        clock_getcpuclockid(child->id, &clock) != 0 || clock_gettime(clock, &used) != 0)
        return;
    if ((double)used.tv_sec + 1e-9 * (double)used.tv_nsec < child->cpu_s)
        return;
    child->was_asked = true;
    (void)kill(-child->id, SIGTERM);
}

/* Until both pipes end, which they do with the program. */
static void read_all(struct child *child, double end_s, struct measured *measured)
{
    while (child->output[0].fd >= 0 || child->output[1].fd >= 0) {
        const double left_s = end_s - sbp_clock_s();
        if (left_s <= 0)
            return;
        const double turn_s = isfinite(child->cpu_s) && left_s > LOOK_S ? LOOK_S : left_s;
        ask_to_end(child);
        const int ready = poll(child->output, 2, (int)(turn_s * 1e3) + 1);
        if (ready <= 0)
            continue;
        if (child->output[0].fd >= 0 && child->output[0].revents != 0)
            take(&child->output[0], &measured->out);
        if (child->output[1].fd >= 0 && child->output[1].revents != 0)
            take(&child->output[1], &measured->err);
    }
}

/* ---- ending --------------------------------------------------------------------------------- */

static double seconds_of(struct timeval time)
{
    return (double)time.tv_sec + 1e-6 * (double)time.tv_usec;
}

/* A program may close its pipes and go on, so this looks at the clock as well. */
static enum sbp_status wait_for(struct child *child, double end_s, int *state, struct rusage *usage,
                                bool *timed_out)
{
    const struct timespec pause = {.tv_nsec = 200000};
    pid_t ended = 0;
    while ((ended = wait4(child->id, state, WNOHANG, usage)) == 0) {
        if (!*timed_out && sbp_clock_s() > end_s) {
            *timed_out = true;
            (void)kill(-child->id, SIGKILL);
        }
        (void)nanosleep(&pause, NULL);
    }
    return ended < 0 ? SBP_E_IO : SBP_OK;
}

static enum sbp_status end(struct child *child, double begin_s, double limit_s,
                           struct measured *measured, struct sbp_diag *diag)
{
    struct rusage usage;
    int state = 0;
    if (wait_for(child, begin_s + limit_s, &state, &usage, &measured->timed_out) != SBP_OK)
        return sbp_fail(diag, SBP_E_IO, "wait4: %s", strerror(errno));
    for (int i = 0; i < 2; i++)
        if (child->output[i].fd >= 0)
            (void)close(child->output[i].fd);
    measured->wall_s = sbp_clock_s() - begin_s;
    measured->cpu_s = seconds_of(usage.ru_utime) + seconds_of(usage.ru_stime);
    measured->peak_bytes = (int64_t)usage.ru_maxrss * 1024;
    measured->signal = WIFSIGNALED(state) ? WTERMSIG(state) : 0;
    measured->exit_code = WIFEXITED(state) ? WEXITSTATUS(state) : -1;
    return SBP_OK;
}

/* One object and nothing else, as --json promises. */
static struct cJSON *parse(const struct sbp_text *text)
{
    const char *rest = NULL;
    struct cJSON *answer = text->bytes == NULL ? NULL : cJSON_ParseWithOpts(text->bytes, &rest, 0);
    if (answer != NULL && cJSON_IsObject(answer) && rest[strspn(rest, " \n")] == '\0')
        return answer;
    cJSON_Delete(answer);
    return NULL;
}

enum sbp_status measure_run(const char *const *words, double limit_s, struct measured *measured,
                            struct sbp_diag *diag)
{
    return measure_run_share(words, INFINITY, limit_s, measured, diag);
}

enum sbp_status measure_run_share(const char *const *words, double cpu_s, double limit_s,
                                  struct measured *measured, struct sbp_diag *diag)
{
    struct child child = {.cpu_s = cpu_s};
    *measured = (struct measured){.exit_code = -1};
    const double begin_s = sbp_clock_s();
    SBP_TRY(start(words, &child, diag));
    read_all(&child, begin_s + limit_s, measured);
    SBP_TRY(end(&child, begin_s, limit_s, measured, diag));
    if (measured->out.failed || measured->err.failed)
        return sbp_fail(diag, SBP_E_MEMORY, "%s: out of memory for its output", words[0]);
    measured->answer = parse(&measured->out);
    return SBP_OK;
}

void measure_free(struct measured *measured)
{
    sbp_text_free(&measured->out);
    sbp_text_free(&measured->err);
    cJSON_Delete(measured->answer);
    *measured = (struct measured){0};
}

const char *measure_end_text(const struct measured *measured, char *buffer)
{
    const char *said = measured->err.bytes == NULL ? "" : measured->err.bytes;
    int used;
    if (measured->timed_out)
        used = snprintf(buffer, MEASURE_END_BYTES, "killed after %.0f s", measured->wall_s);
    else if (measured->signal != 0)
        used = snprintf(buffer, MEASURE_END_BYTES, "signal %d (%.40s)", measured->signal,
                        strsignal(measured->signal));
    else
        used = snprintf(buffer, MEASURE_END_BYTES, "exit %d", measured->exit_code);
    if (*said != '\0')
        (void)snprintf(buffer + used, MEASURE_END_BYTES - (size_t)used, ": %.*s",
                       (int)strcspn(said, "\n"), said);
    return buffer;
}
