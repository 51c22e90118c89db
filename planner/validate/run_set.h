/* A set of published training runs: what each trained, on what, split how, and what was measured.
 *
 * Input: a file of configs/runs. Output: the runs, each with the model file and the cluster file
 * that a user would have written for it, and its degrees.
 *
 * {"format": "sbplan runs", "title", "source", "trainer", "cluster": a cluster file or its name,
 * "runtime"?: a profile of the trainer or its name, "network"?: {"ports", "port_bytes_per_s"},
 * "model": keys of a model file that all runs share, "parallel"?: keys of how a step is cut that
 * all share, "run"?: columns that all share, "memory"?: {"reserve_bytes"?,
 * "stage"?: "most" (default) | "last", "what"?}, "bounds":
 * {...}, "peers"?: [{"name", ...}], "columns": [names], "runs": [[cells], ...]}
 *
 * A column is one of: id, gpus, gpus_per_node, tp, pp, vpp, dp, cp, ep, etp, zero,
 * sequence_parallel, micro_batch (of a replica), recompute, stage_blocks (layers of each piece),
 * counts_ends, step_s, memory_bytes (the most of a step, on the device that holds most or on one of
 * the last stage), settled_bytes (there, between steps), reserve_bytes (that both hold beside what
 * "memory" says for all runs); every other is a key of the model file (layers, hidden,
 * global_batch, ...). null: not said.
 */
#ifndef SBP_PLANNER_VALIDATE_RUN_SET_H
#define SBP_PLANNER_VALIDATE_RUN_SET_H

#include "base/arena.h"
#include "base/json/json.h"
#include "planner/degrees/degrees.h"

struct cJSON;

/* Figures by which predictions are judged, as shares; NAN: not said. A bound of `rank` is the
 * least that is allowed, all others are the most. */
struct sbp_run_figures {
    double error;        /* mean absolute error of step times */
    double rank;         /* rank correlation within groups, or over all runs where there are none */
    double regret;       /* mean of groups: what the predicted best costs above the best */
    double memory_error; /* mean absolute error of memory */
    double settled_error; /* of what stays between steps, in the median */
    double refused;       /* runs that cannot be expressed; 0 where a file does not say */
};

struct sbp_run_peer {
    const char *name; /* of a published predictor of the same runs */
    struct sbp_run_figures figures;
};

#define SBP_RUN_SET_MOST_COLUMNS 64

struct sbp_run {
    const char *id;
    int line; /* of the table that the set was read from; 0: of none */
    int64_t devices, devices_per_node;
    struct sbp_degrees degrees;
    bool counts_ends; /* stages share out the layers and, as one more each, the embedding and the
                         head */
    double step_s;    /* measured; 0: it was not */
    double memory_bytes, settled_bytes; /* the same */
    double reserve_bytes;               /* that measured memory holds beside the set's reserve */
    int group; /* runs of equal model, batch and devices share a number, from 0 */
};

struct sbp_run_set {
    struct sbp_arena arena; /* owns all texts and arrays */
    struct cJSON *root;     /* owned; the file, whose cells become model files */
    struct cJSON *cluster;  /* owned; the cluster file, before it is cut to a run's size */
    const char *file, *title, *source, *trainer;
    bool of_last_stage; /* measured memory is a device's of the last stage; else of the fullest */
    struct sbp_run_figures bounds;
    int peer_count;
    struct sbp_run_peer *peer; /* (peer_count) */
    int column_count;
    const char **column; /* (column_count) */
    int run_count, group_count;
    struct sbp_run *run; /* (run_count) */
};

/* Finds the files that a set names: makes the whole cluster, which the caller deletes, of the
 * "cluster" and the "runtime" of a set's file, on whose root the cursor stands. *file: the
 * cluster's own, for messages; left alone where it stands in the set. */
struct sbp_run_set_finder {
    enum sbp_status (*cluster)(void *context, const struct sbp_json *root, struct cJSON **cluster,
                               const char **file);
    void *context;
};

/* Reads a file. finder NULL: no names are legal, and "cluster" is a whole one. On failure nothing
 * is left allocated. E_INPUT names file, row and column; E_IO, E_MEMORY. */
enum sbp_status sbp_run_set_read(const char *path, const struct sbp_run_set_finder *finder,
                                 struct sbp_run_set *set, struct sbp_diag *diag) SBP_MUST_USE;
/* The same of a tree in memory, which the set owns from then on, also on failure; file: its name;
 * line: (runs of the tree) where its table has them, by which messages name line and column; NULL:
 * it is of no table. */
enum sbp_status sbp_run_set_take(struct cJSON *tree, const char *file, const int *line,
                                 const struct sbp_run_set_finder *finder, struct sbp_run_set *set,
                                 struct sbp_diag *diag) SBP_MUST_USE;
void sbp_run_set_free(struct sbp_run_set *set);

/* The model file and the cluster file of a run, which the caller deletes. E_MEMORY. */
enum sbp_status sbp_run_set_model(const struct sbp_run_set *set, int run, struct cJSON **model,
                                  struct sbp_diag *diag) SBP_MUST_USE;
enum sbp_status sbp_run_set_cluster(const struct sbp_run_set *set, int run, struct cJSON **cluster,
                                    struct sbp_diag *diag) SBP_MUST_USE;
/* The set's "parallel" object; NULL: it has none. */
const struct cJSON *sbp_run_set_parallel(const struct sbp_run_set *set);

#endif
