/* The cheapest list of collectives between two distributions (`boxing=path`).
 *
 * A path may do better than the normal form in three ways. It cuts a collective by axes (with alpha
 * > 0 a ring over 2^k members costs 2^k - 1 alphas, k rings over pairs cost k). It slices early. It
 * uses axes that look the same before and after: a gradient that all devices of a node hold whole
 * is all-reduced between nodes a slice a device. Axes split only dimensions that the plan's layout
 * has digits for.
 *
 * A path never costs more than the normal form at these bytes, and exists wherever the
 * distributions do. It is the cheapest list of the form that costmodel/layout/boxing_cut.h
 * describes, and the cheapest of all lists where prices follow alpha and beta, slower levels stand
 * outside of faster ones and every axis can be split. Among paths of equal cost the normal form
 * wins, then a short list.
 *
 * A gradient goes the way back, between the dual states, by a cheapest path of its own. Where a
 * gather costs what a scatter costs, that is the dual of the way there; measured curves may differ.
 * Either path delivers the dual states, which is all that duality asks for.
 */
#ifndef SBP_COSTMODEL_LAYOUT_BOXING_PATH_H
#define SBP_COSTMODEL_LAYOUT_BOXING_PATH_H

#include "costmodel/layout/boxing.h"
#include "costmodel/layout/boxing_cut.h"

/* element_bytes > 0. E_INPUT: a distribution that the layout has no digits for, or, on a mesh with
 * too many kinds of groups for paths, no normal form; E_MEMORY. */
enum sbp_status sbp_boxing_path(const struct sbp_cluster *cluster, const struct sbp_layout *layout,
                                const struct sbp_shape *shape, double element_bytes,
                                const struct sbp_dist *from, const struct sbp_dist *to,
                                struct sbp_boxing *boxing, struct sbp_diag *diag) SBP_MUST_USE;

/* Paths that were asked for on one cluster and mesh: a repeated question is looked up. Not
 * thread-safe. */
struct sbp_paths {
    struct sbp_arena arena;
    const struct sbp_cluster *cluster; /* borrowed */
    struct sbp_mesh mesh;
    bool has_prices;
    struct sbp_boxing_cut_prices prices;
    int known_count, slot_count;
    struct sbp_known_path **slot; /* (slot_count) by hash */
};

/* E_MEMORY. On failure nothing is left allocated. */
enum sbp_status sbp_paths_init(struct sbp_paths *paths, const struct sbp_cluster *cluster,
                               const struct sbp_mesh *mesh, struct sbp_diag *diag) SBP_MUST_USE;
void sbp_paths_free(struct sbp_paths *paths);

/* As sbp_boxing_path; the layout's mesh is that of the paths. */
enum sbp_status sbp_paths_find(struct sbp_paths *paths, const struct sbp_layout *layout,
                               const struct sbp_shape *shape, double element_bytes,
                               const struct sbp_dist *from, const struct sbp_dist *to,
                               struct sbp_boxing *boxing, struct sbp_diag *diag) SBP_MUST_USE;

#endif
