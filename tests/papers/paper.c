#include "tests/papers/paper.h"

#include <ctype.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"

void paper_open(struct paper *paper, const char *name, const char *title)
{
    *paper = (struct paper){.name = name};
    sbp_text_add(&paper->text,
                 "# %s\n\n"
                 "Made by `./dev results %s` of version " SBP_VERSION ", from `tests/papers/%s.c`. "
                 "`./dev test papers` holds every\nnumber to a bound and this file to what the "
                 "program writes.\n\n",
                 title, name, name);
}

void paper_say(struct paper *paper, const char *format, ...)
{
    char line[4096];
    va_list arguments;
    va_start(arguments, format);
    const int length = vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    if (length < 0 || (size_t)length >= sizeof line)
        paper->text.failed = true;
    else
        sbp_text_add(&paper->text, "%s", line);
}

void paper_table(struct paper *paper, const char *header)
{
    sbp_text_add(&paper->text, "%s\n|", header);
    for (const char *at = strchr(header + 1, '|'); at != NULL; at = strchr(at + 1, '|'))
        sbp_text_add(&paper->text, " --- |");
    sbp_text_add(&paper->text, "\n");
}

bool paper_true(struct paper *paper, const char *what, bool holds)
{
    paper->held++;
    if (!holds) {
        paper->broken++;
        (void)fprintf(stderr, "%s: %s does not hold\n", paper->name, what);
    }
    return holds;
}

bool paper_within(struct paper *paper, const char *what, double value, double low, double high)
{
    const bool within = value >= low && value <= high;
    if (!within)
        (void)fprintf(stderr, "%s: %s is %.9g, legal: %.9g to %.9g\n", paper->name, what, value,
                      low, high);
    return paper_true(paper, what, within);
}

bool paper_equal(struct paper *paper, const char *what, double value, double expected,
                 double tolerance)
{
    const double slack = tolerance * fabs(expected);
    return paper_within(paper, what, value, expected - slack, expected + slack);
}

struct sbp_text *paper_picture(struct paper *paper, const char *name, const char *caption)
{
    if (paper->pictures == PAPER_MOST_PICTURES)
        abort();
    struct paper_picture *picture = &paper->picture[paper->pictures++];
    (void)snprintf(picture->name, sizeof picture->name, "%s.svg", name);
    sbp_text_add(&paper->text, "![%s](%s)\n\n", caption, picture->name);
    return &picture->text;
}

static bool write_file(const char *folder, const char *name, const struct sbp_text *text)
{
    struct sbp_diag diag = {{0}};
    char path[4096];
    (void)snprintf(path, sizeof path, "%s/%s", folder, name);
    const bool done = sbp_file_write(path, text->bytes, text->length, &diag) == SBP_OK;
    (void)fprintf(done ? stdout : stderr, "%s%s\n", done ? "wrote " : "", done ? path : diag.text);
    return done;
}

/* Points of a curve may be off by this many pixels: losses of a training run depend on the products
 * of BLAS, which rounds otherwise from one kind of processor to the next. */
static const double POINT_SLACK = 0.3;

/* Whether lines are alike; numbers of a curve, nearly. */
static bool same_line(const char *have, int a, const char *want, int b)
{
    const char *have_end = have + a, *want_end = want + b;
    const bool is_curve = a > 0 && memmem(have, (size_t)a, "<polyline", 9) != NULL;
    if (!is_curve)
        return a == b && memcmp(have, want, (size_t)a) == 0;
    while (have < have_end && want < want_end) {
        if (isdigit((unsigned char)*have) && isdigit((unsigned char)*want)) {
            char *have_next, *want_next;
            if (fabs(strtod(have, &have_next) - strtod(want, &want_next)) > POINT_SLACK)
                return false;
            have = have_next;
            want = want_next;
        } else if (*have++ != *want++) {
            return false;
        }
    }
    return have == have_end && want == want_end;
}

/* Shows the first line that differs. */
static bool same_file(const char *folder, const char *name, const struct sbp_text *text)
{
    struct sbp_diag diag = {{0}};
    char path[4096], *old = NULL;
    size_t length = 0;
    (void)snprintf(path, sizeof path, "%s/%s", folder, name);
    if (sbp_file_read(path, &old, &length, &diag) != SBP_OK) {
        (void)fprintf(stderr, "%s\n", diag.text);
        return false;
    }
    bool same = true;
    const char *have = old, *want = text->bytes;
    for (int line = 1; same && (*have != '\0' || *want != '\0'); line++) {
        const int a = (int)strcspn(have, "\n"), b = (int)strcspn(want, "\n");
        same = same_line(have, a, want, b) && have[a] == want[b];
        if (!same)
            (void)fprintf(stderr, "%s:%d: it says\n  %.*s\nand the program\n  %.*s\n", path, line,
                          a, have, b, want);
        have += a + (have[a] != '\0');
        want += b + (want[b] != '\0');
    }
    free(old);
    return same;
}

typedef bool paper_each(const char *folder, const char *name, const struct sbp_text *text);

static bool for_files(const struct paper *paper, paper_each *each, const char *folder)
{
    char name[64];
    (void)snprintf(name, sizeof name, "%s.md", paper->name);
    bool good = each(folder, name, &paper->text);
    for (int i = 0; i < paper->pictures; i++)
        good &= each(folder, paper->picture[i].name, &paper->picture[i].text);
    return good;
}

static int act(const struct paper *paper, int argc, char **argv)
{
    if (argc == 1)
        return fputs(paper->text.bytes, stdout) < 0;
    if (argc == 3 && strcmp(argv[1], "-o") == 0)
        return !for_files(paper, write_file, argv[2]);
    if (argc == 3 && strcmp(argv[1], "--check") == 0)
        return !for_files(paper, same_file, argv[2]);
    (void)fprintf(stderr, "usage: %s [-o FOLDER | --check FOLDER]\n", argv[0]);
    return 2;
}

int paper_close(struct paper *paper, int argc, char **argv)
{
    sbp_text_add(&paper->text, "%d numbers and claims of this file are held to bounds.\n",
                 paper->held);
    bool failed = paper->text.failed;
    for (int i = 0; i < paper->pictures; i++)
        failed |= paper->picture[i].text.failed;
    int code = 1;
    if (failed)
        (void)fprintf(stderr, "%s: out of memory, or a line is too long\n", paper->name);
    else
        code = act(paper, argc, argv);
    sbp_text_free(&paper->text);
    for (int i = 0; i < paper->pictures; i++)
        sbp_text_free(&paper->picture[i].text);
    return code != 0 ? code : paper->broken != 0;
}
