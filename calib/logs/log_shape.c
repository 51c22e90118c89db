/* Finds how many ranks a run had, and on how many nodes. */
#include <stdlib.h>
#include <string.h>

#include "calib/logs/log_parts_priv.h"

#define OWN_LINE "or in a first line \"#@ ranks=N | nodes=N\" of the file"
#define SAY      "say it with --nodes N or --ranks-per-node N, " OWN_LINE
#define SAY_BOTH "say it with --nodes N and --ranks-per-node N, " OWN_LINE

/* Facts that the device list tells. */
struct listed {
    int ranks;         /* one more than the largest number */
    bool is_whole;     /* every number stands there once */
    int twice;         /* a number that stands there again; -1 */
    int groups, hosts; /* different ones */
    int least_per_host, most_per_host;
    const char *host;        /* one of them */
    const char *double_host; /* that has the same number of a device twice; NULL */
    const char *shared_host; /* that has the same device twice, by its whole bus; NULL */
    bool is_apart;           /* the bus tells devices of the same number apart */
    bool sees_one;           /* ranks of a host all have the same number: each is shown one */
};

/* --- the list --- */

static int compare_ranks(const void *left, const void *right)
{
    const struct sbp_log_device *a = left, *b = right;
    return (a->rank > b->rank) - (a->rank < b->rank);
}

static int compare_hosts(const void *left, const void *right)
{
    const struct sbp_log_device *a = left, *b = right;
    const int order = strcmp(a->host, b->host);
    const int by_number = (a->device > b->device) - (a->device < b->device);
    return order != 0 ? order : by_number != 0 ? by_number : strcmp(a->bus, b->bus);
}

static int compare_groups(const void *left, const void *right)
{
    const struct sbp_log_device *a = left, *b = right;
    return (a->group > b->group) - (a->group < b->group);
}

/* device (count) is sorted by rank. */
static void count_ranks(const struct sbp_log_device *device, int count, struct listed *listed)
{
    int next = 0;
    listed->twice = -1;
    listed->is_whole = true;
    for (int i = 0; i < count; i++) {
        if (device[i].rank < next && listed->twice < 0)
            listed->twice = device[i].rank;
        listed->is_whole = listed->is_whole && device[i].rank == next;
        next = device[i].rank + device[i].ranks;
    }
    listed->ranks = next;
}

/* Compares two devices of a host that have the same number. Before 2025 the bus was printed without
 * its domain, "[0x01]", so that others of the host may share it; "[0009:01:00]" is one device's. */
static void compare_buses(const struct sbp_log_device *device, const struct sbp_log_device *before,
                          struct listed *listed)
{
    listed->double_host = device->host;
    if (strcmp(device->bus, before->bus) != 0)
        return;
    listed->is_apart = false;
    if (strchr(device->bus, ':') != NULL)
        listed->shared_host = device->host;
}

/* device (count) is sorted by host, device and bus. */
static void count_hosts(const struct sbp_log_device *device, int count, struct listed *listed)
{
    int here = 0;
    listed->sees_one = listed->is_apart = true;
    for (int i = 0; i < count; i++) {
        const bool is_new = i == 0 || strcmp(device[i].host, device[i - 1].host) != 0;
        if (!is_new && device[i].device == device[i - 1].device)
            compare_buses(&device[i], &device[i - 1], listed);
        else
            listed->sees_one = listed->sees_one && is_new;
        here = (is_new ? 0 : here) + device[i].ranks;
        listed->hosts += is_new;
        const bool is_last = i + 1 == count || strcmp(device[i].host, device[i + 1].host) != 0;
        if (is_last && (listed->least_per_host == 0 || here < listed->least_per_host))
            listed->least_per_host = here;
        if (is_last && here > listed->most_per_host)
            listed->most_per_host = here;
    }
    listed->host = count > 0 ? device[0].host : "";
}

static bool read_list(const struct sbp_log_run *run, struct listed *listed)
{
    const size_t count = (size_t)run->device_count;
    *listed = (struct listed){.twice = -1};
    if (count == 0)
        return true;
    struct sbp_log_device *device = malloc(count * sizeof *device);
    if (device == NULL)
        return false;
    memcpy(device, run->device, count * sizeof *device);
    qsort(device, count, sizeof *device, compare_groups);
    for (size_t i = 0; i < count; i++)
        listed->groups += i == 0 || device[i].group != device[i - 1].group;
    qsort(device, count, sizeof *device, compare_ranks);
    count_ranks(device, (int)count, listed);
    qsort(device, count, sizeof *device, compare_hosts);
    count_hosts(device, (int)count, listed);
    free(device);
    return true;
}

/* --- what is judged --- */

/* A number that somebody says. */
struct claim {
    int value; /* 0: nobody does */
    int line;  /* of the file; 0: the options */
    const char *who;
};

struct shape_case {
    struct sbp_logs *logs;
    struct sbp_log_table *table;
    int index;
    const struct sbp_log_run *run;
    struct claim ranks, nodes, each; /* each: ranks a node */
    struct listed listed;
};

#define REFUSE(is, line_of, reason_of, ...)                                                        \
    sbp_log_add_note((is)->logs, (is)->table->file, (is)->index, (line_of), (reason_of),           \
                     __VA_ARGS__)

static struct claim claim_of(int option, int said, int line)
{
    if (option > 0)
        return (struct claim){option, 0, "the options say"};
    return (struct claim){said, line, "the file's own line says"};
}

static bool has_whole_list(const struct shape_case *is)
{
    return is->run->device_count > 0 && is->listed.is_whole && is->run->list_gap_line == 0;
}

/* Whether bytes went through the devices, but none over a bus: one rank alone. */
static bool is_silent(const struct sbp_log_run *run)
{
    bool is_moving = false;
    for (int i = 0; i < run->row_count; i++)
        for (int h = 0; h < SBP_LOG_HALVES; h++) {
            const struct sbp_log_half *half = &run->row[i].half[h];
            if (half->is_there && half->busbw.value != 0)
                return false;
            is_moving = is_moving || (half->is_there && half->algbw.value >= 1);
        }
    return is_moving;
}

static enum sbp_status refuse_one_rank(const struct shape_case *is)
{
    return REFUSE(is, is->run->line, SBP_LOG_ONE_RANK,
                  "it ran on one rank, so that nothing was sent: build the benchmark with MPI=1 "
                  "and start it under mpirun or srun, or with -g N");
}

/* Refuses a list that is no run's, or of one node where several are claimed. */
static enum sbp_status check_list(const struct shape_case *is)
{
    const struct listed *listed = &is->listed;
    const int line = is->run->line;
    if (listed->twice >= 0)
        return REFUSE(is, line, SBP_LOG_COPIES,
                      "rank %d is listed more than once: every process ran alone, beside the "
                      "others; build the benchmark with MPI=1 and start it under mpirun or srun",
                      listed->twice);
    if (listed->groups > 1)
        return REFUSE(is, line, SBP_LOG_GROUPS,
                      "the ranks are split into %d groups that run at the same time "
                      "(NCCL_TESTS_SPLIT): import a run of one group",
                      listed->groups);
    if ((has_whole_list(is) && listed->ranks == 1) || is_silent(is->run))
        return refuse_one_rank(is);
    if (has_whole_list(is) && listed->hosts == 1 && is->nodes.value > 1)
        return REFUSE(is, line, SBP_LOG_ONE_NODE,
                      "%s %d nodes, but all %d ranks ran on one, %s: it measured no network; start "
                      "it over all nodes%s",
                      is->nodes.who, is->nodes.value, listed->ranks, listed->host,
                      is->nodes.line == 0 ? ", or import it without --nodes" : "");
    return SBP_OK;
}

/* --- the number of ranks --- */

static enum sbp_status refuse_ranks(const struct shape_case *is, int low, int high)
{
    const int line = is->run->line;
    if (is->run->is_bare)
        return REFUSE(is, line, SBP_LOG_RANKS_UNKNOWN,
                      "OSU's benchmarks do not print on how many ranks they ran: " SAY_BOTH);
    if (low < high)
        return REFUSE(is, line, SBP_LOG_RANKS_UNKNOWN,
                      "there is no whole list of ranks, and by the bus bandwidth they may be any "
                      "from %d to %d: " SAY_BOTH,
                      low, high);
    return REFUSE(
        is, line, SBP_LOG_RANKS_UNKNOWN,
        "there is no whole list of ranks, and the columns do not give their number: " SAY_BOTH);
}

/* The only number from low to high that fills whole nodes; 0: none, or several. */
static int only_multiple(int low, int high, int each)
{
    const int first = each > 1 ? (low + each - 1) / each * each : 0;
    return first > 0 && first <= high && first > high - each ? first : 0;
}

/* Checks the number found against the columns and against what is said. */
static enum sbp_status check_ranks(const struct shape_case *is, int low, int high)
{
    const struct sbp_log_table *table = is->table;
    static const char *const froms[] = {[SBP_LOG_LISTED] = "the list of devices has",
                                        [SBP_LOG_SAID] = "it is said that there were",
                                        [SBP_LOG_INFERRED] = "the columns are those of",
                                        [SBP_LOG_IMPLIED] = "the benchmark has"};
    const char *from = froms[table->ranks_from];
    if (low > 0 && (table->ranks < low || table->ranks > high))
        return REFUSE(is, is->run->head_line, SBP_LOG_RANKS_DIFFER,
                      low == high ? "%s %d ranks, but the columns are those of %d: they are not of "
                                    "one run"
                                  : "%s %d ranks, but the columns are those of %d to %d: they are "
                                    "not of one run",
                      from, table->ranks, low, high);
    if (is->ranks.value > 0 && is->ranks.value != table->ranks &&
        table->ranks_from != SBP_LOG_IMPLIED)
        return REFUSE(is, is->ranks.line, SBP_LOG_RANKS_DIFFER,
                      "%s %d ranks, but %s %d: correct the one that is wrong", is->ranks.who,
                      is->ranks.value, from, table->ranks);
    return table->ranks == 1 ? refuse_one_rank(is) : SBP_OK;
}

/* Takes the first of: the number that the benchmark implies, a whole list, the columns, the last
 * number of a list that the columns allow, what is said. */
static enum sbp_status find_ranks(const struct shape_case *is,
                                  const struct sbp_log_collective *collective)
{
    struct sbp_log_table *table = is->table;
    int low, high, said = is->ranks.value;
    const int inferred = sbp_log_infer_ranks(is->run, collective, &low, &high);
    const int listed = is->run->device_count > 0 ? is->listed.ranks : 0;
    if (said == 0 && is->nodes.value > 0 && (double)is->nodes.value * is->each.value <= 1e8)
        said = is->nodes.value * is->each.value;
    const struct {
        int ranks;
        enum sbp_log_ranks_from from;
    } sources[] = {{is->run->fixed_ranks, SBP_LOG_IMPLIED},
                   {has_whole_list(is) ? listed : 0, SBP_LOG_LISTED},
                   {inferred, SBP_LOG_INFERRED},
                   {low <= listed && listed <= high ? listed : 0, SBP_LOG_LISTED},
                   {only_multiple(low, high, is->each.value), SBP_LOG_INFERRED},
                   {said, SBP_LOG_SAID}};
    for (size_t i = 0; i < sizeof sources / sizeof *sources && table->ranks == 0; i++) {
        table->ranks = sources[i].ranks;
        table->ranks_from = sources[i].from;
    }
    return table->ranks == 0 ? refuse_ranks(is, low, high) : check_ranks(is, low, high);
}

/* --- nodes --- */

/* The nodes as claimed, or by the ranks a node; 0: open. Two ranks (of osu_latency) of a run over
 * many nodes lie on two; where the two lie with several ranks a node is open. */
static int claimed_nodes(const struct shape_case *is)
{
    const int ranks = is->table->ranks, fixed = is->run->fixed_ranks;
    if (is->run->fixed_nodes > 0)
        return is->run->fixed_nodes;
    if (is->nodes.value > 0)
        return fixed > 0 && is->nodes.value > fixed ? fixed : is->nodes.value;
    if (is->each.value == 0 || ranks % is->each.value != 0 || (fixed > 0 && is->each.value > 1))
        return 0;
    return ranks / is->each.value;
}

/* Judges a host that lists a device's number twice. It may be several nodes of one name, ranks that
 * share a device, or one node whose processes are each shown a part of its devices
 * (--gpus-per-task) and count from 0. Where each sees one device, differing buses or several host
 * names prove the last case; else somebody has to say how many nodes there were.
 */
static enum sbp_status check_devices(const struct shape_case *is)
{
    const struct listed *listed = &is->listed;
    const bool is_said = is->nodes.value > 0 || is->each.value == listed->most_per_host;
    const bool can_be_one = listed->shared_host == NULL && (listed->sees_one || listed->is_apart);
    const bool is_clear = listed->sees_one && (listed->is_apart || listed->hosts > 1);
    if (listed->double_host == NULL || (can_be_one && (is_clear || is_said)))
        return SBP_OK;
    if (can_be_one)
        return REFUSE(is, is->run->line, SBP_LOG_HOSTS_REPEAT,
                      "ranks of host %s call their devices by the same number: if it is one node "
                      "that shows each of them its own, " SAY "; nodes of the same name need names "
                      "of their own",
                      listed->double_host);
    return REFUSE(is, is->run->line, SBP_LOG_HOSTS_REPEAT,
                  "host %s lists a device more than once: several nodes have this name, or ranks "
                  "share a device; give every node a name of its own",
                  listed->shared_host != NULL ? listed->shared_host : listed->double_host);
}

static enum sbp_status check_hosts(const struct shape_case *is)
{
    const struct listed *listed = &is->listed;
    if (is->nodes.value > 0 && is->nodes.value != listed->hosts)
        return REFUSE(is, is->nodes.line, SBP_LOG_SHAPE_DIFFERS,
                      "%s %d node%s, but the list of devices has %d: correct the one that is wrong",
                      is->nodes.who, is->nodes.value, is->nodes.value == 1 ? "" : "s",
                      listed->hosts);
    SBP_TRY(check_devices(is));
    if (is->table->is_refused)
        return SBP_OK;
    if (listed->least_per_host != listed->most_per_host)
        return REFUSE(is, is->run->line, SBP_LOG_UNEVEN,
                      "%d ranks lie unevenly on %d nodes, from %d to %d on each: import runs with "
                      "as many on every node",
                      is->table->ranks, listed->hosts, listed->least_per_host,
                      listed->most_per_host);
    if (is->each.value > 0 && is->each.line > 0 && is->each.value != listed->most_per_host)
        return REFUSE(is, is->each.line, SBP_LOG_SHAPE_DIFFERS,
                      "%s %d ranks a node, but the list of devices has %d", is->each.who,
                      is->each.value, listed->most_per_host);
    return SBP_OK;
}

static enum sbp_status find_nodes(const struct shape_case *is)
{
    struct sbp_log_table *table = is->table;
    const bool has_hosts = has_whole_list(is) && table->ranks_from == SBP_LOG_LISTED;
    const int nodes = has_hosts ? is->listed.hosts : claimed_nodes(is);
    if (has_hosts)
        SBP_TRY(check_hosts(is));
    if (table->is_refused)
        return SBP_OK;
    if (nodes == 0 && is->run->fixed_ranks == 0 && is->each.value > 1 &&
        table->ranks % is->each.value != 0)
        return REFUSE(is, is->each.line, SBP_LOG_UNEVEN,
                      "%s %d ranks a node, but %d ranks fill no whole number of such nodes",
                      is->each.who, is->each.value, table->ranks);
    if (nodes == 0)
        return REFUSE(is, is->run->line, SBP_LOG_NODES_UNKNOWN,
                      "it ran on %d ranks, but no line says on how many nodes: " SAY, table->ranks);
    if (table->ranks % nodes != 0)
        return REFUSE(is, is->nodes.line, SBP_LOG_UNEVEN,
                      "%s %d nodes, but %d ranks do not fill them evenly", is->nodes.who, nodes,
                      table->ranks);
    table->nodes = nodes;
    table->ranks_per_node = table->ranks / nodes;
    return SBP_OK;
}

/* E_MEMORY. */
static enum sbp_status open_case(struct shape_case *is, const struct sbp_log_said *said,
                                 const struct sbp_log_options *options)
{
    is->ranks = claim_of(0, said->ranks, said->line);
    is->nodes = claim_of(options->nodes, said->nodes, said->line);
    is->each = claim_of(options->ranks_per_node, said->ranks_per_node, said->line);
    return read_list(is->run, &is->listed) ? SBP_OK : SBP_E_MEMORY;
}

enum sbp_status sbp_log_check_list(struct sbp_logs *logs, int table, const struct sbp_log_run *run,
                                   const struct sbp_log_said *said,
                                   const struct sbp_log_options *options)
{
    struct shape_case is = {.logs = logs, .table = &logs->table[table], .index = table, .run = run};
    SBP_TRY(open_case(&is, said, options));
    return check_list(&is);
}

enum sbp_status sbp_log_find_shape(struct sbp_logs *logs, int table, const struct sbp_log_run *run,
                                   const struct sbp_log_said *said,
                                   const struct sbp_log_options *options,
                                   const struct sbp_log_collective *collective)
{
    struct shape_case is = {.logs = logs, .table = &logs->table[table], .index = table, .run = run};
    SBP_TRY(open_case(&is, said, options));
    SBP_TRY(find_ranks(&is, collective));
    return is.table->is_refused ? SBP_OK : find_nodes(&is);
}
