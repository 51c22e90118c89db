/* The options of the command line: one table, from which both the parser and the help follow.
 *
 * Options are long ("--name value", "--name=value"), except -o and -n. An unknown option or value
 * is refused with the nearest legal one. Counts and sizes take suffixes (sbp_parse_scaled).
 */
#ifndef SBP_PLANNER_CLI_OPTIONS_H
#define SBP_PLANNER_CLI_OPTIONS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "base/arena.h"
#include "base/options.h"
#include "base/status.h"
#include "planner/degrees/degrees.h"

/* A limit as the user set it; `none` sets it to 0. */
struct sbp_limit {
    bool is_given;
    double most; /* 0: no limit */
};

struct sbp_arguments {
    struct sbp_arena arena; /* owns the arrays */
    const struct sbp_command *command;
    struct sbp_word_list operands;
    struct sbp_word_list forward; /* options for the program that is started, without the flags and
                                     choices that the command decides about */
    const char *record;           /* the command as plans record it, without its output options */
    const atomic_int *stop;       /* the signal that asks to stop; 0: none */

    bool help, json, runnable, quick, rows;
    const char *output;
    int space, algorithm, objective; /* space: -1 not given; algorithm: 0 auto, else index */
    int64_t devices;                 /* 0: all */
    int64_t seed, max_evaluations, restarts, memory_limit_bytes;
    struct sbp_limit time_limit_s, search_memory_bytes;
    double tokens;
    double measured_s; /* of a step; 0: not given */
    const char *strategy, *problem, *runtime;
    struct sbp_degrees degrees;
    const char *megatron; /* flags of Megatron-LM; NULL */
    const char *trace;    /* file of a timeline; NULL */
    struct sbp_word_list fix, set, sweep, from;
    struct sbp_word_list row; /* KEY=VALUE of the current row of a sweep; not an option */
    int64_t top;              /* plans to show; 0: the best one */
    int64_t global_batch, sequence, vocab_multiple; /* import */
    int target;                                     /* search: place of it; -1: not given */
    int to;                                         /* export: place of the target; -1: not given */
    const char *name;
    int precision;       /* 0: the config's; 1, 2: mixed; 3: fp16; 4: fp32 */
    int backend, device; /* run, calibrate: 0 auto */
    int64_t ranks;
};

struct sbp_command {
    const char *name;
    const char *operands; /* "MODEL CLUSTER" */
    int least_operands, most_operands;
    const char *summary; /* one line */
    const char *notes;   /* for its help; NULL */
    const char *options; /* names, space-separated */
    bool forwards;       /* options are handed on to another program */
    /* SBP_NO: the answer is no and was printed. */
    enum sbp_status (*run)(const struct sbp_arguments *arguments, struct sbp_diag *diag);
};

/* Reads the words after the command's name; options that are not given have defaults. E_USAGE,
 * E_MEMORY; the arguments may be freed either way. */
enum sbp_status sbp_cli_arguments_read(const struct sbp_command *command, int count, char **words,
                                       struct sbp_arguments *arguments,
                                       struct sbp_diag *diag) SBP_MUST_USE;
void sbp_cli_arguments_free(struct sbp_arguments *arguments);

/* The options of a command in order, the first one `after` NULL; NULL: no more. Of command NULL
 * those of all commands. */
const struct sbp_option *sbp_options_next(const struct sbp_command *command,
                                          const struct sbp_option *after);

/* The help of a command: usage, its options, the tables that they refer to, its notes. */
void sbp_options_print_help(const struct sbp_command *command, FILE *out);

#endif
