/* Spaces of small models on small clusters, choices drawn in them, and what the prices of a choice
 * are held to: the step of its labelled, compiled plan. What does not hold fails the test.
 */
#ifndef SBP_TESTS_UNIT_SPACE_BENCH_H
#define SBP_TESTS_UNIT_SPACE_BENCH_H

#include "planner/plan/plan.h"
#include "base/math/random.h"
#include "planner/labels/label.h"
#include "planner/space/space.h"
#include "planner/pricing/working_set.h"

#define LEVEL(name, size)                                                                          \
    "{\"name\": \"" name "\", \"size\": " #size ", \"alpha_s\": 1e-6, \"beta_s_per_byte\": 1e-9}"

#define GPT(layers, more)                                                                          \
    "{\"name\": \"g\", \"architecture\": \"gpt\", \"layers\": " #layers ", \"hidden\": 144, "      \
    "\"heads\": 36, \"sequence\": 36, \"vocab\": 144, \"global_batch\": 36" more "}"

/* A model on a cluster of these levels, outermost first. The plan is the caller's to free. */
void open_plan(const char *model, const char *levels, struct sbp_plan *plan);
/* The space of a request, no class limited. The space is the caller's to free. */
void make_space(const struct sbp_plan *plan, const struct sbp_solve_request *request,
                struct sbp_space *space);

/* A space, its problem without a limit of memory, and one choice. */
struct bench {
    struct sbp_space space;
    struct sbp_problem problem;
    struct sbp_working working;
    double least_bytes; /* that no choice needs less than, by `working` */
    int *choice;        /* (variable_count) */
};
/* Plan and request must outlive it. */
void bench_open(struct bench *bench, const struct sbp_plan *plan,
                const struct sbp_solve_request *request);
void bench_close(struct bench *bench);
/* Draws a choice of every operator; rests follow where the operator leaves them, else at random.
 * False: none was found that is not forbidden. */
bool bench_draw(struct bench *bench, struct sbp_random *random);

/* The plan's strategy becomes a choice with labels; false where it cannot be labelled. */
bool label_choice(struct sbp_plan *plan, const struct sbp_space *space, const int *choice,
                  uint64_t seed, struct sbp_labelling *labelling);
/* Cost of a choice's edges at the prices of the space, whatever their labels. */
double promised_s(const struct sbp_space *space, const int *choice);

/* Results over all choices that check_price has seen. */
struct prices {
    bool bounds_alone; /* in: costs need only bound the step, even where they are sums of it */
    int run, equal, not_labelled;
    double largest_gap; /* of labels, as a share */
    double loosest;     /* of the sum below the step */
    /* Modelled bytes as shares of the fullest device's: those that live when the forward pass
     * ends, the least from 1 down; those that live while operators work, the sum of shares; the
     * least over all choices, the most. */
    double least_bytes, working_bytes, least_of_all_bytes;
};
/* The problem's cost and memory are lower bounds of the labelled, compiled plan's; the cost of one
 * stage is equal where every edge is labelled as well as it was priced. */
void check_price(struct sbp_plan *plan, const struct bench *bench, uint64_t seed,
                 struct prices *prices);

#endif
