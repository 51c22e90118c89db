#include "costmodel/model/halo.h"

#include <math.h>

struct sbp_halo_rows sbp_halo_reach(const struct sbp_halo *halo, double member)
{
    const double own = member * halo->rows, next = own + halo->rows;
    const double first = fmax(0, member * halo->out_rows * halo->stride - halo->padding);
    const double end =
        fmin(halo->members * halo->rows,
             ((member + 1) * halo->out_rows - 1) * halo->stride - halo->padding + halo->kernel);
    return (struct sbp_halo_rows){.above = fmax(0, own - first), .below = fmax(0, end - next)};
}

struct sbp_halo sbp_halo_of(const struct sbp_graph *graph, const struct sbp_op_node *node,
                            double members)
{
    const struct sbp_shape *in = &graph->tensor[node->input[0]].shape;
    const struct sbp_shape *out = &graph->tensor[node->output].shape;
    struct sbp_halo halo = {.members = members,
                            .rows = (double)in->size[SBP_DIM_SEQUENCE] / members,
                            .out_rows = (double)out->size[SBP_DIM_SEQUENCE] / members,
                            .kernel = (double)node->window.kernel[0],
                            .stride = (double)node->window.stride[0],
                            .padding = (double)node->window.padding[0]};
    for (double member = 0; member < members && members > 1; member++) {
        const struct sbp_halo_rows reach = sbp_halo_reach(&halo, member);
        halo.most.above = fmax(halo.most.above, reach.above);
        halo.most.below = fmax(halo.most.below, reach.below);
        halo.total = fmax(halo.total, reach.above + reach.below);
    }
    return halo;
}

/* Rows of those that are reached on one side which the member at a distance holds: windows overlap
 * with the member's own rows, since padding is less than a kernel. */
static double held_at(const struct sbp_halo *halo, double reached, double distance)
{
    return fmin(halo->rows, fmax(0, reached - (distance - 1) * halo->rows));
}

double sbp_halo_fetched(const struct sbp_halo *halo, double member, double shift)
{
    const struct sbp_halo_rows reach = sbp_halo_reach(halo, member);
    return member >= shift ? held_at(halo, reach.above, shift)
                           : held_at(halo, reach.below, halo->members - shift);
}

double sbp_halo_message(const struct sbp_halo *halo, double shift)
{
    return fmax(held_at(halo, halo->most.above, shift),
                held_at(halo, halo->most.below, halo->members - shift));
}

/* Messages to the neighbours are the largest. */
double sbp_halo_largest_message(const struct sbp_halo *halo)
{
    return fmax(held_at(halo, halo->most.above, 1), held_at(halo, halo->most.below, 1));
}

double sbp_halo_place(const struct sbp_halo *halo, double member, double shift)
{
    const struct sbp_halo_rows reach = sbp_halo_reach(halo, member);
    return member >= shift ? fmax(0, reach.above - shift * halo->rows)
                           : reach.above + (halo->members - shift - 1) * halo->rows;
}
