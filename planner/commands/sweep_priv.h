/* What-if sweeps: KEY=a,b,c of every --sweep, and the rows that they make.
 *
 * Several keys make every combination of their values, the last key fastest. A value is a text as
 * --set takes it; commas within brackets and quotes are its own.
 */
#ifndef SBP_PLANNER_COMMANDS_SWEEP_PRIV_H
#define SBP_PLANNER_COMMANDS_SWEEP_PRIV_H

#include "planner/cli/options.h"

enum { SBP_MOST_SWEEP_KEYS = 4, SBP_MOST_SWEEP_ROWS = 256 };

struct sbp_sweep_key {
    const char *name;
    struct sbp_word_list values;
};

struct sbp_sweep {
    int key_count, row_count;
    struct sbp_sweep_key key[SBP_MOST_SWEEP_KEYS];
};

/* Parses the words of --sweep; texts come out of the arena. E_USAGE */
enum sbp_status sbp_sweep_parse(const struct sbp_word_list *words, struct sbp_arena *arena,
                                struct sbp_sweep *sweep, struct sbp_diag *diag) SBP_MUST_USE;

/* The value that a key has in a row. */
const char *sbp_sweep_value(const struct sbp_sweep *sweep, int row, int key);
/* The words KEY=VALUE of all keys in a row, from the arena. E_MEMORY. */
enum sbp_status sbp_sweep_row(const struct sbp_sweep *sweep, int row, struct sbp_arena *arena,
                              struct sbp_word_list *words) SBP_MUST_USE;

#endif
