/* A trainer's profile: how the program that trains differs from the chip that it runs on.
 *
 * Two trainers on one machine take different times: one hides a collective behind arithmetic that
 * the other waits for, one launches an operator in 10 us and the other in 70. A profile states that
 * once for all models. Without one nothing hides and launches are free, which is how the papers'
 * machines are priced.
 */
#ifndef SBP_COSTMODEL_CLUSTER_RUNTIME_H
#define SBP_COSTMODEL_CLUSTER_RUNTIME_H

#include <stdbool.h>
#include <stdint.h>

#include "base/json/json.h"
#include "base/status.h"
#include "costmodel/cluster/device.h"

/* Kinds of communication that a trainer may run beside the arithmetic of the same pass. */
#define SBP_HIDING_MAP(X)                                                                          \
    X(GRADIENTS, "gradients")     /* their sums, in buckets or by micro-batch */                   \
    X(WEIGHTS, "weights")         /* ZeRO: gathered ahead of the pass, or after the update */      \
    X(ACTIVATIONS, "activations") /* boxing: tensor and sequence parallelism */                    \
    X(CONTEXT, "context")         /* keys and values of attention that splits the sequence */      \
    X(EXPERTS, "experts")         /* tokens to experts and back */
#define SBP_HIDING_ENUM(symbol, name) SBP_HIDES_##symbol,
enum sbp_hiding { SBP_HIDING_MAP(SBP_HIDING_ENUM) SBP_HIDINGS };
#undef SBP_HIDING_ENUM
const char *sbp_runtime_hiding_name(enum sbp_hiding hiding); /* "gradients" */

/* A trainer's kernels reach a share of the device's own rates: of products, of fused attention, and
 * of the bandwidth of streams, which unfused kernels read and write more often. */
#define SBP_REACH_MAP(X)                                                                           \
    X(PRODUCTS, "products")                                                                        \
    X(ATTENTION, "attention")                                                                      \
    X(STREAMS, "streams")
#define SBP_REACH_ENUM(symbol, name) SBP_REACH_##symbol,
enum sbp_reach { SBP_REACH_MAP(SBP_REACH_ENUM) SBP_REACHES };
#undef SBP_REACH_ENUM

struct sbp_runtime {
    char name[64];              /* "": none is given */
    double reach[SBP_REACHES];  /* > 0 .. 1, default 1 */
    double hidden[SBP_HIDINGS]; /* share of each that hides where arithmetic is long enough; 0 .. 1,
                                   default 0 */
    double host_s; /* that the host takes to launch an operator's pass, beside the device that
                      works on earlier ones; default 0 */
    double experts_wait_s; /* that a forward pass of a mixture waits for its host, which must know
                              how many tokens each expert gets before it goes on; default 0 */
    double launch_s;       /* of a kernel, while the device waits: hosts that block; default 0 */
    struct sbp_unfused_attention unfused; /* of materialised scores; share 0: not given */
    bool dispatches_once;                 /* a token that several experts of a node want is sent
                                             there once (collective.h), not once for each */
    bool sends_block;                     /* a stage waits until its message to the next has left */
    bool has_slots; /* messages wait in slots of a device's memory (stage_layout.h); else where
                       they are formed and read */
    double error;   /* e: nine of ten published steps t lay in p / (1 + e) .. p (1 + e) of their
                       predictions p; 0: not known */
    int64_t reserve_bytes; /* of a device that the trainer holds; default 0 */
    int64_t logit_bytes;   /* of each logit that its loss holds besides the logit and its gradient,
                              where the model's `loss` has the activations' type; default 0 */
};

/* Reads {"name", "hides"?: {"gradients"?, "weights"?, "activations"?, "context"?, "experts"?:
 * share}, "reaches"?: {"products"?, "attention"?, "streams"?: share}, "unfused_attention"?: as of a
 * device, "host_s"?, "launch_s"?, "experts_wait_s"?, "messages"?: "overlap" (default) | "block" |
 * "slots", "dispatch"?: "copies" (default) | "once", "reserve_bytes"?, "logit_bytes"?, "error"?,
 * "source"?}. most_bytes: of reserve_bytes. E_INPUT. */
enum sbp_status sbp_runtime_read(const struct sbp_json *at, int64_t most_bytes,
                                 struct sbp_runtime *runtime) SBP_MUST_USE;

/* The work of a pass of one micro-batch. */
struct sbp_pass_time {
    double device_s;        /* arithmetic, and communication as far as it never hides */
    double communication_s; /* all of it */
    double launches;        /* operators */
};
/* Seconds of a pass: the longest of what the device does one after the other, of all communication,
 * for one operation goes over the links at a time, and of the host's launches. */
double sbp_runtime_pass_s(const struct sbp_runtime *runtime, const struct sbp_pass_time *time);

#endif
