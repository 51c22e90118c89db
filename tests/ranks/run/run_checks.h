/* Runs of random plans, held to one device, for the tests of the executor. A test is run with
 * another seed as: test_NAME SEED. */
#ifndef SBP_TESTS_RUN_CHECKS_H
#define SBP_TESTS_RUN_CHECKS_H

#include "executor/run/run.h"
#include "run_plans.h"
#include "tests/support/unit.h"

enum {
    PERCEPTRON,
    RESIDUAL,
    GPT,
    ODD,
    GATED,
    LLAMA,
    MIXTURE,
    ENCODER,
    PATCHES,
    IMAGES,
    DEEPSEEK,
    GRIDS
};
enum { MODEL_BYTES = 4096, MOST_TRIES = 400, PLANS_OF_ALL = 48 /* have every schedule */ };

extern uint64_t seed;

/* Whether the last rank's part of a gradient may be zeros, so that a fault there changes nothing.
 */
bool may_be_zeros(const struct plan *plan, const struct sbp_instr *instr);
void plant_fault(struct sbp_run_options *options, enum sbp_fault fault, int piece, int instr);

/* Draws kinds of models in turn: perceptrons, residual ones, and as many transformers, of which
 * half are GPTs. */
int kind_of(int number);

void expect_ok(enum sbp_status status, const struct sbp_diag *diag);
/* Prints the seed, the model and the strategy. */
void describe_plan(const struct plan *plan, const char *model);
/* Two steps over threads, verified. */
struct sbp_run_options options_for(enum sbp_real real, struct sbp_random *random);
/* A norm of two features leaves one direction, and that passes on what partial sums of 16 bits are
 * off by; one device in 16 bits, which measures errors, has no partial sums. */
bool is_measured(enum sbp_real real, const char *model);
/* A random model, as text, on a random mesh; cut: micro-batches, and ZeRO or owners, are drawn,
 * too.
 */
void open_random(struct sbp_random *random, int kind, bool wide, bool cut,
                 enum sbp_boxing_mode boxing, enum sbp_real real, char *model, struct plan *plan);
/* Weights that several pieces hold; `chunks`: of one stage. */
int count_ties(const struct plan *plan, bool chunks);
/* Whether whole gradients are summed within the only backward work, which the timeline counts at
 * the step's end. */
bool sums_within(const struct plan *plan);
/* Whether stages and chunks that share a weight shard it alike; it is split alike by its roles. */
bool has_alike_ties(const struct plan *plan);
/* Fails the test on an error; the result is the caller's to free. */
void run_plan(const struct plan *plan, const struct sbp_run_options *options, const char *model,
              struct sbp_run_result *result);
/* Fails the test on a finding, too; keeps the largest difference / bound. The run itself fails on a
 * log or a high-water mark that differs from the plan. */
void check_run(const struct plan *plan, const struct sbp_run_options *options, const char *model,
               double *worst);
/* How many plans of each schedule were held. */
struct tally {
    int plans, several, of[SBP_SCHEDULES];
};
void count_plan(struct tally *tally, const struct plan *plan);
/* Prints the tally; fails the test unless so many plans were held, and every schedule that runs. */
void expect_all(const struct tally *tally, int plans);
/* Fails the test unless two runs of a plan had the same losses and norms, to the bit. */
void expect_same_steps(const struct plan *plan, const struct sbp_run_result *a,
                       const struct sbp_run_result *b, const char *model);
/* Fails the test unless so many steps of the plan, and of the same one cut otherwise, have the same
 * losses and norms: those of later steps tell all bits of the weights that they come from. */
void expect_same_training(const struct plan *plan, const struct sbp_step *plain, int steps,
                          enum sbp_real real, struct sbp_random *random, const char *model);
/* So many draws, or the part of them that SBP_TEST_FEWER leaves (fewer.h), four if there are. */
int draws(int count);
/* The body of main. */
int run_all(int argc, char **argv, const struct CMUnitTest *tests, size_t count);

/* How many ranks the axes of an operator's role have, and how many axes there are. */
int64_t ways(const struct plan *plan, int op, const char *name, int *axes);
/* Whether keys and values of an attention go round a ring of several ranks; of any attention. */
bool is_ring(const struct plan *plan, int op);
bool has_ring(const struct plan *plan);

#endif
