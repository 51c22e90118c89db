/* Fits the samples of a calibration: finds the network and the device rates of a cluster file.
 *
 * Input is the record of a file of samples. Outputs are struct sbp_calibration (the measurements,
 * summed up over runs), struct sbp_calibrated_network (curves by group shape), and struct
 * sbp_calibrated (one alpha and beta after AutoDDL, section 3.2, with their errors, and the rates
 * of compute). calib/output/ writes them.
 */
#ifndef SBP_CALIB_FIT_CALIBRATE_H
#define SBP_CALIB_FIT_CALIBRATE_H

#include "calib/fit/attention_fit.h"
#include "calib/fit/level_fit.h"
#include "calib/fit/network_fit.h"
#include "calib/samples/findings.h"

struct sbp_calibration {
    struct sbp_calibration_origin origin;
    const char *samples_path;
    enum sbp_statistic statistic; /* of the collectives' times */
    struct sbp_measured measured; /* owned */
    struct sbp_compute_times compute;
    struct sbp_sample_findings findings;
    const char *impossible; /* what they say of times that were left out; NULL: none was */
};

/* Sums up a file of samples: the origin of its last session, all of its points, the findings.
 * E_MEMORY. The record is borrowed as long as the calibration lives, which the caller frees, also
 * after failure. */
enum sbp_status sbp_calibrate_collect(const struct sbp_record *record, enum sbp_statistic statistic,
                                      struct sbp_calibration *calibration,
                                      struct sbp_diag *diag) SBP_MUST_USE;
void sbp_calibrate_free(struct sbp_calibration *calibration);

/* Whether a host has more ranks than cores, so that wall times hold waiting for a core. */
bool sbp_calibrate_is_crowded(const struct sbp_calibration *calibration);
/* Whether each rank computes on a device of its own, which ranks do not share as they do cores. */
bool sbp_calibrate_is_gpu(const struct sbp_calibration *calibration);

/* Whether one rank was measured alone, so that there is no network. */
bool sbp_calibrate_is_alone(const struct sbp_calibration *calibration);

/* Curves of all good runs, and the ports that ranks of a host share. */
struct sbp_calibrated_network {
    struct sbp_network_fit fit;
    struct sbp_ports ports;
};

/* Fits the curves. The caller frees network->fit, also after failure; *network is zero at first.
 * E_INPUT: nothing to fit; E_MEMORY. */
enum sbp_status sbp_calibrate_network(const struct sbp_calibration *calibration,
                                      struct sbp_calibrated_network *network,
                                      struct sbp_diag *diag) SBP_MUST_USE;

/* Shares that were measured of several sizes: the middle one, the least and the most; sizes 0: not
 * timed. */
struct sbp_measured_shares {
    int sizes;
    double least, middle, most;
};

#define SBP_MAX_PRODUCT_GRIDS   2
#define SBP_LEAST_TYPE_PRODUCTS 8 /* fewer tell the rate of a type alone */
struct sbp_calibrated {
    enum sbp_fit_weights weights;        /* whose fit the cluster file gets */
    struct sbp_fit fit[SBP_FIT_WEIGHTS]; /* of the paper's four collectives (all but send-recv) */
    bool of_messages; /* of send-recv instead: no other collective was measured */
    struct sbp_fit_error kind_error[SBP_FIT_KINDS]; /* of that fit; send-recv is predicted only */
    struct sbp_fit alone[SBP_FIT_KINDS]; /* each kind by itself; error.points = 0: not determined */
    int points, settled, kind_settled[SBP_FIT_KINDS]; /* settled: over their runs */
    double flops[SBP_TYPES];                          /* best of each type; 0: not timed */
    double gemm_flops[SBP_MAX_GEMMS];
    /* Shares of products are of the rate of their type: of that of most products, and of others of
     * which SBP_LEAST_TYPE_PRODUCTS and more were timed. */
    int grid_count;
    struct sbp_product_grids {
        enum sbp_type type;
        struct sbp_grid_fit pass[SBP_PASSES]; /* over m, n and k */
    } grids[SBP_MAX_PRODUCT_GRIDS];           /* (grid_count) */
    /* Products of experts reach these shares of the rate of single products of the same sizes. */
    struct sbp_measured_shares grouped[SBP_PASSES];
    /* Of a collective's time these shares hide behind products: by kind, and of all. */
    struct sbp_measured_shares hidden[SBP_COLLECTIVES], hidden_of_all;
    double copy_bytes_per_s, stream_bytes_per_s; /* read and written; 0: not timed */
    double host_link_bytes_per_s; /* one way, where all GPUs copy at a time; 0: not timed */
    /* Rows in another order; sizes 0: not timed. */
    struct {
        int sizes;
        int64_t row_bytes[SBP_MAX_ROWS];  /* (sizes), rising */
        double bytes_per_s[SBP_MAX_ROWS]; /* read and written */
    } dispatch;
    double vector_operations_per_s; /* operations of GELU a second; 0: not timed */
    double
        sustained; /* share of a product's rate that is left under load, of its type; 0: unknown */
    struct sbp_attention_fit attention; /* empty: not timed, or no product of its type was */
    const struct sbp_calibrated_network *network; /* borrowed; NULL: alpha and beta alone */
};

/* network: NULL, or the curves, beside which alpha and beta need not be determined
 * (fit[].error.points = 0); the same of one rank alone. E_INPUT: the samples do not determine the
 * parameters; E_MEMORY. */
enum sbp_status sbp_calibrate_fit(const struct sbp_calibration *calibration,
                                  enum sbp_fit_weights weights,
                                  const struct sbp_calibrated_network *network,
                                  struct sbp_calibrated *calibrated,
                                  struct sbp_diag *diag) SBP_MUST_USE;

#endif
