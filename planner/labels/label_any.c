#include "planner/labels/label_any.h"

#include "base/portable.h"
#include "planner/labels/label.h"
#include "planner/labels/label_score.h"
#include "planner/labels/label_walk.h"

/* Transfers and keeps that a call judges, and operators of what it closes: a tenth of a second or
 * so. */
#define MOST_WORK INT64_C(400000)
/* To close an operator takes as long as to judge so many of them. */
enum { WORK_OF_CLOSING = 4 };
/* What only the whole strategy shows to be wrong: less than what the judge sees. */
#define REFUSED 0.5

struct seeker {
    const struct sbp_space *space;
    struct sbp_label_walk walk;
    struct sbp_judge judge;
    struct sbp_strategy *strategy;
};

/* Of each variable what costs least by itself. */
static enum sbp_status begin(struct seeker *s, uint64_t seed, struct sbp_arena *arena)
{
    const struct sbp_space *space = s->space;
    int *choice = SBP_NEW(arena, int, space->variable_count + 1);
    if (choice == NULL)
        return SBP_E_MEMORY;
    for (int v = 0; v < space->variable_count; v++)
        for (int c = 1; c < space->variable[v].choice_count; c++)
            if (sbp_space_unary_s(space, v, c) < sbp_space_unary_s(space, v, choice[v]))
                choice[v] = c;
    SBP_TRY(sbp_label_walk_init(&s->walk, space, seed, arena));
    sbp_label_walk_in_order(&s->walk, choice);
    return sbp_judge_init(&s->judge, space, s->walk.next.choice, arena);
}

/* How far classes are split that their splits do not divide, in halvings. */
static double excess(const struct seeker *s)
{
    double halvings = 0;
    for (int c = 0; c < s->space->graph->class_count; c++)
        if (s->judge.broken[c])
            halvings += sbp_log2((double)sbp_mesh_group_size(s->space->mesh, s->judge.split[c]));
    return halvings;
}

static int forbidden_ways(const struct seeker *s)
{
    const int *choice = s->walk.next.choice;
    int count = 0;
    for (int i = 0; i < s->space->transfer_count; i++) {
        const struct sbp_transfer *transfer = &s->space->transfer[i];
        count += sbp_space_transfer_s(s->space, transfer, choice[transfer->from],
                                      choice[transfer->to]) >= SBP_FORBIDDEN;
    }
    return count;
}

/* How much is wrong with the next labels; 0: nothing, and s->strategy has them. */
static enum sbp_status judge(struct seeker *s, double *wrong)
{
    const struct sbp_label_set *next = &s->walk.next;
    struct sbp_diag refusal = {{0}};
    sbp_judge_all(&s->judge, next->role);
    s->judge.work += s->space->transfer_count;
    *wrong = s->judge.score.broken_rests + excess(s) + forbidden_ways(s);
    if (*wrong > 0)
        return SBP_OK;
    s->judge.work += WORK_OF_CLOSING * s->space->graph->op_count;
    sbp_label_write(s->space, next->choice, next->role, s->strategy);
    const enum sbp_status status =
        sbp_strategy_close(s->space->graph, s->space->mesh, s->strategy, &refusal);
    *wrong = status == SBP_OK ? 0 : REFUSED;
    return status == SBP_E_INPUT || status == SBP_E_UNSUPPORTED ? SBP_OK : status;
}

static enum sbp_status seek(struct seeker *s, bool *found)
{
    double now, next;
    SBP_TRY(judge(s, &now));
    while (now > 0 && s->judge.work < MOST_WORK && !sbp_space_interrupted(s->space)) {
        s->judge.work += s->space->variable_count;
        next = now + 1;
        if (sbp_label_walk_draw(&s->walk))
            SBP_TRY(judge(s, &next));
        sbp_label_walk_end(&s->walk, next <= now);
        now = next <= now ? next : now;
    }
    *found = !(now > 0);
    return SBP_OK;
}

enum sbp_status sbp_label_any(const struct sbp_space *space, uint64_t seed,
                              struct sbp_strategy *strategy, bool *found)
{
    struct seeker s = {.space = space, .strategy = strategy};
    struct sbp_arena arena;
    sbp_arena_init(&arena);
    *found = false;
    enum sbp_status status = SBP_OK;
    if (space->variable_count > 0 && space->mesh->axis_count > 0) {
        status = begin(&s, seed, &arena);
        if (status == SBP_OK)
            status = seek(&s, found);
    }
    sbp_arena_free(&arena);
    return status;
}
