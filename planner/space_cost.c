/* What a choice costs by itself and the memory that it takes: the parts of what its operators cost
 * in its tuple, each so many times as the path has it, under a ZeRO level.
 *
 * A sum over these and over pairs (space_pairs.c) equals the price of a compiled step of one stage
 * whenever axes can be labelled so that every transfer reaches its least all-to-all; the tests hold
 * the two against each other.
 */
#include <math.h>

#include "planner/space_price.h"
#include "planner/space_store.h"

/* Buckets of offloaded states that a timeline has at most (costmodel/step.c). */
#define MOST_BUCKETS (1 << 20)

/* ---- small parts ---------------------------------------------------------------------------- */

double sbp_space_elements(const struct sbp_space *space, int tensor)
{
    const int64_t *size = space->graph->tensor[tensor].shape.size;
    return (double)size[0] * (double)size[1] * (double)size[2] * (double)size[3];
}

bool sbp_space_free_input(const struct sbp_space *space, int op, int input)
{
    return space->graph->op[op].input[input] == space->graph->input && !space->graph->input_split;
}

bool sbp_space_forms_again(const struct sbp_space *space)
{
    return space->parallel->recompute == SBP_RECOMPUTE_FULL ||
           space->parallel->recompute == SBP_RECOMPUTE_SELECTIVE;
}

bool sbp_space_is_attention(enum sbp_op_kind kind)
{
    return kind == SBP_OP_ATTENTION || kind == SBP_OP_GROUPED_ATTENTION ||
           kind == SBP_OP_LATENT_ATTENTION;
}

/* ---- rates ---------------------------------------------------------------------------------- */

/* What an update takes: seconds a parameter and a weight. */
struct rates {
    double parameter_s, weight_s;
};

/* Optimizer states in host memory pass through the device, bucket by bucket: a launch each, of a
 * chunk's parameters together, instead of one a weight. */
static struct rates update_rates(const struct sbp_space *space)
{
    const struct sbp_element_bytes *bytes = &space->pricing.bytes;
    const struct sbp_training *training = &space->graph->training;
    const struct sbp_cluster *cluster = space->cluster;
    const double state =
        (double)bytes->master + sbp_training_moments(training) * (double)bytes->moment;
    struct rates rates = {0, cluster->kernel_launch_s};
    if (space->request->objective != SBP_STEP_TIME)
        return (struct rates){0, 0};
    rates.parameter_s = sbp_cluster_kernel_s(cluster, space->pricing.type, 0,
                                             sbp_price_update_bytes(&space->pricing));
    if (space->parallel->offload && state > 0) {
        const double bucket = (double)space->parallel->bucket_parameters;
        const bool counts = (double)space->graph->parameters < bucket * MOST_BUCKETS;
        rates.parameter_s += 2 * state / cluster->host_link_bytes_per_s +
                             (counts ? cluster->kernel_launch_s / bucket : 0);
        rates.weight_s = 0;
    }
    if (training->clip_norm > 0)
        rates.parameter_s +=
            sbp_cluster_kernel_s(cluster, space->pricing.type, 0, (double)bytes->gradient);
    return rates;
}

/* What no choice changes of prices. */
struct terms {
    struct rates update;
    double shown; /* share of the gradients' synchronisation at the end that shows at least */
    double stage_sum_shown;
    /* Bytes of states of an element of blocks and of shards, by ZeRO level. */
    double local_bytes[SBP_ZERO_LEVELS], shard_bytes[SBP_ZERO_LEVELS];
    bool sums_each; /* there are several micro-batches: from level 2 on each is reduced by itself */
};

static struct terms terms_of(const struct sbp_space *space)
{
    struct terms terms = {.update = update_rates(space),
                          .shown = 1 - space->hidden_share,
                          .stage_sum_shown = 1 - space->hidden_share,
                          .sums_each = space->micro_batches > 1};
    for (int level = 0; level < SBP_ZERO_LEVELS; level++) {
        terms.local_bytes[level] = sbp_space_state_bytes(space, level, 1, 0);
        terms.shard_bytes[level] = sbp_space_state_bytes(space, level, 0, 1);
    }
    const bool may_hide =
        space->request->objective == SBP_STEP_TIME && !space->request->nothing_hides;
    /* Sums in chunks run beside the optimizer (Myelin, V-C); those with other stages do not. */
    if (space->parallel->chunk_factor > 0)
        terms.stage_sum_shown = 1;
    if (space->parallel->chunk_factor > 0 && space->parallel->offload && may_hide)
        terms.shown = 0;
    return terms;
}

/* ---- one choice ------------------------------------------------------------------------------ */

static int owned_weights(const struct sbp_space_work *work)
{
    int count = 0;
    for (unsigned left = work->owned; left != 0; left &= left - 1)
        count++;
    return count;
}

/* Of a work and tuple, whatever the level. */
static double passes_s(const struct sbp_space_work *work, const struct sbp_row *row)
{
    double seconds = (work->forward + work->again_compute) * row->compute +
                     (work->forward + work->again_inner) * row->inner +
                     (work->forward + work->again_output) * row->box_out +
                     work->backward * row->back + work->weight * row->back_weight;
    for (int i = 0; i < SBP_MAX_INPUTS; i++)
        seconds += (work->forward + work->again_boxed[i]) * row->box_in[i];
    return seconds;
}

/* Its weights under a level. */
static double weights_s(const struct terms *terms, const struct sbp_space_work *work,
                        const struct sbp_row *row, int level)
{
    const bool each = level >= 2 && terms->sums_each;
    const double sum_s = level == 0 ? row->all_reduce : row->scatter;
    const double parameters = level == 0 ? row->local : row->shard;
    const double share_s = level == 1 || level == 2 ? row->share : 0;
    return work->copied * (level == 3 ? row->gather : row->convert) +
           (each ? work->weight : work->end * terms->shown) * sum_s +
           work->end * (share_s + terms->stage_sum_shown * row->stage_sum[level > 0] +
                        terms->update.parameter_s * parameters +
                        terms->update.weight_s * owned_weights(work));
}

/* Adding up gradients where tensors rest whole. */
static double additions_s(const struct sbp_space *space, int variable, int tuple)
{
    const struct sbp_space_variable *v = &space->variable[variable];
    int shape = 0;
    if (space->works->added_elements[variable] == 0)
        return 0;
    for (int f = 0; f < space->mesh->family_count; f++)
        for (int r = 0; r < v->role_count; r++)
            if (v->state[r].kind == SBP_SPLIT)
                shape += sbp_tuple_count(space, variable, tuple, f)[r] * space->shapes->stride[f];
    return sbp_cluster_kernel_s(space->cluster, space->pricing.type, 0,
                                3 * space->works->added_elements[variable] /
                                    space->shapes->size[shape] *
                                    (double)space->pricing.bytes.activation);
}

/* ---- choices of a variable ------------------------------------------------------------------ */

/* One variable's, while they are made. */
struct pricing {
    struct sbp_space *space;
    struct sbp_space_variable *v;
    struct terms terms;
    const struct sbp_space_work *work;
    int work_count, points;
    const struct sbp_row **row;       /* (work)(tuple) */
    double (*bytes)[SBP_ZERO_LEVELS]; /* (points) of a tuple under each level */
};

static const struct sbp_row *row_of(const struct pricing *p, int work, int tuple)
{
    return &p->row[work][tuple];
}

static double level_s(const struct pricing *p, int tuple, int chosen)
{
    double seconds = 0;
    for (int w = 0; w < p->work_count; w++)
        seconds += weights_s(&p->terms, &p->work[w], row_of(p, w, tuple), p->work[w].level[chosen]);
    return seconds;
}

static void level_bytes(const struct pricing *p, int tuple, int chosen)
{
    for (int point = 0; point < p->points; point++) {
        double bytes = 0;
        for (int w = 0; w < p->work_count; w++) {
            const struct sbp_row *row = row_of(p, w, tuple);
            const int level = p->work[w].level[chosen];
            bytes += p->work[w].held[point] * (p->terms.local_bytes[level] * row->local +
                                               p->terms.shard_bytes[level] * row->shard) +
                     p->work[w].kept[point] * row->kept_bytes;
        }
        p->bytes[point][chosen] = bytes;
    }
}

/* Whether level a is as good as b in every respect, and stays where they are alike. */
static bool dominates(const struct pricing *p, const double *cost_s, int a, int b)
{
    if (cost_s[a] > cost_s[b] || (cost_s[a] == cost_s[b] && a > b))
        return false;
    for (int point = 0; point < p->points; point++)
        if (p->bytes[point][a] > p->bytes[point][b])
            return false;
    return true;
}

static void add_choice(const struct pricing *p, int tuple, int level, double cost_s, int capacity)
{
    struct sbp_space_variable *v = p->v;
    v->tuple[v->choice_count] = tuple;
    v->zero[v->choice_count] = (uint8_t)level;
    v->cost_s[v->choice_count] = cost_s;
    for (int point = 0; point < p->points; point++)
        v->bytes[(size_t)point * (size_t)capacity + (size_t)v->choice_count] =
            p->bytes[point][level];
    v->choice_count++;
}

/* A tuple under the levels in `levels` that no other one dominates. */
static void add_tuple(const struct pricing *p, int tuple, unsigned levels, int capacity)
{
    double base_s = additions_s(p->space, (int)(p->v - p->space->variable), tuple);
    double cost_s[SBP_ZERO_LEVELS];
    for (int w = 0; w < p->work_count; w++)
        base_s += passes_s(&p->work[w], row_of(p, w, tuple));
    for (int level = 0; level < SBP_ZERO_LEVELS; level++)
        if (levels >> level & 1) {
            cost_s[level] = base_s + level_s(p, tuple, level);
            level_bytes(p, tuple, level);
        }
    for (int level = 0; level < SBP_ZERO_LEVELS; level++) {
        bool is_dominated = (levels >> level & 1) == 0;
        for (int other = 0; other < SBP_ZERO_LEVELS && !is_dominated; other++)
            is_dominated =
                other != level && (levels >> other & 1) && dominates(p, cost_s, other, level);
        if (!is_dominated)
            add_choice(p, tuple, level, cost_s[level], capacity);
    }
}

/* Levels that a variable may choose from: all where they are free and it has weights. */
static unsigned free_levels(const struct pricing *p)
{
    const struct sbp_space *space = p->space;
    bool is_free = false;
    for (int w = 0; w < p->work_count && space->request->zero_is_free; w++)
        is_free |= !p->work[w].follows && p->work[w].owned != 0 &&
                   p->work[w].level[0] != p->work[w].level[1];
    return is_free ? (1u << SBP_ZERO_LEVELS) - 1 : 1u << space->parallel->zero;
}

/* Bytes as (points, choice) rows of as many as there came to be. */
static void close_rows(const struct pricing *p, int capacity)
{
    for (int point = 1; point < p->points; point++)
        for (int c = 0; c < p->v->choice_count; c++)
            p->v->bytes[(size_t)point * (size_t)p->v->choice_count + (size_t)c] =
                p->v->bytes[(size_t)point * (size_t)capacity + (size_t)c];
}

static enum sbp_status price_variable(struct pricing *p, int variable, struct sbp_arena *scratch)
{
    struct sbp_space *space = p->space;
    p->v = &space->variable[variable];
    p->work = &space->works->work[space->works->first[variable]];
    p->work_count = space->works->first[variable + 1] - space->works->first[variable];
    p->row = SBP_TAKE(scratch, const struct sbp_row *, p->work_count);
    if (p->row == NULL)
        return SBP_E_MEMORY;
    for (int w = 0; w < p->work_count; w++)
        SBP_TRY(sbp_shelf_rows(space, variable, &p->work[w], scratch, &p->row[w]));
    const unsigned levels = free_levels(p);
    const int each = (levels & (levels - 1)) != 0 ? SBP_ZERO_LEVELS : 1;
    const int capacity = each * p->v->tuple_count;
    p->v->tuple = SBP_TAKE(&space->arena, int, capacity);
    p->v->zero = SBP_TAKE(&space->arena, uint8_t, capacity);
    p->v->cost_s = SBP_TAKE(&space->arena, double, capacity);
    p->v->bytes = SBP_TAKE(&space->arena, double, (size_t)p->points *(size_t)capacity);
    if (p->v->tuple == NULL || p->v->zero == NULL || p->v->cost_s == NULL || p->v->bytes == NULL)
        return SBP_E_MEMORY;
    for (int tuple = 0; tuple < p->v->tuple_count; tuple++)
        add_tuple(p, tuple, levels, capacity);
    close_rows(p, capacity);
    return sbp_space_interrupted(space) ? SBP_STOPPED : SBP_OK;
}

enum sbp_status sbp_space_make_choices(struct sbp_space *space)
{
    struct sbp_arena scratch;
    sbp_arena_init(&scratch);
    const int points = space->view->points;
    struct pricing p = {.space = space, .terms = terms_of(space), .points = points};
    p.bytes = sbp_arena_alloc(&scratch, (size_t)points, sizeof *p.bytes);
    enum sbp_status status = p.bytes == NULL ? SBP_E_MEMORY : SBP_OK;
    const struct sbp_arena_mark mark = sbp_arena_mark(&scratch);
    for (int v = 0; v < space->variable_count && status == SBP_OK; v++) {
        status = price_variable(&p, v, &scratch);
        sbp_arena_release(&scratch, mark);
    }
    sbp_arena_free(&scratch);
    return status;
}
