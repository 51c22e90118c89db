/* The options of a program: one typed table for the parser, for --help and for complaints about
 * illegal values, so that they cannot drift.
 *
 * An option is "--name VALUE" or "--name=VALUE", or a flag without a value. An option that a table
 * does not have is refused with the nearest that it has, an illegal value with the legal ones.
 */
#ifndef SBP_BASE_OPTIONS_H
#define SBP_BASE_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "base/status.h"
#include "base/text.h"

/* The type of the field that an option fills. */
enum sbp_option_kind {
    SBP_OPTION_HANDED,  /* none: the caller hands the words on to another program */
    SBP_OPTION_FLAG,    /* bool */
    SBP_OPTION_TEXT,    /* const char *, not empty; most > 0: so many bytes at most */
    SBP_OPTION_OUTPUT,  /* the same: a file that can be written */
    SBP_OPTION_LIST,    /* struct sbp_word_list; may be given more than once */
    SBP_OPTION_INT,     /* int, least to most */
    SBP_OPTION_WHOLE,   /* int64_t, least to most */
    SBP_OPTION_COUNT,   /* the same with a suffix (sbp_parse_scaled); most <= 2^53 */
    SBP_OPTION_SIZE,    /* the same in bytes */
    SBP_OPTION_TOKENS,  /* double: a whole number from least, as COUNT or 3e11 */
    SBP_OPTION_SECONDS, /* double, 0 and more */
    SBP_OPTION_RATE,    /* double, above 0 up to most */
    SBP_OPTION_CHOICE,  /* int: place in the list of names; a flag, which has no `argument`, stands
                           for `least`, and "--name=NAME" for others */
    SBP_OPTION_NAME,    /* const char *: one of the names */
    SBP_OPTION_CHECKED, /* whatever `set` fills */
};

struct sbp_word_list {
    int count;
    const char **word; /* borrowed from argv; with room for every word of the command line */
};

struct sbp_option {
    const char *name;     /* "--steps"; NULL ends the table */
    const char *argument; /* what its value is called in the help; NULL: a flag */
    const char *help;
    enum sbp_option_kind kind;
    size_t offset; /* of the field in the settings */
    int64_t least, most;
    const char *const *names;                    /* of a choice, NULL-ended; or */
    const char *(*name_at)(int at);              /* the same by place, from 0 */
    bool (*set)(void *field, const char *value); /* false: not legal */
    const char *legal;                           /* values that `set` takes, for messages */
};
#define SBP_OPTION_FIELD(kind_, type, field)                                                       \
    .kind = SBP_OPTION_##kind_, .offset = offsetof(type, field)

/* The option of a name of `length` bytes; NULL: there is none. */
const struct sbp_option *sbp_option_find(const struct sbp_option *options, const char *name,
                                         size_t length);
/* The value of the option at words[*at]: what stands behind its '=', or the next word, which is
 * stepped over; NULL of a flag, which takes a value behind '=' alone and where it has names.
 * E_USAGE begins with `place`. */
enum sbp_status sbp_option_value(const struct sbp_option *option, int count, char **words, int *at,
                                 const char *place, const char **value,
                                 struct sbp_diag *diag) SBP_MUST_USE;
/* Fills the option's field. SBP_NO: the value is not legal; E_IO: it cannot be written. */
enum sbp_status sbp_option_set(const struct sbp_option *option, const char *value, void *settings,
                               struct sbp_diag *diag) SBP_MUST_USE;
/* Name `at` of a choice, from 0; NULL behind the last, and of other options. */
const char *sbp_option_name_at(const struct sbp_option *option, int at);
/* Adds the names of a choice, with commas between. */
void sbp_option_add_names(const struct sbp_option *option, struct sbp_text *text);
/* Adds the legal values. */
void sbp_option_add_legal(const struct sbp_option *option, struct sbp_text *text);

/* Reads argv[1..]. Words that begin with no '-' are operands: *operand gets the only one, NULL when
 * there is none; operand itself NULL: none is legal. E_USAGE names the word. */
enum sbp_status sbp_options_read(const struct sbp_option *options, int argc, char **argv,
                                 void *settings, const char **operand,
                                 struct sbp_diag *diag) SBP_MUST_USE;
/* The same with any number of operands; operands->word has room for argc words. */
enum sbp_status sbp_options_read_list(const struct sbp_option *options, int argc, char **argv,
                                      void *settings, struct sbp_word_list *operands,
                                      struct sbp_diag *diag) SBP_MUST_USE;
void sbp_options_print(const struct sbp_option *options, FILE *out);

#endif
