/* Plans to be checked, with all that is claimed of them: random strategies of many kinds of models,
 * cut and boxed in many ways.
 */
#ifndef SBP_TESTS_UNIT_CHECK_BENCH_H
#define SBP_TESTS_UNIT_CHECK_BENCH_H

#include "planner/plan/plan.h"
#include "base/math/random.h"
#include "planner/verify/verify.h"

#define SEED UINT64_C(20260711)

#define DEVICE                                                                                     \
    "\"device\": {\"memory_bytes\": 1e12, \"reserve_bytes\": 1000, \"flops\": {\"fp32\": 1e12,"    \
    "\"bf16\": 4e12}, \"memory_bytes_per_s\": 1e11, \"host_link_bytes_per_s\": 1e10}"
#define LEVEL(name, size, rest)                                                                    \
    "{\"name\": \"" name "\", \"size\": " #size ", \"alpha_s\": 1e-6, " rest "}"
#define FLAT                                                                                       \
    "{\"name\": \"flat\", \"levels\": [" LEVEL("rank", 4,                                          \
                                               "\"beta_s_per_byte\": 1e-9") "], " DEVICE "}"

#define LLAMA                                                                                      \
    "{\"name\": \"llama\", \"architecture\": \"llama\", \"layers\": 2, \"hidden\": 24,"            \
    "\"heads\": 12, \"kv_heads\": 6, \"ffn\": 48, \"sequence\": 12, \"vocab\": 48,"                \
    "\"global_batch\": 24, \"attention\": \"flash\"}"
#define IMAGES                                                                                     \
    "{\"name\": \"images\", \"global_batch\": 24, \"input\": {\"height\": 24, \"width\": 8,"       \
    "\"channels\": 12}, \"layers\": ["                                                             \
    "{\"op\": \"conv2d\", \"out\": 24, \"kernel\": 3, \"padding\": 1, \"bias\": true},"            \
    "{\"op\": \"batchnorm\"}, {\"op\": \"relu\"},"                                                 \
    "{\"op\": \"conv2d\", \"out\": 12, \"kernel\": 3, \"padding\": 1}, {\"op\": \"relu\"},"        \
    "{\"op\": \"maxpool\", \"kernel\": 2}, {\"op\": \"flatten\"},"                                 \
    "{\"op\": \"linear\", \"out\": 48, \"bias\": true}, {\"op\": \"cross_entropy\"}]}"

/* A model on a cluster, cut so. */
struct setting {
    enum sbp_boxing_mode boxing;
    const char *model, *cluster, *parallel;
};
/* How many there are. */
int setting_count(void);

/* A plan with all that is claimed of it. */
struct bench {
    const struct setting *setting;
    uint64_t seed;
    struct sbp_plan plan;
    struct sbp_request request;
    struct sbp_outcome outcome;
    struct sbp_step step;
    struct sbp_fix fix;
    struct sbp_random random; /* of corruptions */
    struct sbp_instr *instr;  /* of the first program, to be corrupted */
};

/* The tree of a text; fails where it is none. The caller's. */
struct cJSON *parsed(const char *text);

/* A random plan of a setting, to be closed; false, and nothing to close, where the random strategy
 * could not be labelled. */
bool bench_open(struct bench *b, int setting, uint64_t seed);
void bench_close(struct bench *b);
/* Runs the check on the bench's program and returns its verdict. */
enum sbp_status check(const struct bench *b, struct sbp_diag *diag);

/* A random number below the count, by the random numbers of corruptions. */
int bench_below(struct bench *b, int count);
/* A random operator with a choice, axis, and output of an operator. */
int bench_any_op(struct bench *b);
int bench_any_axis(struct bench *b);
int bench_any_output(struct bench *b);
/* Asks for one operator, and leaves all of it open. */
struct sbp_fix *bench_ask_for(struct bench *b, int op);
/* The operator's ZeRO level. */
int bench_zero_level(const struct bench *b, int op);
/* A repeat of an operator that follows its input, from a random one on; -1: there is none. */
int bench_repeat_of_follower(struct bench *b);

/* Holds for an instruction of the kind that a corruption is of. */
typedef bool instr_test(const struct sbp_instr *instr);

/* A change of one thing, which the check must refuse. */
struct corruption {
    const char *name;
    instr_test
        *of; /* an instruction of the first program that is changed; NULL: none in particular */
    bool (*corrupt)(struct bench *b); /* false: the plan has nothing of the kind */
    const char *word;                 /* of the refusal; NULL: whichever part notices first */
};

/* Tries each of them on plans of all settings: it is refused by the part of the check whose word it
 * expects, and some plan must have something of its kind. */
void check_corruptions(const struct corruption *corruptions, size_t count);

#endif
