/* A cluster: network levels and one kind of device, as read from a cluster file.
 *
 * Levels stand outermost first (nodes, then devices in a node). All numbers are SI: seconds, bytes,
 * FLOP/s. Prices of products and kernels follow here, by the rates of device.h; those of
 * collectives in collective.h.
 */
#ifndef SBP_COSTMODEL_CLUSTER_CLUSTER_H
#define SBP_COSTMODEL_CLUSTER_CLUSTER_H

#include <stdint.h>

#include "base/json/json.h"
#include "base/status.h"
#include "costmodel/cluster/curve.h"
#include "costmodel/cluster/device.h"
#include "costmodel/cluster/network.h"
#include "costmodel/cluster/runtime.h"

#define SBP_MAX_LEVELS 4

const char *sbp_cluster_type_name(enum sbp_type type); /* "fp32", "fp64", "bf16", "fp16" */
int64_t sbp_cluster_type_bytes(enum sbp_type type);

struct sbp_level {
    char name[32];
    int64_t size;           /* members, >= 1 */
    double alpha_s;         /* latency of one message step */
    double beta_s_per_byte; /* inverse bandwidth of one port in one direction */
    int ports;              /* network ports of one member that the groups of its devices share;
                               0, not given: every device has a port of its own */
};

/* How a group that spans levels communicates (costmodel/cluster/collective.h). */
enum sbp_collective_model { SBP_MODEL_RING, SBP_MODEL_HIERARCHICAL };

#define SBP_CLUSTER_MOST_DEVICES (INT64_C(1) << 40)

struct sbp_cluster {
    char name[64];
    int level_count;
    struct sbp_level level[SBP_MAX_LEVELS];
    struct sbp_curves curves;   /* measured times that override alpha and beta */
    struct sbp_network network; /* measured times by group shape, which override both */
    enum sbp_collective_model collectives;
    double gradient_overlap; /* share of a gradient's communication that can hide behind the
                                backward pass, 0 .. 1, default 0 */
    int64_t memory_bytes;    /* of a device */
    int64_t reserve_bytes;   /* of it, held by others than the trainer, default 0 */
    double flops[SBP_TYPES]; /* peak rate by type; 0: not given */
    double memory_bytes_per_s;
    int64_t host_memory_bytes;    /* host memory for each device; 0: not given */
    double host_link_bytes_per_s; /* between a device and it, in one direction; 0: not given */
    double kernel_launch_s;       /* of one kernel, beside flops and bytes; default 0 */
    double slowdown; /* of a virtual device, that takes so many times as long as the one that the
                        file describes: >= 1, of a file that gives none 1. Rates hold it already */
    struct sbp_runtime runtime;    /* the trainer; its reserve is on top of the device's */
    struct sbp_device_rates rates; /* shares of the peaks; its tables are borrowed */
};

/* Reads {"name", "collectives"?: "ring" (default) | "hierarchical", "gradient_overlap"?, "levels":
 * [{"name", "size", "alpha_s", "beta_s_per_byte", "ports"?, "curves"?: {...}}...], "device":
 * {"memory_bytes", "reserve_bytes"?, "flops": {type: rate}, "memory_bytes_per_s",
 * "host_memory_bytes"?, "host_link_bytes_per_s"?, "kernel_launch_s"?, "slowdown"?, and
 * rates as in costmodel/cluster/device.h}, "runtime"?: {...}, "network"?: {...}, "measured"?:
 * {...}, "source"?:
 * ...}. Curves: costmodel/cluster/curve.h; network: costmodel/cluster/network.h; runtime:
 * costmodel/cluster/runtime.h, whose gradients stand for gradient_overlap and whose reserve is
 * added to the device's; of it no more hides than the device's overlap_efficiency, and its host
 * takes host_launch_s at least. "measured" and "source" are carried along, not interpreted. Devices
 * in all: 1 .. 2^40, of at most SBP_MAX_AXES prime factors. The tables of device rates live in the
 * arena, for as long as the cluster or a copy of it is used. E_INPUT, E_MEMORY. */
enum sbp_status sbp_cluster_read(const struct sbp_json *at, struct sbp_arena *arena,
                                 struct sbp_cluster *cluster) SBP_MUST_USE;

/* Reads a "device" object alone, into the device's fields of a cluster that is zero otherwise.
 * Fails as above. */
enum sbp_status sbp_cluster_read_device(const struct sbp_json *device, struct sbp_arena *arena,
                                        struct sbp_cluster *cluster) SBP_MUST_USE;

int64_t sbp_cluster_devices(const struct sbp_cluster *cluster);
/* The type whose rate stands for that of `type`: itself, else for fp8 bf16, fp16, fp32 and fp64 in
 * this order, for a half-precision type the other one, which runs on the same units, then the
 * nearest wider type (a bound from below), then fp32 for fp64, then anything. `type` where the
 * cluster has no rates, so that compute is free. */
enum sbp_type sbp_cluster_rate_type(const struct sbp_cluster *cluster, enum sbp_type type);
/* Keeps the innermost `devices` (outer levels shrink first); E_INPUT when that does not divide. */
enum sbp_status sbp_cluster_shrink(struct sbp_cluster *cluster, int64_t devices,
                                   struct sbp_diag *diag) SBP_MUST_USE;

/* Seconds of a product: max(flops / (peak * share), bytes / bandwidth) (DESIGN.md, section 5), with
 * the share of costmodel/cluster/device.h. A type that the file gives no peak for takes that of the
 * other half-precision type, else of a wider one, else of any. */
double sbp_cluster_product_s(const struct sbp_cluster *cluster,
                             const struct sbp_device_product *product);
/* Seconds of a kernel that does `flops` at the peak rate and moves `bytes` at the bandwidth that
 * streams reach. */
double sbp_cluster_kernel_s(const struct sbp_cluster *cluster, enum sbp_type type, double flops,
                            double bytes);
/* Seconds of so many operations of an element-wise kernel: 0 where the device says no rate of them.
 * Doubles take twice as long. */
double sbp_cluster_vector_s(const struct sbp_cluster *cluster, enum sbp_type type,
                            double operations);
/* Seconds in which rows of so many bytes each are copied into another order, read and written: at
 * the share that the device says, else as a stream. */
double sbp_cluster_rows_s(const struct sbp_cluster *cluster, double bytes, double row_bytes);
/* Seconds of flash attention: as sbp_cluster_kernel_s with its share of the peak. */
double sbp_cluster_attention_s(const struct sbp_cluster *cluster,
                               const struct sbp_device_attention *attention, double flops,
                               double bytes);
/* Seconds of attention that writes its scores: kernels of products and streams in turn, so their
 * times add up. rates.unfused must be given; `bytes` are all that its passes move. */
double sbp_cluster_unfused_attention_s(const struct sbp_cluster *cluster, enum sbp_type type,
                                       double flops, double bytes);

#endif
