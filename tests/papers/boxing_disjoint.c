#include "tests/papers/boxing_disjoint.h"

#include <math.h>

/* Parts of every dimension while the tensor crosses: no element has two places. */
struct parts {
    int64_t of[SBP_MAX_DIMS];
    int64_t open; /* parts that copies and sums make, of whichever dimension */
};

static struct parts parts_of(const struct sbp_disjoint_side *side)
{
    struct parts parts = {.open = side->mesh->devices};
    for (int d = 0; d < SBP_MAX_DIMS; d++) {
        parts.of[d] = sbp_mesh_group_size(side->mesh, sbp_dist_split(side->mesh, side->dist, d));
        parts.open /= parts.of[d];
    }
    return parts;
}

static int64_t greatest_divisor(int64_t a, int64_t b)
{
    while (b != 0) {
        const int64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

/* Lays open parts along the dimensions that the other side splits further. */
static void line_up(struct parts *parts, const struct parts *other)
{
    for (int d = 0; d < SBP_MAX_DIMS; d++) {
        const int64_t missing = other->of[d] / greatest_divisor(parts->of[d], other->of[d]);
        const int64_t laid = greatest_divisor(parts->open, missing);
        parts->of[d] *= laid;
        parts->open /= laid;
    }
}

/* Gives the parts that are still open to the dimension that the other side splits most. */
static void lay_rest(struct parts *parts, const struct parts *other)
{
    int most = 0;
    for (int d = 1; d < SBP_MAX_DIMS; d++)
        if (other->of[d] > other->of[most])
            most = d;
    parts->of[most] *= parts->open;
    parts->open = 1;
}

/* A line is cut into a equal blocks, and again into c equal blocks. Returns the most of the c
 * blocks that one of the a blocks meets: the one that begins (a' - 1)/a' of a c-block in, with a' =
 * a / gcd(a, c). */
static int64_t most_met(int64_t a, int64_t c)
{
    const int64_t common = greatest_divisor(a, c);
    const int64_t blocks = a / common, others = c / common;
    return (others + blocks - 1 + blocks - 1) / blocks;
}

static int64_t messages_of(const struct parts *own, const struct parts *other)
{
    int64_t messages = 1;
    for (int d = 0; d < SBP_MAX_DIMS; d++)
        messages *= most_met(own->of[d], other->of[d]);
    return messages;
}

struct sbp_disjoint sbp_boxing_disjoint(const struct sbp_disjoint_side *from,
                                        const struct sbp_disjoint_side *to,
                                        struct sbp_disjoint_link link, double bytes)
{
    const sbp_axes sums = sbp_dist_of_kind(from->mesh, from->dist, SBP_PARTIAL);
    const sbp_axes copies = sbp_dist_of_kind(to->mesh, to->dist, SBP_BROADCAST);
    const double sum_ways = (double)sbp_mesh_group_size(from->mesh, sums);
    const double copy_ways = (double)sbp_mesh_group_size(to->mesh, copies);
    const double sent = bytes / (double)from->mesh->devices;
    const double received = bytes / (double)to->mesh->devices;

    struct parts out = parts_of(from), in = parts_of(to);
    line_up(&out, &in);
    line_up(&in, &out);
    lay_rest(&out, &in);
    lay_rest(&in, &out);
    const int64_t sends = messages_of(&out, &in), receives = messages_of(&in, &out);

    return (struct sbp_disjoint){
        .reduce_bytes =
            (double)from->mesh->devices *
            sbp_collective_traffic_bytes(from->mesh, SBP_REDUCE_SCATTER, sums, sent * sum_ways),
        .send_bytes = bytes,
        .gather_bytes =
            (double)to->mesh->devices *
            sbp_collective_traffic_bytes(to->mesh, SBP_ALL_GATHER, copies, received * copy_ways),
        .reduce_s =
            sbp_collective_s(from->cluster, from->mesh, SBP_REDUCE_SCATTER, sums, sent * sum_ways),
        .send_s = fmax((double)sends * link.alpha_s + sent * link.beta_s_per_byte,
                       (double)receives * link.alpha_s + received * link.beta_s_per_byte),
        .gather_s =
            sbp_collective_s(to->cluster, to->mesh, SBP_ALL_GATHER, copies, received * copy_ways),
        .messages = sends > receives ? sends : receives,
    };
}
