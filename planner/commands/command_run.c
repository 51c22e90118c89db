#include <string.h>

#include "base/launcher.h"
#include "costmodel/program/runnable.h"
#include "planner/cli/inputs.h"
#include "planner/cli/launch.h"
#include "planner/commands/commands.h"
#include "planner/plan/plan.h"

/* Counts the ranks; refuses a wrong plan here once instead of on every rank. */
static enum sbp_status count_ranks(const char *path, int64_t *ranks, struct sbp_diag *diag)
{
    struct sbp_plan plan;
    struct sbp_diag reason = {0};
    SBP_TRY(sbp_inputs_read_plan(path, &plan, diag));
    const enum sbp_status status = sbp_runnable_check(&plan.cut.graph, &plan.cut.parallel, &reason);
    *ranks = sbp_cut_devices(&plan.cut);
    sbp_plan_free(&plan);
    return status == SBP_OK ? status : sbp_fail(diag, status, "%s: %s", path, reason.text);
}

/* Chooses the backend as sbplan-run does: mpi under a launcher, else threads. */
static void choose(const struct sbp_arguments *arguments, const char *mode,
                   struct sbp_launch *launch)
{
    int count = 0;
    if (mode != NULL)
        launch->extra[count++] = mode;
    if (arguments->backend != SBP_BACKEND_AUTO) {
        launch->extra[count++] = "--backend";
        launch->extra[count++] = sbp_backend_names[arguments->backend];
    }
    if (arguments->device > 0) {
        launch->extra[count++] = "--device";
        launch->extra[count++] = sbp_device_names[arguments->device];
    }
}

/* Whether ranks are processes of a launcher: by NCCL, too, whose buffers lie on GPUs. */
static bool wants_launcher(const struct sbp_arguments *arguments)
{
    const bool on_gpus = strcmp(sbp_device_names[arguments->device], "cpu") != 0;
    return arguments->backend == SBP_BACKEND_MPI ||
           (arguments->backend == SBP_BACKEND_NCCL && on_gpus);
}

/* mode: the option of sbplan-run that asks for it; NULL. */
static enum sbp_status start(const struct sbp_arguments *arguments, const char *mode,
                             struct sbp_diag *diag)
{
    const bool mpirun = wants_launcher(arguments) && sbp_launcher_rank() < 0;
    struct sbp_launch launch = {
        .program = "sbplan-run", .build_folder = "executor", .arguments = arguments};
    int64_t ranks = 0;
    choose(arguments, mode, &launch);
    if (mpirun && !sbp_launch_has_mpirun())
        return sbp_fail(diag, SBP_E_UNSUPPORTED,
                        "sbplan %s: --backend %s needs mpirun, which is not in $PATH",
                        arguments->command->name, sbp_backend_names[arguments->backend]);
    for (int i = arguments->operands.count - 1; i >= 0; i--)
        SBP_TRY(count_ranks(arguments->operands.word[i], &ranks, diag));
    launch.ranks = mpirun ? ranks : 0;
    return sbp_launch(&launch, diag);
}

enum sbp_status sbp_command_run(const struct sbp_arguments *arguments, struct sbp_diag *diag)
{
    return start(arguments, NULL, diag);
}

enum sbp_status sbp_command_bench(const struct sbp_arguments *arguments, struct sbp_diag *diag)
{
    return start(arguments, "--bench", diag);
}
