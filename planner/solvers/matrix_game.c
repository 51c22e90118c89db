#include "planner/solvers/matrix_game.h"

#include "planner/limits.h"

/* Fictitious play (Brown, 1951): in each turn both sides answer all turns of the other one so far.
 * The frequencies of the paths then approach their best mixture. */
enum sbp_status sbp_game_play(const double *cost, int plans, int paths, struct sbp_arena *scratch,
                              double *share)
{
    const struct sbp_arena_mark mark = sbp_arena_mark(scratch);
    double *of_path = SBP_NEW(scratch, double, paths), *of_plan = SBP_NEW(scratch, double, plans);
    if (of_path == NULL || of_plan == NULL)
        return SBP_E_MEMORY;
    for (int p = 0; p < paths; p++)
        share[p] = 0;
    for (int turn = 0; turn < SBP_PROBLEM_GAME_TURNS; turn++) {
        int path = 0, plan = 0;
        for (int p = 1; p < paths; p++)
            path = of_path[p] > of_path[path] ? p : path;
        share[path] += 1;
        for (int x = 0; x < plans; x++)
            of_plan[x] += cost[(size_t)x * (size_t)paths + (size_t)path];
        for (int x = 1; x < plans; x++)
            plan = of_plan[x] < of_plan[plan] ? x : plan;
        for (int p = 0; p < paths; p++)
            of_path[p] += cost[(size_t)plan * (size_t)paths + (size_t)p];
    }
    for (int p = 0; p < paths; p++)
        share[p] /= SBP_PROBLEM_GAME_TURNS;
    sbp_arena_release(scratch, mark);
    return SBP_OK;
}
