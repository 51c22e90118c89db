#include "calib/logs/log_parts.h"

#include <ctype.h>
#include <string.h>

/* The programs of nccl-tests (src of each: GetCollByteCount, GetBw). */
const struct sbp_log_collective sbp_log_collectives[] = {
    {.name = "all_reduce",
     .is_priced = true,
     .kind = SBP_ALL_REDUCE,
     .reduces = true,
     .factor = SBP_LOG_FACTOR_TWICE},
    {.name = "all_gather",
     .is_priced = true,
     .kind = SBP_ALL_GATHER,
     .is_shared = true,
     .factor = SBP_LOG_FACTOR_SHARED},
    {.name = "reduce_scatter",
     .is_priced = true,
     .kind = SBP_REDUCE_SCATTER,
     .is_shared = true,
     .reduces = true,
     .factor = SBP_LOG_FACTOR_SHARED},
    {.name = "alltoall",
     .is_priced = true,
     .kind = SBP_ALL_TO_ALL,
     .is_shared = true,
     .one_checked = true,
     .factor = SBP_LOG_FACTOR_SHARED},
    {.name = "sendrecv",
     .is_priced = true,
     .kind = SBP_SEND_RECV,
     .reduces = true, /* it says so, and has nothing to reduce */
     .one_checked = true,
     .factor = SBP_LOG_FACTOR_ONE},
    {.name = "broadcast",
     .is_priced = true,
     .kind = SBP_BROADCAST_COLL,
     .is_rooted = true,
     .factor = SBP_LOG_FACTOR_ONE},
    {.name = "reduce", .reduces = true, .is_rooted = true, .factor = SBP_LOG_FACTOR_ONE},
    {.name = "gather", .is_shared = true, .is_rooted = true, .factor = SBP_LOG_FACTOR_SHARED},
    {.name = "scatter", .is_shared = true, .is_rooted = true, .factor = SBP_LOG_FACTOR_SHARED},
    {.name = "hypercube", .is_shared = true, .factor = SBP_LOG_FACTOR_ONE},
    {.name = "alltoallv", .is_shared = true, .factor = SBP_LOG_FACTOR_SHARED},
    {.name = NULL},
};

/* What else people call them; compared without underscores and hyphens. */
static const struct {
    const char *other, *name;
} others[] = {{"bcast", "broadcast"}, {"ppsendrecv", "sendrecv"}, {"a2a", "alltoall"}};

static bool is_letter(char letter)
{
    return isalnum((unsigned char)letter) || letter == '_' || letter == '-';
}

/* The letters and digits of a word, small: "All-Reduce_" is "allreduce". */
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
