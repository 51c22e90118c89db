/* A results file: text and tables in markdown, pictures beside it, and every number held to a
 * bound.
 *
 * One program per paper fills one `struct paper`. The program without arguments prints the file;
 * `-o FOLDER` writes it and its pictures there; `--check FOLDER` compares them with what lies
 * there: all but points of curves, which may be 0.3 pixels off, to the byte. It exits with 0 when
 * all numbers are within their bounds and all files are the same, else 1; 2 on bad usage. Numbers
 * come from the project's functions; what a paper printed stands beside them with the place where
 * it did.
 */
#ifndef SBP_TESTS_PAPERS_PAPER_H
#define SBP_TESTS_PAPERS_PAPER_H

#include <stdbool.h>

#include "base/text.h"

#define PAPER_MOST_PICTURES 4
struct paper {
    const char *name; /* of its files, without the ending */
    struct sbp_text text;
    int held, broken; /* numbers, and those out of bounds */
    int pictures;
    struct paper_picture {
        char name[64]; /* of the file */
        struct sbp_text text;
    } picture[PAPER_MOST_PICTURES];
};

/* Title, and whence and how the file is made. */
void paper_open(struct paper *paper, const char *name, const char *title);
/* Text as it stands: paragraphs end with an empty line, rows of a table with a line's end. */
void paper_say(struct paper *paper, const char *format, ...) SBP_PRINTF(2, 3);
/* Header "| a | b |" and rule of a table; paper_say adds its rows. */
void paper_table(struct paper *paper, const char *header);

/* Hold a number: what is a name for the message on stderr. Return whether it holds. */
bool paper_within(struct paper *paper, const char *what, double value, double low, double high);
/* |value - expected| <= tolerance |expected| */
bool paper_equal(struct paper *paper, const char *what, double value, double expected,
                 double tolerance);
bool paper_true(struct paper *paper, const char *what, bool holds);

/* The text that a picture goes into (tests/papers/plot.h), and its line in the file. */
struct sbp_text *paper_picture(struct paper *paper, const char *name, const char *caption);

/* Ends the file and does what the arguments ask; frees everything; returns the exit code. */
int paper_close(struct paper *paper, int argc, char **argv);

#endif
