#include "executor/run_memory.h"

#include <stdio.h>
#include <unistd.h>

#include "base/machine.h"
#include "base/text.h"
#include "executor/verify/verify.h"

int64_t sbp_run_arena_bytes(const struct sbp_step *step, int stage)
{
    return step->memory[stage].device_bytes - step->memory[stage].reserve_bytes;
}

enum sbp_status sbp_run_need(const struct sbp_step *step, const struct sbp_cluster *cluster,
                             int64_t rank, bool verify, struct sbp_run_need *need,
                             struct sbp_diag *diag)
{
    const int stage = (int)(rank / step->mesh.devices);
    *need = (struct sbp_run_need){.bytes = sbp_run_arena_bytes(step, stage)};
    if (!verify)
        return SBP_OK;
    SBP_TRY(sbp_verify_bytes(sbp_step_program(step, stage), cluster, rank == 0, &need->verify_bytes,
                             diag));
    need->bytes += need->verify_bytes;
    return SBP_OK;
}

void sbp_run_host_find(struct sbp_run_host *host)
{
    *host = (struct sbp_run_host){.free_bytes =
                                      sbp_machine_free_bytes(SBP_PROCESSES, SBP_CONTROL_GROUP)};
    if (gethostname(host->name, sizeof host->name - 1) != 0)
        host->name[0] = '\0'; /* without a name all hosts are one */
}

void sbp_run_host_add(struct sbp_run_host *host, const struct sbp_run_need *need)
{
    host->ranks++;
    host->need.bytes += need->bytes;
    host->need.verify_bytes += need->verify_bytes;
}

enum sbp_status sbp_run_host_check(const struct sbp_run_host *host, struct sbp_diag *diag)
{
    char needs[32], has[32], checks[32], of_it[64] = "";
    if (host->free_bytes < 0 || host->need.bytes <= host->free_bytes)
        return SBP_OK;
    if (host->need.verify_bytes > 0)
        (void)snprintf(of_it, sizeof of_it, " (%s of it to verify)",
                       sbp_format_bytes((double)host->need.verify_bytes, checks));
    return sbp_fail(diag, SBP_E_MEMORY, "%d rank%s on host %s need%s %s of memory%s, %s are free",
                    host->ranks, host->ranks == 1 ? "" : "s", host->name,
                    host->ranks == 1 ? "s" : "", sbp_format_bytes((double)host->need.bytes, needs),
                    of_it, sbp_format_bytes((double)host->free_bytes, has));
}

enum sbp_status sbp_run_check_threads(const struct sbp_step *step,
                                      const struct sbp_cluster *cluster, bool verify,
                                      double *arenas, struct sbp_diag *diag)
{
    const int64_t ranks = step->stages * step->mesh.devices;
    struct sbp_run_host host;
    struct sbp_run_need need;
    *arenas = 0;
    if (ranks > 1024)
        return sbp_fail(diag, SBP_E_INPUT, "plan is for %lld ranks, the threads backend runs 1024",
                        (long long)ranks);
    sbp_run_host_find(&host);
    for (int64_t rank = 0; rank < ranks; rank++) {
        SBP_TRY(sbp_run_need(step, cluster, rank, verify, &need, diag));
        sbp_run_host_add(&host, &need);
        *arenas += (double)(need.bytes - need.verify_bytes);
    }
    return sbp_run_host_check(&host, diag);
}
