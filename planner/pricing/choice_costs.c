/* The cost of a choice by itself and the memory that it takes: the columns of its operator groups
 * in its tuple, each as many times as the path has it, under a ZeRO level.
 *
 * A sum over these and over edges (edge_kinds.c) equals the price of a compiled step of one stage
 * whenever axes can be labelled so that every edge reaches its least all-to-all; the tests compare
 * the two.
 */
#include <math.h>
#include <string.h>

#include "base/math/simd.h"
#include "planner/pricing/pricing.h"
#include "planner/pricing/price_cache.h"

/* ---- small parts ---------------------------------------------------------------------------- */

double sbp_pricing_elements(const struct sbp_space *space, int tensor)
{
    const int64_t *size = space->graph->tensor[tensor].shape.size;
    return (double)size[0] * (double)size[1] * (double)size[2] * (double)size[3];
}

bool sbp_pricing_free_input(const struct sbp_space *space, int op, int input)
{
    return space->graph->op[op].input[input] == space->graph->input && !space->graph->input_split;
}

bool sbp_pricing_recomputes(const struct sbp_space *space)
{
    return space->parallel->recompute == SBP_RECOMPUTE_FULL ||
           space->parallel->recompute == SBP_RECOMPUTE_SELECTIVE;
}

bool sbp_pricing_is_attention(enum sbp_op_kind kind)
{
    return kind == SBP_OP_ATTENTION || kind == SBP_OP_GROUPED_ATTENTION ||
           kind == SBP_OP_LATENT_ATTENTION;
}

double sbp_pricing_shown(const struct sbp_space *space, enum sbp_cause cause,
                         enum sbp_op_kind op_kind)
{
    if (space->request->asked.objective != SBP_STEP_TIME || space->request->nothing_hides)
        return 1;
    return 1 -
           sbp_price_hidden_share(&space->cluster->runtime, SBP_SECTION_BACKWARD, cause, op_kind);
}

/* ---- rates ---------------------------------------------------------------------------------- */

/* The time of an update: seconds a parameter, and seconds a weight. */
struct rates {
    double parameter_s, weight_s;
};

/* Optimizer states in host memory pass through the device bucket by bucket, each with one launch
 * for a chunk's parameters together, instead of one launch a weight. */
static struct rates update_rates(const struct sbp_space *space)
{
    const struct sbp_element_bytes *bytes = &space->pricing.bytes;
    const struct sbp_training *training = &space->graph->training;
    const struct sbp_cluster *cluster = space->cluster;
    const double state =
        (double)bytes->master + sbp_graph_training_moments(training) * (double)bytes->moment;
    struct rates rates = {0, cluster->kernel_launch_s};
    if (space->request->asked.objective != SBP_STEP_TIME)
        return (struct rates){0, 0};
    rates.parameter_s = sbp_cluster_kernel_s(cluster, space->pricing.type, 0,
                                             sbp_price_update_bytes(&space->pricing));
    if (space->parallel->offload && state > 0) {
        const double bucket = (double)space->parallel->bucket_parameters;
        const bool counts = (double)space->graph->parameters < bucket * SBP_STEP_MOST_BUCKETS;
        rates.parameter_s += 2 * state / cluster->host_link_bytes_per_s +
                             (counts ? cluster->kernel_launch_s / bucket : 0);
        rates.weight_s = 0;
    }
    if (sbp_program_has_norm(training, bytes))
        rates.parameter_s +=
            sbp_cluster_kernel_s(cluster, space->pricing.type, 0, (double)bytes->gradient);
    return rates;
}

/* Factors of prices that no choice changes. */
struct terms {
    struct rates update;
    double shown;      /* the least share of the gradients' synchronisation that is not hidden */
    double each_shown; /* likewise of what each micro-batch sums */
    double boxing_shown, weights_shown; /* of boxing of activations, of gathers of weights */
    double stage_sum_shown;
    double hidden, stage_sum_hidden; /* the rest, which the path may go through */
    bool sums_each; /* several micro-batches: from level 2 on each is reduced by itself */
};

static struct terms terms_of(const struct sbp_space *space)
{
    struct terms terms = {
        .update = update_rates(space),
        .shown = 1 - space->hidden_share,
        .each_shown = sbp_pricing_shown(space, SBP_CAUSE_WEIGHT_GRADIENT, SBP_OP_KINDS),
        .boxing_shown = sbp_pricing_shown(space, SBP_CAUSE_ACTIVATION, SBP_OP_KINDS),
        .weights_shown = sbp_pricing_shown(space, SBP_CAUSE_WEIGHT, SBP_OP_KINDS),
        .stage_sum_shown = 1 - space->hidden_share,
        .hidden = space->hidden_share,
        .stage_sum_hidden = space->hidden_share,
        .sums_each = space->micro_batches > 1};
    const bool may_hide =
        space->request->asked.objective == SBP_STEP_TIME && !space->request->nothing_hides;
    /* Sums in chunks run beside the optimizer (Myelin, V-C); those with other stages do not. */
    if (space->parallel->chunk_factor > 0) {
        terms.stage_sum_shown = 1;
        terms.hidden = terms.stage_sum_hidden = 0;
    }
    if (space->parallel->chunk_factor > 0 && space->parallel->offload && may_hide)
        terms.shown = 0;
    return terms;
}

/* The choices of one variable while they are made. */
struct pricing {
    struct sbp_space *space;
    struct sbp_space_variable *v;
    struct terms terms;
    const struct sbp_op_group *group;
    int group_count, stages;
    struct sbp_columns *columns;                              /* (work) */
    double *passes_s;                                         /* (tuple) */
    double *cost_s[SBP_ZERO_LEVELS], *bytes[SBP_ZERO_LEVELS]; /* (tuple), (memory stages, tuple) */
};

/* ---- one choice ----------------------------------------------------------------------------- */

static int owned_weights(const struct sbp_op_group *group)
{
    int count = 0;
    for (unsigned left = group->owned; left != 0; left &= left - 1)
        count++;
    return count;
}

/* How often each column of a group counts, whatever the ZeRO level of its weights: arithmetic on
 * the device alone, collectives there as far as they show and wholly on links. */
static void weigh_passes(const struct pricing *p, const struct sbp_op_group *group,
                         double weight[SBP_COLUMNS])
{
    const struct sbp_op_counts *device = &group->device, *links = &group->links;
    const double boxing = p->terms.boxing_shown;
    const double inner =
        sbp_pricing_shown(p->space, SBP_CAUSE_OPERATOR, p->space->graph->op[group->op].kind);
    memset(weight, 0, SBP_COLUMNS * sizeof *weight);
    weight[SBP_COLUMN_COMPUTE] = device->forward + device->recomputed_compute;
    weight[SBP_COLUMN_BACK] = device->backward;
    weight[SBP_COLUMN_BACK_WEIGHT] = device->weight;
    weight[SBP_COLUMN_INNER] = inner * (device->forward + device->recomputed_inner) +
                               links->forward + links->recomputed_inner;
    weight[SBP_COLUMN_BACK_INNER] = inner * device->backward + links->backward;
    weight[SBP_COLUMN_WEIGHT_INNER] = inner * device->weight + links->weight;
    weight[SBP_COLUMN_BACK_BOX] = boxing * device->backward + links->backward;
    weight[SBP_COLUMN_BOX_OUT] = boxing * (device->forward + device->recomputed_output) +
                                 links->forward + links->recomputed_output;
    for (int i = 0; i < SBP_MAX_INPUTS; i++)
        weight[SBP_COLUMN_BOX_IN + i] = boxing * (device->forward + device->recomputed_boxed[i]) +
                                        links->forward + links->recomputed_boxed[i];
}

/* How often each column of a group's weights counts under a ZeRO level. */
static void weigh_level(const struct terms *terms, const struct sbp_op_group *group, int level,
                        double weight[SBP_COLUMNS])
{
    const struct sbp_op_counts *device = &group->device, *links = &group->links;
    const bool each = level >= 2 && terms->sums_each;
    memset(weight, 0, SBP_COLUMNS * sizeof *weight);
    weight[level == 3 ? SBP_COLUMN_CONVERT_OWN : SBP_COLUMN_CONVERT] = device->copied;
    weight[SBP_COLUMN_GATHER] =
        level == 3 ? terms->weights_shown * device->copied + links->copied : 0;
    weight[level == 0 ? SBP_COLUMN_REDUCE : SBP_COLUMN_SCATTER] =
        each ? terms->each_shown * device->weight + links->weight
             : group->end * terms->shown + group->sync * terms->hidden;
    weight[SBP_COLUMN_SHARE] = level == 1 || level == 2 ? terms->weights_shown * group->end : 0;
    weight[level == 0 ? SBP_COLUMN_STAGE_BLOCKS : SBP_COLUMN_STAGE_SHARDS] =
        group->end * terms->stage_sum_shown + group->sync * terms->stage_sum_hidden;
    weight[level == 0 ? SBP_COLUMN_LOCAL : SBP_COLUMN_SHARD] =
        group->end * terms->update.parameter_s;
}

/* The bytes of a group in a memory stage under a ZeRO level, by column. */
static void weigh_bytes(const struct sbp_space *space, const struct sbp_op_group *group, int level,
                        int stage, double weight[SBP_COLUMNS])
{
    const double held = group->held[stage];
    memset(weight, 0, SBP_COLUMNS * sizeof *weight);
    weight[SBP_COLUMN_LOCAL] = sbp_pricing_state_bytes(space, stage, level, held, 0);
    weight[SBP_COLUMN_SHARD] = sbp_pricing_state_bytes(space, stage, level, 0, held);
    weight[SBP_COLUMN_KEPT] = group->kept[stage];
    weight[SBP_COLUMN_PARKED] = group->parked[stage];
}

SBP_SIMD
static void add_weighed(const struct sbp_columns *columns, const double weight[SBP_COLUMNS],
                        int tuples, double *restrict sum)
{
    for (int c = 0; c < SBP_COLUMNS; c++) {
        const double *restrict column = columns->of[c];
        const double times = weight[c];
        if (column == NULL || times == 0)
            continue;
        for (int tuple = 0; tuple < tuples; tuple++)
            sum[tuple] += times * column[tuple];
    }
}

/* The additional cost of tensors that may rest whole: gradients are added up in full, and messages
 * between stages carry more than a device's share. */
static double whole_s(const struct sbp_space *space, int variable, int tuple)
{
    const struct sbp_space_variable *v = &space->variable[variable];
    const struct sbp_path_weights *weights = space->weights;
    double seconds = 0;
    int shape = 0;
    for (int f = 0; f < space->mesh->family_count; f++)
        for (int r = 0; r < v->role_count; r++)
            if (v->state[r].kind == SBP_SPLIT)
                shape += sbp_tuple_count(space, variable, tuple, f)[r] * space->shapes->stride[f];
    const double parts = space->shapes->size[shape], devices = (double)space->mesh->devices;
    if (space->groups->added_elements[variable] > 0)
        seconds = sbp_cluster_kernel_s(space->cluster, space->pricing.type, 0,
                                       3 * space->groups->added_elements[variable] / parts *
                                           (double)space->pricing.bytes.activation);
    for (int piece = 0; piece < weights->pieces && parts < devices; piece++) {
        const int tensor = space->groups->crossing[piece];
        if (tensor >= 0 && space->slot[tensor] == variable)
            seconds += weights->crossed[piece] * (sbp_path_message_s(space->cut, tensor, parts) -
                                                  sbp_path_message_s(space->cut, tensor, devices));
    }
    return seconds;
}

/* Whether a variable has such a cost. */
static bool has_whole(const struct sbp_space *space, int variable)
{
    bool has = space->groups->added_elements[variable] > 0;
    for (int piece = 0; piece < space->weights->pieces; piece++) {
        const int tensor = space->groups->crossing[piece];
        has |= tensor >= 0 && space->slot[tensor] == variable;
    }
    return has && space->variable[variable].rests_whole;
}

/* ---- choices of a variable ------------------------------------------------------------------ */

static void price_passes(const struct pricing *p)
{
    const int variable = (int)(p->v - p->space->variable);
    double weight[SBP_COLUMNS];
    const bool whole = has_whole(p->space, variable);
    for (int tuple = 0; tuple < p->v->tuple_count; tuple++)
        p->passes_s[tuple] = whole ? whole_s(p->space, variable, tuple) : 0;
    for (int w = 0; w < p->group_count; w++) {
        weigh_passes(p, &p->group[w], weight);
        add_weighed(&p->columns[w], weight, p->v->tuple_count, p->passes_s);
    }
}

static void price_level(const struct pricing *p, int chosen)
{
    const int tuples = p->v->tuple_count;
    double weight[SBP_COLUMNS], launches_s = 0;
    for (int w = 0; w < p->group_count; w++)
        launches_s += p->group[w].end * p->terms.update.weight_s * owned_weights(&p->group[w]);
    for (int tuple = 0; tuple < tuples; tuple++)
        p->cost_s[chosen][tuple] = p->passes_s[tuple] + launches_s;
    for (int w = 0; w < p->group_count; w++) {
        weigh_level(&p->terms, &p->group[w], p->group[w].level[chosen], weight);
        add_weighed(&p->columns[w], weight, tuples, p->cost_s[chosen]);
    }
}

static void count_bytes(const struct pricing *p, int chosen)
{
    const size_t tuples = (size_t)p->v->tuple_count;
    double weight[SBP_COLUMNS];
    memset(p->bytes[chosen], 0, (size_t)p->stages * tuples * sizeof(double));
    for (int w = 0; w < p->group_count; w++)
        for (int stage = 0; stage < p->stages; stage++) {
            weigh_bytes(p->space, &p->group[w], p->group[w].level[chosen], stage, weight);
            add_weighed(&p->columns[w], weight, (int)tuples,
                        p->bytes[chosen] + (size_t)stage * tuples);
        }
}

static double bytes_of(const struct pricing *p, int level, int stage, int tuple)
{
    return p->bytes[level][(size_t)stage * (size_t)p->v->tuple_count + (size_t)tuple];
}

/* Whether level a is as good as b in cost and bytes; of equal levels the lower one wins. */
static bool dominates(const struct pricing *p, int tuple, int a, int b)
{
    const double a_s = p->cost_s[a][tuple], b_s = p->cost_s[b][tuple];
    if (a_s > b_s || (a_s == b_s && a > b))
        return false;
    for (int stage = 0; stage < p->stages; stage++)
        if (bytes_of(p, a, stage, tuple) > bytes_of(p, b, stage, tuple))
            return false;
    return true;
}

static void add_choice(const struct pricing *p, int tuple, int level, int capacity)
{
    struct sbp_space_variable *v = p->v;
    v->tuple[v->choice_count] = tuple;
    v->zero[v->choice_count] = (uint8_t)level;
    v->cost_s[v->choice_count] = p->cost_s[level][tuple];
    for (int stage = 0; stage < p->stages; stage++)
        v->bytes[(size_t)stage * (size_t)capacity + (size_t)v->choice_count] =
            bytes_of(p, level, stage, tuple);
    v->choice_count++;
}

/* Adds a tuple with each of the levels that no other level dominates. */
static void add_tuple(const struct pricing *p, int tuple, unsigned levels, int capacity)
{
    for (int level = 0; level < SBP_ZERO_LEVELS; level++) {
        bool is_dominated = (levels >> level & 1) == 0;
        for (int other = 0;
             other < SBP_ZERO_LEVELS && !is_dominated && !p->space->request->every_level; other++)
            is_dominated =
                other != level && (levels >> other & 1) && dominates(p, tuple, other, level);
        if (!is_dominated)
            add_choice(p, tuple, level, capacity);
    }
}

/* Levels that a variable may choose from: all where they are free and it has weights, else the
 * cut's. */
static unsigned free_levels(const struct pricing *p)
{
    const struct sbp_space *space = p->space;
    bool is_free = false;
    for (int w = 0; w < p->group_count && space->request->zero_is_free; w++)
        is_free |= p->group[w].owned != 0 && p->group[w].level[0] != p->group[w].level[1];
    return is_free ? (1u << SBP_ZERO_LEVELS) - 1 : 1u << space->parallel->zero;
}

/* Packs the bytes, whose rows have the length of the capacity, into (memory stages, choice). */
static void close_rows(const struct pricing *p, int capacity)
{
    for (int stage = 1; stage < p->stages; stage++)
        for (int c = 0; c < p->v->choice_count; c++)
            p->v->bytes[(size_t)stage * (size_t)p->v->choice_count + (size_t)c] =
                p->v->bytes[(size_t)stage * (size_t)capacity + (size_t)c];
}

static enum sbp_status find_columns(struct pricing *p, int variable, struct sbp_arena *scratch)
{
    const struct sbp_space *space = p->space;
    p->v = &space->variable[variable];
    p->group = &space->groups->group[space->groups->first[variable]];
    p->group_count = space->groups->first[variable + 1] - space->groups->first[variable];
    p->columns = SBP_TAKE(scratch, struct sbp_columns, p->group_count);
    p->passes_s = SBP_TAKE(scratch, double, p->v->tuple_count);
    if (p->columns == NULL || p->passes_s == NULL)
        return SBP_E_MEMORY;
    struct sbp_arithmetic_memo memo = {0};
    for (int w = 0; w < p->group_count; w++)
        SBP_TRY(sbp_cache_columns(space, variable, &p->group[w], scratch, &memo, &p->columns[w]));
    return SBP_OK;
}

static enum sbp_status price_levels(struct pricing *p, unsigned levels, struct sbp_arena *scratch)
{
    price_passes(p);
    for (int level = 0; level < SBP_ZERO_LEVELS; level++) {
        if ((levels >> level & 1) == 0)
            continue;
        p->cost_s[level] = SBP_TAKE(scratch, double, p->v->tuple_count);
        if (p->cost_s[level] == NULL)
            return SBP_E_MEMORY;
        price_level(p, level);
    }
    return SBP_OK;
}

static enum sbp_status count_levels(struct pricing *p, unsigned levels, struct sbp_arena *scratch)
{
    const size_t tuples = (size_t)p->v->tuple_count;
    for (int level = 0; level < SBP_ZERO_LEVELS; level++) {
        if ((levels >> level & 1) == 0)
            continue;
        p->bytes[level] = SBP_TAKE(scratch, double, (size_t)p->stages *tuples);
        if (p->bytes[level] == NULL)
            return SBP_E_MEMORY;
        count_bytes(p, level);
    }
    return SBP_OK;
}

static enum sbp_status price_variable(struct pricing *p, int variable, struct sbp_arena *scratch)
{
    struct sbp_space *space = p->space;
    SBP_TRY(find_columns(p, variable, scratch));
    const unsigned levels = free_levels(p);
    const int each = (levels & (levels - 1)) != 0 ? SBP_ZERO_LEVELS : 1;
    const int capacity = each * p->v->tuple_count;
    p->v->tuple = SBP_TAKE(&space->arena, int, capacity);
    p->v->zero = SBP_TAKE(&space->arena, uint8_t, capacity);
    p->v->cost_s = SBP_TAKE(&space->arena, double, capacity);
    p->v->bytes = SBP_TAKE(&space->arena, double, (size_t)p->stages *(size_t)capacity);
    if (p->v->tuple == NULL || p->v->zero == NULL || p->v->cost_s == NULL || p->v->bytes == NULL)
        return SBP_E_MEMORY;
    SBP_TRY(price_levels(p, levels, scratch));
    SBP_TRY(count_levels(p, levels, scratch));
    for (int tuple = 0; tuple < p->v->tuple_count; tuple++)
        add_tuple(p, tuple, levels, capacity);
    close_rows(p, capacity);
    return sbp_space_interrupted(space) ? SBP_STOPPED : SBP_OK;
}

/* Adds the least cost of a variable to the space's, until that is refuted: none is below 0. */
static enum sbp_status add_least(struct pricing *p, int variable, struct sbp_arena *scratch)
{
    double least_s = INFINITY;
    if (p->space->least_s >= p->space->request->refuted_s)
        return SBP_OK;
    SBP_TRY(find_columns(p, variable, scratch));
    const unsigned levels = free_levels(p);
    SBP_TRY(price_levels(p, levels, scratch));
    for (int level = 0; level < SBP_ZERO_LEVELS; level++)
        for (int tuple = 0; tuple < p->v->tuple_count && (levels >> level & 1); tuple++)
            least_s = p->cost_s[level][tuple] < least_s ? p->cost_s[level][tuple] : least_s;
    p->space->least_s += least_s;
    return sbp_space_interrupted(p->space) ? SBP_STOPPED : SBP_OK;
}

static enum sbp_status for_variables(struct pricing *p,
                                     enum sbp_status (*look)(struct pricing *p, int variable,
                                                             struct sbp_arena *scratch))
{
    struct sbp_arena scratch = {.budget = p->space->arena.budget};
    enum sbp_status status = SBP_OK;
    const struct sbp_arena_mark mark = sbp_arena_mark(&scratch);
    for (int v = 0; v < p->space->variable_count && status == SBP_OK; v++) {
        status = look(p, v, &scratch);
        sbp_arena_release(&scratch, mark);
    }
    sbp_arena_free(&scratch);
    return status;
}

enum sbp_status sbp_pricing_make_choices(struct sbp_space *space)
{
    struct pricing p = {
        .space = space, .terms = terms_of(space), .stages = space->weights->memory_stages};
    const double refuted_s = space->is_plain ? 0 : space->request->refuted_s;
    if (refuted_s > 0) {
        space->least_s = sbp_pricing_constant_s(space);
        SBP_TRY(for_variables(&p, add_least));
        space->is_refuted = space->least_s >= refuted_s;
    }
    return space->is_refuted ? SBP_OK : for_variables(&p, price_variable);
}
