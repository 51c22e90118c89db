/* `sbplan advise`: searches of a model on a machine, and on machines that differ from it in one
 * way, as answers to what people ask of a cluster. Each answer is a sentence and the command that
 * shows more.
 */
#ifndef SBP_PLANNER_COMMANDS_ADVISE_PRIV_H
#define SBP_PLANNER_COMMANDS_ADVISE_PRIV_H

#include "planner/commands/search_session_priv.h"
#include "planner/validate/elasticity.h"

/* What a row of a question differs in from the machine as it is. */
enum sbp_advise_kind {
    SBP_ADVISE_NODES,
    SBP_ADVISE_LINK,
    SBP_ADVISE_MEMORY,
    SBP_ADVISE_ARITHMETIC,
    SBP_ADVISE_BATCH
};

/* Of nodes: halves down, and doublings up for as long as they pay. */
enum {
    SBP_ADVISE_HALVES = 3,
    SBP_ADVISE_MOST_VALUES = 8,
    SBP_ADVISE_MOST_QUESTIONS = 4 + SBP_MAX_LEVELS
};

struct sbp_advise_value {
    const char *text; /* "16"; as --sweep takes it */
    double value;
    bool is_given;             /* the machine as it is, whose row is the whole's */
    bool is_illegal;           /* other options exclude it, so that a sweep would refuse it */
    struct sbp_search_row row; /* unless it is given */
};

struct sbp_advise_question {
    enum sbp_advise_kind kind;
    int level;       /* LINK */
    const char *key; /* "cluster.levels[0].size"; NULL: the file has no constant of it */
    int count;
    struct sbp_advise_value value[SBP_ADVISE_MOST_VALUES]; /* rising */
};

struct sbp_advice {
    const struct sbp_arguments *arguments;
    struct sbp_arena arena;
    struct sbp_search_job job; /* of the machine as it is */
    struct sbp_report report;
    struct sbp_search_row row;
    struct sbp_elasticity elasticity;
    int question_count;
    struct sbp_advise_question question[SBP_ADVISE_MOST_QUESTIONS];
};

/* The row of a value. */
static inline const struct sbp_search_row *sbp_advise_row(const struct sbp_advice *advice,
                                                          const struct sbp_advise_value *value)
{
    return value->is_given ? &advice->row : &value->row;
}

/* The largest number of nodes at which a device keeps most of its best rate (0.9); 0: nothing was
 * found. */
double sbp_advise_pays(const struct sbp_advice *advice, const struct sbp_advise_question *question);

/* Prints the answers, as lines or as one JSON object. E_IO, E_MEMORY. */
enum sbp_status sbp_advise_print(const struct sbp_advice *advice,
                                 struct sbp_diag *diag) SBP_MUST_USE;

#endif
