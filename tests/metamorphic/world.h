/* A random small model on a random small cluster, to be changed and searched again, and what a
 * relation between two searches says when it is broken.
 *
 * Answers are compared by what is proved: a search that had to cost no more is wrong when its lower
 * bound lies above what the other found. Where both are optimal, that compares the plans.
 */
#ifndef SBP_TESTS_METAMORPHIC_WORLD_H
#define SBP_TESTS_METAMORPHIC_WORLD_H

#include "base/math/random.h"
#include "planner/inner/cut_solve.h"
#include "planner/plan/plan.h"
#include "planner/plan/request.h"
#include "tests/oracle/small_models.h"

struct cJSON;

/* Sums in another order differ by this share. */
#define CLOSE 1e-9

struct world {
    const char *relation;
    uint64_t seed;
    struct sbp_random random;
    enum small_kind kind;
    struct cJSON *model, *cluster; /* owned */
    struct cJSON *given;           /* owned: keys of struct sbp_parallel that the search keeps */
    struct sbp_request request;
    int compared, strict; /* comparisons, and those of an optimum */
    bool is_broken;
};

struct answer {
    double cost_s;  /* INFINITY: no plan */
    double bound_s; /* INFINITY: it is proved that there is none */
    bool is_optimal;
    int64_t device_bytes;
    uint64_t plan; /* hash of how the step is cut and split, and of its price */
};

void world_draw(struct world *world, const char *relation, uint64_t seed);
void world_free(struct world *world);
/* Says once what is wrong, with all that is needed to see it again. */
void world_break(struct world *world, const char *format, ...) SBP_PRINTF(2, 3);

/* Searches the world as it stands. */
struct answer world_search(struct world *world);
/* The same, and leaves the plan, which the caller frees; false: there is none. */
bool world_find(struct world *world, struct sbp_plan *plan, struct sbp_outcome *outcome,
                struct answer *answer);
/* The answer of an open plan: searches it, as the commands do, and leaves the best in it. */
struct answer world_explore(struct world *world, struct sbp_plan *plan,
                            struct sbp_outcome *outcome);

/* The first costs no more than the second. */
void never_more(struct world *world, const struct answer *least, const struct answer *other);
/* The second costs `factor` times the first. */
void costs_times(struct world *world, const struct answer *one, double factor,
                 const struct answer *other);
/* They are the same plan to the byte. */
void same_plan(struct world *world, const struct answer *one, const struct answer *other);

/* ---- changes -------------------------------------------------------------------------------- */

int world_pick(struct world *world, int count); /* 0 .. count - 1 */
double number_of(const struct cJSON *object, const char *key, double absent);
void put_number(struct cJSON *object, const char *key, double value);
/* Multiplies a member, where there is one. */
void scale(struct cJSON *object, const char *key, double factor);
struct cJSON *levels_of(const struct world *world);
struct cJSON *device_of(const struct world *world);
void scale_levels(const struct world *world, const char *key, double factor);
void scale_flops(const struct world *world, double factor);
int64_t devices_of(const struct world *world);
/* The search keeps a key of struct sbp_parallel; text NULL: the number. */
void give(struct world *world, const char *key, const char *text, double number);

#endif
