#include "planner/pricing/working_set.h"

#include <math.h>
#include <string.h>

#include "costmodel/program/stages.h"
#include "planner/pricing/pricing.h"

/* Bytes of a variable with the activations that it keeps and without; of a group, together with
 * the working memory of its operators. */
struct sbp_need {
    double all, persists;
};

/* ---- recomputed activations ----------------------------------------------------------------- */

/* One call of sbp_working_init. */
struct maker {
    struct sbp_working *working;
    const struct sbp_space *space;
    struct sbp_arena *arena, scratch;
    int *segment;  /* (op_count) its first operator, -1: none */
    bool *crosses; /* (tensor_count) read outside of its segment, or overwritten */
    int *seen;     /* (tensor_count) the last operator that it was counted for, + 1 */
    struct sbp_recomputed_operands *recomputed; /* (group) common to all of its operators */
};

/* Finds segments of full recomputation, and tensors that live longer than theirs. */
static enum sbp_status find_segments(struct maker *m)
{
    const struct sbp_graph *graph = m->space->graph;
    const struct sbp_path_weights *weights = m->space->weights;
    int *const of_piece = SBP_NEW(&m->scratch, int, graph->op_count);
    if (of_piece == NULL)
        return SBP_E_MEMORY;
    for (int piece = 0; piece < weights->pieces; piece++) {
        const int first = weights->first[piece], end = weights->first[piece + 1];
        SBP_TRY(
            sbp_stages_segments(graph, first, end, m->space->parallel->recompute_every, of_piece));
        memcpy(&m->segment[first], &of_piece[first], (size_t)(end - first) * sizeof *of_piece);
    }
    for (int op = 0; op < graph->op_count; op++)
        for (int i = 0; i < graph->op[op].input_count; i++) {
            const int tensor = graph->op[op].input[i], from = graph->tensor[tensor].producer;
            if (from < 0 || m->segment[from] < 0 || m->segment[from] != m->segment[op] ||
                graph->op[op].entry->in_place)
                m->crosses[tensor] = true;
        }
    return SBP_OK;
}

/* Inputs of a segment's operator, as bits, that live as long as the segment and that its backward
 * pass reads. */
static unsigned recomputed_inputs(const struct maker *m, int op, const struct sbp_op_kept *kept)
{
    const struct sbp_op_node *node = &m->space->graph->op[op];
    unsigned inputs = 0;
    for (int i = 0; i < node->input_count; i++) {
        bool is_new = !m->crosses[node->input[i]];
        for (int k = 0; k < i; k++)
            is_new &= node->input[k] != node->input[i];
        inputs |= is_new ? kept->inputs & 1u << i : 0;
    }
    return inputs;
}

/* Notes the operands that are recomputed for an operator and for those after it, whose backward
 * pass comes first; with regather, inputs come when they are read. */
static void note_recomputed(struct maker *m, int op)
{
    const struct sbp_space *space = m->space;
    struct sbp_recomputed_operands *const recomputed = &m->recomputed[space->groups->of[op]];
    const struct sbp_op_kept kept = sbp_pricing_kept_whole(m->space, op);
    if (m->segment[op] < 0 || space->parallel->regather)
        *recomputed = (struct sbp_recomputed_operands){0};
    recomputed->inputs &= recomputed_inputs(m, op, &kept);
}

/* Bytes, at the least, that earlier operators of the segment read later. */
static double recomputed_before(struct maker *m, int op)
{
    const struct sbp_space *space = m->space;
    const struct sbp_graph *graph = space->graph;
    const double bytes = (double)space->pricing.bytes.activation / (double)space->mesh->devices;
    double sum = 0;
    for (int i = 0; i < graph->op[op].input_count; i++)
        m->seen[graph->op[op].input[i]] = op + 1;
    for (int before = m->segment[op]; before >= 0 && before < op; before++) {
        const struct sbp_op_node *node = &graph->op[before];
        const struct sbp_op_kept kept = sbp_pricing_kept_whole(m->space, before);
        const unsigned inputs = recomputed_inputs(m, before, &kept);
        if (!node->entry->follows)
            sum += sbp_pricing_saved_bytes(space, &kept) / (double)space->mesh->devices;
        for (int i = 0; i < node->input_count; i++)
            if ((inputs >> i & 1) != 0 && m->seen[node->input[i]] != op + 1) {
                m->seen[node->input[i]] = op + 1;
                sum += sbp_pricing_elements(space, node->input[i]) * bytes;
            }
    }
    return sum;
}

/* A tensor that enters a segment serves to recompute it. If its readers do not read it in their
 * backward pass, too, it is gone before any of them goes back. */
static void find_spent(struct maker *m)
{
    const struct sbp_graph *graph = m->space->graph;
    double spent = 0;
    for (int op = 0; op < graph->op_count; op++) {
        const unsigned all = (1u << graph->op[op].input_count) - 1;
        if (m->segment[op] >= 0 && (sbp_pricing_kept_whole(m->space, op).inputs & all) != all)
            m->working->entered[op] = m->space->groups->kept_bytes[op];
    }
    for (int op = 0; op < graph->op_count; op++) {
        spent += m->working->entered[op];
        if (op + 1 < graph->op_count && m->segment[op + 1] == m->segment[op])
            continue;
        m->working->spent[op] = spent;
        spent = 0;
    }
}

static enum sbp_status find_recomputed(struct maker *m)
{
    const struct sbp_space *space = m->space;
    const int groups = space->groups->first[space->variable_count];
    if (!sbp_pricing_recomputes(space))
        return SBP_OK;
    SBP_TRY(find_segments(m));
    find_spent(m);
    if (space->parallel->recompute != SBP_RECOMPUTE_FULL)
        return SBP_OK;
    for (int w = 0; w < groups; w++)
        m->recomputed[w] = (struct sbp_recomputed_operands){.inputs = ~0u, .saved = true};
    for (int op = 0; op < space->graph->op_count; op++) {
        note_recomputed(m, op);
        if (!space->parallel->regather)
            m->working->recomputed[op] = recomputed_before(m, op);
    }
    return SBP_OK;
}

/* ---- gradients and chunks that are held meanwhile ------------------------------------------- */

/* While the operators between the first and the last user of a weight go back, the whole gradient
 * of the last user waits for the first one. */
static enum sbp_status find_holders(struct maker *m)
{
    const struct sbp_space *space = m->space;
    const struct sbp_path_weights *weights = space->weights;
    int *const last = SBP_NEW(&m->scratch, int, space->graph->tensor_count);
    if (last == NULL)
        return SBP_E_MEMORY;
    for (int op = 0; op < space->graph->op_count; op++)
        m->working->holder[op] = -1;
    if (sbp_timeline_weights_wait(space->parallel->schedule)) /* both users' gradients wait */
        return SBP_OK;
    for (int piece = 0; piece < weights->pieces; piece++) {
        for (int op = weights->first[piece]; op < weights->first[piece + 1]; op++)
            for (int w = 0; w < space->graph->op[op].weight_count; w++)
                last[space->graph->op[op].weight[w]] = op;
        for (int op = weights->first[piece]; op < weights->first[piece + 1]; op++) {
            const int group = space->groups->of[op];
            for (int w = 0; w < space->graph->op[op].weight_count; w++)
                for (int between = op + 1; between < last[space->graph->op[op].weight[w]] &&
                                           (space->groups->group[group].used_again >> w & 1) != 0;
                     between++)
                    if (space->groups->group[space->groups->of[between]].lent == 0)
                        m->working->holder[between] = group;
        }
    }
    return SBP_OK;
}

/* Bytes of a micro-batch's activations in a piece that no choice changes. */
static double kept_of_piece(const struct sbp_space *space, int piece)
{
    double bytes = 0;
    for (int op = space->weights->first[piece]; op < space->weights->first[piece + 1]; op++)
        bytes += space->groups->kept_bytes[op];
    return bytes;
}

/* For each piece, picks the moment of its work at which most is kept, as far as no choice changes
 * it; every moment bounds the need. */
static enum sbp_status find_beside(struct maker *m)
{
    const struct sbp_space *space = m->space;
    const struct sbp_path_weights *weights = space->weights;
    const int stages = (int)sbp_parallel_parts(space->parallel),
              chunks = (int)space->parallel->chunks;
    double *const most = SBP_NEW(&m->scratch, double, weights->pieces);
    double *const kept = SBP_NEW(&m->scratch, double, weights->pieces);
    if (most == NULL || kept == NULL)
        return SBP_E_MEMORY;
    for (int piece = 0; piece < weights->pieces; piece++)
        kept[piece] = kept_of_piece(space, piece);
    for (int i = 0; i < weights->moment_count; i++) {
        const struct sbp_moment *moment = &weights->moment[i];
        double *const beside = &m->working->beside[moment->piece * chunks];
        double bytes = 1; /* the first one counts in any case */
        for (int chunk = 0; chunk < chunks; chunk++)
            bytes += moment->kept[chunk] * kept[chunk * stages + moment->piece % stages];
        if (bytes <= most[moment->piece])
            continue;
        most[moment->piece] = bytes;
        memcpy(beside, moment->kept, (size_t)chunks * sizeof *beside);
    }
    return SBP_OK;
}

/* ---- by choice ------------------------------------------------------------------------------ */

static enum sbp_status count_group(struct maker *m, int variable, int group)
{
    const struct sbp_space *space = m->space;
    const struct sbp_space_variable *v = &space->variable[variable];
    const struct sbp_op_group *counted = &space->groups->group[group];
    const size_t choices = (size_t)v->choice_count, tuples = (size_t)v->tuple_count;
    const struct sbp_arena_mark mark = sbp_arena_mark(&m->scratch);
    double *const kept = SBP_TAKE(&m->scratch, double, tuples);
    double *const saved = SBP_TAKE(&m->scratch, double, tuples);
    struct sbp_at_work *const working =
        SBP_TAKE(&m->scratch, struct sbp_at_work, tuples * SBP_ZERO_LEVELS);
    double *const own = m->working->own[group] = SBP_TAKE(m->arena, double, choices);
    double *const back = m->working->back[group] = SBP_TAKE(m->arena, double, choices);
    double *const held = m->working->held[group] = SBP_TAKE(m->arena, double, choices);
    if (kept == NULL || saved == NULL || working == NULL || own == NULL || back == NULL ||
        held == NULL)
        return SBP_E_MEMORY;
    SBP_TRY(sbp_pricing_make_working(space, variable, counted, &m->recomputed[group], kept, saved,
                                     working));
    for (int c = 0; c < v->choice_count; c++) {
        const struct sbp_at_work *at_work =
            &working[v->tuple[c] * SBP_ZERO_LEVELS + counted->level[v->zero[c]]];
        own[c] = at_work->most;
        back[c] = at_work->back;
        held[c] = at_work->held;
        for (int p = 0; p < space->weights->memory_stages; p++) {
            const size_t at = (size_t)p * choices + (size_t)c;
            const double saved_bytes = counted->kept[p] * saved[v->tuple[c]];
            m->working->kept[variable][at] += counted->kept[p] * kept[v->tuple[c]] + saved_bytes;
            m->working->saved[variable][at] += saved_bytes;
        }
    }
    sbp_arena_release(&m->scratch, mark);
    return SBP_OK;
}

static enum sbp_status count_groups(struct maker *m)
{
    const struct sbp_space *space = m->space;
    for (int v = 0; v < space->variable_count; v++) {
        const size_t choices = (size_t)space->variable[v].choice_count;
        m->working->kept[v] =
            SBP_NEW(m->arena, double, (size_t)space->weights->memory_stages *choices);
        m->working->saved[v] =
            SBP_NEW(m->arena, double, (size_t)space->weights->memory_stages *choices);
        if (m->working->kept[v] == NULL || m->working->saved[v] == NULL)
            return SBP_E_MEMORY;
        for (int w = space->groups->first[v]; w < space->groups->first[v + 1]; w++)
            SBP_TRY(count_group(m, v, w));
    }
    return SBP_OK;
}

static enum sbp_status make(struct maker *m)
{
    const struct sbp_space *space = m->space;
    struct sbp_working *const working = m->working;
    const int groups = space->groups->first[space->variable_count];
    working->recomputed = SBP_NEW(m->arena, double, space->graph->op_count);
    working->entered = SBP_NEW(m->arena, double, space->graph->op_count);
    working->spent = SBP_NEW(m->arena, double, space->graph->op_count);
    working->kept = SBP_NEW(m->arena, double *, space->variable_count);
    working->saved = SBP_NEW(m->arena, double *, space->variable_count);
    working->own = SBP_NEW(m->arena, double *, groups);
    working->back = SBP_NEW(m->arena, double *, groups);
    working->held = SBP_NEW(m->arena, double *, groups);
    working->beside =
        SBP_NEW(m->arena, double, (size_t)space->weights->pieces *(size_t)space->parallel->chunks);
    working->holder = SBP_NEW(m->arena, int, space->graph->op_count);
    working->need = SBP_NEW(m->arena, struct sbp_need, space->variable_count);
    working->need_at_work = SBP_NEW(m->arena, struct sbp_need, groups);
    working->need_going_back = SBP_NEW(m->arena, struct sbp_need, groups);
    working->need_held = SBP_NEW(m->arena, struct sbp_need, groups);
    working->removed = SBP_NEW(m->arena, double, groups);
    working->gone = SBP_NEW(m->arena, double, space->variable_count);
    m->segment = SBP_NEW(&m->scratch, int, space->graph->op_count);
    m->crosses = SBP_NEW(&m->scratch, bool, space->graph->tensor_count);
    m->seen = SBP_NEW(&m->scratch, int, space->graph->tensor_count);
    m->recomputed = SBP_NEW(&m->scratch, struct sbp_recomputed_operands, groups);
    if (working->recomputed == NULL || working->entered == NULL || working->spent == NULL ||
        working->kept == NULL || working->saved == NULL || working->own == NULL ||
        working->back == NULL || working->held == NULL || working->beside == NULL ||
        working->holder == NULL || working->need == NULL || working->need_at_work == NULL ||
        working->need_going_back == NULL || working->need_held == NULL ||
        working->removed == NULL || working->gone == NULL || m->segment == NULL ||
        m->crosses == NULL || m->seen == NULL || m->recomputed == NULL)
        return SBP_E_MEMORY;
    SBP_TRY(find_recomputed(m));
    SBP_TRY(find_holders(m));
    SBP_TRY(find_beside(m));
    return count_groups(m);
}

enum sbp_status sbp_working_init(struct sbp_working *working, const struct sbp_space *space,
                                 struct sbp_arena *arena)
{
    *working = (struct sbp_working){.space = space};
    struct maker m = {.working = working, .space = space, .arena = arena};
    const enum sbp_status status = make(&m);
    sbp_arena_free(&m.scratch);
    return status;
}

double sbp_working_own(const struct sbp_working *w, int variable, int choice)
{
    const struct sbp_op_groups *groups = w->space->groups;
    double most = 0;
    for (int group = groups->first[variable]; group < groups->first[variable + 1]; group++)
        most = fmax(most, w->own[group][choice]);
    return most;
}

/* ---- the fullest moment --------------------------------------------------------------------- */

static double part_of(struct sbp_need need, double gone)
{
    return (1 - gone) * need.all + gone * need.persists;
}

/* Takes an operator's activations of some micro-batches away and returns their bytes. A choice
 * decides how much of what its variable keeps is the operator's: no more than the share of the
 * group of which most is gone. */
static double take_away(const struct sbp_working *w, int op, int stage, double micro_batches)
{
    const struct sbp_space *space = w->space;
    const int v = sbp_space_decider(space, op), group = space->groups->of[op];
    const double kept = space->groups->group[group].kept[stage], before = w->gone[v];
    w->removed[group] += micro_batches;
    if (kept > 0)
        w->gone[v] = fmin(1, fmax(before, w->removed[group] / kept));
    return micro_batches * space->groups->kept_bytes[op] +
           (w->gone[v] - before) * (w->need[v].all - w->need[v].persists);
}

/* Additional bytes of an operator and of the holder of gradients while the operator goes back,
 * over those of their variables. 0 where both belong to one variable, whose operators lie beside
 * it. */
static double more_going_back(const struct sbp_working *w, int op)
{
    const struct sbp_space *space = w->space;
    const int v = sbp_space_decider(space, op), group = space->groups->of[op],
              holder = w->holder[op];
    const int of = holder < 0 ? v : sbp_space_decider(space, space->groups->group[holder].op);
    if (of == v)
        return 0;
    return part_of(w->need_going_back[group], w->gone[v]) - part_of(w->need[v], w->gone[v]) +
           part_of(w->need_held[holder], w->gone[of]) - part_of(w->need[of], w->gone[of]);
}

/* Bytes that a stage of several chunks keeps less while one of them works than it may keep at
 * other times. It may keep more of some chunks, which counts as far as no choice changes it. */
static double kept_less(const struct sbp_working *w, int piece, int stage)
{
    const struct sbp_space *space = w->space;
    const struct sbp_path_weights *weights = space->weights;
    const int stages = (int)sbp_parallel_parts(space->parallel),
              chunks = (int)space->parallel->chunks;
    double bytes = 0;
    for (int chunk = 0; chunk < chunks && chunks > 1; chunk++) {
        const int other = chunk * stages + weights->stage[stage];
        for (int op = weights->first[other]; op < weights->first[other + 1]; op++)
            bytes += take_away(w, op, stage, weights->kept[op] - w->beside[piece * chunks + chunk]);
    }
    return bytes;
}

/* The most bytes while the operators of a piece go back: those after the working one have gone
 * back already and keep nothing of that micro-batch any more. */
static double most_of_piece(const struct sbp_working *w, int piece, int stage, double total)
{
    const struct sbp_space *space = w->space;
    const struct sbp_path_weights *weights = space->weights;
    const int first = weights->first[piece], end = weights->first[piece + 1];
    double left = total, most = 0;
    for (int group = 0; group < space->groups->first[space->variable_count]; group++)
        w->removed[group] = 0;
    for (int v = 0; v < space->variable_count; v++)
        w->gone[v] = 0;
    left -= kept_less(w, piece, stage);
    for (int op = end - 1; op >= first; op--) {
        const int v = sbp_space_decider(space, op), group = space->groups->of[op];
        left -= w->spent[op];
        const double at_work =
            part_of(w->need_at_work[group], w->gone[v]) - part_of(w->need[v], w->gone[v]);
        most = fmax(most, left + fmax(at_work, more_going_back(w, op)) + w->recomputed[op]);
        left -= take_away(w, op, stage, 1) - w->entered[op];
    }
    return most;
}

/* The most bytes in a memory stage, by w->need. */
static double most_at(const struct sbp_working *w, int stage)
{
    const struct sbp_space *space = w->space;
    const struct sbp_path_weights *weights = space->weights;
    double total = sbp_pricing_constant_bytes(space, stage);
    for (int v = 0; v < space->variable_count; v++)
        total += w->need[v].all;
    double most = total;
    for (int piece = 0; piece < weights->pieces; piece++)
        if (weights->first[piece] < weights->first[piece + 1] &&
            weights->point[weights->first[piece]] == stage)
            most = fmax(most, most_of_piece(w, piece, stage, total));
    return most;
}

static struct sbp_need need_of(const struct sbp_working *w, int variable, int choice, int stage)
{
    const size_t choices = (size_t)w->space->variable[variable].choice_count;
    const size_t at = (size_t)stage * choices + (size_t)choice;
    const double all =
        sbp_space_unary_bytes(w->space, variable, choice, stage) + w->saved[variable][at];
    return (struct sbp_need){all, all - w->kept[variable][at]};
}

static struct sbp_need with(struct sbp_need need, double bytes)
{
    return (struct sbp_need){need.all + bytes, need.persists + bytes};
}

static void lower(struct sbp_need *least, struct sbp_need need)
{
    least->all = fmin(least->all, need.all);
    least->persists = fmin(least->persists, need.persists);
}

/* Begins the search for the least need of a variable. */
static void begin_least(struct sbp_working *w, int variable)
{
    const int end = w->space->groups->first[variable + 1];
    w->need[variable] = (struct sbp_need){INFINITY, INFINITY};
    for (int group = w->space->groups->first[variable]; group < end; group++)
        w->need_at_work[group] = w->need_going_back[group] = w->need_held[group] =
            w->need[variable];
}

/* Takes a choice into account. Both fields are minimised by themselves: the gap between them is
 * never less than the gap between the least of either. */
static void lower_least(struct sbp_working *w, int variable, int choice, int stage)
{
    const int end = w->space->groups->first[variable + 1];
    const struct sbp_need need = need_of(w, variable, choice, stage);
    lower(&w->need[variable], need);
    for (int group = w->space->groups->first[variable]; group < end; group++) {
        lower(&w->need_at_work[group], with(need, w->own[group][choice]));
        lower(&w->need_going_back[group], with(need, w->back[group][choice]));
        lower(&w->need_held[group], with(need, w->held[group][choice]));
    }
}

/* Finds the least need of a variable among all choices, or of one alone. */
static void find_least(struct sbp_working *w, int variable, int stage, const int *only)
{
    const int from = only != NULL ? only[variable] : 0;
    const int to = only != NULL ? from + 1 : w->space->variable[variable].choice_count;
    begin_least(w, variable);
    for (int c = from; c < to; c++)
        lower_least(w, variable, c, stage);
}

double sbp_working_least(struct sbp_working *w, const int *only)
{
    double most = 0;
    for (int stage = 0; stage < w->space->weights->memory_stages; stage++) {
        for (int v = 0; v < w->space->variable_count; v++)
            find_least(w, v, stage, only);
        most = fmax(most, most_at(w, stage));
    }
    return most;
}

/* The choices that are left to each variable. */
struct left {
    const int *first;
    uint8_t *banned;
    double most_bytes;
};

static void find_least_left(struct sbp_working *w, int variable, int stage, const struct left *left)
{
    begin_least(w, variable);
    for (int i = left->first[variable]; i < left->first[variable + 1]; i++)
        if (left->banned[i] == 0)
            lower_least(w, variable, i - left->first[variable], stage);
}

static int count_left(int variable, const struct left *left)
{
    int count = 0;
    for (int i = left->first[variable]; i < left->first[variable + 1]; i++)
        count += left->banned[i] == 0;
    return count;
}

/* Bans choices of a variable that need too much beside the least of all others; false: all. A
 * variable's only choice was in the least of all. */
static bool ban_choices(struct sbp_working *w, int variable, int stage, const struct left *left)
{
    bool any = count_left(variable, left) == 1;
    if (any)
        return true;
    for (int i = left->first[variable]; i < left->first[variable + 1]; i++) {
        if (left->banned[i] != 0)
            continue;
        begin_least(w, variable);
        lower_least(w, variable, i - left->first[variable], stage);
        left->banned[i] = most_at(w, stage) > left->most_bytes;
        any |= left->banned[i] == 0;
    }
    find_least_left(w, variable, stage, left);
    return any;
}

bool sbp_working_ban(struct sbp_working *w, double most_bytes, const int *first, uint8_t *banned)
{
    const struct left left = {first, banned, most_bytes};
    for (int stage = 0; stage < w->space->weights->memory_stages; stage++) {
        for (int v = 0; v < w->space->variable_count; v++)
            find_least_left(w, v, stage, &left);
        if (most_at(w, stage) > left.most_bytes)
            return false;
        for (int v = 0; v < w->space->variable_count; v++)
            if (!ban_choices(w, v, stage, &left))
                return false;
    }
    return true;
}
