/* Reads what-if sweeps: KEY=a,b,c of every --sweep. The rows are all combinations of the values,
 * the last key fastest. A value is a text as --set takes it; commas within brackets and quotes are
 * its own.
 */
#ifndef SBP_PLANNER_CLI_SWEEPS_H
#define SBP_PLANNER_CLI_SWEEPS_H

#include "base/arena.h"
#include "base/options.h"

enum { SBP_SWEEP_MOST_KEYS = 4, SBP_SWEEP_MOST_ROWS = 256 };

struct sbp_sweep_key {
    const char *name;
    struct sbp_word_list values;
};

struct sbp_sweeps {
    int key_count, row_count;
    struct sbp_sweep_key key[SBP_SWEEP_MOST_KEYS];
};

/* Texts come out of the arena. E_USAGE: no KEY=a,b,c, a key or one of its values given twice, too
 * many keys or rows; E_MEMORY. */
enum sbp_status sbp_sweeps_parse(const struct sbp_word_list *words, struct sbp_arena *arena,
                                 struct sbp_sweeps *sweeps, struct sbp_diag *diag) SBP_MUST_USE;
/* The value of a key in a row. */
const char *sbp_sweeps_value(const struct sbp_sweeps *sweeps, int row, int key);
/* The words KEY=VALUE of all keys in a row, from the arena. E_MEMORY. */
enum sbp_status sbp_sweeps_row(const struct sbp_sweeps *sweeps, int row, struct sbp_arena *arena,
                               struct sbp_word_list *words) SBP_MUST_USE;

#endif
