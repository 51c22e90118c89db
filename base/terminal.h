/* The terminal that a stream writes to. */
#ifndef SBP_BASE_TERMINAL_H
#define SBP_BASE_TERMINAL_H

#include <stdio.h>

#define SBP_TERMINAL_LEAST_COLUMNS 80

/* Characters of a line: what $COLUMNS says, else the terminal's width, but
 * SBP_TERMINAL_LEAST_COLUMNS at least. 0, lines have no end: $COLUMNS is no positive number and
 * `out` is no terminal, as in a pipe or a file, or its width is unknown. */
int sbp_terminal_columns(FILE *out);

#endif
