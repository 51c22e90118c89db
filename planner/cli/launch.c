#include "planner/cli/launch.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/machine.h"
#include "base/signals.h"
#include "base/text.h"

/* mpirun and a rank with one thread of BLAS take so many bytes of address space (Open MPI 4.1,
 * OpenBLAS 0.3). */
#define MPI_BYTES ((int64_t)448 << 20)

#define ANSWER_S 1 /* in which rank 0 says how far it is */

enum { OUT, ERR, STREAMS };
enum { CARRIED = sizeof SBP_SIGNAL_MARK - 1, PIECE = 8192 };
_Static_assert(sizeof SBP_LOST_MARK <= sizeof SBP_SIGNAL_MARK, "the end of a piece holds it");

/* --- finding programs --- */

static bool is_program(const char *folder, const char *name, char *path)
{
    const int length = snprintf(path, PATH_MAX, "%s/%s", folder, name);
    return length > 0 && length < PATH_MAX && access(path, X_OK) == 0;
}

static bool find_in_path(const char *name, char *path)
{
    const char *folders = getenv("PATH");
    char folder[PATH_MAX];
    while (folders != NULL && *folders != '\0') {
        const size_t length = strcspn(folders, ":");
        if (length > 0 && length < sizeof folder) {
            memcpy(folder, folders, length);
            folder[length] = '\0';
            if (is_program(folder, name, path))
                return true;
        }
        folders += length + (folders[length] == ':');
    }
    return false;
}

static bool find_program(const struct sbp_launch *launch, char *path)
{
    char own[PATH_MAX], sibling[PATH_MAX];
    if (sbp_file_program_folder(own, sizeof own)) {
        if (is_program(own, launch->program, path))
            return true;
        const int length = snprintf(sibling, sizeof sibling, "%s/../%s", own, launch->build_folder);
        char folder[PATH_MAX];
        if (length > 0 && (size_t)length < sizeof sibling && realpath(sibling, folder) != NULL &&
            is_program(folder, launch->program, path))
            return true;
    }
    return find_in_path(launch->program, path);
}

bool sbp_launch_has_mpirun(void)
{
    char path[PATH_MAX];
    return find_in_path("mpirun", path);
}

/* mpirun runs as a child, and what it prints passes through, since it does not say when that fails,
 * nor, kept quiet, why its ranks ended. It has a process group of its own, so that a signal to
 * sbplan or its terminal reaches it once; it ends with sbplan. */
struct mpirun {
    const char *command;    /* "sbplan run": who speaks */
    char *const *words;     /* NULL-ended */
    const atomic_int *stop; /* set by the handler of signals, which are passed on */
};

/* mpirun prints on a stream, and what it prints passes through a pipe. */
struct stream {
    int from, into; /* the pipe */
    char text[CARRIED +
              PIECE]; /* the end of the last piece, which may hold half a mark, and the next */
    bool any, marked, lost; /* something came; these marks did */
    bool failed;            /* the answer came, and is no: in words, or an object */
    int reason;             /* why the first write failed; 0: none did */
};

struct job {
    const struct mpirun *mpirun;
    pid_t process;
    sigset_t before; /* the mask of signals */
    double asked_s;  /* when rank 0 was asked how far it is; 0: not yet */
    bool passed;     /* the signal went on to mpirun */
    struct stream stream[STREAMS];
};

/* --- mpirun: the child --- */

static enum sbp_status become_mpirun(const struct job *job, struct sbp_diag *diag)
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

/* --- mpirun: what it prints --- */

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

static bool holds(const struct stream *stream, size_t count, const char *mark)
{
    return memmem(stream->text, CARRIED + count, mark, strlen(mark)) != NULL;
}

/* False at the end. */
static bool pump(struct stream *stream, int to)
{
    const ssize_t count = read(stream->from, stream->text + CARRIED, PIECE);
    if (count < 0)
        return errno == EINTR;
    stream->failed = stream->failed || holds(stream, (size_t)count, SBP_FAILED_MARK) ||
                     (!stream->any && count > 0 && stream->text[CARRIED] == '{');
    stream->any = stream->any || count > 0;
    stream->marked = stream->marked || holds(stream, (size_t)count, SBP_SIGNAL_MARK);
    stream->lost = stream->lost || holds(stream, (size_t)count, SBP_LOST_MARK);
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

/* --- mpirun: how it ended --- */

static const char *hint_of(int number)
{
    return number == SIGKILL ? ", as the system does when memory is short" : "";
}

/* The answer is no: there is no result. Ranks that are left say more, where they are heard. */
static enum sbp_status lose_rank(const struct job *job, int number)
{
    if (!job->stream[ERR].lost)
        (void)sbp_text_print_line(stderr,
                                  "%s" SBP_LOST_MARK "a rank was ended by signal %d (%s)%s\n",
                                  job->mpirun->command, number, strsignal(number), hint_of(number));
    return SBP_NO;
}

/* mpirun ends with 1 where it is interrupted itself, whatever the signal, and where a rank's answer
 * is no, which it printed before; rows of steps are no answer. */
static enum sbp_status explain(const struct job *job, int code, struct sbp_diag *diag)
{
    const char *command = job->mpirun->command;
    const int stop = *job->mpirun->stop;
    if (stop != 0)
        return sbp_fail(diag, sbp_signals_status(stop), "%s: interrupted by %s", command,
                        sbp_signals_name(stop));
    if (job->stream[ERR].lost)
        return SBP_NO;
    if (code > 128 && code <= 128 + SIGRTMAX)
        return lose_rank(job, code - 128);
    if (code == 1 && job->stream[OUT].failed && !job->stream[ERR].marked)
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
        return sbp_fail(diag, sbp_signals_status(WTERMSIG(ended)),
                        "%s: mpirun was ended by signal %d (%s)%s", job->mpirun->command,
                        WTERMSIG(ended), strsignal(WTERMSIG(ended)), hint_of(WTERMSIG(ended)));
    const int code = WIFSIGNALED(ended) ? 128 + WTERMSIG(ended) : WEXITSTATUS(ended);
    const enum sbp_status status = code == 0 ? SBP_OK : explain(job, code, diag);
    return reason != 0 && status >= 0 ? sbp_fail(diag, SBP_E_IO, "%s: standard output: %s",
                                                 job->mpirun->command, strerror(reason))
                                      : status;
}

/* --- mpirun: from begin to end --- */

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
        return become_mpirun(job, diag);
    for (int i = 0; i < STREAMS; i++)
        close_end(&job->stream[i].into);
    watch(job);
    return finish(job, diag);
}

/* OK, SBP_NO as the ranks say, or where one is lost; below E_SIGNAL: mpirun was interrupted; E_IO:
 * mpirun cannot be started (in the child, too), or standard output cannot be written; E_BACKEND:
 * mpirun failed otherwise. */
static enum sbp_status run_mpirun(const struct mpirun *mpirun, struct sbp_diag *diag)
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

/* --- the command --- */

struct words {
    const char **word;
    int count;
};

static void push(struct words *words, const char *word)
{
    words->word[words->count++] = word;
}

/* Words of mpirun (Open MPI's options). Ranks that share cores must yield them while they wait and
 * must not be bound to one; Open MPI refuses to run as root unless told; quiet, it does not bury a
 * program's own message under banners. */
static void push_mpirun(struct words *words, const char *ranks)
{
    static const char *const OPTIONS[] = {"-q", "--oversubscribe", "--mca", "mpi_yield_when_idle",
                                          "1",  "--bind-to",       "none"};
    push(words, "mpirun");
    push(words, "-n");
    push(words, ranks);
    for (size_t i = 0; i < sizeof OPTIONS / sizeof *OPTIONS; i++)
        push(words, OPTIONS[i]);
    if (geteuid() == 0)
        push(words, "--allow-run-as-root");
}

static void push_list(struct words *words, const struct sbp_word_list *list)
{
    for (int i = 0; i < list->count; i++)
        push(words, list->word[i]);
}

static void print_words(const struct words *words)
{
    for (int i = 0; i < words->count; i++)
        (void)sbp_text_print_line(stderr, "%s%s", i == 0 ? "" : " ", words->word[i]);
    (void)fputc('\n', stderr);
}

/* A signal that came by now ends sbplan; the program does not know of it. */
static enum sbp_status become(char *const *words, const atomic_int *stop, struct sbp_diag *diag)
{
    (void)fflush(stdout);
    (void)fflush(stderr);
    sbp_signals_restore();
    if (*stop != 0)
        return sbp_fail(diag, sbp_signals_status(*stop), "interrupted by %s",
                        sbp_signals_name(*stop));
    (void)execvp(words[0], words);
    return sbp_fail(diag, SBP_E_IO, "%s: cannot be started: %s", words[0], strerror(errno));
}

/* Under a limit of address space OpenBLAS and MPI's libraries may wait for ever while they are
 * loaded; later the programs themselves compare it with their ranks' need. One thread of OpenBLAS
 * is what the programs use, and each more takes space as soon as it is loaded. */
static enum sbp_status check_space(const struct sbp_launch *launch, struct sbp_diag *diag)
{
    char needs[32], has[32];
    const int64_t limit = sbp_machine_space_limit();
    if (launch->is_everywhere || limit == INT64_MAX)
        return SBP_OK;
    if (launch->ranks > 0 && limit < MPI_BYTES)
        return sbp_fail(diag, SBP_E_MEMORY,
                        "sbplan %s: needs %s of address space to start, the limit is %s (ulimit "
                        "-v)",
                        launch->arguments->command->name,
                        sbp_format_bytes((double)MPI_BYTES, needs),
                        sbp_format_bytes((double)limit, has));
    return setenv("OPENBLAS_NUM_THREADS", "1", 1) == 0
               ? SBP_OK
               : sbp_fail(diag, SBP_E_MEMORY, "out of memory");
}

static enum sbp_status start_words(const struct sbp_launch *launch, const struct words *words,
                                   struct sbp_diag *diag)
{
    const struct sbp_arguments *arguments = launch->arguments;
    char command[64];
    char *const *started;
    /* execvp does not change the words; its type predates const. */
    memcpy(&started, &words->word, sizeof started);
    if (launch->ranks == 0)
        return become(started, arguments->stop, diag);
    (void)snprintf(command, sizeof command, "sbplan %s", arguments->command->name);
    print_words(words);
    const struct mpirun mpirun = {command, started, arguments->stop};
    return run_mpirun(&mpirun, diag);
}

static enum sbp_status start(const struct sbp_launch *launch, const char *program,
                             struct sbp_diag *diag)
{
    const struct sbp_arguments *arguments = launch->arguments;
    struct sbp_arena arena = {0};
    char ranks[24];
    const int most = arguments->operands.count + arguments->forward.count + 32;
    struct words words = {.word = SBP_NEW(&arena, const char *, most)};
    if (words.word == NULL)
        return sbp_fail(diag, SBP_E_MEMORY, "out of memory");
    (void)snprintf(ranks, sizeof ranks, "%lld", (long long)launch->ranks);
    if (launch->ranks > 0)
        push_mpirun(&words, ranks);
    push(&words, program);
    push_list(&words, &arguments->operands);
    push_list(&words, &arguments->forward);
    if (arguments->json)
        push(&words, "--json");
    for (int i = 0; launch->extra[i] != NULL; i++)
        push(&words, launch->extra[i]);
    const enum sbp_status status = start_words(launch, &words, diag);
    sbp_arena_free(&arena);
    return status;
}

enum sbp_status sbp_launch(const struct sbp_launch *launch, struct sbp_diag *diag)
{
    char program[PATH_MAX];
    if (SBP_PLANNER_ONLY && !launch->is_everywhere)
        return sbp_fail(diag, SBP_E_UNSUPPORTED,
                        "sbplan %s: not in this build, which plans only: build with meson "
                        "-Dplanner_only=false",
                        launch->arguments->command->name);
    if (!find_program(launch, program))
        return sbp_fail(diag, SBP_E_UNSUPPORTED,
                        "sbplan %s: %s is neither beside sbplan nor in $PATH",
                        launch->arguments->command->name, launch->program);
    SBP_TRY(check_space(launch, diag));
    return start(launch, program, diag);
}
