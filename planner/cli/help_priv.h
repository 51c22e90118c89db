/* Parts of help texts: wrapped lines, entries of two columns, and the tables that options refer to.
 */
#ifndef SBP_PLANNER_CLI_HELP_PRIV_H
#define SBP_PLANNER_CLI_HELP_PRIV_H

#include <stdio.h>

/* Prints a text in lines of at most 96 columns. Lines but the first are indented; the first one is
 * begun already, up to `column`. */
void sbp_help_wrapped(FILE *out, const char *text, int indent, int column);
/* Prints an entry of two columns: "  --seed N        seed of everything random". */
void sbp_help_entry(FILE *out, const char *name, const char *between, const char *argument,
                    const char *help);

void sbp_help_spaces(FILE *out);
void sbp_help_algorithms(FILE *out);
/* The keys of --set that say how a step is cut. */
void sbp_help_cuts(FILE *out);

#endif
