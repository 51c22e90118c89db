/* Machines whose published logs of collectives lie beside the sources, in ../shared/data/logs; they
 * are no part of the project.
 */
#ifndef SBP_TESTS_PAPERS_MACHINES_H
#define SBP_TESTS_PAPERS_MACHINES_H

#include "calib/logs/log.h"
#include "calib/fit/network_fit.h"

#define MACHINE_MOST_FILES 8

struct machine {
    const char *name, *source; /* of the logs */
    const char *file[MACHINE_MOST_FILES];
};
enum {
    MACHINE_POLARIS,
    MACHINE_ALPS,
    MACHINE_H100_INFINIBAND,
    MACHINE_A100_NODE,
    MACHINE_H100_NODE,
    MACHINE_L40S_NODE,
    MACHINE_KESTREL,
    MACHINE_MI300X_NODE,
    MACHINE_OCI,
    MACHINES
};
extern const struct machine machines[MACHINES];

/* nccl-tests, issue 309: all-reduces of two and of eight nodes. */
extern const char *const machine_two_nodes[], *const machine_eight_nodes[];

/* Whether the logs are there. folder: of the logs. */
bool machine_has_logs(const char *folder);
/* Reads files, to the first NULL; the caller frees. */
enum sbp_status machine_read(const char *folder, const char *const *file,
                             struct sbp_measured *measured, struct sbp_diag *diag) SBP_MUST_USE;
enum sbp_status machine_fit(const char *folder, const char *const *file,
                            const struct sbp_network_options *options, struct sbp_network_fit *fit,
                            struct sbp_diag *diag) SBP_MUST_USE;
/* The files but one. */
void machine_without(const struct machine *machine, int left_out,
                     const char *file[MACHINE_MOST_FILES]);
/* Median of |predicted / measured - 1| over one file; NAN: it cannot be read or predicted. */
double machine_error_on(const char *folder, const struct sbp_network_fit *fit, const char *file);

#endif
