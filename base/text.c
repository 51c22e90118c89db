#include "base/text.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FIRST_CAPACITY 256

/* --- growing strings --- */

/* Room for `more` bytes and a NUL behind the text. */
static bool reserve(struct sbp_text *text, size_t more)
{
    if (text->failed)
        return false;
    if (more >= SIZE_MAX - text->length) {
        text->failed = true;
        return false;
    }
    const size_t needed = text->length + more + 1;
    if (needed <= text->capacity)
        return true;
    size_t capacity = text->capacity < FIRST_CAPACITY ? FIRST_CAPACITY : text->capacity;
    while (capacity < needed)
        capacity = capacity > SIZE_MAX / 2 ? needed : 2 * capacity;
    char *bytes = realloc(text->bytes, capacity);
    if (bytes == NULL) {
        text->failed = true;
        return false;
    }
    text->bytes = bytes;
    text->capacity = capacity;
    return true;
}

void sbp_text_add_list(struct sbp_text *text, const char *format, va_list arguments)
{
    va_list again;
    va_copy(again, arguments);
    const int length = vsnprintf(NULL, 0, format, again);
    va_end(again);
    if (length < 0) {
        text->failed = true;
        return;
    }
    if (!reserve(text, (size_t)length))
        return;
    (void)vsnprintf(text->bytes + text->length, (size_t)length + 1, format, arguments);
    text->length += (size_t)length;
}

void sbp_text_add(struct sbp_text *text, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    sbp_text_add_list(text, format, arguments);
    va_end(arguments);
}

void sbp_text_free(struct sbp_text *text)
{
    if (text == NULL)
        return;
    free(text->bytes);
    *text = (struct sbp_text){0};
}

/* --- text from outside --- */

enum { ESCAPE_BYTES = sizeof "\\x00" };

/* Bytes of the UTF-8 character at `at`, which is not NUL; 0 when it is none. */
static int character_length(const char *at)
{
    const unsigned char first = (unsigned char)*at;
    const int length = first < 0x80                     ? 1
                       : first >= 0xc2 && first < 0xe0  ? 2
                       : first >= 0xe0 && first < 0xf0  ? 3
                       : first >= 0xf0 && first <= 0xf4 ? 4
                                                        : 0;
    for (int i = 1; i < length; i++)
        if (((unsigned char)at[i] & 0xc0) != 0x80) /* stops at the NUL, too */
            return 0;
    return length;
}

/* Bytes of the control character at `at`, or of what is no character; 0: it is plain. */
static int control_length(const char *at)
{
    const unsigned char first = (unsigned char)at[0];
    if (first == 0)
        return 0;
    const int length = character_length(at);
    const bool upper = length == 2 && first == 0xc2 && (unsigned char)at[1] < 0xa0; /* C1 */
    return length == 0 || first < 0x20 || first == 0x7f ? 1 : upper ? 2 : 0;
}

bool sbp_text_is_plain(const char *outside)
{
    while (*outside != '\0' && control_length(outside) == 0)
        outside += character_length(outside);
    return *outside == '\0';
}

/* The next piece of a text, which is not at its end, as it is shown; returns its bytes there. */
static int next_shown(const char *at, char piece[2 * ESCAPE_BYTES])
{
    const int control = control_length(at);
    if (control == 0) {
        (void)snprintf(piece, 2 * ESCAPE_BYTES, "%.*s", character_length(at), at);
        return character_length(at);
    }
    for (int i = 0, used = 0; i < control; i++)
        used += snprintf(piece + used, ESCAPE_BYTES, "\\x%02x", (unsigned char)at[i]);
    return control;
}

void sbp_text_add_shown(struct sbp_text *text, const char *outside)
{
    char piece[2 * ESCAPE_BYTES];
    while (*outside != '\0') {
        outside += next_shown(outside, piece);
        sbp_text_add(text, "%s", piece);
    }
}

void sbp_text_show(char *buffer, size_t size)
{
    struct sbp_text shown = {0};
    if (sbp_text_is_plain(buffer))
        return;
    sbp_text_add_shown(&shown, buffer);
    (void)snprintf(buffer, size, "%s", shown.failed ? "out of memory" : shown.bytes);
    sbp_text_free(&shown);
}

bool sbp_text_print_line(FILE *out, const char *format, ...)
{
    const size_t before = strspn(format, "\n"), length = strlen(format);
    size_t behind = 0;
    while (before + behind < length && format[length - 1 - behind] == '\n')
        behind++;
    struct sbp_text line = {0}, shown = {0};
    va_list arguments;
    va_start(arguments, format);
    sbp_text_add_list(&line, format, arguments);
    va_end(arguments);
    if (!line.failed) {
        line.bytes[line.length - behind] = '\0';
        sbp_text_add(&shown, "%.*s", (int)before, format);
        sbp_text_add_shown(&shown, line.bytes + before);
        sbp_text_add(&shown, "%s", format + length - behind);
    }
    const bool printed = !line.failed && !shown.failed && fputs(shown.bytes, out) >= 0;
    sbp_text_free(&line);
    sbp_text_free(&shown);
    return printed;
}

/* --- units --- */

#define FORMAT_BYTES 32 /* what a caller's buffer holds at least */

/* `digits` significant digits, without an exponent where people would write none. */
static void format_scaled(double value, int digits, const char *unit, char *buffer)
{
    int decimals = digits - 1;
    for (double limit = 10; decimals > 0 && fabs(value) >= limit - 0.5 * pow(10, -decimals);
         limit *= 10)
        decimals--;
    if (fabs(value) >= 0.1 && fabs(value) < 1e9)
        (void)snprintf(buffer, FORMAT_BYTES, "%.*f%s", decimals, value, unit);
    else
        (void)snprintf(buffer, FORMAT_BYTES, "%.*g%s", digits, value, unit);
}

struct unit {
    double size;
    const char *name;
};

/* The largest unit that keeps the rounded value at 1 or more; units ascend, the last has no name.
 */
static const char *format_in_units(double value, const struct unit *units, int digits, char *buffer)
{
    const struct unit *unit = units;
    if (value == 0 || !isfinite(value)) { /* zero has no scale: it is 0 of the plain unit */
        while (unit->size < 1)
            unit++;
        (void)snprintf(buffer, FORMAT_BYTES, "%g%s", value, unit->name);
        return buffer;
    }
    for (; unit[1].name != NULL; unit++) {
        const double limit = unit[1].size / unit->size;
        const double half_of_last = 0.5 * pow(10, (limit < 100 ? 2 : 3) - digits);
        if (fabs(value) / unit->size < limit - half_of_last)
            break;
    }
    format_scaled(value / unit->size, digits, unit->name, buffer);
    return buffer;
}

const char *sbp_format_seconds(double seconds, char *buffer)
{
    static const struct unit units[] = {{1e-9, " ns"}, {1e-6, " us"}, {1e-3, " ms"}, {1, " s"},
                                        {60, " min"},  {3600, " h"},  {86400, " d"}, {0, NULL}};
    return format_in_units(seconds, units, 3, buffer);
}

const char *sbp_format_digits(double value, int digits, char *buffer)
{
    if (fabs(value) < 1)
        (void)snprintf(buffer, FORMAT_BYTES, "%.*g", digits, value);
    else
        format_scaled(value, digits, "", buffer);
    return buffer;
}

static bool is_small_whole(double value)
{
    return fabs(value) < 1000 && value == rint(value);
}

const char *sbp_format_bytes(double bytes, char *buffer)
{
    static const struct unit units[] = {{1, " B"},        {0x1p10, " KiB"}, {0x1p20, " MiB"},
                                        {0x1p30, " GiB"}, {0x1p40, " TiB"}, {0x1p50, " PiB"},
                                        {0x1p60, " EiB"}, {0, NULL}};
    if (is_small_whole(bytes)) {
        (void)snprintf(buffer, FORMAT_BYTES, "%.0f B", bytes);
        return buffer;
    }
    return format_in_units(bytes, units, 3, buffer);
}

const char *sbp_format_count(double count, char *buffer)
{
    static const struct unit units[] = {{1, ""},      {1e3, " k"},  {1e6, " M"},  {1e9, " G"},
                                        {1e12, " T"}, {1e15, " P"}, {1e18, " E"}, {0, NULL}};
    if (is_small_whole(count)) {
        (void)snprintf(buffer, FORMAT_BYTES, "%.0f", count);
        return buffer;
    }
    return format_in_units(count, units, 4, buffer);
}

/* --- numbers --- */

/* strtod also takes blanks, hexadecimal numbers, infinities and NaN; these are no input of ours. */
static bool starts_decimal(const char *text)
{
    if (*text == '-' || *text == '+')
        text++;
    if (*text == '.')
        return isdigit((unsigned char)text[1]) != 0;
    return isdigit((unsigned char)text[0]) && text[1] != 'x' && text[1] != 'X';
}

bool sbp_parse_double(const char *text, double *value)
{
    if (!starts_decimal(text))
        return false;
    char *end;
    const double number = strtod(text, &end);
    if (*end != '\0' || !isfinite(number))
        return false;
    *value = number;
    return true;
}

bool sbp_parse_int64(const char *text, int64_t *value)
{
    if (!starts_decimal(text))
        return false;
    char *end;
    errno = 0;
    const long long number = strtoll(text, &end, 10);
    if (errno != 0 || *end != '\0')
        return false;
    *value = (int64_t)number;
    return true;
}

/* The factor of a suffix; 0 when it is none. */
static double suffix_factor(const char *suffix, bool is_bytes)
{
    static const char letters[] = "KMGTP";
    if (*suffix == '\0')
        return 1;
    if (strcmp(suffix, "B") == 0) /* a billion; "80B" of bytes might be 80 bytes */
        return is_bytes ? 0 : 1e9;
    const char *letter = strchr(letters, toupper((unsigned char)*suffix));
    if (letter == NULL)
        return 0;
    const int power = (int)(letter - letters) + 1;
    if (strcmp(suffix + 1, "i") == 0 || strcmp(suffix + 1, "iB") == 0)
        is_bytes = true;
    else if (is_bytes && strcmp(suffix + 1, "B") == 0) /* SI: 80GB is less than 80G */
        is_bytes = false;
    else if (suffix[1] != '\0')
        return 0;
    return is_bytes ? ldexp(1, 10 * power) : rint(pow(10, 3 * power));
}

bool sbp_parse_scaled(const char *text, bool is_bytes, double *value)
{
    if (!starts_decimal(text) || *text == '-' || *text == '+')
        return false;
    char *end;
    const double number = strtod(text, &end);
    if (*end == ' ' && end[1] != '\0')
        end++;
    const double factor = suffix_factor(end, is_bytes);
    const double scaled = rint(number * factor);
    const bool cut = *end == '\0' && scaled != number; /* half a byte is a slip, 0.3G is not */
    if (factor == 0 || cut || !isfinite(scaled))
        return false;
    *value = scaled;
    return true;
}

/* --- nearest names --- */

#define LONGEST_NAME 63

static int least(int a, int b)
{
    return a < b ? a : b;
}

static bool same_letter(char a, char b)
{
    return tolower((unsigned char)a) == tolower((unsigned char)b);
}

/* Insertions, deletions, substitutions and swaps of neighbours that turn a into b (optimal string
 * alignment), case aside; both at most LONGEST_NAME long. */
static int edit_distance(const char *a, int a_length, const char *b, int b_length)
{
    int rows[3][LONGEST_NAME + 1]; /* row i in rows[i % 3]: the distance of a's first i letters */
    for (int j = 0; j <= b_length; j++)
        rows[0][j] = j;
    for (int i = 1; i <= a_length; i++) {
        int *row = rows[i % 3];
        const int *above = rows[(i - 1) % 3];
        row[0] = i;
        for (int j = 1; j <= b_length; j++) {
            row[j] = least(above[j], row[j - 1]) + 1;
            row[j] = least(row[j], above[j - 1] + !same_letter(a[i - 1], b[j - 1]));
            if (i > 1 && j > 1 && same_letter(a[i - 1], b[j - 2]) &&
                same_letter(a[i - 2], b[j - 1]))
                row[j] = least(row[j], rows[(i - 2) % 3][j - 2] + 1);
        }
    }
    return rows[a_length % 3][b_length];
}

const char *sbp_text_nearest(const char *word, const char *const *names)
{
    const size_t word_length = strlen(word);
    const char *nearest = NULL;
    int nearest_distance = LONGEST_NAME;
    for (; word_length <= LONGEST_NAME && *names != NULL; names++) {
        const size_t length = strlen(*names);
        if (length > LONGEST_NAME)
            continue;
        const int distance = edit_distance(word, (int)word_length, *names, (int)length);
        const int longer = (int)(length > word_length ? length : word_length);
        /* A slip changes few letters of many: one in three, but never all of them. */
        const int limit = longer < 6 ? 1 : longer / 3;
        if (distance <= limit && distance < longer && distance < nearest_distance) {
            nearest = *names;
            nearest_distance = distance;
        }
    }
    return nearest;
}
