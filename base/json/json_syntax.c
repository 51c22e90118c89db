#include "base/json/json_syntax_priv.h"

#include <ctype.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

enum { DEEPEST = 64, LONGEST_NUMBER = 63 /* cJSON's buffer */ };

struct scan {
    const char *at; /* the next byte */
    int line;       /* that it stands on, from 1 */
    int depth;
    const char *file;
    struct sbp_diag *diag;
};

static enum sbp_status scan_value(struct scan *scan);

SBP_PRINTF(2, 3)
static enum sbp_status refuse(const struct scan *scan, const char *format, ...)
{
    char message[256];
    va_list arguments;
    va_start(arguments, format);
    const int length = vsnprintf(message, sizeof message, format, arguments);
    va_end(arguments);
    return sbp_fail(scan->diag, SBP_E_INPUT, "%s: line %d: %s", scan->file, scan->line,
                    length < 0 ? "not JSON" : message);
}

static void skip_blanks(struct scan *scan)
{
    for (; *scan->at == ' ' || *scan->at == '\t' || *scan->at == '\n' || *scan->at == '\r';
         scan->at++)
        scan->line += *scan->at == '\n';
}

static bool skip(struct scan *scan, char byte)
{
    if (*scan->at != byte)
        return false;
    scan->at++;
    return true;
}

/* Refuses the next byte, which stands where something else was expected. */
static enum sbp_status refuse_next(const struct scan *scan, const char *expected)
{
    const unsigned char byte = (unsigned char)*scan->at;
    if (byte == '\0')
        return refuse(scan, "the text ends where %s was expected", expected);
    if (byte < ' ' || byte >= 127)
        return refuse(scan, "expected %s, found byte 0x%02x", expected, byte);
    return refuse(scan, "expected %s, found '%c'", expected, byte);
}

/* The four digits of \uXXXX, or -1; `at` stands behind the u. */
static long hex_of(const char *at)
{
    long code = 0;
    for (int i = 0; i < 4; i++) {
        const int digit = tolower((unsigned char)at[i]);
        if (!isxdigit(digit))
            return -1;
        code = code * 16 + (isdigit(digit) ? digit - '0' : digit - 'a' + 10);
    }
    return code;
}

/* `at` stands behind \u; characters beyond 16 bits are a high and a low surrogate (RFC 8259, 7). */
static enum sbp_status scan_code(struct scan *scan)
{
    const long code = hex_of(scan->at);
    if (code < 0)
        return refuse(scan, "\\u takes four hexadecimal digits");
    if (code == 0)
        return refuse(scan, "a string holds the character \\u0000");
    scan->at += 4;
    const bool high = code >= 0xd800 && code < 0xdc00;
    if (high && scan->at[0] == '\\' && scan->at[1] == 'u') {
        const long low = hex_of(scan->at + 2);
        if (low >= 0xdc00 && low < 0xe000) {
            scan->at += 6;
            return SBP_OK;
        }
    }
    if (high || (code >= 0xdc00 && code < 0xe000))
        return refuse(scan, "\\u%04lx is half of a surrogate pair", code);
    return SBP_OK;
}

static enum sbp_status scan_escape(struct scan *scan)
{
    const char kind = *scan->at;
    if (kind == '\0' || strchr("\"\\/bfnrtu", kind) == NULL)
        return refuse_next(scan, "an escape like \\n or \\\\ in a string");
    scan->at++;
    return kind == 'u' ? scan_code(scan) : SBP_OK;
}

/* Bytes of the UTF-8 character at `at`, which begins with a byte over 127; 0 when it is none: cut
 * short, longer than it need be, a surrogate, or beyond U+10FFFF (RFC 3629). */
static int utf8_length(const unsigned char *at)
{
    const int length = at[0] < 0xe0 ? 2 : at[0] < 0xf0 ? 3 : 4;
    if (at[0] < 0xc2 || at[0] > 0xf4)
        return 0;
    for (int i = 1; i < length; i++)
        if ((at[i] & 0xc0) != 0x80) /* stops at the text's end, too */
            return 0;
    const bool legal = (at[0] != 0xe0 || at[1] >= 0xa0) && (at[0] != 0xed || at[1] < 0xa0) &&
                       (at[0] != 0xf0 || at[1] >= 0x90) && (at[0] != 0xf4 || at[1] < 0x90);
    return legal ? length : 0;
}

/* `at` stands behind the opening quote. */
static enum sbp_status scan_string(struct scan *scan)
{
    while (!skip(scan, '"')) {
        const unsigned char byte = (unsigned char)*scan->at;
        if (byte == '\0')
            return refuse(scan, "the text ends inside a string");
        if (byte == '\n' || byte == '\r')
            return refuse(scan, "a string is not closed on its line");
        if (byte < ' ')
            return refuse(scan, "a string holds the control character 0x%02x", byte);
        const int length = byte < 128 ? 1 : utf8_length((const unsigned char *)scan->at);
        if (length == 0)
            return refuse(scan, "a string holds byte 0x%02x, which is no UTF-8 there", byte);
        scan->at += length;
        if (byte == '\\')
            SBP_TRY(scan_escape(scan));
    }
    return SBP_OK;
}

static enum sbp_status scan_digits(struct scan *scan)
{
    if (!isdigit((unsigned char)*scan->at))
        return refuse_next(scan, "a digit");
    while (isdigit((unsigned char)*scan->at))
        scan->at++;
    return SBP_OK;
}

static enum sbp_status scan_number(struct scan *scan)
{
    const char *start = scan->at;
    (void)skip(scan, '-');
    if (*scan->at == '0' && isdigit((unsigned char)scan->at[1]))
        return refuse(scan, "a number begins with a needless 0");
    SBP_TRY(scan_digits(scan));
    if (skip(scan, '.'))
        SBP_TRY(scan_digits(scan));
    if (*scan->at == 'e' || *scan->at == 'E') {
        scan->at++;
        if (*scan->at == '-' || *scan->at == '+')
            scan->at++;
        SBP_TRY(scan_digits(scan));
    }
    if (scan->at - start > LONGEST_NUMBER)
        return refuse(scan, "a number of more than %d characters", LONGEST_NUMBER);
    return SBP_OK;
}

/* true, false, null, or a word that JSON does not know. */
static enum sbp_status scan_word(struct scan *scan, bool negative)
{
    static const char *const known[] = {"true", "false", "null"};
    static const char *const not_finite[] = {"nan", "inf", "infinity"};
    char word[16];
    size_t length = 0;
    for (; isalpha((unsigned char)scan->at[length]) && length + 1 < sizeof word; length++)
        word[length] = scan->at[length];
    word[length] = '\0';
    for (int i = 0; i < 3; i++) {
        if (!negative && strcmp(word, known[i]) == 0) {
            scan->at += length;
            return SBP_OK;
        }
        if (strcasecmp(word, not_finite[i]) == 0)
            return refuse(scan, "%s%s is not a number of JSON, which are all finite",
                          negative ? "-" : "", word);
    }
    return refuse(scan, "unknown word %s%s, legal are true, false, null and strings in quotes",
                  negative ? "-" : "", word);
}

/* Refuses a container that lacks something, or the text that ends inside of it. */
static enum sbp_status refuse_container(const struct scan *scan, const char *expected,
                                        const char *what, int first_line)
{
    if (*scan->at != '\0')
        return refuse_next(scan, expected);
    return refuse(scan, "the text ends inside the %s that line %d opens", what, first_line);
}

static enum sbp_status scan_member(struct scan *scan, int first_line)
{
    skip_blanks(scan);
    if (!skip(scan, '"'))
        return refuse_container(scan, "a key in quotes", "object", first_line);
    SBP_TRY(scan_string(scan));
    skip_blanks(scan);
    if (!skip(scan, ':'))
        return refuse_container(scan, "':' behind the key", "object", first_line);
    return SBP_OK;
}

/* `at` stands behind the bracket that opened the container; `close` ends it. */
static enum sbp_status scan_container(struct scan *scan, char close)
{
    const bool object = close == '}';
    const char *what = object ? "object" : "array";
    const int first_line = scan->line;
    skip_blanks(scan);
    if (skip(scan, close))
        return SBP_OK;
    do {
        if (object)
            SBP_TRY(scan_member(scan, first_line));
        skip_blanks(scan);
        if (*scan->at == '\0')
            return refuse_container(scan, "", what, first_line);
        SBP_TRY(scan_value(scan));
        skip_blanks(scan);
    } while (skip(scan, ','));
    if (!skip(scan, close))
        return refuse_container(scan, object ? "',' or '}'" : "',' or ']'", what, first_line);
    return SBP_OK;
}

static enum sbp_status scan_value(struct scan *scan)
{
    const char first = *scan->at;
    if (first == '"') {
        scan->at++;
        return scan_string(scan);
    }
    if (first == '{' || first == '[') {
        if (scan->depth == DEEPEST)
            return refuse(scan, "nested deeper than %d", DEEPEST);
        scan->at++;
        scan->depth++;
        SBP_TRY(scan_container(scan, first == '{' ? '}' : ']'));
        scan->depth--;
        return SBP_OK;
    }
    if (isalpha((unsigned char)first))
        return scan_word(scan, false);
    if (first == '-' && isalpha((unsigned char)scan->at[1])) {
        scan->at++;
        return scan_word(scan, true);
    }
    if (first == '-' || isdigit((unsigned char)first))
        return scan_number(scan);
    return refuse_next(scan, "a value");
}

enum sbp_status sbp_json_check_syntax(const char *text, const char *file, struct sbp_diag *diag)
{
    static const char byte_order_mark[] = "\xef\xbb\xbf";
    struct scan scan = {.at = text, .line = 1, .file = file, .diag = diag};
    if (strncmp(text, byte_order_mark, 3) == 0)
        scan.at += 3;
    skip_blanks(&scan);
    SBP_TRY(scan_value(&scan));
    skip_blanks(&scan);
    if (*scan.at != '\0')
        return refuse_next(&scan, "nothing behind the value");
    return SBP_OK;
}
