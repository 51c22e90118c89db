#include "planner/space_working.h"

#include <math.h>
#include <string.h>

#include "costmodel/stages.h"
#include "planner/space_price.h"

/* Bytes of a variable, with activations that it has kept and without; of a work, with what its
 * variable needs besides while it is done. */
struct sbp_need {
    double all, persists;
};

/* ---- what is formed again ------------------------------------------------------------------- */

/* One call of sbp_working_init. */
struct maker {
    struct sbp_working *working;
    const struct sbp_space *space;
    struct sbp_arena *arena, scratch;
    int *segment;              /* (op_count) its first operator, -1: none */
    bool *crosses;             /* (tensor_count) read beside its segment, or written over */
    int *seen;                 /* (tensor_count) operator + 1 that it was counted for last */
    struct sbp_formed *formed; /* (work) by all of its operators */
};

/* Segments of full recomputation, and tensors that do not come and go with theirs. */
static enum sbp_status find_segments(struct maker *m)
{
    const struct sbp_graph *graph = m->space->graph;
    const struct sbp_view *view = m->space->view;
    int *const of_piece = SBP_NEW(&m->scratch, int, graph->op_count);
    if (of_piece == NULL)
        return SBP_E_MEMORY;
    for (int piece = 0; piece < view->pieces; piece++) {
        const int first = view->first[piece], end = view->first[piece + 1];
        SBP_TRY(
            sbp_graph_segments(graph, first, end, m->space->parallel->recompute_every, of_piece));
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

/* Of an operator in a segment: inputs that come and go with it, and are read on the way back. */
static unsigned formed_inputs(const struct maker *m, int op, const struct sbp_op_kept *kept)
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

static struct sbp_op_kept kept_of(const struct maker *m, int op)
{
    const struct sbp_factor whole = sbp_factor_one();
    return sbp_op_kept(m->space->graph, op, &whole);
}

/* What an operator finds formed again, and leaves to those after it, whose backward pass is first;
 * regather brings inputs when they are read. */
static void note_formed(struct maker *m, int op)
{
    const struct sbp_space *space = m->space;
    struct sbp_formed *const formed = &m->formed[space->works->of[op]];
    const struct sbp_op_kept kept = kept_of(m, op);
    if (m->segment[op] < 0 || space->parallel->regather)
        *formed = (struct sbp_formed){0};
    formed->inputs &= formed_inputs(m, op, &kept);
}

/* Bytes, at the least, that operators of the segment before this one read later. */
static double formed_before(struct maker *m, int op)
{
    const struct sbp_space *space = m->space;
    const struct sbp_graph *graph = space->graph;
    const double bytes = (double)space->pricing.bytes.activation / (double)space->mesh->devices;
    double sum = 0;
    for (int i = 0; i < graph->op[op].input_count; i++)
        m->seen[graph->op[op].input[i]] = op + 1;
    for (int before = m->segment[op]; before >= 0 && before < op; before++) {
        const struct sbp_op_node *node = &graph->op[before];
        const struct sbp_op_kept kept = kept_of(m, before);
        const unsigned inputs = formed_inputs(m, before, &kept);
        if (!node->entry->follows)
            sum += kept.elements * bytes + kept.bytes / (double)space->mesh->devices;
        for (int i = 0; i < node->input_count; i++)
            if ((inputs >> i & 1) != 0 && m->seen[node->input[i]] != op + 1) {
                m->seen[node->input[i]] = op + 1;
                sum += sbp_space_elements(space, node->input[i]) * bytes;
            }
    }
    return sum;
}

/* What enters a segment forms it again; what readers do not read in their backward pass, too, is
 * gone then, before any of them goes back. */
static void find_spent(struct maker *m)
{
    const struct sbp_graph *graph = m->space->graph;
    double spent = 0;
    for (int op = 0; op < graph->op_count; op++) {
        const unsigned all = (1u << graph->op[op].input_count) - 1;
        if (m->segment[op] >= 0 && (kept_of(m, op).inputs & all) != all)
            m->working->entered[op] = m->space->works->kept_bytes[op];
    }
    for (int op = 0; op < graph->op_count; op++) {
        spent += m->working->entered[op];
        if (op + 1 < graph->op_count && m->segment[op + 1] == m->segment[op])
            continue;
        m->working->spent[op] = spent;
        spent = 0;
    }
}

static enum sbp_status find_formed(struct maker *m)
{
    const struct sbp_space *space = m->space;
    const int works = space->works->first[space->variable_count];
    if (!sbp_space_forms_again(space))
        return SBP_OK;
    SBP_TRY(find_segments(m));
    find_spent(m);
    if (space->parallel->recompute != SBP_RECOMPUTE_FULL)
        return SBP_OK;
    for (int w = 0; w < works; w++)
        m->formed[w] = (struct sbp_formed){.inputs = ~0u, .saved = true};
    for (int op = 0; op < space->graph->op_count; op++) {
        note_formed(m, op);
        if (!space->parallel->regather)
            m->working->formed[op] = formed_before(m, op);
    }
    return SBP_OK;
}

/* ---- by choice ------------------------------------------------------------------------------ */

static enum sbp_status count_work(struct maker *m, int variable, int work)
{
    const struct sbp_space *space = m->space;
    const struct sbp_space_variable *v = &space->variable[variable];
    const struct sbp_space_work *counted = &space->works->work[work];
    const size_t choices = (size_t)v->choice_count, tuples = (size_t)v->tuple_count;
    const struct sbp_arena_mark mark = sbp_arena_mark(&m->scratch);
    double *const kept = SBP_TAKE(&m->scratch, double, tuples);
    double *const working = SBP_TAKE(&m->scratch, double, tuples *SBP_ZERO_LEVELS);
    double *const own = m->working->own[work] = SBP_TAKE(m->arena, double, choices);
    if (kept == NULL || working == NULL || own == NULL)
        return SBP_E_MEMORY;
    SBP_TRY(sbp_space_make_working(space, variable, counted, &m->formed[work], &m->scratch, kept,
                                   working));
    for (int c = 0; c < v->choice_count; c++) {
        own[c] = working[v->tuple[c] * SBP_ZERO_LEVELS + counted->level[v->zero[c]]];
        for (int p = 0; p < space->view->points; p++)
            m->working->kept[variable][(size_t)p * choices + (size_t)c] +=
                counted->kept[p] * kept[v->tuple[c]];
    }
    sbp_arena_release(&m->scratch, mark);
    return SBP_OK;
}

static enum sbp_status count_works(struct maker *m)
{
    const struct sbp_space *space = m->space;
    for (int v = 0; v < space->variable_count; v++) {
        const size_t choices = (size_t)space->variable[v].choice_count;
        m->working->kept[v] = SBP_NEW(m->arena, double, (size_t)space->view->points *choices);
        if (m->working->kept[v] == NULL)
            return SBP_E_MEMORY;
        for (int w = space->works->first[v]; w < space->works->first[v + 1]; w++)
            SBP_TRY(count_work(m, v, w));
    }
    return SBP_OK;
}

static enum sbp_status make(struct maker *m)
{
    const struct sbp_space *space = m->space;
    struct sbp_working *const working = m->working;
    const int works = space->works->first[space->variable_count];
    working->formed = SBP_NEW(m->arena, double, space->graph->op_count);
    working->entered = SBP_NEW(m->arena, double, space->graph->op_count);
    working->spent = SBP_NEW(m->arena, double, space->graph->op_count);
    working->kept = SBP_NEW(m->arena, double *, space->variable_count);
    working->own = SBP_NEW(m->arena, double *, works);
    working->need = SBP_NEW(m->arena, struct sbp_need, space->variable_count);
    working->need_at_work = SBP_NEW(m->arena, struct sbp_need, works);
    working->removed = SBP_NEW(m->arena, double, works);
    working->gone = SBP_NEW(m->arena, double, space->variable_count);
    m->segment = SBP_NEW(&m->scratch, int, space->graph->op_count);
    m->crosses = SBP_NEW(&m->scratch, bool, space->graph->tensor_count);
    m->seen = SBP_NEW(&m->scratch, int, space->graph->tensor_count);
    m->formed = SBP_NEW(&m->scratch, struct sbp_formed, works);
    if (working->formed == NULL || working->entered == NULL || working->spent == NULL ||
        working->kept == NULL || working->own == NULL || working->need == NULL ||
        working->need_at_work == NULL || working->removed == NULL || working->gone == NULL ||
        m->segment == NULL || m->crosses == NULL || m->seen == NULL || m->formed == NULL)
        return SBP_E_MEMORY;
    SBP_TRY(find_formed(m));
    return count_works(m);
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
    const struct sbp_space_works *works = w->space->works;
    double most = 0;
    for (int work = works->first[variable]; work < works->first[variable + 1]; work++)
        most = fmax(most, w->own[work][choice]);
    return most;
}

/* ---- the fullest moment --------------------------------------------------------------------- */

static double part_of(struct sbp_need need, double gone)
{
    return (1 - gone) * need.all + gone * need.persists;
}

/* Takes an operator's activations of a micro-batch away. How much of what a variable keeps that is
 * depends on its choice: no more than the share of the work of which most is gone. Returns the
 * bytes. */
static double take_away(const struct sbp_working *w, int op, int point, double micro_batches)
{
    const struct sbp_space *space = w->space;
    const int v = sbp_space_decider(space, op), work = space->works->of[op];
    const double kept = space->works->work[work].kept[point], before = w->gone[v];
    w->removed[work] += micro_batches;
    if (kept > 0)
        w->gone[v] = fmin(1, fmax(before, w->removed[work] / kept));
    return micro_batches * space->works->kept_bytes[op] +
           (w->gone[v] - before) * (w->need[v].all - w->need[v].persists);
}

/* While the operators of a piece work: when one goes back, those after it have gone back, and need
 * not keep anything of that micro-batch any more. A stage of several chunks may run this one when
 * it keeps nothing of others. */
static double most_of_piece(const struct sbp_working *w, int piece, int point, double total)
{
    const struct sbp_space *space = w->space;
    const struct sbp_view *view = space->view;
    const int first = view->first[piece], end = view->first[piece + 1];
    double left = total, most = 0;
    for (int work = 0; work < space->works->first[space->variable_count]; work++)
        w->removed[work] = 0;
    for (int v = 0; v < space->variable_count; v++)
        w->gone[v] = 0;
    for (int op = 0; op < space->graph->op_count && space->parallel->chunks > 1; op++)
        if (view->point[op] == point)
            left -= take_away(w, op, point, view->kept[op] - (op >= first && op < end ? 1 : 0));
    for (int op = end - 1; op >= first; op--) {
        const int v = sbp_space_decider(space, op), work = space->works->of[op];
        left -= w->spent[op];
        const double others = left - part_of(w->need[v], w->gone[v]);
        most = fmax(most, others + part_of(w->need_at_work[work], w->gone[v]) + w->formed[op]);
        left -= take_away(w, op, point, 1) - w->entered[op];
    }
    return most;
}

/* By what is needed. */
static double most_at(const struct sbp_working *w, int point)
{
    const struct sbp_space *space = w->space;
    const struct sbp_view *view = space->view;
    double total = sbp_space_constant_bytes(space, point);
    for (int v = 0; v < space->variable_count; v++)
        total += w->need[v].all;
    double most = total;
    for (int piece = 0; piece < view->pieces; piece++)
        if (view->first[piece] < view->first[piece + 1] && view->point[view->first[piece]] == point)
            most = fmax(most, most_of_piece(w, piece, point, total));
    return most;
}

static struct sbp_need need_of(const struct sbp_working *w, int variable, int choice, int point)
{
    const size_t choices = (size_t)w->space->variable[variable].choice_count;
    const double all = sbp_space_unary_bytes(w->space, variable, choice, point);
    return (struct sbp_need){all,
                             all - w->kept[variable][(size_t)point * choices + (size_t)choice]};
}

double sbp_working_bytes(struct sbp_working *w, const int *choice)
{
    const struct sbp_space *space = w->space;
    double most = 0;
    for (int point = 0; point < space->view->points; point++) {
        for (int v = 0; v < space->variable_count; v++) {
            w->need[v] = need_of(w, v, choice[v], point);
            for (int work = space->works->first[v]; work < space->works->first[v + 1]; work++)
                w->need_at_work[work] =
                    (struct sbp_need){w->need[v].all + w->own[work][choice[v]],
                                      w->need[v].persists + w->own[work][choice[v]]};
        }
        most = fmax(most, most_at(w, point));
    }
    return most;
}

/* Of each by itself, as what stands between all and what persists is never less than between the
 * least of either. */
static void find_least(struct sbp_working *w, int variable, int point)
{
    const struct sbp_space *space = w->space;
    const int first = space->works->first[variable], end = space->works->first[variable + 1];
    w->need[variable] = (struct sbp_need){INFINITY, INFINITY};
    for (int work = first; work < end; work++)
        w->need_at_work[work] = (struct sbp_need){INFINITY, INFINITY};
    for (int c = 0; c < space->variable[variable].choice_count; c++) {
        const struct sbp_need need = need_of(w, variable, c, point);
        w->need[variable].all = fmin(w->need[variable].all, need.all);
        w->need[variable].persists = fmin(w->need[variable].persists, need.persists);
        for (int work = first; work < end; work++) {
            struct sbp_need *const least = &w->need_at_work[work];
            least->all = fmin(least->all, need.all + w->own[work][c]);
            least->persists = fmin(least->persists, need.persists + w->own[work][c]);
        }
    }
}

double sbp_working_least(struct sbp_working *w)
{
    double most = 0;
    for (int point = 0; point < w->space->view->points; point++) {
        for (int v = 0; v < w->space->variable_count; v++)
            find_least(w, v, point);
        most = fmax(most, most_at(w, point));
    }
    return most;
}
