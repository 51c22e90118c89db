/* Reducing a space, in parts: messages and what they rule out (message_passing.c), and a known
 * choice read off them (primal_decode.c). Internal.
 */
#ifndef SBP_PLANNER_BOUNDS_MESSAGE_PASSING_PRIV_H
#define SBP_PLANNER_BOUNDS_MESSAGE_PASSING_PRIV_H

#include "planner/bounds/lagrangian.h"
#include "planner/bounds/message_passing.h"

/* One end of an edge, seen from a variable. */
struct sbp_incident {
    int edge, other;
    bool forward; /* the variable is the first end */
    bool again;   /* an edge before this one leads to the same variable */
};

/* Where messages and bounds stand. */
struct sbp_messages {
    const struct sbp_space *space;
    struct sbp_space_edges edges;
    struct sbp_arena *arena;   /* of the answer */
    struct sbp_arena scratch;  /* of all below */
    struct sbp_priced priced;  /* choices that are left, beside: messages into the variable */
    struct sbp_tuples *tuples; /* (variable_count) that are left */
    double **least;            /* (variable_count)(tuple) least priced cost of its choices */
    double **loop; /* (variable_count)(tuple) what it costs to feed itself; NULL: it does not */
    double **message[2]; /* (edges)(tuple) into the first, into the second end */
    int *first;          /* (variable_count + 1) into incident */
    struct sbp_incident *incident;
    double low; /* the least share of the variable at hand */
    double goal_s;
    bool keeps_all;      /* choices that cost less than the goal, whatever is known */
    bool are_prices_set; /* the best are known */
    double *trial, *row; /* (most tuples) scratch */
    int *choice;         /* (variable_count) scratch of decoding */
    struct sbp_message_reduction *out;
};

/* The message along an edge into the variable that sees it, or into the other one. */
static inline double *sbp_message_into(const struct sbp_messages *r,
                                       const struct sbp_incident *incident, bool other)
{
    return r->message[incident->forward == other][incident->edge];
}

/* What a tuple of the variable that sees an edge costs with one of the other variable. */
static inline double sbp_message_pair_s(const struct sbp_messages *r,
                                        const struct sbp_incident *incident, int own, int other)
{
    const struct sbp_space_edge *edge = &r->edges.edge[incident->edge];
    return incident->forward ? sbp_edge_price_s(edge, own, other)
                             : sbp_edge_price_s(edge, other, own);
}

/* What a choice costs by itself, memory at its price. */
static inline double sbp_message_priced_s(const struct sbp_messages *r, int variable, int choice)
{
    double seconds = r->space->variable[variable].cost_s[choice];
    for (int p = 0; p < r->space->weights->memory_stages; p++)
        if (r->priced.price[p] > 0)
            seconds += r->priced.price[p] * sbp_space_unary_bytes(r->space, variable, choice, p);
    return seconds;
}

/* Reads a choice off the messages and improves it by single changes; where it does not fit, memory
 * becomes dearer until one does. r->out keeps it where it is the best so far. E_MEMORY. */
enum sbp_status sbp_primal_decode(struct sbp_messages *r) SBP_MUST_USE;
/* Moves r->choice, which the messages say or nearly, into the room, and fills that
 * (primal_polish.c); needs messages to and fro. What is found is offered. E_MEMORY. */
enum sbp_status sbp_primal_polish(struct sbp_messages *r) SBP_MUST_USE;
/* What r->choice costs; INFINITY: it is forbidden. */
double sbp_primal_cost_s(const struct sbp_messages *r);
/* Sets r->choice to what messages from behind and choices ahead say: exact on a chain. */
void sbp_primal_read(struct sbp_messages *r);
/* Messages to and fro after prices have changed; the better of the two bounds. E_MEMORY. */
enum sbp_status sbp_message_follow(struct sbp_messages *r, double *bound_s) SBP_MUST_USE;
/* Whether nothing is left to look for, or the search is to stop. */
bool sbp_message_is_over(const struct sbp_messages *r);
/* Sets the prices of memory to those of the best bound found (multipliers.c). E_MEMORY. */
enum sbp_status sbp_multipliers_raise(struct sbp_messages *r) SBP_MUST_USE;
/* Keeps r->choice where it fits and is the best so far. */
void sbp_primal_offer(struct sbp_messages *r);

#endif
