/* The origin of a calibration: on which hosts, processors and libraries it ran, under which
 * settings.
 *
 * The file of samples keeps it with every session, and cluster files repeat it, so that a number
 * can be traced to the machine that gave it (Hoefler and Belli, SC'15, rule 9).
 */
#ifndef SBP_CALIB_SAMPLES_ORIGIN_H
#define SBP_CALIB_SAMPLES_ORIGIN_H

#include <stdint.h>

struct sbp_calibration_origin {
    char name[64]; /* of the cluster */
    char host[64], cpu[128], system[160], compiler[96], date[32], backend[16];
    const char *version, *command;
    int ranks, hosts;
    int ranks_per_host, cores; /* of the fullest host */
    int64_t memory_bytes;      /* of the device, else the rank's share of its host; the least over
                                  ranks */
    uint64_t seed;
    double budget_s, wall_s;

    int least_ranks_per_host; /* of the emptiest host; so many ranks of each host are measured */
    int64_t max_bytes;
    int runs;                   /* passes over all cells */
    char library[160];          /* of the collectives: "Open MPI 4.1.4"; "": none */
    char device[128];           /* that computes in the processor's stead; "": none */
    char driver[160];           /* that moves the bytes; "": the system names none */
    char binding[64];           /* "2 of 8 cores a rank" */
    char launcher[64];          /* of rank 0: "srun --mpi=pmix", "mpirun"; "": none, or not said */
    char job[96];               /* of a batch system: "Slurm 12.0, partition all"; "": none */
    char settings[2048];        /* NAME=value lines of the environment, of known names alone */
    double nominal_bytes_per_s; /* of a node's network in one direction; 0: unknown */
    char nominal_from[64];      /* "eth0", "mlx5_0", "--nominal" */
};

#endif
