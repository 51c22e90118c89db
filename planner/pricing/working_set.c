#include "planner/pricing/working_set.h"

#include <math.h>
#include <string.h>

#include "costmodel/program/stages.h"
#include "planner/pricing/pricing.h"

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
    const struct sbp_factor whole = sbp_op_factor_one();
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

/* ---- what is held meanwhile ----------------------------------------------------------------- */

/* Operators before the last user of a weight, and after the first one, which has its gradients
 * whole, go back while what the last one gave lies there. */
static enum sbp_status find_holders(struct maker *m)
{
    const struct sbp_space *space = m->space;
    const struct sbp_view *view = space->view;
    int *const last = SBP_NEW(&m->scratch, int, space->graph->tensor_count);
    if (last == NULL)
        return SBP_E_MEMORY;
    for (int op = 0; op < space->graph->op_count; op++)
        m->working->holder[op] = -1;
    for (int piece = 0; piece < view->pieces; piece++) {
        for (int op = view->first[piece]; op < view->first[piece + 1]; op++)
            for (int w = 0; w < space->graph->op[op].weight_count; w++)
                last[space->graph->op[op].weight[w]] = op;
        for (int op = view->first[piece]; op < view->first[piece + 1]; op++) {
            const int work = space->works->of[op];
            for (int w = 0; w < space->graph->op[op].weight_count; w++)
                for (int between = op + 1; between < last[space->graph->op[op].weight[w]] &&
                                           (space->works->work[work].used_again >> w & 1) != 0;
                     between++)
                    if (space->works->work[space->works->of[between]].lent == 0)
                        m->working->holder[between] = work;
        }
    }
    return SBP_OK;
}

/* Activations of a chunk's micro-batch that no choice changes. */
static double kept_of_piece(const struct sbp_space *space, int piece)
{
    double bytes = 0;
    for (int op = space->view->first[piece]; op < space->view->first[piece + 1]; op++)
        bytes += space->works->kept_bytes[op];
    return bytes;
}

/* Of the moments at which a piece works the one when most is kept, as far as no choice changes it:
 * any of them bounds what is needed. */
static enum sbp_status find_beside(struct maker *m)
{
    const struct sbp_space *space = m->space;
    const struct sbp_view *view = space->view;
    const int stages = (int)space->parallel->pipeline, chunks = (int)space->parallel->chunks;
    double *const most = SBP_NEW(&m->scratch, double, view->pieces);
    double *const kept = SBP_NEW(&m->scratch, double, view->pieces);
    if (most == NULL || kept == NULL)
        return SBP_E_MEMORY;
    for (int piece = 0; piece < view->pieces; piece++)
        kept[piece] = kept_of_piece(space, piece);
    for (int i = 0; i < view->moment_count; i++) {
        const struct sbp_moment *moment = &view->moment[i];
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

static enum sbp_status count_work(struct maker *m, int variable, int work)
{
    const struct sbp_space *space = m->space;
    const struct sbp_space_variable *v = &space->variable[variable];
    const struct sbp_space_work *counted = &space->works->work[work];
    const size_t choices = (size_t)v->choice_count, tuples = (size_t)v->tuple_count;
    const struct sbp_arena_mark mark = sbp_arena_mark(&m->scratch);
    double *const kept = SBP_TAKE(&m->scratch, double, tuples);
    double *const saved = SBP_TAKE(&m->scratch, double, tuples);
    struct sbp_at_work *const working =
        SBP_TAKE(&m->scratch, struct sbp_at_work, tuples * SBP_ZERO_LEVELS);
    double *const own = m->working->own[work] = SBP_TAKE(m->arena, double, choices);
    double *const back = m->working->back[work] = SBP_TAKE(m->arena, double, choices);
    double *const held = m->working->held[work] = SBP_TAKE(m->arena, double, choices);
    if (kept == NULL || saved == NULL || working == NULL || own == NULL || back == NULL ||
        held == NULL)
        return SBP_E_MEMORY;
    SBP_TRY(sbp_space_make_working(space, variable, counted, &m->formed[work], &m->scratch, kept,
                                   saved, working));
    for (int c = 0; c < v->choice_count; c++) {
        const struct sbp_at_work *at_work =
            &working[v->tuple[c] * SBP_ZERO_LEVELS + counted->level[v->zero[c]]];
        own[c] = at_work->most;
        back[c] = at_work->back;
        held[c] = at_work->held;
        for (int p = 0; p < space->view->points; p++) {
            const size_t at = (size_t)p * choices + (size_t)c;
            const double saved_bytes = counted->kept[p] * saved[v->tuple[c]];
            m->working->kept[variable][at] += counted->kept[p] * kept[v->tuple[c]] + saved_bytes;
            m->working->saved[variable][at] += saved_bytes;
        }
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
        m->working->saved[v] = SBP_NEW(m->arena, double, (size_t)space->view->points *choices);
        if (m->working->kept[v] == NULL || m->working->saved[v] == NULL)
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
    working->saved = SBP_NEW(m->arena, double *, space->variable_count);
    working->own = SBP_NEW(m->arena, double *, works);
    working->back = SBP_NEW(m->arena, double *, works);
    working->held = SBP_NEW(m->arena, double *, works);
    working->beside =
        SBP_NEW(m->arena, double, (size_t)space->view->pieces *(size_t)space->parallel->chunks);
    working->holder = SBP_NEW(m->arena, int, space->graph->op_count);
    working->need = SBP_NEW(m->arena, struct sbp_need, space->variable_count);
    working->need_at_work = SBP_NEW(m->arena, struct sbp_need, works);
    working->need_going_back = SBP_NEW(m->arena, struct sbp_need, works);
    working->need_held = SBP_NEW(m->arena, struct sbp_need, works);
    working->removed = SBP_NEW(m->arena, double, works);
    working->gone = SBP_NEW(m->arena, double, space->variable_count);
    m->segment = SBP_NEW(&m->scratch, int, space->graph->op_count);
    m->crosses = SBP_NEW(&m->scratch, bool, space->graph->tensor_count);
    m->seen = SBP_NEW(&m->scratch, int, space->graph->tensor_count);
    m->formed = SBP_NEW(&m->scratch, struct sbp_formed, works);
    if (working->formed == NULL || working->entered == NULL || working->spent == NULL ||
        working->kept == NULL || working->saved == NULL || working->own == NULL ||
        working->back == NULL || working->held == NULL || working->beside == NULL ||
        working->holder == NULL || working->need == NULL || working->need_at_work == NULL ||
        working->need_going_back == NULL || working->need_held == NULL ||
        working->removed == NULL || working->gone == NULL || m->segment == NULL ||
        m->crosses == NULL || m->seen == NULL || m->formed == NULL)
        return SBP_E_MEMORY;
    SBP_TRY(find_formed(m));
    SBP_TRY(find_holders(m));
    SBP_TRY(find_beside(m));
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

/* What an operator and the holder of gradients need while it goes back, in place of what is needed
 * of them. Nothing where it is the same variable's, whose operators lie beside it. */
static double more_going_back(const struct sbp_working *w, int op)
{
    const struct sbp_space *space = w->space;
    const int v = sbp_space_decider(space, op), work = space->works->of[op], holder = w->holder[op];
    const int of = holder < 0 ? v : sbp_space_decider(space, space->works->work[holder].op);
    if (of == v)
        return 0;
    return part_of(w->need_going_back[work], w->gone[v]) - part_of(w->need[v], w->gone[v]) +
           part_of(w->need_held[holder], w->gone[of]) - part_of(w->need[of], w->gone[of]);
}

/* A stage of several chunks keeps less of the others while this one works than it may at a time. Of
 * some it may keep more, which counts as far as no choice changes it. */
static double kept_less(const struct sbp_working *w, int piece, int point)
{
    const struct sbp_space *space = w->space;
    const struct sbp_view *view = space->view;
    const int stages = (int)space->parallel->pipeline, chunks = (int)space->parallel->chunks;
    double bytes = 0;
    for (int chunk = 0; chunk < chunks && chunks > 1; chunk++) {
        const int other = chunk * stages + view->stage[point];
        for (int op = view->first[other]; op < view->first[other + 1]; op++)
            bytes += take_away(w, op, point, view->kept[op] - w->beside[piece * chunks + chunk]);
    }
    return bytes;
}

/* While the operators of a piece work: when one goes back, those after it have gone back, and need
 * not keep anything of that micro-batch any more. */
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
    left -= kept_less(w, piece, point);
    for (int op = end - 1; op >= first; op--) {
        const int v = sbp_space_decider(space, op), work = space->works->of[op];
        left -= w->spent[op];
        const double at_work =
            part_of(w->need_at_work[work], w->gone[v]) - part_of(w->need[v], w->gone[v]);
        most = fmax(most, left + fmax(at_work, more_going_back(w, op)) + w->formed[op]);
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
    const size_t at = (size_t)point * choices + (size_t)choice;
    const double all =
        sbp_space_unary_bytes(w->space, variable, choice, point) + w->saved[variable][at];
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

/* Of each by itself, as what stands between all and what persists is never less than between the
 * least of either. */
static void find_least(struct sbp_working *w, int variable, int point, const int *only)
{
    const struct sbp_space *space = w->space;
    const int first = space->works->first[variable], end = space->works->first[variable + 1];
    w->need[variable] = (struct sbp_need){INFINITY, INFINITY};
    for (int work = first; work < end; work++)
        w->need_at_work[work] = w->need_going_back[work] = w->need_held[work] = w->need[variable];
    const int from = only != NULL ? only[variable] : 0;
    const int to = only != NULL ? from + 1 : space->variable[variable].choice_count;
    for (int c = from; c < to; c++) {
        const struct sbp_need need = need_of(w, variable, c, point);
        lower(&w->need[variable], need);
        for (int work = first; work < end; work++) {
            lower(&w->need_at_work[work], with(need, w->own[work][c]));
            lower(&w->need_going_back[work], with(need, w->back[work][c]));
            lower(&w->need_held[work], with(need, w->held[work][c]));
        }
    }
}

double sbp_working_least(struct sbp_working *w, const int *only)
{
    double most = 0;
    for (int point = 0; point < w->space->view->points; point++) {
        for (int v = 0; v < w->space->variable_count; v++)
            find_least(w, v, point, only);
        most = fmax(most, most_at(w, point));
    }
    return most;
}
