/* One search of a command: from the command line to a request, the search with its progress line,
 * and from the outcome to plan files, verdicts and reasons; with --top, several plans in one table
 * by layout.
 */
#ifndef SBP_PLANNER_COMMANDS_SEARCH_SESSION_PRIV_H
#define SBP_PLANNER_COMMANDS_SEARCH_SESSION_PRIV_H

#include "base/text.h"
#include "planner/cli/inputs.h"
#include "planner/outer/branch_and_bound.h"
#include "planner/plan/plan_diff.h"
#include "planner/report/plan_line.h"
#include "planner/report/price_interval.h"
#include "planner/report/report.h"

/* The request of a command line; the caller adds the fixes. */
struct sbp_request sbp_search_request(const struct sbp_arguments *arguments,
                                      const struct sbp_settings *settings);

/* Whether the outcome left a strategy in the plan. */
bool sbp_search_outcome_has_plan(const struct sbp_outcome *outcome);

/* The verdict for a cell of a table: "optimal", "gap 1.2 %", "feasible", "infeasible", "none
 * found". */
#define SBP_VERDICT_BYTES 256
const char *sbp_search_outcome_word(const struct sbp_outcome *outcome, char *buffer);

/* One search. Zeroed but for the arguments before sbp_search_job_open. */
struct sbp_search_job {
    const struct sbp_arguments *arguments;
    struct sbp_arena arena;
    struct sbp_settings settings;
    struct sbp_plan plan;
    struct sbp_request request;
    struct sbp_outcome outcome;
    struct sbp_pool pool;  /* with --top */
    int layouts;           /* of a --target whose layers are split alike: how many were searched */
    bool may_be_too_large; /* a plan need not fit in memory */
    const char *priced;    /* "plan.json says": who says the strategy; NULL: it is searched */
    int note_count;        /* lines for people beside the plan */
    const char *note[2 * SBP_DEGREES_NOTES];
    struct sbp_arena_budget search_memory;
    struct sbp_progress *progress; /* of the command; NULL: the search has a line of its own */
    const char *label;             /* begins that line; NULL: nothing does */
};
/* The verdict in words: "optimal", "feasible, at most 1.2 % above the bound 3.4 ms", "stopped
 * before ...". Returns buffer (SBP_VERDICT_BYTES). */
const char *sbp_search_outcome_verdict(const struct sbp_search_job *job, char *buffer);
/* What ended a search that was stopped: "the time limit of 60 s (default)", "--max-evaluations",
 * "an interrupt". Returns buffer (SBP_REASON_BYTES). */
#define SBP_REASON_BYTES 64
const char *sbp_search_stop_reason(const struct sbp_search_job *job, char *buffer);
/* Reads the inputs that the arguments name; sets the request, the fixes and what the space fixes of
 * a step. The job may be freed either way. */
enum sbp_status sbp_search_job_open(struct sbp_search_job *job, struct sbp_diag *diag) SBP_MUST_USE;
void sbp_search_job_free(struct sbp_search_job *job);
/* Cuts the plan as degrees say and makes their strategy the request's fixes; notes become the
 * job's. The message of E_INPUT names the option. */
enum sbp_status sbp_search_job_take_degrees(struct sbp_search_job *job,
                                            const struct sbp_degrees *degrees,
                                            struct sbp_diag *diag) SBP_MUST_USE;
/* Adds a line for people, which is copied; more than there is room for are left out. E_MEMORY. */
enum sbp_status sbp_search_job_note(struct sbp_search_job *job, const char *note,
                                    struct sbp_diag *diag) SBP_MUST_USE;
/* The target whose layouts are searched, by sbp_export_find; NULL: the space's plans are. */
struct sbp_export_target;
const struct sbp_export_target *sbp_search_layouts_of(const struct sbp_search_job *job);
/* Runs the search with a progress line for the `most` best plans; the best becomes the job's.
 */
enum sbp_status sbp_search_job_run(struct sbp_search_job *job, int most,
                                   struct sbp_diag *diag) SBP_MUST_USE;
/* Puts the record of the search that a plan keeps: space, objective, algorithm, seed, status, lower
 * bound, ... */
void sbp_search_put(struct cJSON *json, const struct sbp_search_job *job,
                    const struct sbp_outcome *outcome, bool *failed);
/* Makes the JSON of a plan file, with the record of its search; rank 0: it is the only plan. The
 * caller deletes it. */
enum sbp_status sbp_search_json(const struct sbp_search_job *job, struct sbp_plan *plan,
                                const struct sbp_step *step, const struct sbp_outcome *outcome,
                                int rank, struct cJSON **json, struct sbp_diag *diag) SBP_MUST_USE;
/* Asks for the second opinion on the job's plan (planner/verify/verify.h); no plan leaves without.
 */
enum sbp_status sbp_search_job_check(const struct sbp_search_job *job,
                                     const struct sbp_report *report,
                                     struct sbp_diag *diag) SBP_MUST_USE;
/* Checks the plan (planner/verify/verify.h), writes it and prints the report; SBP_NO, with the
 * reason printed, where there is none. */
enum sbp_status sbp_search_answer(struct sbp_search_job *job, struct sbp_diag *diag) SBP_MUST_USE;

/* Prints one line, where no plan fits: which keys may still be given so that less memory is needed.
 */
enum sbp_status sbp_search_advise(const struct sbp_search_job *job) SBP_MUST_USE;

/* The shortage that leaves no plan: the memory that a device would have to have, by
 * outcome->least_memory, which becomes the plan. needed_bytes is 0 where memory is not what is
 * short; parts is "" where no plan was seen, so that needed_bytes is the model's. E_MEMORY and what
 * plans fail with. */
struct sbp_shortage {
    double needed_bytes, limit_bytes;
    double least_bytes; /* no plan needs less; 0: not known */
    char parts[SBP_PARTS_BYTES], largest[32];
};
enum sbp_status sbp_search_shortage(struct sbp_search_job *job, struct sbp_shortage *shortage,
                                    struct sbp_diag *diag) SBP_MUST_USE;

/* A search as a row of a table: refused by its space, or with the plan that was found, or with the
 * shortage that leaves none. */
struct sbp_search_row {
    bool refused, found, skipped; /* skipped: it was not searched */
    struct sbp_diag why;          /* refused */
    struct sbp_outcome outcome;
    struct sbp_parallel parallel;
    struct sbp_summary summary;
    struct sbp_price_interval trust;
    char rate[SBP_RATE_BYTES], line[SBP_PLAN_LINE_BYTES];
    char change[SBP_PLAN_CHANGE_BYTES]; /* from the row before, of a sweep */
    struct sbp_shortage shortage;
};
/* Fills the row with what the search has found, and checks the plan. */
enum sbp_status sbp_search_row_fill(struct sbp_search_job *job, struct sbp_search_row *row,
                                    struct sbp_diag *diag) SBP_MUST_USE;

/* With --measured: prints, or adds as the object "measured", how far the measured step is from the
 * predicted one and which constant would explain it. On failure of the second the JSON is not
 * whole. */
enum sbp_status sbp_search_measured_print(const struct sbp_search_job *job, double predicted_s,
                                          struct sbp_diag *diag) SBP_MUST_USE;
enum sbp_status sbp_search_measured_put(struct cJSON *json, const struct sbp_search_job *job,
                                        bool *failed, struct sbp_diag *diag) SBP_MUST_USE;

/* ---- several plans: search --top K ------------------------------------------------------------
 */

/* One of the plans, best first; its model and cluster are the search's. Must not be moved. */
struct sbp_alternative {
    struct sbp_plan plan;
    struct sbp_outcome outcome; /* optimal where it costs no more than the search's bound */
    struct sbp_report report;
    struct sbp_text file; /* name of its file; empty */
    struct sbp_text text; /* content of its file */
};

struct sbp_search_top {
    struct sbp_search_job *job; /* borrowed */
    int count;
    struct sbp_alternative *plan;
};

/* Checks the options beside --top. E_USAGE: one that --top excludes. */
enum sbp_status sbp_top_check_options(const struct sbp_arguments *arguments,
                                      struct sbp_diag *diag) SBP_MUST_USE;

/* Checks the plans of the job's pool and makes the texts of their files; nothing is written before
 * all of them are there. May be freed either way. */
enum sbp_status sbp_search_top_open(struct sbp_search_job *job, struct sbp_search_top *all,
                                    struct sbp_diag *diag) SBP_MUST_USE;
void sbp_search_top_free(struct sbp_search_top *all);

/* Writes plan.json, plan-2.json, ..., all or none; nothing without -o. */
enum sbp_status sbp_search_top_write(struct sbp_search_top *all,
                                     struct sbp_diag *diag) SBP_MUST_USE;
/* Prints a row for each plan, below the layout that it shares with others, and what is known of
 * those that are not listed. */
enum sbp_status sbp_search_top_print(const struct sbp_search_top *all) SBP_MUST_USE;
/* Puts the member "top". */
void sbp_search_top_put(struct cJSON *json, const struct sbp_search_top *all, bool *failed);

#endif
