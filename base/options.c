#include "base/options.h"

#include <string.h>

#include "base/file.h"

enum { MOST_OPTIONS = 63, MOST_WORD = 60 };

/* --- values --- */

const char *sbp_option_name_at(const struct sbp_option *option, int at)
{
    if (option->name_at != NULL)
        return option->name_at(at);
    return option->names == NULL ? NULL : option->names[at];
}

void sbp_option_add_names(const struct sbp_option *option, struct sbp_text *text)
{
    const char *name;
    for (int i = 0; (name = sbp_option_name_at(option, i)) != NULL; i++)
        sbp_text_add(text, "%s%s", i == 0 ? "" : ", ", name);
}

void sbp_option_add_legal(const struct sbp_option *option, struct sbp_text *text)
{
    const long long least = (long long)option->least, most = (long long)option->most;
    switch (option->kind) {
    case SBP_OPTION_INT:
    case SBP_OPTION_WHOLE:
    case SBP_OPTION_COUNT:
        sbp_text_add(text, "a whole number from %lld to %lld", least, most);
        return;
    case SBP_OPTION_SIZE:
        sbp_text_add(text, "a size as in 4096, 512M or 80G, from %lld to %lld", least, most);
        return;
    case SBP_OPTION_TOKENS:
        sbp_text_add(text, "a whole number from %lld, as in 1000, 300B or 3e11", least);
        return;
    case SBP_OPTION_SECONDS:
        sbp_text_add(text, "a number of seconds from 0");
        return;
    case SBP_OPTION_RATE:
        sbp_text_add(text, "a number above 0 up to %lld", most);
        return;
    case SBP_OPTION_CHOICE:
    case SBP_OPTION_NAME:
        sbp_option_add_names(option, text);
        return;
    case SBP_OPTION_TEXT:
        if (most > 0) {
            sbp_text_add(text, "a text of 1 to %lld bytes", most);
            return;
        }
        break;
    default:
        break;
    }
    sbp_text_add(text, "%s", option->legal == NULL ? "a text that is not empty" : option->legal);
}

static bool set_whole(const struct sbp_option *option, const char *value, void *field)
{
    int64_t whole = 0;
    if (option->kind == SBP_OPTION_COUNT || option->kind == SBP_OPTION_SIZE) {
        double scaled;
        if (!sbp_parse_scaled(value, option->kind == SBP_OPTION_SIZE, &scaled) ||
            scaled > (double)option->most)
            return false;
        whole = (int64_t)scaled;
    } else if (!sbp_parse_int64(value, &whole)) {
        return false;
    }
    if (whole < option->least || whole > option->most)
        return false;
    if (option->kind == SBP_OPTION_INT)
        *(int *)field = (int)whole;
    else
        *(int64_t *)field = whole;
    return true;
}

static bool set_real(const struct sbp_option *option, const char *value, double *field)
{
    if (option->kind == SBP_OPTION_TOKENS)
        return sbp_parse_scaled(value, false, field) && *field >= (double)option->least;
    if (!sbp_parse_double(value, field))
        return false;
    return option->kind == SBP_OPTION_SECONDS ? *field >= 0
                                              : *field > 0 && *field <= (double)option->most;
}

static bool set_name(const struct sbp_option *option, const char *value, void *field)
{
    const char *name;
    for (int i = 0; (name = sbp_option_name_at(option, i)) != NULL; i++) {
        if (strcmp(name, value) != 0)
            continue;
        if (option->kind == SBP_OPTION_CHOICE)
            *(int *)field = i;
        else
            *(const char **)field = name;
        return true;
    }
    return false;
}

static bool set_text(const struct sbp_option *option, const char *value, const char **field)
{
    *field = value;
    return *value != '\0' && (option->most == 0 || strlen(value) <= (size_t)option->most);
}

static bool set_field(const struct sbp_option *option, const char *value, void *field)
{
    switch (option->kind) {
    case SBP_OPTION_HANDED:
        break;
    case SBP_OPTION_FLAG:
        *(bool *)field = true;
        break;
    case SBP_OPTION_TEXT:
    case SBP_OPTION_OUTPUT:
        return set_text(option, value, field);
    case SBP_OPTION_LIST: {
        struct sbp_word_list *list = field;
        list->word[list->count++] = value;
        break;
    }
    case SBP_OPTION_INT:
    case SBP_OPTION_WHOLE:
    case SBP_OPTION_COUNT:
    case SBP_OPTION_SIZE:
        return set_whole(option, value, field);
    case SBP_OPTION_TOKENS:
    case SBP_OPTION_SECONDS:
    case SBP_OPTION_RATE:
        return set_real(option, value, field);
    case SBP_OPTION_CHOICE:
        if (value == NULL) { /* a flag */
            *(int *)field = (int)option->least;
            break;
        }
        return set_name(option, value, field);
    case SBP_OPTION_NAME:
        return set_name(option, value, field);
    case SBP_OPTION_CHECKED:
        return option->set(field, value);
    }
    return true;
}

/* A file that cannot be written is told before hours of work, not behind them. */
enum sbp_status sbp_option_set(const struct sbp_option *option, const char *value, void *settings,
                               struct sbp_diag *diag)
{
    if (!set_field(option, value, (char *)settings + option->offset))
        return SBP_NO;
    return option->kind == SBP_OPTION_OUTPUT ? sbp_file_check_writable(value, diag) : SBP_OK;
}

/* --- words --- */

const struct sbp_option *sbp_option_find(const struct sbp_option *options, const char *name,
                                         size_t length)
{
    for (const struct sbp_option *option = options; option->name != NULL; option++)
        if (strlen(option->name) == length && memcmp(option->name, name, length) == 0)
            return option;
    return NULL;
}

enum sbp_status sbp_option_value(const struct sbp_option *option, int count, char **words, int *at,
                                 const char *place, const char **value, struct sbp_diag *diag)
{
    const char *end = words[*at] + strlen(option->name);
    *value = *end == '=' ? end + 1 : NULL;
    if (option->argument == NULL && *value != NULL && sbp_option_name_at(option, 0) == NULL)
        return sbp_fail(diag, SBP_E_USAGE, "%s%s takes no value", place, option->name);
    if (option->argument == NULL || *value != NULL)
        return SBP_OK;
    if (*at + 1 >= count)
        return sbp_fail(diag, SBP_E_USAGE, "%s%s needs a value: %s", place, option->name,
                        option->argument);
    *value = words[++*at];
    return SBP_OK;
}

static enum sbp_status refuse_unknown(const struct sbp_option *options, const char *word,
                                      int length, struct sbp_diag *diag)
{
    const char *names[MOST_OPTIONS + 1] = {0};
    char name[MOST_WORD + 1];
    for (int i = 0; i < MOST_OPTIONS && options[i].name != NULL; i++)
        names[i] = options[i].name;
    (void)snprintf(name, sizeof name, "%.*s", length, word);
    const char *nearest = sbp_text_nearest(name, names);
    return sbp_fail(diag, SBP_E_USAGE, "unknown option \"%s\"%s%s%s", name,
                    nearest == NULL ? ", see --help" : ", did you mean \"",
                    nearest == NULL ? "" : nearest, nearest == NULL ? "" : "\"?");
}

static enum sbp_status refuse_value(const struct sbp_option *option, const char *value,
                                    struct sbp_diag *diag)
{
    struct sbp_text legal = {0};
    sbp_option_add_legal(option, &legal);
    const enum sbp_status status =
        sbp_fail(diag, SBP_E_USAGE, "%s: \"%.*s\" is not legal; legal: %s", option->name, MOST_WORD,
                 value, legal.failed || legal.bytes == NULL ? "see --help" : legal.bytes);
    sbp_text_free(&legal);
    return status;
}

/* Takes the option at argv[*at]; steps over a value that is a word of its own. */
static enum sbp_status take(const struct sbp_option *options, int argc, char **argv, int *at,
                            void *settings, struct sbp_diag *diag)
{
    const char *word = argv[*at], *value;
    const size_t length = strcspn(word, "=");
    const struct sbp_option *option = sbp_option_find(options, word, length);
    if (option == NULL)
        return refuse_unknown(options, word, (int)length, diag);
    SBP_TRY(sbp_option_value(option, argc, argv, at, "", &value, diag));
    const enum sbp_status status = sbp_option_set(option, value, settings, diag);
    return status == SBP_NO ? refuse_value(option, value, diag) : status;
}

/* operands->word has room for `most` words. */
static enum sbp_status read_words(const struct sbp_option *options, int argc, char **argv,
                                  void *settings, int most, struct sbp_word_list *operands,
                                  struct sbp_diag *diag)
{
    operands->count = 0;
    for (int i = 1; i < argc; i++)
        if (argv[i][0] == '-' && argv[i][1] != '\0')
            SBP_TRY(take(options, argc, argv, &i, settings, diag));
        else if (operands->count == most)
            return sbp_fail(diag, SBP_E_USAGE, "\"%.*s\" is one word too many, see --help",
                            MOST_WORD, argv[i]);
        else
            operands->word[operands->count++] = argv[i];
    return SBP_OK;
}

enum sbp_status sbp_options_read(const struct sbp_option *options, int argc, char **argv,
                                 void *settings, const char **operand, struct sbp_diag *diag)
{
    const char *word[1] = {NULL};
    struct sbp_word_list operands = {.word = word};
    const enum sbp_status status =
        read_words(options, argc, argv, settings, operand != NULL, &operands, diag);
    if (operand != NULL)
        *operand = word[0];
    return status;
}

enum sbp_status sbp_options_read_list(const struct sbp_option *options, int argc, char **argv,
                                      void *settings, struct sbp_word_list *operands,
                                      struct sbp_diag *diag)
{
    return read_words(options, argc, argv, settings, argc, operands, diag);
}

void sbp_options_print(const struct sbp_option *options, FILE *out)
{
    int wide = 0;
    for (const struct sbp_option *o = options; o->name != NULL; o++) {
        const int length =
            (int)strlen(o->name) + (o->argument == NULL ? 0 : 1 + (int)strlen(o->argument));
        wide = length > wide ? length : wide;
    }
    for (const struct sbp_option *o = options; o->name != NULL; o++) {
        const char *argument = o->argument == NULL ? "" : o->argument;
        const int used = (int)strlen(o->name) + 1 + (int)strlen(argument);
        (void)fprintf(out, "  %s %s%*s  %s\n", o->name, argument, wide + 1 - used, "", o->help);
    }
}
