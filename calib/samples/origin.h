/* Where and how a calibration runs: hosts, processor, libraries, settings, and how ranks lie. */
#ifndef SBP_CALIB_SAMPLES_ORIGIN_H
#define SBP_CALIB_SAMPLES_ORIGIN_H

#include "calib/measure/compute.h"
#include "calib/samples/placement.h"

struct sbp_calibration_origin {
    char name[64]; /* of the cluster */
    char host[64], cpu[128], system[160], compiler[96], date[32], backend[16];
    const char *version, *command;
    int ranks, hosts;
    int ranks_per_host, cores; /* of the fullest host */
    int64_t memory_bytes;      /* of the device; else of the host, divided by its ranks; the least
                                  over ranks */
    uint64_t seed;
    double budget_s, wall_s;

    int least_ranks_per_host; /* of the emptiest host: what is measured */
    int64_t max_bytes;
    int runs;                   /* repeats of the whole */
    char library[160];          /* of the collectives: "Open MPI 4.1.4"; "": none */
    char device[128];           /* what computes, where it is not the processor; "" */
    char driver[160];           /* of what moves the bytes, as far as the system tells; "" */
    char binding[64];           /* "2 of 8 cores a rank" */
    char launcher[64];          /* of rank 0: "srun --mpi=pmix", "mpirun"; "": none, or not said */
    char job[96];               /* of a batch system: "Slurm 12.0, partition all"; "": none */
    char settings[2048];        /* of the environment, NAME=value lines of a white list of names */
    double nominal_bytes_per_s; /* of a node's network in one direction; 0: unknown */
    char nominal_from[64];      /* "eth0", "mlx5_0", "--nominal" */
};

/* Fills everything but version, command, seed, runs, max_bytes, budget_s and wall_s: `ranks` is
 * the endpoint whose calls are timed. Collective over all ranks, which compare what they have.
 * E_MEMORY, E_BACKEND, E_PEER. */
enum sbp_status sbp_origin_find(const struct sbp_sampler *sampler,
                                const struct sbp_rank_placement *placement,
                                struct sbp_endpoint ranks, const struct sbp_processor *processor,
                                struct sbp_calibration_origin *origin,
                                struct sbp_diag *diag) SBP_MUST_USE;

#endif
