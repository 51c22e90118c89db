#include "planner/mixture.h"

/* Paths that come by themselves before mixtures do, and turns of a game. */
enum { ALONE = 3, TURNS = 4000 };

enum sbp_status sbp_mixture_begin(const struct sbp_plan *plan, struct sbp_arena *arena,
                                  struct sbp_mixture *mixture, struct sbp_diag *diag)
{
    *mixture = (struct sbp_mixture){.plan = plan, .arena = arena, .path_count = 1};
    SBP_TRY(sbp_path_expected(plan, arena, &mixture->known[0], diag));
    SBP_TRY(sbp_path_longest(plan, arena, &mixture->path)); /* as large */
    sbp_path_mix(mixture->known, &(const double){1}, 1, &mixture->path);
    return SBP_OK;
}

static int find(const struct sbp_path *paths, int count, const struct sbp_path *path)
{
    for (int i = 0; i < count; i++)
        if (sbp_path_equal(&paths[i], path))
            return i;
    return -1;
}

/* Both sides answer what the other one has done so far (Brown, 1951): the shares of the paths that
 * one side took come near its best mixture. share: zeros. */
static void play(const struct sbp_mixture *m, double *share)
{
    double cost[SBP_MOST_ROUNDS + 1][SBP_MOST_ROUNDS + 1];
    double of_path[SBP_MOST_ROUNDS + 1] = {0}, of_plan[SBP_MOST_ROUNDS + 1] = {0};
    for (int x = 0; x < m->plan_count; x++)
        for (int p = 0; p < m->path_count; p++)
            cost[x][p] = sbp_path_length_s(&m->known[p], &m->times[x]);
    for (int turn = 0; turn < TURNS; turn++) {
        int path = 0, plan = 0;
        for (int p = 1; p < m->path_count; p++)
            path = of_path[p] > of_path[path] ? p : path;
        share[path] += 1;
        for (int x = 0; x < m->plan_count; x++)
            of_plan[x] += cost[x][path];
        for (int x = 1; x < m->plan_count; x++)
            plan = of_plan[x] < of_plan[plan] ? x : plan;
        for (int p = 0; p < m->path_count; p++)
            of_path[p] += cost[plan][p];
    }
    for (int p = 0; p < m->path_count; p++)
        share[p] /= TURNS;
}

enum sbp_status sbp_mixture_add(struct sbp_mixture *mixture, const struct sbp_strategy *strategy,
                                bool *more, struct sbp_diag *diag)
{
    struct sbp_path *const path = &mixture->known[mixture->path_count];
    struct sbp_path *const times = &mixture->times[mixture->plan_count];
    double share[SBP_MOST_ROUNDS + 1] = {0};
    SBP_TRY(sbp_path_of_step(mixture->plan, strategy, mixture->arena, path, times, diag));
    const bool is_new_plan = find(mixture->times, mixture->plan_count, times) < 0;
    const bool is_new_path = find(mixture->known, mixture->path_count, path) < 0;
    mixture->plan_count += is_new_plan;
    mixture->path_count += is_new_path;
    const bool is_alone = is_new_path && mixture->path_count <= ALONE;
    *more = mixture->path_count > 1 && (is_new_plan || is_new_path || !mixture->is_played);
    if (is_alone)
        share[mixture->path_count - 1] = 1;
    else
        play(mixture, share);
    mixture->is_played = !is_alone;
    sbp_path_mix(mixture->known, share, mixture->path_count, &mixture->path);
    return SBP_OK;
}
