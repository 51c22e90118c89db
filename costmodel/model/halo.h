/* Rows of images that the windows of a member reach and that other members hold.
 *
 * The role `height` splits the rows of a convolution's images and outputs in equal runs, one behind
 * the other. A member fetches the rows that its windows reach above and below its own, from the
 * neighbours and, where a kernel is larger than a member's rows, from beyond them; the gradients of
 * these rows go back the same way. All members do so in steps, each a shift around the circle that
 * they form: by the shift s a member sends to the one s places behind it and receives from the one
 * s places before it, where either has something to send. Members at the ends of the images fetch
 * from one side only, so that the circle's seam carries what comes from below in the same steps as
 * what others receive from above: of two members one step is enough.
 *
 * Numbers of rows are whole where the split is legal; the search also asks about others.
 */
#ifndef SBP_COSTMODEL_MODEL_HALO_H
#define SBP_COSTMODEL_MODEL_HALO_H

#include "costmodel/model/graph.h"

struct sbp_halo_rows {
    double above, below;
};

struct sbp_halo {
    double members, rows, out_rows; /* that a member holds of images and of outputs */
    double kernel, stride, padding;
    struct sbp_halo_rows most; /* that any member fetches from each side, */
    double total;              /* and from both */
};

/* The halo of a convolution that so many members split by rows; of one: empty. */
struct sbp_halo sbp_halo_of(const struct sbp_graph *graph, const struct sbp_op_node *node,
                            double members);
/* Rows that a member, counted from 0, fetches from each side. */
struct sbp_halo_rows sbp_halo_reach(const struct sbp_halo *halo, double member);
/* Rows that a member fetches in a step; shift: 1 .. members - 1. Those of one side are the last of
 * their holder's rows where it comes before the member, else the first ones. */
double sbp_halo_fetched(const struct sbp_halo *halo, double member, double shift);
/* The most rows that any member fetches in a step, and in any step. */
double sbp_halo_message(const struct sbp_halo *halo, double shift);
double sbp_halo_largest_message(const struct sbp_halo *halo);
/* Where the rows fetched in a step lie among all that a member fetched, those above first, from top
 * to bottom. */
double sbp_halo_place(const struct sbp_halo *halo, double member, double shift);

#endif
