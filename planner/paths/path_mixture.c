#include "planner/paths/path_mixture.h"

#include <assert.h>
#include <math.h>

#include "planner/limits.h"
#include "planner/paths/path_critical.h"
#include "planner/solvers/matrix_game.h"

enum sbp_status sbp_mixture_begin(const struct sbp_cut *cut, struct sbp_arena *arena,
                                  struct sbp_mixture *mixture, struct sbp_diag *diag)
{
    *mixture = (struct sbp_mixture){.cut = cut, .arena = arena, .path_count = 1};
    SBP_TRY(sbp_path_expected(cut, arena, &mixture->known[0], diag));
    SBP_TRY(sbp_path_init(cut, arena, &mixture->path));
    SBP_TRY(sbp_path_init(cut, arena, &mixture->best));
    sbp_path_mix(mixture->known, &(const double){1}, 1, &mixture->path);
    sbp_path_mix(mixture->known, &(const double){1}, 1, &mixture->best);
    mixture->best_s = -INFINITY;
    return SBP_OK;
}

void sbp_mixture_note(struct sbp_mixture *mixture, double bound_s)
{
    if (bound_s <= mixture->best_s)
        return;
    mixture->best_s = bound_s;
    sbp_path_mix(&mixture->path, &(const double){1}, 1, &mixture->best);
}

static int find_path(const struct sbp_path *paths, int count, const struct sbp_path *path)
{
    for (int i = 0; i < count; i++)
        if (sbp_path_equal(&paths[i], path))
            return i;
    return -1;
}

static enum sbp_status play_game(const struct sbp_mixture *m, double *share)
{
    const struct sbp_arena_mark mark = sbp_arena_mark(m->arena);
    double *cost = SBP_NEW(m->arena, double, m->plan_count * m->path_count);
    if (cost == NULL)
        return SBP_E_MEMORY;
    for (int x = 0; x < m->plan_count; x++)
        for (int p = 0; p < m->path_count; p++)
            cost[x * m->path_count + p] = sbp_path_length_s(&m->known[p], &m->times[x]);
    SBP_TRY(sbp_game_play(cost, m->plan_count, m->path_count, m->arena, share));
    sbp_arena_release(m->arena, mark);
    return SBP_OK;
}

/* All known paths alike. */
static void mix_evenly(struct sbp_mixture *mixture)
{
    double share[SBP_PATHS_MOST + 1];
    for (int i = 0; i < mixture->path_count; i++)
        share[i] = 1.0 / mixture->path_count;
    sbp_path_mix(mixture->known, share, mixture->path_count, &mixture->path);
    mixture->is_even = true;
}

enum sbp_status sbp_mixture_skip(struct sbp_mixture *mixture, bool *more)
{
    double share[SBP_PATHS_MOST + 1] = {0};
    *more = mixture->path_count > 1 && !(mixture->is_played && mixture->is_even);
    if (!*more)
        return SBP_OK;
    if (mixture->is_played) {
        mix_evenly(mixture);
        return SBP_OK;
    }
    SBP_TRY(play_game(mixture, share));
    sbp_path_mix(mixture->known, share, mixture->path_count, &mixture->path);
    mixture->is_played = true;
    return SBP_OK;
}

enum sbp_status sbp_mixture_add(struct sbp_mixture *mixture, const struct sbp_strategy *strategy,
                                bool *more, struct sbp_diag *diag)
{
    assert(mixture->path_count <= SBP_PATHS_MOST && mixture->plan_count <= SBP_PATHS_MOST);
    struct sbp_path *const path = &mixture->known[mixture->path_count];
    struct sbp_path *const times = &mixture->times[mixture->plan_count];
    double share[SBP_PATHS_MOST + 1] = {0};
    SBP_TRY(sbp_path_of_step(mixture->cut, strategy, mixture->arena, path, times, diag));
    const bool is_new_plan = find_path(mixture->times, mixture->plan_count, times) < 0;
    const bool is_new_path = find_path(mixture->known, mixture->path_count, path) < 0;
    mixture->plan_count += is_new_plan;
    mixture->path_count += is_new_path;
    const bool is_alone = is_new_path && mixture->path_count <= SBP_PATHS_ALONE;
    *more = mixture->path_count > 1 && (is_new_plan || is_new_path || !mixture->is_played);
    if (is_alone)
        share[mixture->path_count - 1] = 1;
    else
        SBP_TRY(play_game(mixture, share));
    mixture->is_played = !is_alone;
    mixture->is_even &= !is_new_plan && !is_new_path;
    sbp_path_mix(mixture->known, share, mixture->path_count, &mixture->path);
    return SBP_OK;
}
