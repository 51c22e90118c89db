/* Shared parts of the benchmarks of the program: their arguments, the machine that they ran on,
 * their files. */
#ifndef SBP_TESTS_BENCH_REPORT_H
#define SBP_TESTS_BENCH_REPORT_H

#include "base/text.h"

struct report_arguments {
    const char *program;    /* sbplan */
    const char *folder;     /* where files are written; NULL: printed */
    const char *time_limit; /* seconds that the program is told; NULL: none */
    char **names;           /* (name_count) what alone is run */
    int name_count;
};

/* `SBPLAN [-o FOLDER] [--time-limit S] [NAME...]`; false, with the usage said, when they are not.
 */
bool report_read_arguments(int argc, char **argv, struct report_arguments *arguments);
/* Whether a name is to be run: it begins with one that was given, or none was. */
bool report_wants(const struct report_arguments *arguments, const char *name);

/* "version 0.1.0 (gcc 12.2.0, Intel(R) Xeon(R) Processor, 2 cores)" */
void report_add_machine(struct sbp_text *text);

/* Writes or prints a file; says what it wrote; false, with the cause said, when it could not. */
bool report_write(const struct report_arguments *arguments, const char *name,
                  const struct sbp_text *text);

#endif
