#include "calib/logs/log_parts_priv.h"

#include <ctype.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define LARGEST_EXACT 9007199254740992.0 /* 2^53 */
#define LONGEST_TAG   160

static bool is_blank(char letter)
{
    return letter == ' ' || letter == '\t' || letter == '\r' || letter == '\v' || letter == '\f';
}

static const char *skip_blanks(const char *at)
{
    while (is_blank(*at))
        at++;
    return at;
}

int sbp_log_split(const char *line, struct sbp_log_word *word, int most)
{
    int count = 0;
    for (const char *at = skip_blanks(line); *at != '\0' && count < most; at = skip_blanks(at)) {
        word[count].at = at;
        while (*at != '\0' && !is_blank(*at))
            at++;
        word[count].length = (int)(at - word[count].at);
        count++;
    }
    return count;
}

bool sbp_log_word_is(struct sbp_log_word word, const char *text)
{
    return strlen(text) == (size_t)word.length && memcmp(word.at, text, (size_t)word.length) == 0;
}

bool sbp_log_word_whole(struct sbp_log_word word, double *whole)
{
    double number = 0;
    for (int i = 0; i < word.length; i++) {
        if (!isdigit((unsigned char)word.at[i]))
            return false;
        number = number * 10 + (word.at[i] - '0');
        if (number > LARGEST_EXACT)
            return false;
    }
    *whole = number;
    return word.length > 0;
}

/* Half a unit of the last digit that the word shows. */
static double printed_slack(struct sbp_log_word word)
{
    int decimals = 0, exponent = 0;
    bool behind = false;
    for (int i = 0; i < word.length; i++) {
        if (word.at[i] == 'e' || word.at[i] == 'E') {
            exponent = (int)strtol(word.at + i + 1, NULL, 10);
            break;
        }
        decimals += behind;
        behind = behind || word.at[i] == '.';
    }
    return 0.5 * pow(10, exponent - decimals);
}

bool sbp_log_word_number(struct sbp_log_word word, struct sbp_log_number *number)
{
    /* strtod takes more than benchmarks print: hexadecimals, "inf", "nan". */
    if (word.length == 0 || (int)strspn(word.at, "0123456789.+-eE") < word.length ||
        !(isdigit((unsigned char)word.at[0]) || word.at[0] == '-' || word.at[0] == '.'))
        return false;
    char *end;
    number->value = strtod(word.at, &end);
    if (end != word.at + word.length || !isfinite(number->value))
        return false;
    number->slack = printed_slack(word);
    return isfinite(number->slack);
}

/* Whether nccl-tests or OSU print lines that begin so. */
static bool is_printed(const char *at)
{
    at = skip_blanks(at);
    return *at == '#' || isdigit((unsigned char)*at);
}

/* The line behind "[...]<stdout>:" (Open MPI's --tag-output), or behind "[...] " and "[...]:"
 * before text of a benchmark; else the line itself. */
static const char *behind_brackets(const char *line)
{
    const char *close = memchr(line, ']', strnlen(line, LONGEST_TAG));
    if (close == NULL)
        return line;
    if (strncmp(close, "]<stdout>", 9) == 0 || strncmp(close, "]<stderr>", 9) == 0)
        return close + 9 + (close[9] == ':');
    const char *rest = close + 1 + (close[1] == ':');
    return is_printed(rest) ? rest : line;
}

/* The line behind "3: " (Slurm's --label) or "node01: " (pdsh) before text of a benchmark, or
 * behind a time as in logs of containers ("2024-05-01T12:00:00.1Z "); else the line itself. */
static const char *behind_word(const char *line)
{
    const size_t length = strcspn(line, " \t");
    const size_t digits = strspn(line, "0123456789");
    const char *rest = line + length;
    if (length < 2 || length > LONGEST_TAG)
        return line;
    if (line[length - 1] == ':' && (digits == length - 1 || is_printed(rest)))
        return rest;
    const bool is_stamp = digits == 4 && length >= 19 && line[4] == '-' && line[10] == 'T' &&
                          strspn(line, "0123456789-:.TZ+") == length;
    return is_stamp && *rest != '\0' ? rest : line;
}

const char *sbp_log_untagged(const char *line)
{
    const char *at = skip_blanks(line);
    while (at[0] == '>' && is_blank(at[1])) /* quoted in a letter */
        at = skip_blanks(at + 1);
    return skip_blanks(*at == '[' ? behind_brackets(at) : behind_word(at));
}

const char *sbp_log_after(const char *line, const char *start)
{
    const size_t length = strlen(start);
    return strncmp(line, start, length) == 0 ? skip_blanks(line + length) : NULL;
}

bool sbp_log_named(const char *line, const char *name, double *value)
{
    const char *at = strstr(line, name);
    struct sbp_log_word word;
    if (at == NULL || sbp_log_split(at + strlen(name), &word, 1) == 0)
        return false;
    word.length = (int)strspn(word.at, "0123456789");
    return sbp_log_word_whole(word, value);
}

const char *sbp_log_copy(struct sbp_arena *arena, const char *at, int length, int most)
{
    const int kept = length < most ? length : most;
    char *copy = SBP_NEW(arena, char, kept + 1);
    if (copy == NULL)
        return NULL;
    for (int i = 0; i < kept; i++)
        copy[i] = isprint((unsigned char)at[i]) ? at[i] : '?';
    return copy;
}

void *sbp_log_grow(struct sbp_arena *arena, void *array, int count, int *capacity, size_t size)
{
    if (count < *capacity)
        return array;
    if (*capacity > INT_MAX / 2)
        return NULL;
    const int wanted = *capacity < 16 ? 16 : *capacity * 2;
    char *grown = sbp_arena_alloc(arena, (size_t)wanted, size);
    if (grown == NULL)
        return NULL;
    if (count > 0)
        memcpy(grown, array, (size_t)count * size);
    *capacity = wanted;
    return grown;
}
