/* AutoDDL, figure 8: how near to the optimum four searches come, and how soon, on the perceptron of
 * section 4.6 (tests/oracle/perceptron.h), over ten seeds.
 *
 * The cost of a run is divided by the optimum; its progress is measured against the exhaustive
 * search: by evaluations, which are the same on every machine, or by time. Of the ten runs stand
 * the median and its 90 % interval by order statistics (base/math/stats.h: of ten the second and
 * the ninth).
 */
#ifndef SBP_TESTS_PAPERS_RACE_H
#define SBP_TESTS_PAPERS_RACE_H

#include <stdbool.h>

#include "base/text.h"
#include "planner/solvers/solver.h"

#define RACE_SEEDS       10
#define RACE_SEARCHES    4
#define RACE_MOST_POINTS 128
#define RACE_CONFIDENCE  0.9
#define RACE_NEAR        1.01 /* of the optimum: what counts as found */
#define RACE_REPETITIONS 5    /* of a timed run: the best counts, of those the soonest */

/* The best so far of all runs of a search at common points of progress, where all have one. */
struct race_line {
    const char *name; /* of the solver */
    int count;
    double progress[RACE_MOST_POINTS]; /* of the exhaustive search's, > 0 */
    double median[RACE_MOST_POINTS], low[RACE_MOST_POINTS],
        high[RACE_MOST_POINTS];    /* cost over the optimum */
    double first_at[RACE_SEEDS];   /* progress at the first strategy */
    double near_at[RACE_SEEDS];    /* progress within RACE_NEAR; INFINITY: never */
    double optimum_at[RACE_SEEDS]; /* the same of the optimum */
    double last[RACE_SEEDS];       /* cost over the optimum in the end */
};

struct race {
    double optimum_s;
    int64_t evaluations;                  /* of the exhaustive search */
    double wall_s;                        /* the same */
    struct race_line line[RACE_SEARCHES]; /* the exhaustive search last */
};

struct race_setting {
    int log2_devices;
    double batch;
    bool timed;   /* progress is time, else evaluations */
    double most;  /* progress that the other searches are given */
    double first; /* progress where the lines begin */
};

/* Ends the program with a message when a search cannot be run. */
void race_run(const struct race_setting *setting, struct race *race);

/* Adds a picture of it. x: its axis' label. */
void race_draw(const struct race *race, const struct race_setting *setting, const char *title,
               const char *x, struct sbp_text *svg);

#endif
