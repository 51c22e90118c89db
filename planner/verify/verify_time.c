/* Checks the time of each stage, and how long the step takes. */
#include <math.h>

#include "planner/verify/verify_priv.h"

/* Passes of a play that are played here (two arrays of 32 MiB); longer steps are simulated. */
#define MOST_CELLS (INT64_C(1) << 22)

/* ---- costs of stages ------------------------------------------------------------------------ */

/* Seconds of a transfer that the trainer cannot hide behind the arithmetic of its pass. */
static double shown_s(const struct sbp_verification *c, const struct sbp_instr *instr)
{
    const struct sbp_runtime *trainer = &c->plan->workload.cluster.runtime;
    const enum sbp_op_kind kind = instr->op >= 0 ? c->graph->op[instr->op].kind : SBP_OP_KINDS;
    const bool attends = kind == SBP_OP_ATTENTION || kind == SBP_OP_GROUPED_ATTENTION ||
                         kind == SBP_OP_LATENT_ATTENTION;
    double hidden = 0;
    if (instr->cause == SBP_CAUSE_ACTIVATION || instr->cause == SBP_CAUSE_ACTIVATION_GRADIENT)
        hidden = trainer->hidden[SBP_HIDES_ACTIVATIONS];
    else if (instr->cause == SBP_CAUSE_WEIGHT)
        hidden = trainer->hidden[SBP_HIDES_WEIGHTS];
    else if (instr->cause == SBP_CAUSE_WEIGHT_GRADIENT && instr->section != SBP_SECTION_STEP)
        hidden = trainer->hidden[SBP_HIDES_GRADIENTS];
    else if (instr->cause == SBP_CAUSE_OPERATOR && (attends || kind == SBP_OP_MOE))
        hidden = trainer->hidden[attends ? SBP_HIDES_CONTEXT : SBP_HIDES_EXPERTS];
    return (1 - hidden) * instr->communication_s;
}

/* Seconds of one section of a pass: the slowest of the device, the links and the host. */
static double section_s(const struct sbp_verification *c, const struct sbp_program *program,
                        enum sbp_section section)
{
    double device_s = 0, links_s = 0, host_s = 0;
    for (int i = 0; i < program->instr_count; i++) {
        const struct sbp_instr *instr = &program->instr[i];
        if (instr->section != section || instr->kind == SBP_INSTR_SEND ||
            instr->kind == SBP_INSTR_PASS)
            continue;
        device_s += instr->compute_s + shown_s(c, instr);
        links_s += instr->communication_s;
        if ((instr->kind == SBP_INSTR_FORWARD || instr->kind == SBP_INSTR_BACKWARD) &&
            instr->compute_s > 0)
            host_s += c->plan->workload.cluster.runtime.host_s;
    }
    return fmax(fmax(device_s, links_s), host_s);
}

/* Seconds of one micro-batch on one chunk of a stage. */
static struct sbp_stage_cost cost_of(const struct sbp_verification *c,
                                     const struct sbp_program *program)
{
    struct sbp_stage_cost cost = {.forward_s = section_s(c, program, SBP_SECTION_FORWARD),
                                  .recompute_s = section_s(c, program, SBP_SECTION_RECOMPUTE),
                                  .backward_input_s = section_s(c, program, SBP_SECTION_BACKWARD),
                                  .backward_weight_s =
                                      section_s(c, program, SBP_SECTION_BACKWARD_WEIGHT)};
    for (int i = 0; i < program->instr_count; i++) {
        const struct sbp_instr *instr = &program->instr[i];
        const bool forward = instr->section == SBP_SECTION_FORWARD;
        if (instr->kind == SBP_INSTR_PASS && instr->section == SBP_SECTION_BACKWARD)
            cost.send_gradients_s += instr->communication_s;
        if (instr->kind != SBP_INSTR_SEND)
            continue;
        if (c->plan->workload.cluster.runtime.sends_block) /* the pass ends with its message */
            *(forward ? &cost.forward_s : &cost.backward_input_s) += instr->communication_s;
        else
            *(forward ? &cost.send_forward_s : &cost.send_backward_s) += instr->communication_s;
    }
    return cost;
}

static double work_s(const struct sbp_stage_cost *cost)
{
    return cost->forward_s + cost->recompute_s + cost->backward_input_s + cost->backward_weight_s;
}

static enum sbp_status check_cost(const struct sbp_verification *c, int stage, int chunk)
{
    const int chunks = (int)c->plan->cut.parallel.chunks;
    const struct sbp_stage_cost *given =
        &c->step->cost[sbp_verify_hands_on(c) ? sbp_verify_piece(c, stage, chunk)
                                              : stage * chunks + chunk];
    const struct sbp_stage_cost mine = cost_of(c, sbp_verify_program(c, stage, chunk));
    if (!sbp_verify_near(mine.forward_s, given->forward_s) ||
        !sbp_verify_near(mine.recompute_s, given->recompute_s) ||
        !sbp_verify_near(mine.backward_input_s, given->backward_input_s) ||
        !sbp_verify_near(mine.backward_weight_s, given->backward_weight_s) ||
        !sbp_verify_near(mine.send_forward_s, given->send_forward_s) ||
        !sbp_verify_near(mine.send_backward_s, given->send_backward_s) ||
        !sbp_verify_near(mine.send_gradients_s, given->send_gradients_s))
        return sbp_verify_refuse(c,
                                 "stage %d: a micro-batch is %.12g s of work, its timeline has "
                                 "%.12g s",
                                 stage, work_s(&mine), work_s(given));
    return SBP_OK;
}

/* Checks what follows the last backward pass of some chunks: sums of gradients and the rest. With
 * chunks of buckets, sums over replicas belong to the buckets. */
static enum sbp_status check_end(const struct sbp_verification *c, int stage, int first, int end)
{
    const struct sbp_stage_end *given =
        &c->step->end[sbp_verify_hands_on(c) ? sbp_verify_piece(c, stage, first) : stage];
    double sync_s = 0, optimizer_s = 0;
    for (int chunk = first; chunk < end; chunk++) {
        const struct sbp_program *program = sbp_verify_program(c, stage, chunk);
        for (int i = 0; i < program->instr_count; i++) {
            const struct sbp_instr *instr = &program->instr[i];
            if (instr->section != SBP_SECTION_STEP || !sbp_verify_counts(instr, chunk) ||
                instr->kind == SBP_INSTR_PASS ||
                sbp_program_is_host_copy(instr)) /* of buckets: check_buckets */
                continue;
            const bool sum = instr->cause == SBP_CAUSE_WEIGHT_GRADIENT &&
                             (instr->stages == 1 || c->plan->cut.parallel.chunk_factor == 0);
            *(sum ? &sync_s : &optimizer_s) +=
                instr->compute_s + (sum ? instr->communication_s : shown_s(c, instr));
        }
    }
    if (!sbp_verify_near(sync_s, given->sync_s) ||
        !sbp_verify_near(optimizer_s, given->optimizer_s))
        return sbp_verify_refuse(
            c,
            "stage %d: gradients are summed in %.12g s and the optimizer takes "
            "%.12g s, its timeline has %.12g s and %.12g s",
            stage, sync_s, optimizer_s, given->sync_s, given->optimizer_s);
    return SBP_OK;
}

/* Seconds that a device is busy after the last backward pass, without sums of gradients, which may
 * hide. Offloaded states come in buckets, with a launch for each bucket instead of each weight. */
static double steady_end_s(const struct sbp_stage_end *end)
{
    const struct sbp_offload *offload = &end->offload;
    return offload->buckets > 0
               ? offload->buckets * (offload->in_s + offload->step_s + offload->out_s)
               : end->optimizer_s;
}

static enum sbp_status check_buckets(const struct sbp_verification *c, int stage)
{
    const struct sbp_stage_end *given = &c->step->end[stage];
    const struct sbp_cluster *cluster = &c->plan->workload.cluster;
    int launches = given->offload.buckets;
    if (launches == 0)
        return SBP_OK;
    for (int chunk = 0; chunk < (int)c->plan->cut.parallel.chunks; chunk++) {
        const struct sbp_program *program = sbp_verify_program(c, stage, chunk);
        for (int i = 0; i < program->instr_count; i++)
            launches -= program->instr[i].kind == SBP_INSTR_UPDATE;
    }
    const double seconds =
        given->optimizer_s + launches * cluster->kernel_launch_s +
        2 * (double)c->step->memory[stage].host_bytes / cluster->host_link_bytes_per_s;
    if (!sbp_verify_near(seconds, steady_end_s(given)))
        return sbp_verify_refuse(c,
                                 "stage %d: its states pass in %.12g s, its timeline has %.12g s",
                                 stage, seconds, steady_end_s(given));
    return SBP_OK;
}

/* ---- 1F1B and GPipe played here -------------------------------------------------------------- */

/* A stage works through its list of passes. A pass begins when the stage is free and its message
 * has arrived; a link carries one message after the other. */
struct stage {
    int next_forward, next_backward; /* passes done so far */
    double free_s, link_s[2];        /* links to the next and to the previous stage */
    double backward_from_s;          /* begin of the last backward pass */
};

struct play {
    const struct sbp_verification *c;
    int stages, count;
    struct stage *stage;
    double *forward_s,
        *backward_s; /* (stages, count) when a pass's message is there; < 0: not yet */
};

/* Whether the next pass of a stage is a forward one: GPipe does all forward passes first, 1F1B runs
 * ahead by as many as there are stages from here on. */
static bool forward_is_next(const struct play *p, int s)
{
    const struct stage *stage = &p->stage[s];
    const int ahead = p->c->plan->cut.parallel.schedule == SBP_GPIPE ? p->count : p->stages - s;
    return stage->next_forward < p->count && stage->next_forward < stage->next_backward + ahead;
}

/* GPipe takes the last micro-batch back first. */
static int backward_at(const struct play *p, int s)
{
    const int next = p->stage[s].next_backward;
    return p->c->plan->cut.parallel.schedule == SBP_GPIPE ? p->count - 1 - next : next;
}

static void send(double *link_s, double at_s, double seconds, double *arrival_s)
{
    *link_s = fmax(*link_s, at_s) + seconds;
    *arrival_s = *link_s;
}

/* Does the next pass of a stage; false while its message has not arrived. */
static bool advance(struct play *p, int s)
{
    struct stage *stage = &p->stage[s];
    const struct sbp_stage_cost *cost = &p->c->step->cost[s];
    const bool forward = forward_is_next(p, s);
    const int batch = forward ? stage->next_forward : backward_at(p, s);
    if (!forward && stage->next_backward == p->count)
        return false;
    const int64_t cell = (int64_t)s * p->count + batch;
    const double there_s = forward ? p->forward_s[cell] : p->backward_s[cell];
    if (there_s < 0)
        return false;
    const double begin_s = fmax(stage->free_s, there_s);
    if (forward) {
        stage->next_forward++;
        stage->free_s = begin_s + cost->forward_s;
        if (s + 1 < p->stages)
            send(&stage->link_s[0], stage->free_s, cost->send_forward_s,
                 &p->forward_s[cell + p->count]);
        else
            p->backward_s[cell] = stage->free_s;
        return true;
    }
    stage->next_backward++;
    stage->backward_from_s = begin_s;
    stage->free_s = begin_s + work_s(cost) - cost->forward_s;
    if (s > 0)
        send(&stage->link_s[1], stage->free_s, cost->send_backward_s,
             &p->backward_s[cell - p->count]);
    return true;
}

/* Seconds until a stage is done: the sum of gradients hides behind the last backward pass as far as
 * it may and can. */
static double end_s(const struct play *p, int s)
{
    const struct sbp_stage_end *end = &p->c->step->end[s];
    const struct stage *stage = &p->stage[s];
    const double window_s = stage->free_s - stage->backward_from_s;
    const double shows_s = fmax((1 - end->sync_overlap) * end->sync_s, end->sync_s - window_s);
    return stage->free_s + shows_s + end->optimizer_s;
}

static double play_s(struct play *p)
{
    bool moved = true;
    double step_s = 0;
    while (moved) {
        moved = false;
        for (int s = 0; s < p->stages; s++)
            while (advance(p, s))
                moved = true;
    }
    for (int s = 0; s < p->stages; s++) {
        if (p->stage[s].next_backward < p->count)
            return INFINITY;
        step_s = fmax(step_s, end_s(p, s));
    }
    return step_s;
}

static enum sbp_status play_by_hand(struct sbp_verification *c, double *step_s)
{
    struct play play = {.c = c, .stages = c->step->stages, .count = (int)c->micro_batches};
    const int64_t cells = (int64_t)play.stages * play.count;
    play.stage = SBP_NEW(&c->scratch, struct stage, play.stages);
    play.forward_s = SBP_NEW(&c->scratch, double, cells);
    play.backward_s = SBP_NEW(&c->scratch, double, cells);
    if (play.stage == NULL || play.forward_s == NULL || play.backward_s == NULL)
        return SBP_E_MEMORY;
    for (int64_t i = 0; i < cells; i++) {
        play.forward_s[i] = i < play.count ? 0 : -1;
        play.backward_s[i] = -1;
    }
    *step_s = play_s(&play);
    return SBP_OK;
}

/* ---- other schedules ------------------------------------------------------------------------ */

static enum sbp_status simulate(struct sbp_verification *c, double *step_s)
{
    const struct sbp_parallel *parallel = &c->plan->cut.parallel;
    const bool replicates = sbp_verify_replicates(c);
    const struct sbp_timeline_request request = {.schedule = parallel->schedule,
                                                 .stages = (int)parallel->pipeline,
                                                 .micro_batches = (int)c->micro_batches,
                                                 .chunks = replicates ? 1 : (int)parallel->chunks,
                                                 .placement = sbp_verify_pyramid(c)
                                                                  ? SBP_PLACE_GROUPS
                                                              : replicates ? SBP_PLACE_REPLICAS
                                                                           : SBP_PLACE_PIPELINE,
                                                 .pipeline_limit = (int)parallel->pipeline_limit,
                                                 .stage = c->step->cost,
                                                 .end = c->step->end};
    struct sbp_timeline timeline;
    SBP_TRY(sbp_timeline_simulate(&request, &c->scratch, &timeline, c->diag));
    *step_s = timeline.makespan_s;
    return SBP_OK;
}

/* ---- the whole ------------------------------------------------------------------------------ */

/* Checks that the step is no shorter than what a stage does one after the other, without what may
 * hide. A group of a pyramid does its share of its stage's micro-batches, and waits with each while
 * the stages behind work on it. */
static enum sbp_status check_stage(const struct sbp_verification *c, int stage)
{
    const int chunks = (int)c->plan->cut.parallel.chunks;
    const bool replicates = sbp_verify_replicates(c);
    const int piece = sbp_verify_piece(c, stage, 0), copies = sbp_verify_copies(c, piece);
    const double works = replicates ? 1 : (double)c->micro_batches / copies;
    double least_s = 0;
    for (int chunk = 0; chunk < chunks; chunk++) {
        SBP_TRY(check_cost(c, stage, chunk));
        if (!sbp_verify_pyramid(c))
            least_s += works * work_s(&c->step->cost[(replicates ? 0 : stage) * chunks + chunk]);
    }
    for (int behind = piece; behind < c->step->pieces && sbp_verify_pyramid(c); behind++)
        least_s += works * work_s(&c->step->cost[behind]);
    for (int chunk = 0; chunk < chunks && sbp_verify_hands_on(c); chunk++) {
        SBP_TRY(check_end(c, stage, chunk, chunk + 1));
        least_s += steady_end_s(&c->step->end[sbp_verify_piece(c, stage, chunk)]);
    }
    if (!sbp_verify_hands_on(c)) {
        SBP_TRY(check_end(c, stage, 0, chunks));
        SBP_TRY(check_buckets(c, stage));
        least_s += steady_end_s(&c->step->end[stage]);
    }
    if (c->step->totals.step_s < least_s * (1 - SBP_VERIFY_TOLERANCE))
        return sbp_verify_refuse(c, "stage %d works for %.12g s, the step takes %.12g s", stage,
                                 least_s, c->step->totals.step_s);
    return SBP_OK;
}

/* Checks that the step is the sum of its parts, with one stage and a trainer of which nothing is
 * known, so that nothing hides, and a host that is not waited for. */
static enum sbp_status check_sum(const struct sbp_verification *c)
{
    const struct sbp_step_totals *totals = &c->step->totals;
    const struct sbp_runtime *trainer = &c->plan->workload.cluster.runtime;
    const double sum_s =
        totals->compute_s + totals->recompute_s + totals->optimizer_s + totals->communication_s;
    if (c->step->stages == 1 && trainer->name[0] == '\0' && !(trainer->host_s > 0) &&
        !(c->step->end[0].sync_overlap > 0) && !c->plan->cut.parallel.offload &&
        !sbp_verify_near(sum_s, totals->step_s))
        return sbp_verify_refuse(c, "its parts add up to %.17g s, the step takes %.17g s", sum_s,
                                 totals->step_s);
    return SBP_OK;
}

enum sbp_status sbp_verify_time(struct sbp_verification *c)
{
    const struct sbp_parallel *parallel = &c->plan->cut.parallel;
    const bool by_hand =
        (parallel->schedule == SBP_GPIPE || parallel->schedule == SBP_ONE_F_ONE_B) &&
        !parallel->offload && c->step->pieces * c->micro_batches <= MOST_CELLS;
    double step_s = 0;
    for (int stage = 0; stage < c->step->stages; stage++)
        SBP_TRY(check_stage(c, stage));
    SBP_TRY(check_sum(c));
    SBP_TRY(by_hand ? play_by_hand(c, &step_s) : simulate(c, &step_s));
    if (!sbp_verify_near(step_s, c->step->totals.step_s))
        return sbp_verify_refuse(c,
                                 "played once more the step takes %.17g s, the plan says %.17g s",
                                 step_s, c->step->totals.step_s);
    return SBP_OK;
}
