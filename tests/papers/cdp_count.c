#include "tests/papers/cdp_count.h"

int64_t sbp_cdp_forward_slot(int n, int i, int j, int64_t t)
{
    return 2 * n * t + 2 * (i - 1) + j - 1;
}

int64_t sbp_cdp_backward_slot(int n, int i, int j, int64_t t)
{
    return 2 * n * t + 2 * (i - 1) + 2 * n - j;
}

/* Steps played: one fills, one is counted, one is there to overlap with it. */
enum { STEPS = 3, COUNTED_STEP = 1, MAX_N = 256 };
#define MAX_BYTES (INT64_C(1) << 40)

struct count_run {
    int n, devices;
    enum sbp_placement placement;
    bool cyclic;
    enum sbp_cdp_rule rule;
    struct sbp_cdp_sizes sizes;
    int *owner;        /* (steps, n stages, n micro-batches) device of a pass */
    int *held;         /* (devices) activations held */
    int *stages_of;    /* (devices) stages that it ever works on */
    int *latest_stage; /* (devices) the last of them that was found, from 1 */
    int *devices_of;   /* (n) devices that ever work on the stage */
};

struct pass {
    bool forward;
    int i, j, t; /* from 1, 1, 0 */
};

static int64_t slot_of(const struct count_run *run, struct pass pass)
{
    const int i = run->cyclic ? pass.i : 1; /* all like the first */
    return pass.forward ? sbp_cdp_forward_slot(run->n, i, pass.j, pass.t)
                        : sbp_cdp_backward_slot(run->n, i, pass.j, pass.t);
}

static int *owner_of(const struct count_run *run, struct pass pass)
{
    return &run->owner[((int64_t)pass.t * run->n + pass.j - 1) * run->n + pass.i - 1];
}

/* The stage's pass at a time step; false: none. i: wanted micro-batch where all run at once. */
static bool pass_at(const struct count_run *run, int j, int i, int64_t slot, struct pass *pass)
{
    const int64_t per_step = 2 * (int64_t)run->n;
    for (int forward = 0; forward <= 1; forward++) {
        const struct pass first = {forward, 1, j, 0};
        const int64_t after = slot - slot_of(run, first);
        const int64_t t = after / per_step, late = after % per_step;
        if (after < 0 || t >= STEPS ||
            (run->cyclic ? late % 2 != 0 || late / 2 >= run->n : late != 0))
            continue;
        *pass = (struct pass){forward, run->cyclic ? (int)(late / 2) + 1 : i, j, (int)t};
        return true;
    }
    return false;
}

static int64_t slots(const struct count_run *run)
{
    return 2 * (int64_t)run->n * (STEPS + 1);
}

/* The pyramid: a micro-batch takes the device of its stage that was freed last, or a new one. */
static enum sbp_status own_pyramid(struct count_run *run, struct sbp_arena *arena)
{
    int *const freed = SBP_NEW(arena, int, run->n);
    if (freed == NULL)
        return SBP_E_MEMORY;
    for (int j = 1; j <= run->n; j++) {
        int freed_count = 0;
        struct pass pass;
        for (int64_t slot = 0; slot < slots(run); slot++) {
            if (!pass_at(run, j, 1, slot, &pass))
                continue;
            if (!pass.forward)
                freed[freed_count++] = *owner_of(run, pass);
            else
                *owner_of(run, pass) = freed_count > 0 ? freed[--freed_count] : run->devices++;
        }
    }
    return SBP_OK;
}

static int fixed_owner(const struct count_run *run, struct pass pass)
{
    switch (run->placement) {
    case SBP_PLACE_SINGLE:
        return 0;
    case SBP_PLACE_PIPELINE:
        return pass.j - 1;
    case SBP_PLACE_PYRAMID: /* not cyclic: a device for each pair */
        return (pass.j - 1) * run->n + pass.i - 1;
    default:
        return pass.i - 1;
    }
}

static enum sbp_status own(struct count_run *run, struct sbp_arena *arena)
{
    run->owner = SBP_NEW(arena, int, (int64_t)STEPS * run->n * run->n);
    if (run->owner == NULL)
        return SBP_E_MEMORY;
    if (run->placement == SBP_PLACE_PYRAMID && run->cyclic)
        return own_pyramid(run, arena);
    for (int t = 0; t < STEPS; t++)
        for (int j = 1; j <= run->n; j++)
            for (int i = 1; i <= run->n; i++) {
                const struct pass pass = {true, i, j, t};
                const int owner = fixed_owner(run, pass);
                *owner_of(run, pass) = owner;
                if (owner >= run->devices)
                    run->devices = owner + 1;
            }
    return SBP_OK;
}

/* Passes of a slot run at once: what forward keeps counts before what backward frees. */
static void count_activations(struct count_run *run, int64_t slot, bool forward, int64_t *all,
                              int *most)
{
    struct pass pass;
    for (int j = 1; j <= run->n; j++)
        for (int i = 1; i <= (run->cyclic ? 1 : run->n); i++) {
            if (!pass_at(run, j, i, slot, &pass) || pass.forward != forward)
                continue;
            int *const held = &run->held[*owner_of(run, pass)];
            *held += forward ? 1 : -1;
            *all += forward ? 1 : -1;
            *most = *held > *most ? *held : *most;
        }
}

static bool counted(const struct count_run *run, int64_t slot)
{
    /* Steady from 2 (n - 1) on. */
    const int64_t from = 2 * (int64_t)run->n * COUNTED_STEP;
    return slot >= from && slot < from + 2 * run->n;
}

static void play_activations(struct count_run *run, struct sbp_cdp_count *count)
{
    int64_t all = 0, most_all = 0, least_all = INT64_MAX;
    int most = 0;
    for (int64_t slot = 0; slot < slots(run); slot++) {
        int most_now = 0;
        count_activations(run, slot, true, &all, &most_now);
        if (counted(run, slot)) {
            most_all = all > most_all ? all : most_all;
            least_all = all < least_all ? all : least_all;
            most = most_now > most ? most_now : most;
        }
        count_activations(run, slot, false, &all, &most_now);
    }
    count->activation_bytes = most * run->sizes.activation_bytes;
    count->all_activation_bytes = most_all * run->sizes.activation_bytes;
    count->least_all_activation_bytes = least_all * run->sizes.activation_bytes;
    /* A copy of a stage's parameters for every micro-batch under way. */
    if (run->placement == SBP_PLACE_SINGLE)
        count->parameter_bytes = most_all * run->sizes.parameter_bytes;
}

/* Stages that a device ever works on: it has their parameters. */
static void play_parameters(struct count_run *run, struct sbp_cdp_count *count)
{
    int most = 0;
    for (int j = 1; j <= run->n; j++)
        for (int k = 0; k < STEPS * run->n; k++) {
            const int d = *owner_of(run, (struct pass){true, k % run->n + 1, j, k / run->n});
            if (run->latest_stage[d] == j)
                continue;
            run->latest_stage[d] = j;
            run->devices_of[j - 1]++;
            run->stages_of[d]++;
            most = run->stages_of[d] > most ? run->stages_of[d] : most;
        }
    if (run->placement == SBP_PLACE_ZERO)
        most = 1; /* owned by one, or wherever it is at work: one stage a device in each slot */
    if (run->placement != SBP_PLACE_SINGLE)
        count->parameter_bytes = most * run->sizes.parameter_bytes;
}

static int version_of(const struct count_run *run, struct pass pass)
{
    return run->cyclic && !sbp_cdp_fresh(run->rule, run->n, pass.i, pass.j) ? pass.t - 1 : pass.t;
}

/* Versions of a stage that micro-batches under way or to come read, or that were made, on a device
 * that all of them share; replicas of their own get theirs just before they read it. */
static int versions_at(const struct count_run *run, int j, int64_t slot)
{
    int oldest = STEPS + 1, newest = -1;
    for (int k = 0; k < STEPS * run->n; k++) {
        const struct pass forward = {true, k % run->n + 1, j, k / run->n};
        const struct pass backward = {false, forward.i, j, forward.t};
        const int version = version_of(run, forward);
        if (slot_of(run, backward) > slot && version < oldest)
            oldest = version;
        if (slot_of(run, forward) <= slot && version > newest)
            newest = version;
        /* The last micro-batch's gradients make the next version. */
        if (forward.i == run->n && slot_of(run, backward) <= slot && forward.t + 1 > newest)
            newest = forward.t + 1;
    }
    return newest - oldest + 1;
}

static void play_versions(struct count_run *run, struct sbp_cdp_count *count)
{
    count->versions = 1;
    if (run->placement == SBP_PLACE_DATA || run->placement == SBP_PLACE_PYRAMID || !run->cyclic)
        return;
    for (int j = 1; j <= run->n; j++)
        for (int64_t slot = 0; slot < slots(run); slot++) {
            if (!counted(run, slot))
                continue;
            const int versions = versions_at(run, j, slot);
            count->versions = versions > count->versions ? versions : count->versions;
        }
}

/* Passes of the counted step that get their input from another device. */
static int64_t count_boundary(const struct count_run *run)
{
    int64_t messages = 0;
    for (int j = 2; j <= run->n; j++)
        for (int i = 1; i <= run->n; i++)
            /* Once forward to stage j, once backward from it. */
            if (*owner_of(run, (struct pass){true, i, j, COUNTED_STEP}) !=
                *owner_of(run, (struct pass){true, i, j - 1, COUNTED_STEP}))
                messages += 2;
    return messages;
}

/* States follow the work: moves of a stage between devices in the counted step. */
static int64_t count_moves(const struct count_run *run)
{
    int64_t moves = 0;
    for (int j = 1; j <= run->n; j++)
        for (int64_t slot = 0; slot < slots(run); slot++) {
            struct pass now, before;
            if (counted(run, slot) && pass_at(run, j, 1, slot, &now) &&
                pass_at(run, j, 1, slot - 1, &before))
                moves += *owner_of(run, now) != *owner_of(run, before);
        }
    return moves;
}

/* Rounds until all of g devices know something that one knows, each telling one other a round. */
static int rounds_to_all(int g)
{
    int rounds = 0;
    for (int64_t know = 1; know < g; know *= 2)
        rounds++;
    return rounds;
}

static void play_communication(struct count_run *run, struct sbp_cdp_count *count)
{
    const bool zero = run->placement == SBP_PLACE_ZERO;
    int64_t messages = 0;
    int largest = 0;
    for (int j = 1; j <= run->n; j++) {
        const int g = run->devices_of[j - 1];
        /* Partial sums go from device to device, parameters back; zero: states out twice, sums
         * back. */
        messages += (zero ? 3 : 2) * (int64_t)(g - 1);
        largest = g > largest ? g : largest;
    }
    if (zero && run->cyclic)
        messages = count_moves(run);
    count->parameter_sent_bytes = messages * run->sizes.parameter_bytes;
    const int64_t boundary = count_boundary(run);
    count->boundary_sent_bytes = boundary * run->sizes.boundary_bytes;
    /* Cyclic messages have a time step of their own: nobody passes on what it got in the same. */
    count->rounds = run->cyclic ? messages + boundary > 0 : rounds_to_all(largest);
}

static enum sbp_status count_all(struct count_run *run, struct sbp_arena *arena,
                                 struct sbp_cdp_count *count)
{
    SBP_TRY(own(run, arena));
    run->held = SBP_NEW(arena, int, run->devices);
    run->stages_of = SBP_NEW(arena, int, run->devices);
    run->latest_stage = SBP_NEW(arena, int, run->devices);
    run->devices_of = SBP_NEW(arena, int, run->n);
    if (run->held == NULL || run->latest_stage == NULL || run->stages_of == NULL ||
        run->devices_of == NULL)
        return SBP_E_MEMORY;
    count->devices = run->devices;
    play_activations(run, count);
    play_parameters(run, count);
    play_versions(run, count);
    play_communication(run, count);
    return SBP_OK;
}

enum sbp_status sbp_cdp_count(int n, enum sbp_placement placement, bool cyclic,
                              enum sbp_cdp_rule rule, const struct sbp_cdp_sizes *sizes,
                              struct sbp_arena *arena, struct sbp_cdp_count *count,
                              struct sbp_diag *diag)
{
    const int64_t most = MAX_BYTES;
    if (n < 1 || n > MAX_N)
        return sbp_fail(diag, SBP_E_INPUT, "cdp: %d stages are not in 1 .. %d", n, MAX_N);
    if (sizes->activation_bytes < 0 || sizes->activation_bytes > most ||
        sizes->parameter_bytes < 0 || sizes->parameter_bytes > most || sizes->boundary_bytes < 0 ||
        sizes->boundary_bytes > most)
        return sbp_fail(diag, SBP_E_INPUT, "cdp: sizes must be in 0 .. 2^40 bytes");
    if ((int)placement < 0 || placement >= SBP_PLACEMENTS || placement >= SBP_PLACE_REPLICAS ||
        (placement == SBP_PLACE_PIPELINE && !cyclic))
        return sbp_fail(diag, SBP_E_INPUT, "cdp: a pipeline is cyclic, other placements may be");
    const struct sbp_arena_mark mark = sbp_arena_mark(arena);
    struct count_run run = {
        .n = n, .placement = placement, .cyclic = cyclic, .rule = rule, .sizes = *sizes};
    struct sbp_cdp_count result = {0};
    const enum sbp_status status = count_all(&run, arena, &result);
    sbp_arena_release(arena, mark);
    if (status == SBP_OK)
        *count = result;
    return status;
}
