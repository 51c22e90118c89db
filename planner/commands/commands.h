/* The commands of sbplan, one file each, and the way from argv to one of them.
 *
 * A command takes its arguments as planner/cli/options.h reads them, prints its answer to stdout
 * and returns a status: SBP_OK, SBP_NO where the answer is no and was printed, or an error with its
 * text in diag.
 */
#ifndef SBP_PLANNER_COMMANDS_COMMANDS_H
#define SBP_PLANNER_COMMANDS_COMMANDS_H

#include "base/text.h"
#include "planner/cli/options.h"

/* Prints to stdout; makes the function that it stands in fail where that fails. */
#define SBP_PRINT(...)                                                                             \
    do {                                                                                           \
        if (printf(__VA_ARGS__) < 0)                                                               \
            return SBP_E_IO;                                                                       \
    } while (0)

/* The same for a line that quotes what came from outside (base/text.h). */
#define SBP_PRINT_LINE(...)                                                                        \
    do {                                                                                           \
        if (!sbp_text_print_line(stdout, __VA_ARGS__))                                             \
            return SBP_E_IO;                                                                       \
    } while (0)

/* The whole program: finds the command, reads its arguments, runs it. An interrupt sets *stop. */
enum sbp_status sbp_commands_run(int argc, char **argv, const atomic_int *stop,
                                 struct sbp_diag *diag) SBP_MUST_USE;

/* Ended by a NULL name. */
extern const struct sbp_command sbp_commands[];

#define SBP_DECLARE_COMMAND(name)                                                                  \
    enum sbp_status sbp_command_##name(const struct sbp_arguments *arguments,                      \
                                       struct sbp_diag *diag) SBP_MUST_USE
SBP_DECLARE_COMMAND(search);
SBP_DECLARE_COMMAND(sweep); /* search --sweep: one table of all rows; SBP_NO: no row has a plan */
SBP_DECLARE_COMMAND(explain);
SBP_DECLARE_COMMAND(report);
SBP_DECLARE_COMMAND(export);
SBP_DECLARE_COMMAND(advise); /* SBP_NO: no plan fits */
SBP_DECLARE_COMMAND(compare);
/* compare PLAN PLAN. E_USAGE: an option that only searches take. */
SBP_DECLARE_COMMAND(compare_plans);
SBP_DECLARE_COMMAND(price);
SBP_DECLARE_COMMAND(solve);
SBP_DECLARE_COMMAND(list);
SBP_DECLARE_COMMAND(import);
SBP_DECLARE_COMMAND(run);
SBP_DECLARE_COMMAND(bench); /* in command_run.c: it starts the same program */
SBP_DECLARE_COMMAND(calibrate);
/* calibrate --runs CSV: not measuring, but a trainer's profile of a table of runs. */
enum sbp_status sbp_command_fit(const struct sbp_arguments *arguments, const char *csv,
                                struct sbp_diag *diag) SBP_MUST_USE;
SBP_DECLARE_COMMAND(completion); /* prints a script for a shell */
SBP_DECLARE_COMMAND(manual);     /* prints the page in roff's man macros */
SBP_DECLARE_COMMAND(validate);   /* SBP_NO: a bound of a set does not hold */
#undef SBP_DECLARE_COMMAND

#endif
