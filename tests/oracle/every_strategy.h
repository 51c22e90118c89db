/* Every strategy that a plan can state for one cut, whether a search would try it or not: on every
 * axis every role of an operator's catalogue entry, and for its output every state to rest in. The
 * rules are the strategy module's own, and one that `sbplan price` has: operators that share a
 * weight play one role where it is whole. Repeats do as their site does.
 */
#ifndef SBP_TESTS_EVERY_STRATEGY_H
#define SBP_TESTS_EVERY_STRATEGY_H

#include "planner/plan/plan.h"
#include "planner/plan/request.h"

enum { EVERY_CHOICES = SBP_MAX_ROLES * SBP_REST_STATES };

/* A role and the state that the output rests in on that axis; of the model's input the state. */
struct every_choice {
    uint8_t role;
    struct sbp_state rest;
};

struct every_variable {
    int op, axis; /* op -1: where the model's input rests */
    int count;
    struct every_choice choice[EVERY_CHOICES];
};

struct every {
    struct sbp_arena arena;
    const struct sbp_cut *cut;
    enum sbp_objective objective;
    int variable_count, first_choice; /* the first variable that axes of a family are ordered by */
    bool is_ordered;                  /* axes of a family may be exchanged */
    bool leaves_sums;                 /* as every_open has it */
    struct every_variable *variable;
    int *at; /* (variable_count) the choice of each */
    struct sbp_strategy strategy;
    int64_t priced;
};

/* Variables in the order of operators, their axes together. leaves_sums: an output that nobody
 * reads may rest partial. The cut must outlive it. */
void every_open(const struct sbp_cut *cut, enum sbp_objective objective, bool leaves_sums,
                struct every *every);
void every_close(struct every *every);

/* Reads the choices off a strategy; false: it makes one that is none. */
bool every_read(struct every *every, const struct sbp_strategy *strategy);
/* Prices the choices: the objective of the compiled step; INFINITY: they are not legal together. */
double every_price(struct every *every);

/* Goes through all choices of some variables, given by their index, that keep the sizes divided,
 * the others staying as they are, which they are again afterwards. False: there were more than
 * `most`, the rest was left out. visit may be NULL. */
typedef void every_visit(struct every *every, void *context);
bool every_walk(struct every *every, const int *variable, int count, int64_t most,
                every_visit *visit, void *context);

/* Says the choices as the fixes of `sbplan price`, one for each site that chooses; returns how
 * many. fix: room for every operator. */
int every_fixes(const struct every *every, struct sbp_fix *fix);
/* The choices as a strategy file; the caller deletes it. */
struct cJSON *every_json(const struct every *every);

#endif
