#include "tests/papers/machines.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/math/stats.h"

#define PATH_BYTES  1024
#define MOST_POINTS 256 /* of a file */

const struct machine machines[MACHINES] = {
    [MACHINE_POLARIS] =
        {"Polaris, A100, Slingshot",
         "argonne-lcf/alcf-nccl-tests, NCCL 2.18 with aws-ofi-nccl",
         {"alcf_polaris/polaris_all_gather_n128_r512_nccl_2_18_env5_2024-04-29-18-31-53.txt",
          "alcf_polaris/polaris_all_gather_n2_r8_nccl_2_18_env5_2024-04-29-18-41-24.txt",
          "alcf_polaris/polaris_all_gather_n8_r32_nccl_2_18_env5_2024-04-29-18-14-00.txt",
          "alcf_polaris/polaris_all_reduce_n2_r8_nccl_2_18_env5_2024-04-29-18-41-24.txt",
          "alcf_polaris/polaris_all_reduce_n8_r32_nccl_2_18_env5_2024-04-29-18-14-00.txt",
          "alcf_polaris/polaris_alltoall_n2_r8_nccl_2_18_env5_2024-04-29-18-41-24.txt",
          "alcf_polaris/polaris_alltoall_n8_r32_nccl_2_18_env5_2024-04-29-18-14-00.txt"}},
    [MACHINE_ALPS] = {"Alps, GH200, Slingshot",
                      "boeschf/nccl-benchmark-on-alps-2025",
                      {"alps_gh200/alps_allreduce_r0004_N001_NCCL_CROSS_NIC_1_1.13.0_table.txt",
                       "alps_gh200/alps_allreduce_r0016_N004_NCCL_CROSS_NIC_1_1.13.0_table.txt",
                       "alps_gh200/alps_allreduce_r0064_N016_NCCL_CROSS_NIC_1_1.13.0_table.txt",
                       "alps_gh200/alps_allreduce_r0256_N064_NCCL_CROSS_NIC_1_1.13.0_table.txt",
                       "alps_gh200/alps_allreduce_r1024_N256_NCCL_CROSS_NIC_1_1.13.0_table.txt"}},
    [MACHINE_H100_INFINIBAND] = {"H100 and InfiniBand",
                                 "nccl-tests-cluster, example-cluster01",
                                 {"h100_cluster01/cluster01_N10_G1_r10.txt",
                                  "h100_cluster01/cluster01_N10_G8_r80.txt",
                                  "h100_cluster01/cluster01_N1_G4_r4_cnode3-002.txt",
                                  "h100_cluster01/cluster01_N1_G8_r8_cnode3-002.txt"}},
    [MACHINE_A100_NODE] = {"A100, one node",
                           "NVIDIA aiconfigurator, NCCL 2.27.3",
                           {"aiconfigurator_csv/a100_sxm_nccl_2.27.3.csv"}},
    [MACHINE_H100_NODE] = {"H100, one node",
                           "NVIDIA aiconfigurator, NCCL 2.29.2",
                           {"aiconfigurator_csv/h100_sxm_nccl_2.29.2.csv"}},
    [MACHINE_L40S_NODE] = {"L40S, one node",
                           "NVIDIA aiconfigurator, NCCL 2.27.3",
                           {"aiconfigurator_csv/l40s_nccl_2.27.3.csv"}},
    [MACHINE_KESTREL] = {"Kestrel, H100, Slingshot",
                         "NREL/ESIFHPC4",
                         {"misc/kestrel_h100_allreduce_r64.txt",
                          "misc/kestrel_h100_allgather_r64.txt"}},
    [MACHINE_MI300X_NODE] = {"MI300X, one node",
                             "hisohara/ai-scripts",
                             {"misc/mi300x_allreduce_r8.txt"}},
    [MACHINE_OCI] = {"OCI, A100, RoCE", "oci-hpc-oke", {"misc/oci_oke_a100_allreduce_r16.txt"}},
};

const char *const machine_two_nodes[] = {"issues/nccl-tests_309_gjaion_h100_allreduce_r16.txt",
                                         NULL};
const char *const machine_eight_nodes[] = {"issues/nccl-tests_309_gjaion_h100_allreduce_r64.txt",
                                           NULL};

bool machine_has_logs(const char *folder)
{
    char path[PATH_BYTES];
    struct stat status;
    (void)snprintf(path, sizeof path, "%s/MANIFEST.tsv", folder);
    return stat(path, &status) == 0;
}

enum sbp_status machine_read(const char *folder, const char *const *file,
                             struct sbp_measured *measured, struct sbp_diag *diag)
{
    char path[MACHINE_MOST_FILES][PATH_BYTES];
    const char *paths[MACHINE_MOST_FILES];
    const struct sbp_log_options said = {0};
    struct sbp_logs logs;
    int count = 0;
    for (; count < MACHINE_MOST_FILES && file[count] != NULL; count++) {
        (void)snprintf(path[count], PATH_BYTES, "%s/%s", folder, file[count]);
        paths[count] = path[count];
    }
    const enum sbp_status status = sbp_logs_read(paths, count, &said, &logs, measured, diag);
    sbp_logs_free(&logs);
    return status;
}

enum sbp_status machine_fit(const char *folder, const char *const *file,
                            const struct sbp_network_options *options, struct sbp_network_fit *fit,
                            struct sbp_diag *diag)
{
    struct sbp_measured measured;
    enum sbp_status status = machine_read(folder, file, &measured, diag);
    if (status == SBP_OK)
        status = sbp_network_fit(&measured, options, fit, diag);
    sbp_points_free(&measured);
    return status;
}

void machine_without(const struct machine *machine, int left_out,
                     const char *file[MACHINE_MOST_FILES])
{
    int count = 0;
    for (int i = 0; i < MACHINE_MOST_FILES; i++)
        if (i != left_out && machine->file[i] != NULL)
            file[count++] = machine->file[i];
    while (count < MACHINE_MOST_FILES)
        file[count++] = NULL;
}

double machine_error_on(const char *folder, const struct sbp_network_fit *fit, const char *file)
{
    const char *const files[] = {file, NULL};
    struct sbp_measured measured;
    double off[MOST_POINTS], error = NAN;
    if (machine_read(folder, files, &measured, NULL) == SBP_OK && measured.count > 0 &&
        measured.count <= MOST_POINTS) {
        for (int i = 0; i < measured.count; i++) {
            const struct sbp_measured_point *p = &measured.point[i];
            const double seconds =
                sbp_network_fit_s(fit, p->kind, p->nodes, p->ranks_per_node, p->bytes);
            off[i] = fabs(seconds / p->time_s - 1);
        }
        error = sbp_median(off, measured.count);
    }
    sbp_points_free(&measured);
    return error;
}
