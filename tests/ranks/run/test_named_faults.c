/* Planted faults that verification, the second look at an odd step, or the watch over the ranks
 * must call by their name. */
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "run_checks.h"

/* ---- runs that end by a word ----------------------------------------------------------------- */

static int said_into; /* a pipe, in the child */

static void say_fault(int number, const char *fault)
{
    (void)number;
    _exit(fault != NULL && write(said_into, fault, strlen(fault)) > 0 ? 1 : 99);
}

static void run_watched(const struct plan *plan, const struct sbp_run_options *options, int into)
{
    struct sbp_alarm alarm = {.end = say_fault};
    struct sbp_run_options watched = *options;
    struct sbp_run_result result;
    struct sbp_diag diag = {0};
    said_into = into;
    watched.alarm = &alarm;
    if (sbp_run(&plan->step, &plan->cluster, &watched, &result, &diag) == SBP_OK)
        _exit(98);
    say_fault(0, diag.text);
}

/* Runs in a child, since the run need not return; `said` becomes what ended it. */
static void run_to_fault(const struct plan *plan, const struct sbp_run_options *options, char *said,
                         size_t size)
{
    int ends[2], status = 0;
    assert_int_equal(pipe(ends), 0);
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0)
        run_watched(plan, options, ends[1]);
    (void)close(ends[1]);
    const ssize_t length = read(ends[0], said, size - 1);
    (void)close(ends[0]);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 1);
    assert_true(length > 0);
    said[length] = '\0';
}

/* ---- faults that have a name --------------------------------------------------------------- */

/* A fault, where it is planted, and what names it. */
struct named_fault {
    enum sbp_fault fault;
    bool (*is_place)(const struct plan *plan, int stage, int instr);
    cut_function *cut;  /* NULL: one stage with a flush */
    enum sbp_real half; /* of 16 bits; 0: in double */
    int step;           /* whose verification finds it */
    const char *what;   /* of the finding; NULL: any */
    bool of_tensor;     /* the finding is of the instruction's tensor */
    bool sampled;       /* verified by a sample */
};

static const struct sbp_instr *instr_of(const struct plan *plan, int stage, int instr)
{
    return &plan->step.program[stage].instr[instr];
}

/* What a forward pass leaves in its frame for the backward pass, while others are in flight. */
static bool keeps(const struct plan *plan, int stage, int instr)
{
    const struct sbp_program *program = &plan->step.program[stage];
    const struct sbp_instr *at = instr_of(plan, stage, instr);
    const int out = at->buffer[SBP_AT_OUT];
    if (at->kind != SBP_INSTR_FORWARD || at->section != SBP_SECTION_FORWARD || out < 0 ||
        plan->step.pieces > plan->step.stages || plan->parallel.schedule == SBP_ZERO_BUBBLE ||
        plan->step.memory[stage].in_flight < 2)
        return false;
    const int64_t offset = program->buffer[out].offset_bytes - program->persistent_bytes;
    const int last = program->buffer[out].last;
    return offset >= 0 && offset < program->kept_bytes && last < program->instr_count &&
           program->instr[last].section == SBP_SECTION_BACKWARD;
}

/* Token ids, the model's input, or a mask, of one of several micro-batches. */
static bool reads_rows(const struct plan *plan, int stage, int instr)
{
    const struct sbp_instr *at = instr_of(plan, stage, instr);
    if (plan->step.micro_batches < 2 || at->section != SBP_SECTION_FORWARD)
        return false;
    if (at->kind != SBP_INSTR_FORWARD)
        return at->kind == SBP_INSTR_INPUT;
    const enum sbp_op_kind kind = plan->graph.op[at->op].kind;
    return kind == SBP_OP_EMBEDDING || kind == SBP_OP_DROPOUT;
}

/* For the forward pass, which reads all that it gathers (but of positions and tables only some):
 * the backward pass needs no bias, and a product that is formed again may be needed for others'
 * sake alone. */
static bool gathers_weight(const struct plan *plan, int stage, int instr)
{
    const struct sbp_instr *at = instr_of(plan, stage, instr);
    return at->kind == SBP_INSTR_GATHER && at->section == SBP_SECTION_FORWARD &&
           !may_be_zeros(plan, at);
}

static bool gathers_update(const struct plan *plan, int stage, int instr)
{
    const struct sbp_instr *at = instr_of(plan, stage, instr);
    return at->kind == SBP_INSTR_GATHER && at->section == SBP_SECTION_STEP;
}

static bool updates(const struct plan *plan, int stage, int instr)
{
    return instr_of(plan, stage, instr)->kind == SBP_INSTR_UPDATE;
}

static bool sums_tied(const struct plan *plan, int stage, int instr)
{
    const struct sbp_instr *at = instr_of(plan, stage, instr);
    return at->kind == SBP_INSTR_INNER && at->tensor >= 0 && !may_be_zeros(plan, at);
}

static bool scatters_padded(const struct plan *plan, int stage, int instr)
{
    const struct sbp_program *program = &plan->step.program[stage];
    const struct sbp_instr *at = instr_of(plan, stage, instr);
    if (at->kind != SBP_INSTR_SCATTER)
        return false;
    const struct sbp_weight_shard *shard = &program->shard[at->tensor];
    const struct sbp_buffer *weight = &program->buffer[program->weight_buffer[at->tensor]];
    return shard->elements * sbp_mesh_group_size(&program->mesh, shard->axes) >
           sbp_dist_local_elements(&program->mesh, &plan->graph.tensor[at->tensor].shape,
                                   &weight->dist);
}

static bool sends(const struct plan *plan, int stage, int instr)
{
    return instr_of(plan, stage, instr)->kind == SBP_INSTR_SEND;
}

static bool has_versions(const struct plan *plan, int stage, int tensor)
{
    return plan->step.program[stage].other_version[tensor] >= 0;
}

/* A product that reads a weight of two versions for what others read on. */
static bool reads_version(const struct plan *plan, int stage, int instr)
{
    const struct sbp_instr *at = instr_of(plan, stage, instr);
    return (at->kind == SBP_INSTR_FORWARD || at->kind == SBP_INSTR_BACKWARD) &&
           at->section != SBP_SECTION_RECOMPUTE && at->buffer[SBP_AT_W] >= 0 &&
           at->buffer[SBP_AT_OUT] >= 0 && plan->graph.op[at->op].kind == SBP_OP_LINEAR &&
           plan->step.program[stage].buffer[at->buffer[SBP_AT_W]].use == SBP_USE_WEIGHT &&
           has_versions(plan, stage, plan->graph.op[at->op].weight[0]);
}

static bool updates_version(const struct plan *plan, int stage, int instr)
{
    const struct sbp_instr *at = instr_of(plan, stage, instr);
    return at->kind == SBP_INSTR_UPDATE && has_versions(plan, stage, at->tensor);
}

/* A random place of a random stage, or of a chunk where one stage has all; -1: it has none. */
static int find_place(const struct plan *plan, struct sbp_random *random,
                      const struct named_fault *fault, int *stage)
{
    const int pieces = plan->step.stages == 1 ? plan->step.pieces : plan->step.stages;
    int found = -1, seen = 0;
    *stage = (int)sbp_random_below(random, (uint64_t)pieces);
    for (int i = 0; i < plan->step.program[*stage].instr_count; i++)
        if (fault->is_place(plan, *stage, i) && sbp_random_below(random, (uint64_t)++seen) == 0)
            found = i;
    return found;
}

static void check_named(const struct plan *plan, struct sbp_random *random, const char *model,
                        const struct named_fault *fault, int stage, int instr)
{
    struct sbp_run_options options = options_for(SBP_F64, random);
    struct sbp_run_result result;
    char text[512];
    const int tensor = instr_of(plan, stage, instr)->tensor;
    options.steps = fault->step + 1;
    options.sampled = fault->sampled;
    plant_fault(&options, fault->fault, stage, instr);
    run_plan(plan, &options, model, &result);
    const struct sbp_finding *finding = &result.finding;
    if (!finding->found || finding->step != fault->step ||
        (fault->what != NULL && strcmp(finding->what, fault->what) != 0) ||
        (fault->of_tensor && strcmp(finding->tensor, plan->graph.tensor[tensor].name) != 0)) {
        describe_plan(plan, model);
        fail_msg("fault %d in instruction %d of stage %d (%s of %s, %s): %s", (int)fault->fault,
                 instr, stage, sbp_program_instr_name(instr_of(plan, stage, instr)->kind),
                 tensor >= 0 ? plan->graph.tensor[tensor].name : "none",
                 sbp_program_section_name(instr_of(plan, stage, instr)->section),
                 finding->found ? sbp_verify_finding_text(finding, text, (int)sizeof text)
                                : "went unnoticed");
    }
    sbp_run_free(&result);
}

static enum sbp_real real_of(const struct named_fault *fault)
{
    return fault->half == 0 ? SBP_F64 : fault->half;
}

/* Steps enough for some that do not overflow in half precision. */
static struct sbp_run_options options_of_shards(const struct named_fault *fault,
                                                struct sbp_random *random, int stage, int instr)
{
    struct sbp_run_options options = options_for(real_of(fault), random);
    options.steps = fault->half == SBP_REAL_FP16 ? 12 : 3;
    plant_fault(&options, fault->fault, stage, instr);
    return options;
}

static int harmless; /* runs that finished */

/* Whatever stands behind the end of a shard trains the same model, and makes the same norm. A step
 * that is left out must change nothing at all, so that one behind good ones ends the run. */
static void check_harmless(const struct plan *plan, struct sbp_random *random, const char *model,
                           const struct named_fault *fault, int stage, int instr)
{
    const struct sbp_run_options options = options_of_shards(fault, random, stage, instr);
    struct sbp_run_result result;
    char text[512];
    run_plan(plan, &options, model, &result);
    const struct sbp_finding *finding = &result.finding;
    const bool overflows =
        finding->found && strcmp(finding->what, "states that an overflow changed") == 0;
    if (finding->found && !(overflows && fault->half == SBP_REAL_FP16)) {
        describe_plan(plan, model);
        fail_msg("%s", sbp_verify_finding_text(finding, text, (int)sizeof text));
    }
    harmless += !finding->found;
    sbp_run_free(&result);
}

/* The same numbers where they count do not. */
static void check_harm(const struct plan *plan, struct sbp_random *random, const char *model,
                       const struct named_fault *fault, int stage, int instr)
{
    const struct sbp_run_options options = options_of_shards(fault, random, stage, instr);
    struct sbp_run_result result;
    run_plan(plan, &options, model, &result);
    if (!result.finding.found) {
        describe_plan(plan, model);
        fail_msg("large numbers in a shard of %s went unnoticed in %s",
                 plan->graph.tensor[instr_of(plan, stage, instr)->tensor].name,
                 sbp_real_name(options.real));
    }
    sbp_run_free(&result);
}

/* The run ends: its rank says which message it left out, unless it waits, in an exchange, for the
 * ranks that wait for the message. Then the watch says who waits. */
static void check_lost(const struct plan *plan, struct sbp_random *random, const char *model,
                       const struct named_fault *fault, int stage, int instr)
{
    static const char *const words[] = {"does not come next", "is left out", "waits for rank"};
    struct sbp_run_options options = options_for(SBP_F64, random);
    char said[1024];
    bool known = false;
    options.deadline_s = 1;
    plant_fault(&options, fault->fault, stage, instr);
    run_to_fault(plan, &options, said, sizeof said);
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        known = known || strstr(said, words[i]) != NULL;
    if (!known) {
        describe_plan(plan, model);
        fail_msg("a lost message of stage %d: %s", stage, said);
    }
}

typedef void (*check_planted)(const struct plan *plan, struct sbp_random *random, const char *model,
                              const struct named_fault *fault, int stage, int instr);

/* Plants a fault in `count` random plans that have a place for it. */
static void check_places(const struct named_fault *fault, int count, check_planted check)
{
    static const int one_axis[][2] = {{2, 0}, {4, 0}, {8, 0}};
    char model[MODEL_BYTES];
    struct sbp_random random;
    int planted = 0;
    sbp_random_seed(&random, seed + 1100 + (uint64_t)fault->fault + 100 * (uint64_t)fault->step +
                                 1000 * (uint64_t)fault->half);
    for (int tries = 0; planted < count && tries < 40 * MOST_TRIES; tries++) {
        struct plan plan;
        const bool padded = fault->is_place == scatters_padded;
        random_model(&random, padded ? ODD : tries % 3, model, MODEL_BYTES);
        plan_open(&plan, model, padded ? one_axis[tries % 3] : random_levels(&random));
        if (fault->cut == NULL)
            plan_cut_step(&plan, &random);
        if (fault->cut == NULL || fault->cut(&plan, &random)) {
            plan_randomise(&plan, &random, false, SBP_BOXING_FULL, real_of(fault));
            int stage;
            const int instr = find_place(&plan, &random, fault, &stage);
            if (instr >= 0 && has_alike_ties(&plan)) {
                check(&plan, &random, model, fault, stage, instr);
                planted++;
            }
        }
        plan_close(&plan);
    }
    assert_int_equal(planted, count);
}

static void a_lost_message_ends_the_run(void **state)
{
    (void)state;
    check_places(
        &(struct named_fault){.fault = SBP_FAULT_SKIP, .is_place = sends, .cut = plan_cut_stages},
        10, check_lost);
}

/* Faults of no gradient, which a sample of those finds as well. */
enum { EARLY_FRAME, OTHER_ROWS, STALE_GATHER, STALE_REPLICA, STALE_UPDATED, STALE_VERSION, FAULTS };
static const struct named_fault of_no_gradient[FAULTS] = {
    [EARLY_FRAME] = {.fault = SBP_FAULT_FRAME,
                     .is_place = keeps,
                     .cut = plan_cut_stages,
                     .step = 1},
    [OTHER_ROWS] = {.fault = SBP_FAULT_ROWS, .is_place = reads_rows, .step = 1},
    [STALE_GATHER] = {.fault = SBP_FAULT_STALE, .is_place = gathers_weight, .step = 2},
    [STALE_REPLICA] = {.fault = SBP_FAULT_STALE,
                       .is_place = gathers_update,
                       .step = 3,
                       .what = "replica of the weight",
                       .of_tensor = true},
    [STALE_UPDATED] = {.fault = SBP_FAULT_STALE,
                       .is_place = updates,
                       .step = 3,
                       .what = "weight since its update",
                       .of_tensor = true},
    [STALE_VERSION] = {.fault = SBP_FAULT_VERSION,
                       .is_place = reads_version,
                       .cut = plan_cut_cyclic,
                       .step = 2},
};

static void a_frame_used_too_early_is_found(void **state)
{
    (void)state;
    check_places(&of_no_gradient[EARLY_FRAME], 12, check_named);
}

static void rows_of_another_micro_batch_are_found(void **state)
{
    (void)state;
    check_places(&of_no_gradient[OTHER_ROWS], 12, check_named);
}

static void a_stale_weight_is_found(void **state)
{
    (void)state;
    for (int fault = STALE_GATHER; fault <= STALE_UPDATED; fault++)
        check_places(&of_no_gradient[fault], 12, check_named);
}

static void check_versions(cut_function *cut)
{
    struct named_fault stale = of_no_gradient[STALE_VERSION];
    stale.cut = cut;
    check_places(&stale, 24, check_named);
    check_places(&(struct named_fault){.fault = SBP_FAULT_VERSION,
                                       .is_place = updates_version,
                                       .cut = cut,
                                       .step = 2,
                                       .what = "weight that is updated",
                                       .of_tensor = true},
                 12, check_named);
}

/* A sample is of gradients: all else is compared whole. */
static void a_sample_finds_what_is_no_gradient(void **state)
{
    (void)state;
    for (int i = 0; i < FAULTS; i++) {
        struct named_fault fault = of_no_gradient[i];
        fault.sampled = true;
        check_places(&fault, 12, check_named);
    }
}

static void a_stale_version_is_found(void **state)
{
    (void)state;
    check_versions(plan_cut_cyclic);
}

static void a_stale_version_of_a_chunk_is_found(void **state)
{
    (void)state;
    check_versions(plan_cut_on_device);
}

static void a_tied_gradient_left_out_is_found(void **state)
{
    (void)state;
    check_places(&(struct named_fault){.fault = SBP_FAULT_LEAVE_OUT,
                                       .is_place = sums_tied,
                                       .cut = plan_cut_stages,
                                       .step = 1,
                                       .what = "gradient",
                                       .of_tensor = true},
                 12, check_named);
}

static const enum sbp_real halves[] = {SBP_REAL_BF16, SBP_REAL_FP16};

static void padding_of_shards_leaks_nowhere(void **state)
{
    struct named_fault fault = {.fault = SBP_FAULT_PADDING, .is_place = scatters_padded};
    (void)state;
    check_places(&fault, 20, check_harmless);
    for (size_t i = 0; i < sizeof halves / sizeof *halves; i++) {
        fault.half = halves[i];
        harmless = 0;
        check_places(&fault, 12, check_harmless);
        print_message("seed %llu, %s: %d of 12 runs finished\n", (unsigned long long)seed,
                      sbp_real_name(fault.half), harmless);
        assert_true(harmless >= 6);
    }
}

/* What the test above plants would be found in every type if it counted. */
static void large_numbers_in_shards_are_found(void **state)
{
    struct named_fault fault = {.fault = SBP_FAULT_LARGE, .is_place = scatters_padded};
    (void)state;
    check_places(&fault, 12, check_harm);
    for (size_t i = 0; i < sizeof halves / sizeof *halves; i++) {
        fault.half = halves[i];
        check_places(&fault, 12, check_harm);
    }
}

/* ---- odd values ---------------------------------------------------------------------------- */

/* An instruction that computes a tensor of a layer, or -1. */
static int find_layer(const struct plan *plan, struct sbp_random *random, int piece)
{
    const struct sbp_program *program = &plan->step.program[piece];
    int found = -1, seen = 0;
    for (int i = 0; i < program->instr_count; i++) {
        const struct sbp_instr *instr = &program->instr[i];
        const int out = instr->buffer[SBP_AT_OUT];
        if ((instr->kind == SBP_INSTR_FORWARD || instr->kind == SBP_INSTR_BACKWARD) && out >= 0 &&
            instr->section != SBP_SECTION_RECOMPUTE && program->buffer[out].tensor >= 0 &&
            sbp_random_below(random, (uint64_t)++seen) == 0)
            found = i;
    }
    return found;
}

/* The last rank of a piece's stage, where a fault is planted. */
static int last_rank(const struct plan *plan, int piece)
{
    return (piece % plan->step.stages + 1) * (int)plan->step.mesh.devices - 1;
}

/* Whether training ends with odd values by itself, as large models without a loss may. */
static bool diverges(const struct plan *plan, const struct sbp_run_options *options,
                     const char *model)
{
    struct sbp_run_options sound = *options;
    struct sbp_run_result result;
    sound.fault = SBP_FAULT_NONE;
    run_plan(plan, &sound, model, &result);
    const bool is_odd = result.odd.step > 0;
    sbp_run_free(&result);
    return is_odd;
}

static void check_named_layer(const struct plan *plan, const char *model, int piece,
                              const struct sbp_instr *instr, const struct sbp_run_result *result)
{
    const struct sbp_odd_layer *layer = &result->odd.layer;
    const char *name = plan->graph.op[instr->op].name;
    const char *what = instr->kind == SBP_INSTR_FORWARD ? "output" : "input gradient";
    const int rank = last_rank(plan, piece);
    if (result->odd.step == result->steps && layer->found && strcmp(layer->layer, name) == 0 &&
        strcmp(layer->what, what) == 0 && layer->rank == rank)
        return;
    describe_plan(plan, model);
    fail_msg("planted in the %s of %s on rank %d, found in the %s of %s on rank %d, step %d", what,
             name, rank, layer->what, layer->layer, layer->rank, result->odd.step);
}

/* Runs a plan with an odd value planted in every step; returns whether the run saw it. What a relu
 * or a dropout throws away, or nobody reads, goes unseen, in a step or in all of them. */
static bool check_odd(const struct plan *plan, struct sbp_random *random, const char *model,
                      bool verify, int piece, int at)
{
    struct sbp_run_options options = options_for(SBP_F32, random);
    struct sbp_run_result result;
    options.verify = verify;
    options.steps = 3;
    plant_fault(&options, SBP_FAULT_ODD, piece, at);
    if (diverges(plan, &options, model))
        return false;
    run_plan(plan, &options, model, &result);
    const bool is_seen = result.odd.step > 0;
    if (is_seen)
        check_named_layer(plan, model, piece, &plan->step.program[piece].instr[at], &result);
    sbp_run_free(&result);
    return is_seen;
}

/* Plants so many, in plans that `cut` cuts by turns (NULL: one stage with a flush); at least
 * `least` must be seen, and of gradients a fourth of that. */
static void check_odd_layers(cut_function *const cut[4], uint64_t stream, int most, int least)
{
    char model[MODEL_BYTES];
    struct sbp_random random;
    int seen = 0, gradients = 0, planted = 0;
    sbp_random_seed(&random, seed + stream);
    for (int tries = 0; planted < most && tries < 40 * MOST_TRIES; tries++) {
        struct plan plan;
        random_model(&random, tries % 3, model, MODEL_BYTES);
        plan_open(&plan, model, random_levels(&random));
        if (cut[tries % 4] == NULL || cut[tries % 4](&plan, &random)) {
            plan_randomise(&plan, &random, false, SBP_BOXING_FULL, SBP_F32);
            const int piece = (int)sbp_random_below(&random, (uint64_t)plan.step.pieces);
            const int at = has_alike_ties(&plan) ? find_layer(&plan, &random, piece) : -1;
            if (at >= 0) {
                const bool found = check_odd(&plan, &random, model, tries % 5 == 0, piece, at);
                seen += found;
                gradients += found && instr_of(&plan, piece, at)->kind == SBP_INSTR_BACKWARD;
                planted++;
            }
        }
        plan_close(&plan);
    }
    if (planted < most || seen < least || gradients < least / 4)
        fail_msg("%d planted, %d seen, %d of them gradients", planted, seen, gradients);
}

static void odd_layers_are_named(void **state)
{
    (void)state;
    check_odd_layers((cut_function *const[]){plan_cut_stages, NULL, plan_cut_cyclic, NULL}, 2000,
                     72, 48);
}

/* All stages of a cyclic step on each device. */
static void odd_layers_of_chunks_are_named(void **state)
{
    (void)state;
    check_odd_layers((cut_function *const[]){plan_cut_on_device, plan_cut_on_device,
                                             plan_cut_on_device, plan_cut_on_device},
                     2500, 24, 12);
}

/* ---- ranks that do not go on --------------------------------------------------------------- */

static void check_stall(const struct plan *plan, const struct sbp_run_options *options)
{
    const int rank = last_rank(plan, options->fault_piece);
    char said[1024], culprit[64], name[160];
    run_to_fault(plan, options, said, sizeof said);
    const struct sbp_task task = {.instr = options->fault_instr, .work = SBP_WORK_FORWARD};
    sbp_task_name(&plan->step.program[options->fault_piece], &task, name, sizeof name);
    name[strcspn(name, "[")] = '\0'; /* schedules differ in the micro-batch that comes first */
    (void)snprintf(culprit, sizeof culprit, "rank %d (host ", rank);
    const char *const parts[] = {culprit,          ") does not go on at step 1, ", name, "; rank ",
                                 "waits for rank", "that is over --deadline 0.5"};
    const char *at = said;
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        at = strstr(at, parts[i]);
        if (at == NULL)
            fail_msg("no \"%s\" in: %s", parts[i], said);
    }
    print_message("%s\n", said);
}

static void stalled_ranks_are_named(void **state)
{
    enum { STALLS = 4 };
    char model[MODEL_BYTES];
    struct sbp_random random;
    (void)state;
    sbp_random_seed(&random, seed + 3000);
    for (int stalls = 0; stalls < STALLS;) {
        struct plan plan;
        random_model(&random, GPT, model, MODEL_BYTES);
        plan_open(&plan, model, random_levels(&random));
        if (stalls % 2 == 0 || plan_cut_stages(&plan, &random)) {
            plan_randomise(&plan, &random, false, SBP_BOXING_FULL, SBP_F32);
            struct sbp_run_options options = options_for(SBP_F32, &random);
            options.verify = stalls % 3 == 0;
            options.deadline_s = 0.5;
            const int piece = (int)sbp_random_below(&random, (uint64_t)plan.step.pieces);
            plant_fault(&options, SBP_FAULT_STALL, piece, find_layer(&plan, &random, piece));
            if (options.fault_instr >= 0 && has_alike_ties(&plan)) {
                check_stall(&plan, &options);
                stalls++;
            }
        }
        plan_close(&plan);
    }
}

/* Whether the first stage, in one micro-batch, sums gradients beside, all by one kind of
 * instruction, and its ranks do not meet otherwise before the step's end; *late: an input gradient
 * behind the first sum. */
static bool sums_gradients_alone(const struct plan *plan, enum sbp_instr_kind kind, int *late)
{
    struct sbp_arena arena = {0};
    struct sbp_diag diag = {0};
    struct sbp_tasks tasks;
    bool beside = false, alone = true;
    *late = -1;
    expect_ok(sbp_tasks_make(&plan->step, 0, &arena, &tasks, &diag), &diag);
    for (int64_t i = 0; i < tasks.count; i++) {
        const struct sbp_task *task = &tasks.task[i];
        const struct sbp_instr *instr = sbp_task_instr(&plan->step, 0, task);
        beside |= task->is_beside;
        alone &= task->is_beside ? instr->kind == kind
                                 : task->work == SBP_WORK_UPDATE || !sbp_program_is_call(instr);
        if (beside && instr->kind == SBP_INSTR_BACKWARD)
            *late = task->instr;
    }
    sbp_arena_free(&arena);
    return alone && *late >= 0;
}

/* The others have left their sums to lanes, and wait there for the rank that gives no gradient.
 * zero: whose sums are of this kind and name. */
static void check_stall_behind_sums(int zero, enum sbp_instr_kind kind, const char *name)
{
    char model[MODEL_BYTES], said[1024], at[64];
    struct sbp_random random;
    bool found = false;
    (void)snprintf(at, sizeof at, "is at step 1, %s", name);
    sbp_random_seed(&random, seed + 3100);
    for (int tries = 0; !found && tries < 40 * MOST_TRIES; tries++) {
        struct plan plan;
        int late;
        random_model(&random, PERCEPTRON, model, MODEL_BYTES);
        plan_open(&plan, model, (const int[]){2, 0});
        plan.parallel.gradient_overlap = 1;
        plan.parallel.zero = zero;
        plan.graph.training.clip_norm = 0;
        plan_randomise(&plan, &random, false, SBP_BOXING_FULL, SBP_F32);
        found = sums_gradients_alone(&plan, kind, &late);
        if (found) {
            struct sbp_run_options options = options_for(SBP_F32, &random);
            options.verify = false;
            options.deadline_s = 0.5;
            plant_fault(&options, SBP_FAULT_STALL, 0, late);
            run_to_fault(&plan, &options, said, sizeof said);
            print_message("%s\n", said);
            assert_non_null(strstr(said, "stage 0) does not go on at step 1, backward"));
            assert_non_null(strstr(said, at));
            assert_non_null(strstr(said, "waits for rank 1)"));
        }
        plan_close(&plan);
    }
    assert_true(found);
}

static void a_stall_behind_sums_beside_is_named(void **state)
{
    (void)state;
    check_stall_behind_sums(0, SBP_INSTR_BOX, "all-reduce");
    check_stall_behind_sums(2, SBP_INSTR_SCATTER, "scatter");
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_lost_message_ends_the_run),
        cmocka_unit_test(a_frame_used_too_early_is_found),
        cmocka_unit_test(rows_of_another_micro_batch_are_found),
        cmocka_unit_test(a_stale_weight_is_found),
        cmocka_unit_test(a_sample_finds_what_is_no_gradient),
        cmocka_unit_test(a_stale_version_is_found),
        cmocka_unit_test(a_stale_version_of_a_chunk_is_found),
        cmocka_unit_test(a_tied_gradient_left_out_is_found),
        cmocka_unit_test(padding_of_shards_leaks_nowhere),
        cmocka_unit_test(large_numbers_in_shards_are_found),
        cmocka_unit_test(odd_layers_are_named),
        cmocka_unit_test(odd_layers_of_chunks_are_named),
        cmocka_unit_test(stalled_ranks_are_named),
        cmocka_unit_test(a_stall_behind_sums_beside_is_named),
    };
    return run_all(argc, argv, tests, sizeof tests / sizeof tests[0]);
}
