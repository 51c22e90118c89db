#include "base/launcher.h"

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <time.h>

#include "base/text.h"

const char *const sbp_backend_names[] = {"auto", "threads", "mpi", "nccl", NULL};
const char *const sbp_device_names[] = {"auto", "cpu", "cuda", NULL};
const char *const sbp_verify_names[] = {"none", "full", "sampled", "shrunk", NULL};

/* The first of the environment's variables that holds a number >= 0, else -1. */
static int64_t find_number(const char *const *names, int count)
{
    for (int i = 0; i < count; i++) {
        const char *value = getenv(names[i]);
        int64_t number;
        if (value != NULL && sbp_parse_int64(value, &number) && number >= 0)
            return number;
    }
    return -1;
}

/* Processes of the step that srun started. Only its processes have the variable: the shells of
 * sbatch and salloc have SLURM_PROCID, too, as 0. */
static int64_t find_srun_processes(void)
{
    static const char *const name = "SLURM_STEP_NUM_TASKS";
    return find_number(&name, 1);
}

enum { CONNECTED = 3, NUMBERED }; /* SLURM_PROCID is a number, and no way to the others */
static const char *const rank_names[NUMBERED] = {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK",
                                                 "SLURM_PROCID"};

/* mpirun may itself run below srun, its processes' own numbers come first. Of a single process srun
 * is no launcher: it may be a user's shell. */
int64_t sbp_launcher_rank(void)
{
    return find_number(rank_names, find_srun_processes() > 1 ? NUMBERED : CONNECTED);
}

bool sbp_launcher_connects(void)
{
    return find_number(rank_names, CONNECTED) >= 0;
}

int64_t sbp_launcher_size(void)
{
    static const char *const names[] = {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE"};
    if (sbp_launcher_rank() < 0)
        return 1;
    const int64_t processes = find_number(names, 2);
    return processes < 0 ? find_srun_processes() : processes;
}

enum sbp_status sbp_launcher_alone(struct sbp_diag *diag)
{
    const int64_t processes = sbp_launcher_size();
    if (processes <= 1)
        return SBP_OK;
    return sbp_fail(diag, SBP_E_USAGE,
                    "--backend threads runs all ranks in one process, but the launcher started "
                    "%lld: use --backend mpi, or no launcher",
                    (long long)processes);
}

void sbp_launcher_yield(void)
{
    struct timespec left = {.tv_sec = 5};
    while (sbp_launcher_rank() > 0 && nanosleep(&left, &left) != 0 && errno == EINTR)
        continue;
}
