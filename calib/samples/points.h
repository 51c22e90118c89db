/* Points: the measured times of collectives, wherever they come from, and how samples become
 * points.
 *
 * A point is one collective of one group shape at one size. Published logs give points directly
 * (calib/logs/log.h); of a calibration's samples, the time of a cell in one run is the median of
 * its repetitions, and the point's time is the median over its good runs: a program that runs later
 * has to expect it. With SBP_OF_LEAST both are the least instead: the time that the machine takes
 * by itself, for hosts where other programs run beside the calibration.
 *
 * A run is bad when the median of its cells took SBP_BAD_RUN times as long as the other runs say.
 * It takes three runs to tell. Bad runs are left out; of two that differ both are kept and flagged.
 */
#ifndef SBP_CALIB_SAMPLES_POINTS_H
#define SBP_CALIB_SAMPLES_POINTS_H

#include <stdbool.h>

#include "base/arena.h"
#include "calib/samples/cell.h"

struct sbp_record;

struct sbp_measured_point {
    enum sbp_collective kind;  /* not local */
    int nodes, ranks_per_node; /* of a group; members = nodes x ranks_per_node >= 2 */
    double bytes;  /* n of costmodel/cluster/collective.h: the larger side on a device */
    double time_s; /* > 0 */
    double spread; /* over the time; 0: unknown. In a log |in place - out of place|; of samples half
                      the range of the runs, or half the median's interval of the only run */
    bool first_use; /* a benchmark's first use of a protocol: time_s is the second one's */
    int source;     /* into source[] */
    int line;       /* of its file, the first of several; 0: of no line */
    int groups;     /* of a node that worked at the same time; 0: a log, which has one */
};

/* A table of a log, or a chain of sessions of samples. */
struct sbp_measured_source {
    const char *name;    /* of the file */
    const char *library; /* "NCCL 2.18.5", "Open MPI 4.1.4"; NULL: not said */
    const char *network; /* that the run says it used: "OFI", "Socket", "IB"; NULL */
    const char *date;    /* NULL: not said */
    int table;           /* of the file, from 0 */
};

struct sbp_measured {
    struct sbp_arena arena; /* owns the arrays */
    int count, source_count;
    struct sbp_measured_point *point;   /* (count), those of a source together */
    struct sbp_measured_source *source; /* (source_count) */
};

void sbp_points_free(struct sbp_measured *measured);
/* Whether two points differ in size and time alone. */
bool sbp_points_same_series(const struct sbp_measured_point *a, const struct sbp_measured_point *b);

#define SBP_BAD_RUN 1.25

enum sbp_statistic { SBP_OF_MEDIANS, SBP_OF_LEAST };
extern const char *const sbp_points_statistics[]; /* names, NULL-ended */

/* One pass over the cells, in one chain of sessions. */
struct sbp_sample_run {
    int chain, run;
    int cells;       /* collectives that it measured */
    int compared;    /* of them, those that other runs measured, too */
    double slowdown; /* median over those of its time / the median of all runs' times; 1: none */
    bool bad;        /* left out */
};

struct sbp_sample_runs {
    int count;
    struct sbp_sample_run *run; /* (count), in order; in the measured points' arena */
};

/* Points of a source stand in the order of sbp_cell_compare. The statistic says which time counts;
 * medians tell in any case whether a run is bad. *measured and *runs are freed together by
 * sbp_points_free. E_MEMORY: both are empty. */
enum sbp_status sbp_points(const struct sbp_record *record, enum sbp_statistic statistic,
                           struct sbp_measured *measured, struct sbp_sample_runs *runs,
                           struct sbp_diag *diag) SBP_MUST_USE;

/* Products of so many experts, each of these sizes. */
struct sbp_grouped_point {
    struct sbp_gemm_point product;
    int64_t experts;
};

#define SBP_MAX_GEMMS     512
#define SBP_MAX_ATTENTION 64
#define SBP_MAX_GROUPED   64
#define SBP_MAX_ROWS      16
#define SBP_MAX_BESIDE    64
struct sbp_compute_times {
    int gemm_count;
    struct sbp_gemm_point gemm[SBP_MAX_GEMMS];
    /* The copy, then (gemm_count) products: a run's median each; a count of 0: not timed. */
    struct sbp_samples samples[SBP_MAX_GEMMS + 1];
    int64_t copy_bytes;           /* read once and written once */
    double launch_s;              /* of the smallest product; 0: not timed */
    struct sbp_gemm_point loaded; /* the product that was timed again under load, for */
    double loaded_s;              /* 0: none */
    int64_t load_s;               /* the longest load before it, which counts */
    double host_s;                /* of a launch, of the host; 0: not timed */
    int64_t link_bytes;           /* to the host, and back */
    double link_s;                /* of both; 0: not timed */
    int64_t stream_bytes;         /* of either operand and of the result */
    double stream_s;              /* of an element-wise sum; 0: not timed */
    int64_t gelu_bytes;           /* of the operand and of the result */
    double gelu_s;                /* of GELU; 0: not timed */
    int attention_count;
    struct sbp_attention_point attention[SBP_MAX_ATTENTION];
    struct sbp_samples attention_samples[SBP_MAX_ATTENTION]; /* (attention_count), likewise */
    int grouped_count;
    struct sbp_grouped_point grouped[SBP_MAX_GROUPED];
    struct sbp_samples grouped_samples[SBP_MAX_GROUPED]; /* (grouped_count), of all experts */
    int rows_count;
    struct sbp_cell rows[SBP_MAX_ROWS];            /* differ in the bytes of a row */
    struct sbp_samples rows_samples[SBP_MAX_ROWS]; /* (rows_count) */
    int beside_count;
    struct sbp_cell beside[SBP_MAX_BESIDE]; /* collectives beside products, and timed alone */
    struct sbp_samples beside_samples[SBP_MAX_BESIDE]; /* (beside_count) */
};

/* The median of a single product's runs; 0: it was not timed. */
double sbp_points_product_s(const struct sbp_compute_times *times,
                            const struct sbp_gemm_point *product);
/* Of a collective that was timed beside products, the share of its own time that it adds to theirs;
 * below 0: its own time is not known, or the cell is of that. */
double sbp_points_added_share(const struct sbp_compute_times *times, int beside);
bool sbp_points_same_grouped(const struct sbp_grouped_point *a, const struct sbp_grouped_point *b);

/* Compute of all good runs; zeros where nothing was measured. */
void sbp_points_compute(const struct sbp_record *record, const struct sbp_sample_runs *runs,
                        struct sbp_compute_times *times);

#endif
