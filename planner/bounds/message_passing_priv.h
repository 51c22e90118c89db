/* The parts of message_passing.c, which passes messages and drops choices: prices of memory
 * (multipliers.c), and a known choice that is read off the messages (primal_decode.c) and improved
 * where memory binds (primal_polish.c).
 */
#ifndef SBP_PLANNER_BOUNDS_MESSAGE_PASSING_PRIV_H
#define SBP_PLANNER_BOUNDS_MESSAGE_PASSING_PRIV_H

#include "planner/bounds/lagrangian.h"
#include "planner/bounds/message_passing.h"

/* One end of an edge, seen from a variable. */
struct sbp_incident {
    int edge, other;
    bool forward; /* the variable is the first end */
};

/* The state of one reduction. */
struct sbp_messages {
    const struct sbp_space *space;
    struct sbp_space_edges edges;
    struct sbp_arena *arena;  /* of the answer */
    struct sbp_arena scratch; /* of everything below */
    struct sbp_priced
        priced; /* choices that are left; beside: the sum of messages into a variable */
    struct sbp_tuples *tuples; /* (variable_count) that are left */
    double **least;            /* (variable_count)(tuple) least priced cost of its choices */
    double **loop;       /* (variable_count)(tuple) cost of feeding itself; NULL: it does not */
    double **message[2]; /* (edges)(tuple) into the first, into the second end */
    int *first;          /* (variable_count + 1) into incident */
    struct sbp_incident *incident;
    double low; /* the least share of the variable whose turn it is */
    double goal_s;
    bool keeps_all;      /* keep choices that cost less than the goal, whatever choice is known */
    bool are_prices_set; /* the best prices are known: leave them */
    double *trial, *row; /* (most tuples) scratch */
    int *choice;         /* (variable_count) that decoding works on */
    struct sbp_message_reduction *out;
};

/* The message along an edge into the variable that sees it, or into the other one. */
static inline double *sbp_message_into(const struct sbp_messages *m,
                                       const struct sbp_incident *incident, bool other)
{
    return m->message[incident->forward == other][incident->edge];
}

/* The price of an edge between a tuple of the variable that sees it and one of the other. */
static inline double sbp_message_pair_s(const struct sbp_messages *m,
                                        const struct sbp_incident *incident, int own, int other)
{
    const struct sbp_space_edge *edge = &m->edges.edge[incident->edge];
    return incident->forward ? sbp_edge_price_s(edge, own, other)
                             : sbp_edge_price_s(edge, other, own);
}

/* The cost of a choice by itself, with its memory at the price of memory. */
static inline double sbp_message_priced_s(const struct sbp_messages *m, int variable, int choice)
{
    double seconds = m->space->variable[variable].cost_s[choice];
    for (int p = 0; p < m->space->weights->memory_stages; p++)
        if (m->priced.price[p] > 0)
            seconds += m->priced.price[p] * sbp_space_unary_bytes(m->space, variable, choice, p);
    return seconds;
}

/* Reads a choice off the messages and improves it by single changes; where it does not fit, raises
 * the price of memory until one does. Offers what it finds. E_MEMORY. */
enum sbp_status sbp_primal_decode(struct sbp_messages *m) SBP_MUST_USE;
/* Moves m->choice, which the messages led to, into the capacity and fills the room that is left;
 * needs messages in both directions. Offers what it finds. E_MEMORY. */
enum sbp_status sbp_primal_polish(struct sbp_messages *m) SBP_MUST_USE;
/* The cost of m->choice; INFINITY: it is forbidden. */
double sbp_primal_cost_s(const struct sbp_messages *m);
/* Sets m->choice, variable by variable, by the choices before it and the messages from those after
 * it: exact on a chain. */
void sbp_primal_read(struct sbp_messages *m);
/* Passes messages in both directions after prices have changed; *bound_s: the better of the two
 * bounds. E_MEMORY. */
enum sbp_status sbp_message_follow(struct sbp_messages *m, double *bound_s) SBP_MUST_USE;
/* Whether the bounds have met, or the search is to stop. */
bool sbp_message_is_over(const struct sbp_messages *m);
/* Sets the prices of memory to those of the best bound that it finds. E_MEMORY. */
enum sbp_status sbp_multipliers_raise(struct sbp_messages *m) SBP_MUST_USE;
/* Keeps m->choice in m->out where it fits and is the best so far. */
void sbp_primal_offer(struct sbp_messages *m);

#endif
