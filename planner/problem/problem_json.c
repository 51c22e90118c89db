#include "planner/problem/problem.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/text.h"

/* Whole numbers up to 2^53 are exact in double precision. */
#define MOST_WHOLE INT64_C(9007199254740992)

/* A variable with more values is a mistake in the file. */
enum { MOST_DOMAIN = 1 << 20 };

/* A list of lists of numbers in the file. */
struct rows {
    const char *path;
    size_t count, room;
    double **row; /* (count)(length), in the problem's arena */
    int *length;  /* (count) */
};

struct reader {
    const char *file, *begin, *at;
    struct sbp_arena *arena; /* the problem's, into which tables are read directly */
    struct sbp_diag *diag;
    double *scratch; /* the row under way */
    size_t scratch_room;
    struct rows intervals, costs, usages, ends, edge_costs;
    double usage_limit;
};

/* --- syntax --- */

static enum sbp_status refuse_here(const struct reader *reader, const char *path, const char *what)
{
    int line = 1;
    for (const char *at = reader->begin; at < reader->at; at++)
        line += *at == '\n';
    return sbp_fail(reader->diag, SBP_E_INPUT, "%s: %s%sline %d, byte %td: %s", reader->file, path,
                    path[0] == '\0' ? "" : ": ", line, reader->at - reader->begin, what);
}

static enum sbp_status refuse_row(const struct reader *reader, const struct rows *rows,
                                  size_t index, const char *what)
{
    return sbp_fail(reader->diag, SBP_E_INPUT, "%s: %s[%zu]: %s", reader->file, rows->path, index,
                    what);
}

static enum sbp_status no_memory(const struct reader *reader)
{
    return sbp_fail(reader->diag, SBP_E_MEMORY, "%s: out of memory", reader->file);
}

/* Skips white space and returns the next character without taking it. */
static char peek(struct reader *reader)
{
    while (*reader->at == ' ' || *reader->at == '\n' || *reader->at == '\t' || *reader->at == '\r')
        reader->at++;
    return *reader->at;
}

static bool accept(struct reader *reader, char wanted)
{
    if (peek(reader) != wanted)
        return false;
    reader->at++;
    return true;
}

/* Reads a string; *text, *length: the characters between the quotes, escapes as they stand. */
static enum sbp_status read_string(struct reader *reader, const char *path, const char **text,
                                   size_t *length)
{
    if (!accept(reader, '"'))
        return refuse_here(reader, path, "expected a string");
    *text = reader->at;
    for (; *reader->at != '"'; reader->at++) {
        if (*reader->at == '\\')
            reader->at++;
        if ((unsigned char)*reader->at < 0x20)
            return refuse_here(reader, path, "a string does not end");
    }
    *length = (size_t)(reader->at++ - *text);
    return SBP_OK;
}

/* Reads a whole number without strtod, because most numbers are whole and files are large. */
static bool read_whole(struct reader *reader, double *value)
{
    const char *at = reader->at;
    int64_t whole = 0;
    int digits = 0;
    for (; *at >= '0' && *at <= '9' && digits < 16; at++, digits++)
        whole = whole * 10 + (*at - '0');
    const bool plain = digits > 0 && whole <= MOST_WHOLE && !(digits > 1 && *reader->at == '0') &&
                       (*at == ',' || *at == ']' || *at == ' ' || *at == '\n' || *at == '}');
    if (!plain)
        return false;
    reader->at = at;
    *value = (double)whole;
    return true;
}

/* The end of a JSON number, or NULL: strtod alone takes hexadecimal, nan and inf as well. */
static const char *number_end(const char *at)
{
    at += *at == '-';
    if (!isdigit((unsigned char)*at) || (at[0] == '0' && isdigit((unsigned char)at[1])))
        return NULL;
    while (isdigit((unsigned char)*at))
        at++;
    if (*at == '.') {
        if (!isdigit((unsigned char)*++at))
            return NULL;
        while (isdigit((unsigned char)*at))
            at++;
    }
    if (*at == 'e' || *at == 'E') {
        at++;
        at += *at == '+' || *at == '-';
        if (!isdigit((unsigned char)*at))
            return NULL;
        while (isdigit((unsigned char)*at))
            at++;
    }
    return at;
}

static enum sbp_status read_number(struct reader *reader, const char *path, double *value)
{
    (void)peek(reader);
    if (read_whole(reader, value))
        return SBP_OK;
    const char *end = number_end(reader->at);
    if (end == NULL)
        return refuse_here(reader, path, "expected a number");
    *value = strtod(reader->at, NULL);
    if (!isfinite(*value))
        return refuse_here(reader, path, "a number is beyond double precision");
    reader->at = end;
    return SBP_OK;
}

/* --- lists --- */

static bool reserve_scratch(struct reader *reader, size_t count)
{
    if (count < reader->scratch_room)
        return true;
    const size_t room = reader->scratch_room == 0 ? 1024 : 2 * reader->scratch_room;
    double *scratch = realloc(reader->scratch, room * sizeof *scratch);
    if (scratch == NULL)
        return false;
    reader->scratch = scratch;
    reader->scratch_room = room;
    return true;
}

static bool append_row(struct reader *reader, struct rows *rows, size_t length)
{
    if (rows->count == rows->room) {
        const size_t room = rows->room == 0 ? 64 : 2 * rows->room;
        double **row = realloc(rows->row, room * sizeof *row);
        if (row == NULL)
            return false;
        rows->row = row;
        int *lengths = realloc(rows->length, room * sizeof *lengths);
        if (lengths == NULL)
            return false;
        rows->length = lengths;
        rows->room = room;
    }
    double *copy = SBP_NEW(reader->arena, double, length);
    if (copy == NULL)
        return false;
    if (length > 0)
        memcpy(copy, reader->scratch, length * sizeof *copy);
    rows->row[rows->count] = copy;
    rows->length[rows->count++] = (int)length;
    return true;
}

static enum sbp_status read_row(struct reader *reader, struct rows *rows)
{
    size_t length = 0;
    if (!accept(reader, '['))
        return refuse_here(reader, rows->path, "expected a list of numbers");
    if (!accept(reader, ']')) {
        do {
            if (!reserve_scratch(reader, length))
                return no_memory(reader);
            SBP_TRY(read_number(reader, rows->path, &reader->scratch[length++]));
        } while (accept(reader, ','));
        if (!accept(reader, ']'))
            return refuse_here(reader, rows->path, "expected ',' or ']'");
    }
    if (length > INT_MAX || rows->count >= INT_MAX)
        return refuse_here(reader, rows->path, "too long a list");
    return append_row(reader, rows, length) ? SBP_OK : no_memory(reader);
}

static enum sbp_status read_rows(struct reader *reader, void *target)
{
    struct rows *rows = target;
    if (!accept(reader, '['))
        return refuse_here(reader, rows->path, "expected a list of lists");
    if (accept(reader, ']'))
        return SBP_OK;
    do
        SBP_TRY(read_row(reader, rows));
    while (accept(reader, ','));
    return accept(reader, ']') ? SBP_OK : refuse_here(reader, rows->path, "expected ',' or ']'");
}

/* --- objects --- */

struct member {
    const char *key;
    bool is_required;
    enum sbp_status (*read)(struct reader *reader, void *target);
    void *target;
    bool seen;
};

enum { MOST_MEMBERS = 4, KEY_BYTES = 64 };

static enum sbp_status refuse_key(const struct reader *reader, const char *path,
                                  const struct member *members, int count, const char *key)
{
    const char *names[MOST_MEMBERS + 1] = {NULL};
    for (int i = 0; i < count; i++)
        names[i] = members[i].key;
    const char *nearest = sbp_text_nearest(key, names);
    return sbp_fail(reader->diag, SBP_E_INPUT, "%s: %s%sunknown key \"%s\"%s%s%s", reader->file,
                    path, path[0] == '\0' ? "" : ": ", key,
                    nearest == NULL ? "" : ", did you mean \"", nearest == NULL ? "" : nearest,
                    nearest == NULL ? "" : "\"?");
}

static enum sbp_status read_member(struct reader *reader, const char *path, struct member *members,
                                   int count)
{
    const char *text;
    size_t length;
    SBP_TRY(read_string(reader, path, &text, &length));
    char key[KEY_BYTES];
    snprintf(key, sizeof key, "%.*s", (int)(length < KEY_BYTES ? length : KEY_BYTES - 1), text);
    if (!accept(reader, ':'))
        return refuse_here(reader, path, "expected ':'");
    for (int i = 0; i < count; i++) {
        if (strcmp(members[i].key, key) != 0)
            continue;
        if (members[i].seen)
            return sbp_fail(reader->diag, SBP_E_INPUT, "%s: %s: key \"%s\" stands twice",
                            reader->file, path, key);
        members[i].seen = true;
        return members[i].read(reader, members[i].target);
    }
    return refuse_key(reader, path, members, count, key);
}

static enum sbp_status read_object(struct reader *reader, const char *path, struct member *members,
                                   int count)
{
    if (!accept(reader, '{'))
        return refuse_here(reader, path, "expected an object");
    if (!accept(reader, '}')) {
        do
            SBP_TRY(read_member(reader, path, members, count));
        while (accept(reader, ','));
        if (!accept(reader, '}'))
            return refuse_here(reader, path, "expected ',' or '}'");
    }
    for (int i = 0; i < count; i++)
        if (members[i].is_required && !members[i].seen)
            return sbp_fail(reader->diag, SBP_E_INPUT, "%s: %s%skey \"%s\" is missing",
                            reader->file, path, path[0] == '\0' ? "" : ": ", members[i].key);
    return SBP_OK;
}

static enum sbp_status read_nodes(struct reader *reader, void *target)
{
    (void)target;
    struct member members[] = {{"intervals", true, read_rows, &reader->intervals, false},
                               {"costs", true, read_rows, &reader->costs, false},
                               {"usages", true, read_rows, &reader->usages, false}};
    return read_object(reader, "problem.nodes", members, 3);
}

static enum sbp_status read_edges(struct reader *reader, void *target)
{
    (void)target;
    struct member members[] = {{"nodes", true, read_rows, &reader->ends, false},
                               {"costs", true, read_rows, &reader->edge_costs, false}};
    return read_object(reader, "problem.edges", members, 2);
}

static enum sbp_status read_name(struct reader *reader, void *target)
{
    (void)target; /* problems keep no name */
    const char *text;
    size_t length;
    return read_string(reader, "problem.name", &text, &length);
}

static enum sbp_status read_limit(struct reader *reader, void *target)
{
    SBP_TRY(read_number(reader, "problem.usage_limit", target));
    if (reader->usage_limit < 0)
        return refuse_here(reader, "problem.usage_limit", "must be 0 or more");
    return SBP_OK;
}

static enum sbp_status read_problem(struct reader *reader, void *target)
{
    (void)target;
    struct member members[] = {{"name", false, read_name, NULL, false},
                               {"nodes", true, read_nodes, NULL, false},
                               {"edges", true, read_edges, NULL, false},
                               {"usage_limit", false, read_limit, &reader->usage_limit, false}};
    return read_object(reader, "problem", members, 4);
}

static enum sbp_status read_root(struct reader *reader)
{
    struct member members[] = {{"problem", true, read_problem, NULL, false}};
    SBP_TRY(read_object(reader, "", members, 1));
    return peek(reader) == '\0' ? SBP_OK
                                : refuse_here(reader, "", "unexpected text after the object");
}

/* --- from lists to the problem --- */

static bool is_whole(double value, double least, double most)
{
    return value >= least && value <= most && value == floor(value);
}

static enum sbp_status check_count(const struct reader *reader, const struct rows *rows,
                                   const struct rows *like)
{
    if (rows->count == like->count)
        return SBP_OK;
    return sbp_fail(reader->diag, SBP_E_INPUT, "%s: %s: has %zu entries where %s has %zu",
                    reader->file, rows->path, rows->count, like->path, like->count);
}

static enum sbp_status check_usages(const struct reader *reader, size_t v)
{
    if (reader->usages.length[v] != reader->costs.length[v])
        return refuse_row(reader, &reader->usages, v, "must be as long as the node's costs");
    for (int k = 0; k < reader->usages.length[v]; k++)
        if (reader->usages.row[v][k] < 0)
            return refuse_row(reader, &reader->usages, v, "a usage is negative");
    return SBP_OK;
}

static enum sbp_status add_node(struct reader *reader, struct sbp_problem *problem, size_t v)
{
    const int domain = reader->costs.length[v];
    if (domain < 1 || domain > MOST_DOMAIN)
        return refuse_row(reader, &reader->costs, v, "must list 1 to 2^20 costs");
    SBP_TRY(check_usages(reader, v));
    const double *times = reader->intervals.row[v];
    const double most = (double)MOST_WHOLE;
    if (reader->intervals.length[v] != 2 || !is_whole(times[0], -most, most) ||
        !is_whole(times[1], -most, most) || times[0] > times[1])
        return refuse_row(reader, &reader->intervals, v,
                          "must be two whole numbers, the second no less than the first");
    const struct sbp_interval interval = {(int64_t)times[0], (int64_t)times[1]};
    char name[32];
    snprintf(name, sizeof name, "n%zu", v);
    const int index = sbp_problem_add_variable(problem, name, domain,
                                               interval.from < interval.to ? 1 : 0, &interval);
    if (index < 0)
        return no_memory(reader);
    struct sbp_variable *variable = &problem->variable[index];
    variable->cost = reader->costs.row[v]; /* already in the problem's arena */
    if (variable->interval_count > 0)
        variable->usage = reader->usages.row[v];
    return SBP_OK;
}

/* Adds the second table of a pair that is listed twice. */
static void add_table(double *to, const double *from, int rows, int columns, bool transposed)
{
    for (size_t i = 0; i < (size_t)rows; i++)
        for (size_t j = 0; j < (size_t)columns; j++) {
            double *sum = &to[transposed ? j * (size_t)rows + i : i * (size_t)columns + j];
            *sum = sbp_problem_add_costs(*sum, from[i * (size_t)columns + j]);
        }
}

static enum sbp_status add_edge(struct reader *reader, struct sbp_problem *problem, size_t e)
{
    const double *ends = reader->ends.row[e];
    const double most = problem->variable_count - 1;
    if (reader->ends.length[e] != 2 || !is_whole(ends[0], 0, most) || !is_whole(ends[1], 0, most))
        return refuse_row(reader, &reader->ends, e, "must be the indices of two nodes");
    if (ends[0] == ends[1])
        return refuse_row(reader, &reader->ends, e, "an edge must join two different nodes");
    const int a = (int)ends[0], b = (int)ends[1];
    const int rows = problem->variable[a].domain, columns = problem->variable[b].domain;
    if ((int64_t)rows * columns != reader->edge_costs.length[e])
        return refuse_row(reader, &reader->edge_costs, e,
                          "must list a cost for each pair of the two nodes' choices");
    const int before = problem->edge_count;
    bool transposed;
    double *table = sbp_problem_edge_table(problem, a, b, &transposed);
    if (table == NULL)
        return no_memory(reader);
    if (problem->edge_count > before)
        problem->edge[before].cost = reader->edge_costs.row[e];
    else
        add_table(table, reader->edge_costs.row[e], rows, columns, transposed);
    return SBP_OK;
}

static enum sbp_status build(struct reader *reader, struct sbp_problem *problem)
{
    SBP_TRY(check_count(reader, &reader->intervals, &reader->costs));
    SBP_TRY(check_count(reader, &reader->usages, &reader->costs));
    SBP_TRY(check_count(reader, &reader->edge_costs, &reader->ends));
    for (size_t v = 0; v < reader->costs.count; v++)
        SBP_TRY(add_node(reader, problem, v));
    for (size_t e = 0; e < reader->ends.count; e++)
        SBP_TRY(add_edge(reader, problem, e));
    problem->capacity = reader->usage_limit;
    return SBP_OK;
}

static void free_rows(struct rows *rows)
{
    free(rows->row);
    free(rows->length);
}

static enum sbp_status parse(const char *file, const char *text, struct sbp_problem *problem,
                             struct sbp_diag *diag)
{
    struct reader reader = {
        .file = file,
        .begin = text,
        .at = text,
        .arena = &problem->arena,
        .diag = diag,
        .intervals.path = "problem.nodes.intervals",
        .costs.path = "problem.nodes.costs",
        .usages.path = "problem.nodes.usages",
        .ends.path = "problem.edges.nodes",
        .edge_costs.path = "problem.edges.costs",
        .usage_limit = INFINITY,
    };
    enum sbp_status status = read_root(&reader);
    if (status == SBP_OK)
        status = build(&reader, problem);
    free_rows(&reader.intervals);
    free_rows(&reader.costs);
    free_rows(&reader.usages);
    free_rows(&reader.ends);
    free_rows(&reader.edge_costs);
    free(reader.scratch);
    return status;
}

enum sbp_status sbp_problem_read(const char *path, struct sbp_problem *problem,
                                 struct sbp_diag *diag)
{
    *problem = (struct sbp_problem){.capacity = INFINITY};
    char *text;
    size_t length;
    SBP_TRY(sbp_file_read(path, &text, &length, diag));
    enum sbp_status status = sbp_problem_init(problem, 0, 0);
    if (status != SBP_OK)
        status = sbp_fail(diag, status, "%s: out of memory", path);
    else if (strlen(text) != length)
        status = sbp_fail(diag, SBP_E_INPUT, "%s: is no text: it holds a NUL byte", path);
    else
        status = parse(path, text, problem, diag);
    free(text);
    if (status != SBP_OK)
        sbp_problem_free(problem);
    return status;
}

/* --- writing --- */

static void write_number(struct sbp_text *text, double value)
{
    if (value >= SBP_FORBIDDEN)
        sbp_text_add(text, "1000000000000000000");
    else if (fabs(value) <= (double)MOST_WHOLE && value == floor(value))
        sbp_text_add(text, "%" PRId64, (int64_t)value);
    else
        sbp_text_add(text, "%.17g", value);
}

static void write_row(struct sbp_text *text, bool *first, const double *values, size_t count)
{
    sbp_text_add(text, *first ? "[" : ",[");
    *first = false;
    for (size_t i = 0; i < count; i++) {
        if (i > 0)
            sbp_text_add(text, ",");
        write_number(text, values == NULL ? 0 : values[i]);
    }
    sbp_text_add(text, "]");
}

/* Writes a node: a variable (interval 0), or a helper for a further interval of it. Helpers are
 * nodes of their own that must choose the variable's value. */
typedef void write_node_fn(struct sbp_text *text, bool *first, const struct sbp_variable *variable,
                           int interval);

static void write_interval(struct sbp_text *text, bool *first, const struct sbp_variable *variable,
                           int interval)
{
    const struct sbp_interval none = {0, 0};
    const struct sbp_interval times =
        interval < variable->interval_count ? variable->interval[interval] : none;
    sbp_text_add(text, "%s[%" PRId64 ",%" PRId64 "]", *first ? "" : ",", times.from, times.to);
    *first = false;
}

static void write_costs(struct sbp_text *text, bool *first, const struct sbp_variable *variable,
                        int interval)
{
    write_row(text, first, interval == 0 ? variable->cost : NULL, (size_t)variable->domain);
}

static void write_usages(struct sbp_text *text, bool *first, const struct sbp_variable *variable,
                         int interval)
{
    const size_t domain = (size_t)variable->domain;
    const double *usage =
        interval < variable->interval_count ? variable->usage + (size_t)interval * domain : NULL;
    write_row(text, first, usage, domain);
}

static void write_nodes(struct sbp_text *text, const char *key, const struct sbp_problem *problem,
                        write_node_fn *write)
{
    bool first = true;
    sbp_text_add(text, "\"%s\":[", key);
    for (int v = 0; v < problem->variable_count; v++)
        write(text, &first, &problem->variable[v], 0);
    for (int v = 0; v < problem->variable_count; v++)
        for (int i = 1; i < problem->variable[v].interval_count; i++)
            write(text, &first, &problem->variable[v], i);
    sbp_text_add(text, "]");
}

static void write_tie(struct sbp_text *text, bool *first, int domain)
{
    sbp_text_add(text, *first ? "[" : ",[");
    *first = false;
    for (int i = 0; i < domain; i++)
        for (int j = 0; j < domain; j++) {
            sbp_text_add(text, i + j > 0 ? "," : "");
            write_number(text, i == j ? 0 : SBP_FORBIDDEN);
        }
    sbp_text_add(text, "]");
}

static void write_edges(struct sbp_text *text, const struct sbp_problem *problem)
{
    bool first = true;
    int helper = problem->variable_count;
    sbp_text_add(text, "\"edges\":{\"nodes\":[");
    for (int e = 0; e < problem->edge_count; e++, first = false)
        sbp_text_add(text, "%s[%d,%d]", first ? "" : ",", problem->edge[e].a, problem->edge[e].b);
    for (int v = 0; v < problem->variable_count; v++)
        for (int i = 1; i < problem->variable[v].interval_count; i++, first = false)
            sbp_text_add(text, "%s[%d,%d]", first ? "" : ",", v, helper++);
    sbp_text_add(text, "],\"costs\":[");
    first = true;
    for (int e = 0; e < problem->edge_count; e++) {
        const struct sbp_edge *edge = &problem->edge[e];
        write_row(text, &first, edge->cost, sbp_problem_entries(problem, edge));
    }
    for (int v = 0; v < problem->variable_count; v++)
        for (int i = 1; i < problem->variable[v].interval_count; i++)
            write_tie(text, &first, problem->variable[v].domain);
    sbp_text_add(text, "]}");
}

enum sbp_status sbp_problem_write(const struct sbp_problem *problem, const char *path,
                                  struct sbp_diag *diag)
{
    struct sbp_text text = {0};
    sbp_text_add(&text, "{\"problem\":{\"nodes\":{");
    write_nodes(&text, "intervals", problem, write_interval);
    sbp_text_add(&text, ",");
    write_nodes(&text, "costs", problem, write_costs);
    sbp_text_add(&text, ",");
    write_nodes(&text, "usages", problem, write_usages);
    sbp_text_add(&text, "},");
    write_edges(&text, problem);
    if (problem->capacity < INFINITY) {
        sbp_text_add(&text, ",\"usage_limit\":");
        write_number(&text, problem->capacity);
    }
    sbp_text_add(&text, "}}\n");
    const enum sbp_status status = text.failed
                                       ? sbp_fail(diag, SBP_E_MEMORY, "%s: out of memory", path)
                                       : sbp_file_write(path, text.bytes, text.length, diag);
    sbp_text_free(&text);
    return status;
}
