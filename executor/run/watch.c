#include "executor/run/watch.h"

#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "base/text.h"

enum { TAG_BOARD = 5 };
static const double TICK_S = 0.05; /* between two looks: so late is a signal answered */
static const double SILENT_S = 2;  /* a process whose watch did not look for so long hangs */
/* When hosts speak that rank 0 is not on, one after the other: a launcher ends them meanwhile. */
static const double FIRST_LATE_S = 4, NEXT_LATE_S = 2, MOST_LATE_S = 20;
static const double SPEAKING_S = 0.3; /* what the process that speaks needs for it */

/* What the processes of a host share. */
struct sbp_board {
    atomic_bool spoken; /* a process says what the fault is */
    struct sbp_post post[];
};

/* ---- what ranks are at ----------------------------------------------------------------------- */

/* Acquires what was written before a post became its process's. */
static int load(const atomic_int *field)
{
    return atomic_load_explicit(field, memory_order_acquire);
}

static double age_s(const _Atomic double *since_s)
{
    return sbp_clock_s() - atomic_load_explicit(since_s, memory_order_relaxed);
}

static bool is_here(const struct sbp_post *post)
{
    return load(&post->process) > 0 && load(&post->stay) != SBP_STAYS_LEFT;
}

static bool is_own(const struct sbp_post *post)
{
    return is_here(post) && load(&post->process) == getpid();
}

/* 'R', 'S', 'T', ... as Linux calls it; 'X': the process is gone. */
static char state_of(int process)
{
    char path[32], state = 'X';
    (void)snprintf(path, sizeof path, "/proc/%d/stat", process);
    FILE *in = fopen(path, "r");
    if (in == NULL)
        return 'X';
    if (fscanf(in, "%*d (%*[^)]) %c", &state) != 1 || state == 'Z')
        state = 'X';
    (void)fclose(in); /* nothing was written */
    return state;
}

/* Its process ended, and did not mean to. */
static bool is_gone(const struct sbp_post *post)
{
    return is_here(post) && state_of(load(&post->process)) == 'X';
}

/* SIGSTOP, or a debugger. */
static bool is_stopped(const struct sbp_post *post)
{
    const char state = is_here(post) ? state_of(load(&post->process)) : 'R';
    return state == 'T' || state == 't';
}

static bool is_silent(const struct sbp_post *post)
{
    return is_here(post) && age_s(&post->beat_s) > SILENT_S;
}

static bool is_at_work(const struct sbp_post *post)
{
    return is_here(post) && load(&post->waits) == SBP_WAITS_NOT;
}

static bool is_waiting(const struct sbp_post *post)
{
    return is_here(post) && load(&post->waits) != SBP_WAITS_NOT;
}

/* Of containers that share memory, each is a host with processes of its own. */
static bool is_of_host(const struct sbp_watch *watch, const struct sbp_post *post)
{
    return strcmp(post->host, watch->host) == 0;
}

/* The rank of this host that is so; of several the one that has noted nothing for longest; -1. */
static int find_rank(const struct sbp_watch *watch, const struct sbp_board *board,
                     bool (*is_so)(const struct sbp_post *))
{
    int found = -1;
    for (int r = 0; r < watch->ranks; r++)
        if (is_so(&board->post[r]) && is_of_host(watch, &board->post[r]) &&
            (found < 0 || age_s(&board->post[r].since_s) > age_s(&board->post[found].since_s)))
            found = r;
    return found;
}

/* The ranks that a rank waits for, in a group with itself; returns how many. */
static int waited_for(const struct sbp_watch *watch, const struct sbp_board *board, int rank)
{
    const struct sbp_post *post = &board->post[rank];
    const int waits = load(&post->waits);
    const int64_t devices = watch->step->mesh.devices;
    const struct sbp_members members = {(sbp_axes)load(&post->axes), load(&post->crosses) != 0,
                                        load(&post->tensor)};
    if (waits == SBP_WAITS_GROUP)
        return sbp_channel_members(watch->step, (int)(rank / devices), rank % devices, &members,
                                   watch->scratch);
    for (int r = 0; waits == SBP_WAITS_ALL && r < watch->ranks; r++)
        watch->scratch[r] = r;
    if (waits >= 0)
        watch->scratch[0] = waits;
    return waits == SBP_WAITS_ALL ? watch->ranks : waits >= 0;
}

/* A rank that waits for another one, or else the one that has waited for longest; -1. */
static int find_waiting(const struct sbp_watch *watch, const struct sbp_board *board, int other)
{
    for (int r = 0; r < watch->ranks; r++) {
        const int count = r != other && is_waiting(&board->post[r]) && !is_silent(&board->post[r])
                              ? waited_for(watch, board, r)
                              : 0;
        for (int i = 0; i < count; i++)
            if (watch->scratch[i] == other)
                return r;
    }
    const int found = find_rank(watch, board, is_waiting);
    return found == other ? -1 : found;
}

/* ---- what a fault is called ------------------------------------------------------------------ */

static void add_rank(struct sbp_text *text, const struct sbp_watch *watch,
                     const struct sbp_board *board, int rank)
{
    sbp_text_add(text, "rank %d (host %s, stage %d)", rank, board->post[rank].host,
                 (int)(rank / watch->step->mesh.devices));
}

static void add_place(struct sbp_text *text, const struct sbp_watch *watch,
                      const struct sbp_board *board, int rank)
{
    static const char *const stays[] = {
        [SBP_STAYS_START] = "its start",   [SBP_STAYS_FILL] = "its initial weights",
        [SBP_STAYS_REPORT] = "its report", [SBP_STAYS_VERIFY] = "verification",
        [SBP_STAYS_OUTPUT] = "its output", [SBP_STAYS_LEFT] = "its end"};
    const struct sbp_post *post = &board->post[rank];
    const int stay = load(&post->stay), stage = (int)(rank / watch->step->mesh.devices);
    const int task = load(&post->task);
    char name[160];
    if (load(&post->step) > 0)
        sbp_text_add(text, "step %d, ", load(&post->step));
    if (stay == SBP_STAYS_STEP && task < 0) {
        sbp_text_add(text, "its begin");
    } else if (stay == SBP_STAYS_STEP) {
        const struct sbp_task *at = &watch->tasks[stage].task[task];
        sbp_task_name(sbp_step_chunk(watch->step, stage, at->chunk), at, name, sizeof name);
        sbp_text_add(text, "%s", name);
    } else {
        sbp_text_add(text, "%s", stays[stay] == NULL ? "its begin" : stays[stay]);
    }
}

/* "ranks 1, 2, 3", without the one that waits. */
static void add_waited_for(struct sbp_text *text, const struct sbp_watch *watch,
                           const struct sbp_board *board, int rank)
{
    enum { MOST = 8 };
    const int count = waited_for(watch, board, rank);
    int others = 0;
    for (int i = 0; i < count; i++)
        others += watch->scratch[i] != rank;
    sbp_text_add(text, others == 1 ? "rank" : "ranks");
    for (int i = 0, said = 0; i < count && said < MOST; i++)
        if (watch->scratch[i] != rank)
            sbp_text_add(text, "%s %d", said++ > 0 ? "," : "", watch->scratch[i]);
    if (others > MOST)
        sbp_text_add(text, " and %d others", others - MOST);
}

/* "step 3, all-reduce wte (61.2 s, waits for ranks 1, 2)". */
static void add_state(struct sbp_text *text, const struct sbp_watch *watch,
                      const struct sbp_board *board, int rank)
{
    add_place(text, watch, board, rank);
    sbp_text_add(text, " (%.3g s", age_s(&board->post[rank].since_s));
    if (is_waiting(&board->post[rank])) {
        sbp_text_add(text, ", waits for ");
        add_waited_for(text, watch, board, rank);
    }
    sbp_text_add(text, ")");
}

/* The rank that the others wait for, as far as this host can tell; -1. */
static int add_culprit(struct sbp_text *text, const struct sbp_watch *watch,
                       const struct sbp_board *board)
{
    static const struct {
        bool (*is_so)(const struct sbp_post *);
        const char *what;
    } kinds[] = {{is_gone, "was killed or crashed (the system kills where memory is short)"},
                 {is_stopped, "is stopped"},
                 {is_silent, "does not answer"},
                 {is_at_work, "does not go on"}};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        const int rank = find_rank(watch, board, kinds[i].is_so);
        if (rank < 0)
            continue;
        add_rank(text, watch, board, rank);
        sbp_text_add(text, " %s at ", kinds[i].what);
        add_state(text, watch, board, rank);
        return rank;
    }
    return -1;
}

static void describe_fault(struct sbp_text *text, const struct sbp_watch *watch,
                           const struct sbp_board *board)
{
    const int culprit = add_culprit(text, watch, board);
    const int waiting = find_waiting(watch, board, culprit);
    if (waiting < 0)
        return;
    sbp_text_add(text, culprit < 0 ? "" : "; ");
    add_rank(text, watch, board, waiting);
    sbp_text_add(text, " is at ");
    add_state(text, watch, board, waiting);
}

/* ---- watching -------------------------------------------------------------------------------- */

static void nap(double seconds)
{
    const struct timespec pause = {.tv_sec = (time_t)seconds,
                                   .tv_nsec = (long)(1e9 * (seconds - (double)(time_t)seconds))};
    (void)nanosleep(&pause, NULL);
}

/* One process of a host says what the fault is, while the others are quiet. */
static void end_by_fault(struct sbp_watch *watch, struct sbp_board *board, bool is_late)
{
    struct sbp_text text = {0};
    if (atomic_exchange(&board->spoken, true)) {
        nap(SPEAKING_S);
        watch->alarm->end(0, "");
        return;
    }
    describe_fault(&text, watch, board);
    if (is_late)
        sbp_text_add(&text, "; that is over --deadline %.6g and the step's predicted time",
                     watch->deadline_s);
    watch->alarm->end(0, text.bytes == NULL || text.failed ? "a rank" : text.bytes);
    sbp_text_free(&text);
}

/* Says that this process's end is meant, so that no other takes it for a fault. */
static void leave(const struct sbp_watch *watch, struct sbp_board *board)
{
    for (int r = 0; r < watch->ranks; r++)
        if (is_own(&board->post[r]))
            sbp_post_stay(&board->post[r], SBP_STAYS_LEFT, load(&board->post[r].step));
}

/* A launcher ends all processes when one is gone, by a signal that a user may have sent as well;
 * but a user's comes after SBP_SIGNAL_ASKS, or finds all of them there. */
static void answer_signals(struct sbp_watch *watch, struct sbp_board *board)
{
    struct sbp_alarm *alarm = watch->alarm;
    const bool asked = atomic_load(&alarm->asked);
    const int number = atomic_load(&alarm->signal);
    if (asked && !watch->answered) {
        watch->answered = true;
        alarm->end(SBP_SIGNAL_ASKS, NULL);
    }
    if (number == 0)
        return;
    if (!asked && number == SIGTERM &&
        (atomic_load(&board->spoken) || find_rank(watch, board, is_gone) >= 0)) {
        end_by_fault(watch, board, false);
        return;
    }
    leave(watch, board);
    atomic_store(&alarm->signal, 0);
    alarm->end(number, NULL);
}

/* How long nothing may happen on this host. Weights are filled, and other hosts verify, unseen.
 * The first host speaks first: all may find out at once. */
static double limit_s(const struct sbp_watch *watch, const struct sbp_board *board)
{
    int first = -1;
    bool is_patient = false;
    for (int r = 0; r < watch->ranks; r++) {
        const struct sbp_post *post = &board->post[r];
        const int stay = load(&post->stay);
        if (stay == SBP_STAYS_OUTPUT)
            return INFINITY;
        if (first < 0 && load(&post->process) > 0 && is_of_host(watch, post))
            first = r;
        is_patient =
            is_patient ||
            (is_own(post) && (stay == SBP_STAYS_FILL || (stay == SBP_STAYS_VERIFY && first > 0)));
    }
    return watch->limit_s * (is_patient ? SBP_WATCH_PATIENCE : 1) +
           (first > 0 ? fmin(FIRST_LATE_S + NEXT_LATE_S * (first - 1), MOST_LATE_S) : 0);
}

/* For how long the watch has looked without a pause. A process that was stopped and goes on finds
 * all ranks of its host silent, since they were stopped with it. */
static double awake_for_s(struct sbp_watch *watch)
{
    const double now_s = sbp_clock_s();
    if (now_s - watch->looks_s > SILENT_S)
        watch->awake_s = now_s;
    watch->looks_s = now_s;
    return now_s - watch->awake_s;
}

/* When a rank of this host last noted something; the own ones are under way. */
static bool is_over_deadline(struct sbp_watch *watch, struct sbp_board *board)
{
    double newest_s = awake_for_s(watch);
    bool is_any = false;
    for (int r = 0; r < watch->ranks; r++) {
        struct sbp_post *post = &board->post[r];
        if (is_own(post))
            atomic_store_explicit(&post->beat_s, sbp_clock_s(), memory_order_relaxed);
        is_any = is_any || is_own(post);
        if (is_here(post))
            newest_s = fmin(newest_s, age_s(&post->since_s));
    }
    return is_any && newest_s > limit_s(watch, board);
}

static void *watch_thread(void *argument)
{
    struct sbp_watch *watch = argument;
    while (!atomic_load(&watch->over)) {
        struct sbp_board *board = atomic_load(&watch->board);
        answer_signals(watch, board);
        if (is_over_deadline(watch, board))
            end_by_fault(watch, board, true);
        nap(TICK_S);
    }
    return NULL;
}

/* ---- opening and closing --------------------------------------------------------------------- */

enum sbp_status sbp_watch_start(struct sbp_watch *watch, struct sbp_alarm *alarm,
                                const struct sbp_step *step, const struct sbp_tasks *tasks,
                                double predicted_s, double deadline_s, struct sbp_diag *diag)
{
    *watch = (struct sbp_watch){.alarm = alarm,
                                .step = step,
                                .tasks = tasks,
                                .ranks = (int)(step->stages * step->mesh.devices),
                                .limit_s = predicted_s + deadline_s,
                                .deadline_s = deadline_s};
    if (gethostname(watch->host, sizeof watch->host - 1) != 0)
        (void)snprintf(watch->host, sizeof watch->host, "unknown");
    watch->board_bytes =
        (int64_t)(sizeof(struct sbp_board) + (size_t)watch->ranks * sizeof(struct sbp_post));
    watch->own = calloc(1, (size_t)watch->board_bytes);
    watch->scratch = calloc((size_t)watch->ranks, sizeof *watch->scratch);
    atomic_store(&watch->board, watch->own);
    const bool has_memory = watch->own != NULL && watch->scratch != NULL;
    if (has_memory && pthread_create(&watch->thread, NULL, watch_thread, watch) == 0) {
        watch->is_started = true;
        atomic_store(&alarm->watched, true);
        return SBP_OK;
    }
    free(watch->own);
    free(watch->scratch);
    return has_memory
               ? sbp_fail(diag, SBP_E_BACKEND, "no thread can be started to watch over the ranks")
               : sbp_fail(diag, SBP_E_MEMORY, "out of memory for the watch over the ranks");
}

void sbp_watch_stop(struct sbp_watch *watch)
{
    if (!watch->is_started)
        return;
    struct sbp_board *board = atomic_load(&watch->board);
    atomic_store(&watch->alarm->watched, false);
    leave(watch, board);
    atomic_store(&watch->over, true);
    (void)pthread_join(watch->thread, NULL); /* fails for what is no thread alone */
    if (board != watch->own)
        (void)munmap(board, (size_t)watch->board_bytes);
    free(watch->own);
    free(watch->scratch);
    watch->is_started = false;
}

struct sbp_post *sbp_watch_post(struct sbp_watch *watch, int rank)
{
    if (!watch->is_started)
        return NULL;
    struct sbp_post *post = &atomic_load(&watch->board)->post[rank];
    if (atomic_load(&post->process) == 0)
        (void)snprintf(post->host, sizeof post->host, "%s", watch->host);
    atomic_store(&post->task, -1);
    atomic_store(&post->beat_s, sbp_clock_s());
    sbp_post_stay(post, SBP_STAYS_START, 0);
    atomic_store(&post->process, getpid());
    return post;
}

/* ---- one board for a host -------------------------------------------------------------------- */

struct board_name {
    char text[64];
};

static enum sbp_status agree_on_name(const struct sbp_comm_ops *ops, struct sbp_comm *comm,
                                     struct board_name *name)
{
    if (ops->rank(comm) != 0)
        return ops->receive(comm, 0, TAG_BOARD, name, sizeof *name);
    (void)snprintf(name->text, sizeof name->text, "/sbplan-%d-%lld", getpid(),
                   (long long)(1e6 * sbp_clock_s()));
    for (int peer = 1; peer < ops->size(comm); peer++)
        SBP_TRY(ops->send(comm, peer, TAG_BOARD, name, sizeof *name));
    return SBP_OK;
}

/* NULL where there is no shared memory. */
static struct sbp_board *map_board(const char *name, int64_t bytes)
{
    const int file = shm_open(name, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    void *mapped = MAP_FAILED;
    if (file < 0)
        return NULL;
    if (ftruncate(file, (off_t)bytes) == 0)
        mapped = mmap(NULL, (size_t)bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    (void)close(file); /* the map stays */
    return mapped == MAP_FAILED ? NULL : mapped;
}

enum sbp_status sbp_watch_share(struct sbp_watch *watch, const struct sbp_comm_ops *ops,
                                struct sbp_comm *comm, struct sbp_diag *diag)
{
    struct board_name name = {0};
    enum sbp_status status = agree_on_name(ops, comm, &name);
    struct sbp_board *board = status == SBP_OK ? map_board(name.text, watch->board_bytes) : NULL;
    if (status == SBP_OK)
        status = ops->barrier(comm); /* all of the host have opened it */
    if (board != NULL) {
        (void)shm_unlink(name.text); /* fails where another rank of the host has done it */
        atomic_store(&watch->board, board);
    }
    return status == SBP_OK ? SBP_OK : sbp_fail(diag, status, "%s", ops->reason(comm));
}
