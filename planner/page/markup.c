#include "planner/page/markup.h"

#include <math.h>
#include <stdarg.h>
#include <string.h>

/* --- text --- */

static const char *entity_of(char byte)
{
    switch (byte) {
    case '&':
        return "&amp;";
    case '<':
        return "&lt;";
    case '>':
        return "&gt;";
    case '"':
        return "&quot;";
    case '\'':
        return "&#39;";
    default:
        return NULL;
    }
}

/* Whether U+FFFE or U+FFFF stands there, which XML may not hold. */
static bool is_no_character(const char *at)
{
    return strncmp(at, "\xef\xbf\xbe", 3) == 0 || strncmp(at, "\xef\xbf\xbf", 3) == 0;
}

static void add_escaped(struct sbp_text *html, const char *plain)
{
    for (const char *at = plain; *at != '\0'; at++) {
        const char *entity = entity_of(*at);
        if (entity != NULL) {
            sbp_text_add(html, "%s", entity);
        } else if (is_no_character(at)) {
            sbp_text_add(html, "\xef\xbf\xbd");
            at += 2;
        } else {
            sbp_text_add(html, "%c", *at);
        }
    }
}

void sbp_markup_text(struct sbp_text *html, const char *outside)
{
    struct sbp_text shown = {0};
    sbp_text_add_shown(&shown, outside);
    html->failed |= shown.failed;
    if (shown.bytes != NULL)
        add_escaped(html, shown.bytes);
    sbp_text_free(&shown);
}

static void add_list(struct sbp_text *html, const char *format, va_list arguments)
{
    struct sbp_text text = {0};
    sbp_text_add_list(&text, format, arguments);
    html->failed |= text.failed;
    if (text.bytes != NULL)
        sbp_markup_text(html, text.bytes);
    sbp_text_free(&text);
}

void sbp_markup_add(struct sbp_text *html, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    add_list(html, format, arguments);
    va_end(arguments);
}

void sbp_markup_name(struct sbp_text *html, const char *outside)
{
    sbp_text_add(html, "<bdi>");
    sbp_markup_text(html, outside);
    sbp_text_add(html, "</bdi>");
}

/* --- numbers --- */

void sbp_markup_value(struct sbp_text *html, double value, const char *shown)
{
    if (!isfinite(value)) {
        sbp_text_add(html, "-");
        return;
    }
    sbp_text_add(html, "<data value=\"%.17g\">", value);
    sbp_markup_text(html, shown);
    sbp_text_add(html, "</data>");
}

enum { DIGITS = 4, NUMBER_BYTES = 48 };

void sbp_markup_seconds(struct sbp_text *html, double seconds)
{
    const double scale = seconds >= 1 || seconds <= 0 ? 1 : seconds >= 1e-3 ? 1e3 : 1e6;
    char digits[NUMBER_BYTES], shown[NUMBER_BYTES];
    (void)snprintf(shown, sizeof shown, "%.32s %s",
                   sbp_format_digits(seconds * scale, DIGITS, digits),
                   scale > 1e3 ? "us"
                   : scale > 1 ? "ms"
                               : "s");
    sbp_markup_value(html, seconds, shown);
}

void sbp_markup_bytes(struct sbp_text *html, double bytes)
{
    char shown[NUMBER_BYTES];
    sbp_markup_value(html, bytes, sbp_format_bytes(bytes, shown));
}

void sbp_markup_count(struct sbp_text *html, double count)
{
    char shown[NUMBER_BYTES];
    sbp_markup_value(html, count, sbp_format_count(count, shown));
}

void sbp_markup_share(struct sbp_text *html, double part, double whole)
{
    char shown[NUMBER_BYTES];
    const double share = whole > 0 ? part / whole : 0;
    (void)snprintf(shown, sizeof shown, "%.1f %%", 100 * share);
    sbp_markup_value(html, share, shown);
}

/* --- tables --- */

void sbp_markup_table(struct sbp_text *html, const char *label, int columns,
                      const char *const *titles)
{
    sbp_text_add(html, "<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"");
    sbp_markup_text(html, label);
    sbp_text_add(html, "\"><table><thead><tr>");
    for (int i = 0; i < columns; i++) {
        const bool words = titles[i][0] == '<';
        sbp_text_add(html, "<th scope=\"col\"%s>", words ? " class=\"w\"" : "");
        sbp_markup_text(html, titles[i] + words);
        sbp_text_add(html, "</th>");
    }
    sbp_text_add(html, "</tr></thead><tbody>\n");
}

void sbp_markup_table_end(struct sbp_text *html)
{
    sbp_text_add(html, "</tbody></table></div>\n");
}

void sbp_markup_cell(struct sbp_text *html, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    sbp_text_add(html, "<td>");
    add_list(html, format, arguments);
    sbp_text_add(html, "</td>");
    va_end(arguments);
}

void sbp_markup_words(struct sbp_text *html, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    sbp_text_add(html, "<td class=\"w\">");
    add_list(html, format, arguments);
    sbp_text_add(html, "</td>");
    va_end(arguments);
}
