/* Finds which collective a table measured: by its name, or by its columns, since nccl-tests names
 * it only since June 2025. */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "calib/logs/log_parts_priv.h"

/* --- by name --- */

#define PRICED(kind_) .is_priced = true, .kind = (kind_)
#define ONE           .factor = SBP_LOG_FACTOR_ONE
#define SHARED        .factor = SBP_LOG_FACTOR_SHARED
#define TWICE         .factor = SBP_LOG_FACTOR_TWICE

/* The programs of nccl-tests (src of each: GetCollByteCount, GetBw). */
const struct sbp_log_collective sbp_log_collectives[] = {
    {.name = "all_reduce", PRICED(SBP_ALL_REDUCE), .reduces = true, TWICE},
    {.name = "all_gather", PRICED(SBP_ALL_GATHER), .is_shared = true, SHARED},
    {.name = "reduce_scatter",
     PRICED(SBP_REDUCE_SCATTER),
     .is_shared = true,
     .reduces = true,
     SHARED},
    {.name = "alltoall", PRICED(SBP_ALL_TO_ALL), .is_shared = true, .one_checked = true, SHARED},
    /* It says that it reduces, and has nothing to reduce. */
    {.name = "sendrecv", PRICED(SBP_SEND_RECV), .reduces = true, .one_checked = true, ONE},
    {.name = "broadcast", PRICED(SBP_BROADCAST_COLL), .is_rooted = true, ONE},
    {.name = "reduce", .reduces = true, .is_rooted = true, ONE},
    {.name = "gather", .is_shared = true, .is_rooted = true, SHARED},
    {.name = "scatter", .is_shared = true, .is_rooted = true, SHARED},
    {.name = "hypercube", .is_shared = true, ONE},
    {.name = "alltoallv", .is_shared = true, SHARED},
    {.name = NULL},
};

/* Other names in use; compared without underscores and hyphens. */
static const struct {
    const char *other, *name;
} others[] = {{"bcast", "broadcast"}, {"ppsendrecv", "sendrecv"}, {"a2a", "alltoall"}};

static bool is_letter(char letter)
{
    return isalnum((unsigned char)letter) || letter == '_' || letter == '-';
}

/* Copies the letters and digits of a word, small: "All-Reduce_" is "allreduce". */
static void plain(const char *at, int length, char *into, int size)
{
    int kept = 0;
    for (int i = 0; i < length && kept < size - 1; i++)
        if (isalnum((unsigned char)at[i]))
            into[kept++] = (char)tolower((unsigned char)at[i]);
    into[kept] = '\0';
}

static bool drop_end(char *word, const char *end)
{
    const size_t length = strlen(word), cut = strlen(end);
    const bool ends = length > cut && strcmp(word + length - cut, end) == 0;
    if (ends)
        word[length - cut] = '\0';
    return ends;
}

static const struct sbp_log_collective *find_plain(const char *word)
{
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (strcmp(others[i].other, word) == 0)
            word = others[i].name;
    for (const struct sbp_log_collective *c = sbp_log_collectives; c->name != NULL; c++) {
        char own[32];
        plain(c->name, (int)strlen(c->name), own, sizeof own);
        if (strcmp(own, word) == 0)
            return c;
    }
    return NULL;
}

const struct sbp_log_collective *sbp_log_collective_find(const char *name, int length)
{
    int first = length;
    while (first > 0 && name[first - 1] != '/')
        first--;
    char word[64];
    plain(name + first, length - first, word, sizeof word);
    (void)drop_end(word, "exe");
    (void)drop_end(word, "mpi");
    (void)drop_end(word, "perf");
    return find_plain(strncmp(word, "osu", 3) == 0 ? word + 3 : word);
}

const struct sbp_log_collective *sbp_log_collective_run(const char *line)
{
    const struct sbp_log_collective *found = NULL;
    for (const char *at = line; (at = strstr(at, "_perf")) != NULL; at++) {
        const char *first = at;
        while (first > line && is_letter(first[-1]))
            first--;
        const struct sbp_log_collective *one = sbp_log_collective_find(first, (int)(at - first));
        found = one == NULL ? found : one;
    }
    return found;
}

double sbp_log_factor_of(enum sbp_log_factor factor, double ranks)
{
    if (factor == SBP_LOG_FACTOR_ONE)
        return 1;
    return (factor == SBP_LOG_FACTOR_TWICE ? 2 : 1) * (ranks - 1) / ranks;
}

/* --- by columns --- */

/* Facts that the columns tell. */
struct features {
    bool is_shared; /* size is a multiple of count x element */
    bool is_sized;  /* that is known */
    bool reduces, is_rooted;
    bool one_checked, both_checked; /* halves that were checked, in all rows */
    bool is_old; /* only the columns that the collective has: before August 2022 */
    bool has_redop;
    bool is_flat; /* bus bandwidth = bandwidth in every row */
};

static struct features read_features(const struct sbp_log_run *run)
{
    struct features found = {.one_checked = run->row_count > 0,
                             .both_checked = run->row_count > 0,
                             .is_flat = true,
                             .is_old = run->has_head && !(run->has_redop && run->has_root),
                             .has_redop = run->has_redop};
    int sized = 0, shared = 0; /* rows; a broken one decides nothing */
    for (int i = 0; i < run->row_count; i++) {
        const struct sbp_log_row *row = &run->row[i];
        const struct sbp_log_half *out = &row->half[SBP_LOG_OUT_OF_PLACE];
        const struct sbp_log_half *in = &row->half[SBP_LOG_IN_PLACE];
        found.reduces = found.reduces || row->reduces;
        found.is_rooted = found.is_rooted || row->is_rooted;
        found.one_checked = found.one_checked && out->is_checked && in->is_there && !in->is_checked;
        found.both_checked = found.both_checked && out->is_checked && in->is_checked;
        for (int h = 0; h < SBP_LOG_HALVES; h++)
            found.is_flat = found.is_flat && row->half[h].algbw.value == row->half[h].busbw.value;
        if (row->size_bytes > 0 && row->count > 0 && row->element_bytes > 0) {
            sized++;
            shared += row->size_bytes > row->count * row->element_bytes;
        }
    }
    found.is_sized = sized > 0;
    found.is_shared = 2 * shared > sized;
    return found;
}

/* Whether sizes and roots fit the collective. On one rank a shared size is one rank's. */
static bool fits_roughly(const struct sbp_log_collective *collective, const struct features *found)
{
    const bool is_too_large = found->is_shared && !collective->is_shared;
    return !(found->is_sized && is_too_large) && found->is_rooted == collective->is_rooted;
}

/* Whether a table without a name can be the collective's. */
static bool fits(const struct sbp_log_collective *collective, const struct features *found)
{
    const bool is_ring_shift = collective->is_priced && collective->kind == SBP_SEND_RECV;
    if (!fits_roughly(collective, found) ||
        (found->is_sized && found->is_shared != collective->is_shared))
        return false;
    /* A ring shift names an operation since all collectives have the column. */
    if (found->reduces != (collective->reduces && !(is_ring_shift && found->is_old)))
        return false;
    if (found->is_old) /* an all-to-all had a column for what it does not have */
        return !collective->is_shared || collective->reduces || collective->is_rooted ||
               found->has_redop == (collective->kind == SBP_ALL_TO_ALL);
    if ((found->one_checked && !collective->one_checked) ||
        (found->both_checked && collective->one_checked))
        return false;
    return !is_ring_shift || found->is_flat;
}

/* Whether a table without a name can be this one: two are told from others by their names alone. */
static bool is_nameless(const struct sbp_log_collective *collective)
{
    return strcmp(collective->name, "hypercube") != 0 && strcmp(collective->name, "alltoallv") != 0;
}

static unsigned candidates_of(const struct features *found)
{
    unsigned candidates = 0;
    for (int i = 0; sbp_log_collectives[i].name != NULL; i++)
        if (is_nameless(&sbp_log_collectives[i]) && fits(&sbp_log_collectives[i], found))
            candidates |= 1U << i;
    return candidates;
}

static bool is_one_of(unsigned candidates, const struct sbp_log_collective *collective)
{
    return collective != NULL && (candidates >> (collective - sbp_log_collectives) & 1U) != 0;
}

/* Finds the first name of a collective in a file's name, as in "all_gather_n2_env1.txt". */
static const struct sbp_log_collective *named_by_file(const char *path)
{
    const char *name = sbp_file_name(path);
    for (; *name != '\0'; name++)
        for (int length = 6; length <= 14 && (size_t)length <= strlen(name); length++) {
            const struct sbp_log_collective *found = sbp_log_collective_find(name, length);
            if (found != NULL && found->is_priced)
                return found;
        }
    return NULL;
}

static void list_names(unsigned candidates, char *text, size_t size)
{
    size_t length = 0;
    text[0] = '\0';
    for (int i = 0; sbp_log_collectives[i].name != NULL && length < size; i++)
        if ((candidates >> i & 1U) != 0)
            length += (size_t)snprintf(text + length, size - length, "%s%s",
                                       length == 0 ? "" : " or ", sbp_log_collectives[i].name);
}

#define REFUSE(line_of, reason_of, ...)                                                            \
    sbp_log_add_note(logs, logs->table[table].file, table, (line_of), (reason_of), __VA_ARGS__)

/* Guesses the collective of a table that does not name it. */
static enum sbp_status guess(struct sbp_logs *logs, int table, const struct sbp_log_run *run,
                             const struct features *found,
                             const struct sbp_log_collective **collective)
{
    const char *file = logs->file[logs->table[table].file];
    const unsigned candidates = candidates_of(found);
    const struct sbp_log_collective *by_file = named_by_file(file);
    char names[160];
    for (int i = 0; sbp_log_collectives[i].name != NULL; i++)
        if (candidates == 1U << i)
            *collective = &sbp_log_collectives[i];
    if (*collective == NULL && is_one_of(candidates, run->hint))
        *collective = run->hint;
    if (*collective != NULL)
        return SBP_OK;
    if (is_one_of(candidates, by_file)) {
        *collective = by_file;
        return sbp_log_add_note(logs, logs->table[table].file, table, run->head_line,
                                SBP_LOG_NAME_GUESSED,
                                "the table does not say what it measured: taken for %s, as the "
                                "file's name says",
                                by_file->name);
    }
    list_names(candidates, names, sizeof names);
    return REFUSE(run->head_line, SBP_LOG_COLLECTIVE_UNKNOWN,
                  "the table does not say what it measured%s%s: say it in a first line "
                  "\"#@ collective=NAME\" of the file",
                  candidates == 0 ? ", and its columns are no collective's"
                                  : ", and by its columns it may be ",
                  names);
}

enum sbp_status sbp_log_find_collective(struct sbp_logs *logs, int table,
                                        const struct sbp_log_run *run,
                                        const struct sbp_log_said *said,
                                        const struct sbp_log_collective **collective)
{
    const struct features found = read_features(run);
    const struct sbp_log_collective *named = run->collective != NULL ? run->collective
                                             : run->title == NULL    ? said->collective
                                                                     : NULL;
    *collective = named;
    if (named == NULL && run->title == NULL)
        SBP_TRY(guess(logs, table, run, &found, collective));
    if (logs->table[table].is_refused)
        return SBP_OK;
    const char *name = *collective == NULL ? run->title : (*collective)->name;
    logs->table[table].collective = sbp_arena_strdup(&logs->arena, name);
    if (logs->table[table].collective == NULL)
        return SBP_E_MEMORY;
    if (*collective == NULL || !(*collective)->is_priced)
        return REFUSE(run->line, SBP_LOG_NOT_PRICED,
                      "%s: this operation has no price in a cluster file; all-reduce, all-gather, "
                      "reduce-scatter, all-to-all, broadcast and send-recv have",
                      name);
    if (named != NULL && !run->is_bare && !fits_roughly(named, &found))
        return REFUSE(run->collective != NULL ? run->line : said->line, SBP_LOG_COLLECTIVE_DIFFERS,
                      "%s is said, but the columns of the table at line %d are another "
                      "collective's: correct the one that is wrong",
                      name, run->head_line);
    return SBP_OK;
}
