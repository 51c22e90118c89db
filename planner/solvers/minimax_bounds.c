#include "planner/solvers/minimax_bounds_priv.h"

#include <math.h>
#include <string.h>

#include "planner/limits.h"
#include "planner/solvers/matrix_game.h"

static void mix_tables(double *mixed, const double *table, double share, size_t count)
{
    for (size_t i = 0; i < count; i++)
        mixed[i] = mixed[i] >= SBP_FORBIDDEN || table[i] >= SBP_FORBIDDEN
                       ? SBP_FORBIDDEN
                       : mixed[i] + share * table[i];
}

static enum sbp_status mix_edges(const struct sbp_problem *path, int paths, const double *share,
                                 struct sbp_problem *mixed)
{
    for (int e = 0; e < path[0].edge_count; e++) {
        const struct sbp_edge *edge = &path[0].edge[e];
        const size_t cells = sbp_problem_entries(path, edge);
        bool transposed;
        double *table = sbp_problem_edge_table(mixed, edge->a, edge->b, &transposed);
        if (table == NULL)
            return SBP_E_MEMORY;
        for (int p = 0; p < paths; p++)
            mix_tables(table, path[p].edge[e].cost, share[p], cells);
    }
    return SBP_OK;
}

enum sbp_status sbp_minimax_mix(const struct sbp_problem *path, int paths, const double *share,
                                struct sbp_problem *mixed)
{
    SBP_TRY(sbp_problem_init_within(mixed, path[0].variable_count, path[0].edge_count,
                                    path[0].arena.budget));
    for (int v = 0; v < path[0].variable_count; v++) {
        const int domain = path[0].variable[v].domain;
        if (sbp_problem_add_variable(mixed, path[0].variable[v].name, domain, 0, NULL) != v)
            return SBP_E_MEMORY;
        for (int p = 0; p < paths; p++)
            mix_tables(mixed->variable[v].cost, path[p].variable[v].cost, share[p], (size_t)domain);
    }
    return mix_edges(path, paths, share, mixed);
}

/* ---- the game ------------------------------------------------------------------------------- */

struct mixer {
    const struct sbp_problem *path;
    int paths;
    double most_bytes;
    struct sbp_solver_run *search;
    struct sbp_arena *arena;
    struct sbp_diag *diag;
    int *choice; /* (variables) the cheapest of the mixture at hand */
    double least;
    bool more;
};

static enum sbp_status solve_tree(struct mixer *m, struct sbp_elimination_tree *tree)
{
    const struct sbp_arena_mark mark = sbp_arena_mark(m->arena);
    double *rows = SBP_TAKE(m->arena, double,
                            (SBP_ELIMINATION_MOST_WIDTH + 1) * (size_t)(tree->largest_domain + 1));
    if (rows == NULL)
        return SBP_E_MEMORY;
    sbp_elimination_price(tree, NULL, NULL);
    m->more = sbp_elimination_up(tree, m->search, rows, &m->least);
    if (m->more && isfinite(m->least))
        sbp_elimination_recover(tree, rows, m->choice);
    sbp_arena_release(m->arena, mark);
    return SBP_OK;
}

static enum sbp_status solve_mixture(struct mixer *m, const double *share)
{
    struct sbp_problem mixed;
    struct sbp_elimination_tree tree;
    enum sbp_status status = sbp_minimax_mix(m->path, m->paths, share, &mixed);
    if (status == SBP_OK)
        status = sbp_elimination_build(&mixed, m->most_bytes, &tree, m->diag);
    if (status == SBP_OK) {
        status = solve_tree(m, &tree);
        sbp_elimination_free(&tree);
    }
    sbp_problem_free(&mixed);
    return status;
}

/* The last few to raise the bound, the newest last. */
static void keep(struct sbp_minimax_mixtures *mixtures, const double *share, int paths)
{
    const size_t row = (size_t)paths;
    if (mixtures->count == mixtures->most)
        memmove(mixtures->share, mixtures->share + row,
                (size_t)(mixtures->count - 1) * row * sizeof *share);
    else
        mixtures->count++;
    memcpy(mixtures->share + (size_t)(mixtures->count - 1) * row, share, row * sizeof *share);
}

/* Turns until the cheapest choice of a mixture is no news: along its paths it costs as much. */
static enum sbp_status play_turns(struct mixer *m, double enough, double *share, double *cost,
                                  struct sbp_minimax_mixtures *mixtures)
{
    double known = INFINITY; /* the least of the largest, of all choices found */
    for (int turn = 0; turn < SBP_PROBLEM_MINIMAX_TURNS; turn++) {
        double largest = -INFINITY;
        SBP_TRY(solve_mixture(m, share));
        if (!m->more)
            return SBP_OK;
        if (m->least > mixtures->least) {
            keep(mixtures, share, m->paths);
            mixtures->least = m->least;
        }
        if (mixtures->least >= enough || !isfinite(m->least))
            return SBP_OK;
        for (int p = 0; p < m->paths; p++) {
            cost[turn * m->paths + p] = sbp_problem_cost(&m->path[p], m->choice);
            largest = fmax(largest, cost[turn * m->paths + p]);
        }
        known = fmin(known, largest);
        if (mixtures->least >= known * (1 - SBP_PROBLEM_MINIMAX_CLOSE))
            return SBP_OK;
        SBP_TRY(sbp_game_play(cost, turn + 1, m->paths, m->arena, share));
    }
    return SBP_OK;
}

enum sbp_status sbp_minimax_find_mixtures(const struct sbp_problem *path, int paths, double enough,
                                          double most_bytes, struct sbp_solver_run *search,
                                          struct sbp_arena *arena,
                                          struct sbp_minimax_mixtures *mixtures, bool *more,
                                          struct sbp_diag *diag)
{
    struct mixer m = {.path = path,
                      .paths = paths,
                      .most_bytes = most_bytes,
                      .search = search,
                      .arena = arena,
                      .diag = diag,
                      .choice = SBP_NEW(arena, int, path[0].variable_count + 1),
                      .more = true};
    double *share = SBP_NEW(arena, double, paths);
    double *cost = SBP_NEW(arena, double, (SBP_PROBLEM_MINIMAX_TURNS * paths));
    mixtures->share = SBP_NEW(arena, double, (mixtures->most * paths));
    mixtures->count = 0;
    mixtures->least = -INFINITY;
    if (m.choice == NULL || share == NULL || cost == NULL || mixtures->share == NULL)
        return SBP_E_MEMORY;
    for (int p = 0; p < paths; p++)
        share[p] = 1.0 / paths;
    SBP_TRY(play_turns(&m, enough, share, cost, mixtures));
    *more = m.more;
    return SBP_OK;
}
