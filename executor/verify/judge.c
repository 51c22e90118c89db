#include "executor/verify/judge_priv.h"

#include <math.h>
#include <stdlib.h>

#include "executor/rank/mixture.h"

/* A mixture's choice for one token after the other. */
struct judged {
    struct sbp_reference *reference;
    const struct sbp_instr *instr;
    struct sbp_routing mixture;
    const double *x, *router, *bias; /* of the token; bias NULL: none */
    bool apart;                      /* the bias is no part of scores */
    const int32_t *copies;           /* of the token */
    double variance;                 /* of errors of its scores */
    double *rank;                    /* (experts) what experts are ranked by */
    double *group;                   /* (groups) the same */
    bool *open;                      /* (groups) that the run may have taken experts of */
    int64_t first;                   /* of its copies, among all of the batch */
};

static double sigmoid(double score)
{
    return 1 / (1 + exp(-score));
}

/* What an expert is ranked by; what is no number comes last, as in the run. */
static double rank_of(const struct judged *j, double score, int64_t expert)
{
    const double rank =
        !j->mixture.sigmoid ? score : sigmoid(score) + (j->apart ? j->bias[expert] : 0);
    return isnan(rank) ? -INFINITY : rank;
}

static int64_t in_group(const struct judged *j)
{
    return j->mixture.experts / j->mixture.groups;
}

static int64_t group_of(const struct judged *j, int64_t expert)
{
    return expert / in_group(j);
}

/* Experts of a group that count for it. */
static int64_t share_of(const struct judged *j)
{
    const struct sbp_routing *m = &j->mixture;
    const int64_t share = (m->top_k + m->most_groups - 1) / m->most_groups;
    return share < in_group(j) ? share : in_group(j);
}

/* The best expert of `first` to `end` behind one of them (-1: none). */
static int64_t best_behind(const struct judged *j, int64_t first, int64_t end, int64_t before)
{
    int64_t best = -1;
    for (int64_t e = first; e < end; e++) {
        const bool is_left = before < 0 || j->rank[e] < j->rank[before] ||
                             (j->rank[e] == j->rank[before] && e > before);
        const bool is_open = j->mixture.groups == 0 || j->open[group_of(j, e)];
        if (is_left && is_open && (best < 0 || j->rank[e] > j->rank[best]))
            best = e;
    }
    return best;
}

/* ---- how large round-off may be -------------------------------------------------------------- */

/* The sum of the absolute values of the terms of what an expert is ranked by. A sigmoid is no
 * steeper than 1/4. */
static double rank_sum(const struct judged *j, int64_t expert)
{
    const struct sbp_routing *m = &j->mixture;
    const double bias = j->bias == NULL ? 0 : fabs(j->bias[expert]);
    double sum = j->apart ? 0 : bias;
    for (int64_t i = 0; i < m->in; i++)
        sum += fabs(j->x[i] * j->router[i * m->experts + expert]);
    return m->sigmoid ? sum / 4 + 1 + bias : sum;
}

/* Errors that a difference of so many ranks inherits from scores. */
static double inherited(const struct judged *j, int64_t ranks)
{
    return sqrt((double)ranks * j->variance) / (j->mixture.sigmoid ? 4 : 1);
}

static void judge(const struct judged *j, int64_t copy, double run, double best,
                  const struct sbp_reference_score *size)
{
    j->reference->judge(j->reference->judge_context, j->instr->op, j->first + copy, run, best,
                        size);
}

/* ---- groups ---------------------------------------------------------------------------------- */

/* The best group that is open, or is not, behind one of them (-1: none). */
static int64_t best_group(const struct judged *j, bool open, int64_t before)
{
    int64_t best = -1;
    for (int64_t g = 0; g < j->mixture.groups; g++) {
        const bool is_left = before < 0 || j->group[g] < j->group[before] ||
                             (j->group[g] == j->group[before] && g > before);
        if (is_left && j->open[g] == open && (best < 0 || j->group[g] > j->group[best]))
            best = g;
    }
    return best;
}

static double highest_rank(const struct judged *j, int64_t group)
{
    double most = -INFINITY;
    for (int64_t e = group * in_group(j); e < (group + 1) * in_group(j); e++)
        most = fmax(most, j->rank[e]);
    return most;
}

/* Opens groups that the run has no experts of, the best ones; but where a better one has an expert
 * that the run would have taken, and is hardly better than the next one, that. */
static void fill_groups(const struct judged *j, int64_t count)
{
    const struct sbp_routing *m = &j->mixture;
    const double worst = j->rank[j->copies[2 * (m->top_k - 1)]];
    int64_t group = -1;
    while (count < m->most_groups) {
        group = best_group(j, false, group);
        if (group < 0)
            return;
        const int64_t next = best_group(j, false, group);
        const double off = highest_rank(j, group) - worst;
        if (off > 0 && next >= 0 && j->group[group] - j->group[next] < off)
            continue;
        j->open[group] = true;
        count++;
    }
}

static double group_sum(const struct judged *j, int64_t group)
{
    double sum = 0;
    const int64_t first = group * in_group(j), end = first + in_group(j);
    for (int64_t k = 0, last = -1; k < share_of(j); k++) {
        last = best_behind(j, first, end, last);
        sum += last < 0 ? 0 : rank_sum(j, last);
    }
    return sum;
}

static void rank_groups(const struct judged *j)
{
    for (int64_t g = 0; g < j->mixture.groups; g++) {
        j->group[g] = 0;
        j->open[g] = true;
        const int64_t first = g * in_group(j), end = first + in_group(j);
        for (int64_t k = 0, last = -1; k < share_of(j); k++) {
            last = best_behind(j, first, end, last);
            j->group[g] += j->rank[last];
        }
    }
}

/* Holds the worst group that is open to the best one that is not. */
static void judge_groups(const struct judged *j)
{
    const struct sbp_routing *m = &j->mixture;
    int64_t count = 0, worst = -1;
    rank_groups(j);
    for (int64_t g = 0; g < m->groups; g++)
        j->open[g] = false;
    for (int64_t k = 0; k < m->top_k; k++) {
        bool *const open = &j->open[group_of(j, j->copies[2 * k])];
        count += *open ? 0 : 1;
        *open = true;
    }
    const struct sbp_reference_score none = {.terms = (double)m->in};
    if (count > m->most_groups)
        judge(j, 0, (double)count, (double)m->most_groups, &none);
    fill_groups(j, count);
    for (int64_t g = 0; g < m->groups; g++)
        if (j->open[g] && (worst < 0 || j->group[g] < j->group[worst]))
            worst = g;
    const int64_t best = best_group(j, false, -1);
    if (best < 0 || j->group[best] <= j->group[worst])
        return;
    struct sbp_reference_score size = {.terms = (double)m->in,
                                       .inherited = inherited(j, 2 * share_of(j))};
    j->open[best] = true; /* its experts count for its sum alone */
    size.sum = group_sum(j, best) + group_sum(j, worst);
    j->open[best] = false;
    judge(j, 0, j->group[worst], j->group[best], &size);
}

/* ---- tokens ---------------------------------------------------------------------------------- */

static void judge_token(const struct judged *j)
{
    const struct sbp_routing *m = &j->mixture;
    if (m->groups > 0)
        judge_groups(j);
    for (int64_t k = 0, best = -1; k < m->top_k; k++) {
        const int64_t run = j->copies[2 * k];
        best = best_behind(j, 0, m->experts, best);
        if (best < 0 || run == best)
            continue;
        const struct sbp_reference_score size = {.terms = (double)m->in,
                                                 .sum = rank_sum(j, run) + rank_sum(j, best),
                                                 .inherited = inherited(j, 2)};
        judge(j, k, j->rank[run], j->rank[best], &size);
    }
}

static void judge_tokens(struct judged *j, const struct sbp_lockstep *both,
                         const struct sbp_rank_mixture *mixture)
{
    const struct sbp_routing *m = &j->mixture;
    struct sbp_reference *const reference = j->reference;
    const struct sbp_rank_kept kept = sbp_rank_mixture_kept(&reference->rank, j->instr, mixture);
    const struct sbp_rank_kept shadow =
        sbp_rank_mixture_kept(&reference->shadow, j->instr, mixture);
    const double *x = sbp_rank_buffer(&reference->rank, j->instr->buffer[SBP_AT_IN]);
    for (int64_t t = 0; t < m->tokens; t++) {
        const double *const scores = (const double *)kept.scores + t * m->experts;
        const float *const other = (const float *)shadow.scores + t * m->experts;
        for (int64_t e = 0; e < m->experts; e++)
            j->rank[e] = rank_of(j, scores[e], e);
        j->x = x + t * m->in;
        j->copies = kept.table + 2 * t * m->top_k;
        j->variance = sbp_magnitude_row_variance(both, scores, other, m->experts);
        j->first = (reference->rank.micro_batch * m->tokens + t) * m->top_k;
        judge_token(j);
    }
}

enum sbp_status sbp_judge_choices(struct sbp_reference *reference, const struct sbp_lockstep *both,
                                  const struct sbp_instr *instr)
{
    const struct sbp_rank_mixture mixture = sbp_rank_mixture_of(reference->program, instr->op, 0);
    const int64_t experts = mixture.tokens.experts;
    struct judged j = {.reference = reference,
                       .instr = instr,
                       .mixture = mixture.tokens,
                       .router = sbp_rank_buffer(&reference->rank, instr->buffer[SBP_AT_W]),
                       .bias = mixture.biases_router
                                   ? sbp_rank_buffer(&reference->rank, instr->buffer[SBP_AT_W + 3])
                                   : NULL,
                       .apart = mixture.chooses_by_bias,
                       .rank = malloc((size_t)experts * sizeof(double)),
                       .group = malloc((size_t)experts * sizeof(double)),
                       .open = malloc((size_t)experts * sizeof(bool))};
    const bool has_memory = j.rank != NULL && j.group != NULL && j.open != NULL;
    if (has_memory)
        judge_tokens(&j, both, &mixture);
    free(j.rank);
    free(j.group);
    free(j.open);
    return has_memory ? SBP_OK : SBP_E_MEMORY;
}
