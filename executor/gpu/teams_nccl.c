/* Communicators of the `nccl` backend: a team is the ranks that share one.
 *
 * Groups that all ranks name at once are split off the communicator of the world, wave by wave, so
 * that no unique id has to travel; others are made by their members from an id. Groups of the same
 * ranks in the same order share a team.
 *
 * The world's communicator, which calls nothing, does not block: to make it, and to split it, says
 * that it is not through, and is asked until it is. Meanwhile the watch over the run sees that
 * nothing goes on, and an error of another rank is found. Those that work do block, which is until
 * the work is in its stream: from 2.23 on NCCL starts a thread for each call of one that does not.
 *
 * Split communicators share no resources with the world's (splitShare is 0, which is NCCL's
 * default). Ones that share must not work at the same time as their parent, and all are lost with
 * one; and there is nothing to save: where NCCL connects ranks at their first call, from 2.22 on,
 * the world's communicator has no buffers.
 */
#include <stdlib.h>
#include <string.h>

#include "executor/comm/comm_backend.h"
#include "executor/gpu/comm_nccl_priv.h"

/* NCCL splits communicators from 2.18.1 on; without blocking it makes them from 2.14 on. */
#define HAS_SPLIT (NCCL_VERSION_CODE >= NCCL_VERSION(2, 18, 1))

/* An id travels as the doubles that its bytes fill: a broadcast moves bits. */
union moved_id {
    ncclUniqueId id;
    double moved[sizeof(ncclUniqueId) / sizeof(double)];
};
_Static_assert(sizeof(ncclUniqueId) % sizeof(double) == 0, "an id is whole doubles");

/* Its member 0 makes the id. hosts: the group of the host endpoint. */
static enum sbp_status share_id(struct sbp_comm *comm, int hosts, bool makes, ncclUniqueId *id)
{
    const struct sbp_endpoint *host = &comm->host;
    union moved_id shared = {.moved = {0}};
    if (makes)
        SBP_NCCL_TRY(&comm->diag, NULL, ncclGetUniqueId, &shared.id);
    SBP_TRY(sbp_nccl_check_host(
        comm, host->ops->broadcast(host->comm, hosts, 0, shared.moved,
                                   sizeof shared.moved / sizeof *shared.moved, SBP_F64)));
    *id = shared.id;
    return SBP_OK;
}

enum sbp_status sbp_nccl_join(struct sbp_comm *comm, const ncclUniqueId *id, int size, int index,
                              bool blocks, ncclComm_t *made)
{
    *made = NULL;
#if HAS_SPLIT
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = blocks;
    const ncclResult_t code = ncclCommInitRankConfig(made, size, *id, index, &config);
    return sbp_nccl_check(&comm->diag, *made, "ncclCommInitRankConfig", code);
#else
    (void)blocks;
    return sbp_nccl_check(&comm->diag, NULL, "ncclCommInitRank",
                          ncclCommInitRank(made, size, *id, index));
#endif
}

/* As a collective call: what is under way is waited for. */
enum sbp_status sbp_nccl_leave(struct sbp_comm *comm, ncclComm_t nccl)
{
#if HAS_SPLIT
    SBP_NCCL_TRY(&comm->diag, nccl, ncclCommFinalize, nccl);
#endif
    SBP_NCCL_TRY(&comm->diag, NULL, ncclCommDestroy, nccl);
    return SBP_OK;
}

/* ---- teams ----------------------------------------------------------------------------------- */

/* Adds a team without a communicator. */
static enum sbp_status add_team(struct sbp_comm *comm, const struct sbp_wave_group *who,
                                struct sbp_nccl_team **team)
{
    struct sbp_nccl_team *teams = sbp_comm_reserve_group(
        comm->teams, sizeof *teams, comm->teams_count, &comm->teams_capacity, &comm->diag);
    if (teams == NULL)
        return SBP_E_MEMORY;
    comm->teams = teams;
    int *const ranks = malloc(((size_t)who->count + 1) * sizeof *ranks);
    if (ranks == NULL)
        return sbp_fail(&comm->diag, SBP_E_MEMORY, "a group of %d: out of memory", who->count);
    memcpy(ranks, who->ranks, (size_t)who->count * sizeof *ranks);
    *team = &teams[comm->teams_count++];
    **team = (struct sbp_nccl_team){.ranks = ranks, .who = {ranks, who->count}};
    return SBP_OK;
}

static const struct sbp_nccl_team *find_team(const struct sbp_comm *comm,
                                             const struct sbp_wave_group *who)
{
    for (int t = 0; t < comm->teams_count; t++)
        if (sbp_wave_group_equal(&comm->teams[t].who, who))
            return &comm->teams[t];
    return NULL;
}

/* The host endpoint checks ranks and key. */
enum sbp_status sbp_nccl_team(struct sbp_comm *comm, const struct sbp_wave_group *who, int key,
                              const struct sbp_nccl_team **found)
{
    const struct sbp_endpoint *host = &comm->host;
    struct sbp_nccl_team *team;
    ncclUniqueId id;
    int hosts;
    *found = who->count > 0 ? find_team(comm, who) : NULL;
    if (*found != NULL)
        return SBP_OK;
    SBP_TRY(sbp_nccl_check_host(comm,
                                host->ops->group(host->comm, who->ranks, who->count, key, &hosts)));
    const int index = sbp_wave_group_place(who, comm->rank);
    SBP_TRY(share_id(comm, hosts, index == 0, &id));
    SBP_TRY(add_team(comm, who, &team));
    SBP_TRY(sbp_nccl_join(comm, &id, who->count, index, true, &team->nccl));
    *found = team;
    return SBP_OK;
}

enum sbp_status sbp_nccl_teams_visit(struct sbp_comm *comm, sbp_nccl_visit *visit)
{
    for (int t = 0; t < comm->teams_count; t++)
        if (comm->teams[t].nccl != NULL)
            SBP_TRY(visit(comm, comm->teams[t].nccl));
    return SBP_OK;
}

/* Those of one rank stand in the order in which their members, too, have them. */
enum sbp_status sbp_nccl_teams_close(struct sbp_comm *comm)
{
    for (int t = 0; t < comm->teams_count; t++) {
        const ncclComm_t nccl = comm->teams[t].nccl;
        comm->teams[t].nccl = NULL;
        SBP_TRY(sbp_nccl_leave(comm, nccl));
    }
    return SBP_OK;
}

void sbp_nccl_teams_free(struct sbp_comm *comm)
{
    for (int t = 0; t < comm->teams_count; t++)
        free(comm->teams[t].ranks);
    free(comm->teams);
}

/* ---- splitting ------------------------------------------------------------------------------- */

#if HAS_SPLIT

/* What all ranks name. */
struct roll {
    int everybody;  /* group of the host endpoint */
    int64_t *named; /* (ranks, length): each rank's groups, as sizes and ranks; 0 ends them */
    int64_t length; /* of the longest list, with its 0 */
    int *ranks;     /* (ranks) of everybody, then of the groups */
    struct sbp_wave_group *groups; /* (count), those of the same ranks once */
    int *wave;                     /* (count) */
    int count, waves;
};

/* The values of a rank's list: of the groups that it leads, which name each once. */
static int64_t list_own(const struct sbp_comm *comm, const struct sbp_wave_group *groups, int count,
                        int64_t *list)
{
    int64_t length = 0;
    for (int g = 0; g < count; g++) {
        if (groups[g].ranks[0] != comm->rank)
            continue;
        if (list != NULL)
            list[length] = groups[g].count;
        length++;
        for (int i = 0; i < groups[g].count; i++, length++)
            if (list != NULL)
                list[length] = groups[g].ranks[i];
    }
    return length;
}

/* Integers travel as the doubles of as many bytes. own: (count), all: (ranks, count). */
static enum sbp_status gather(struct sbp_comm *comm, const struct roll *roll, int64_t *all,
                              const int64_t *own, int64_t count)
{
    return sbp_nccl_check_host(comm, comm->host.ops->all_gather(comm->host.comm, roll->everybody,
                                                                all, own, count, SBP_F64));
}

static enum sbp_status no_memory(struct sbp_comm *comm)
{
    return sbp_fail(&comm->diag, SBP_E_MEMORY, "the groups of %d ranks: out of memory", comm->size);
}

static enum sbp_status call_roll(struct sbp_comm *comm, const struct sbp_wave_group *groups,
                                 int count, struct roll *roll)
{
    const int64_t own_length = list_own(comm, groups, count, NULL) + 1;
    int64_t *const lengths = calloc((size_t)comm->size, sizeof *lengths);
    enum sbp_status status =
        lengths == NULL ? no_memory(comm) : gather(comm, roll, lengths, &own_length, 1);
    for (int r = 0; status == SBP_OK && r < comm->size; r++)
        roll->length = lengths[r] > roll->length ? lengths[r] : roll->length;
    free(lengths);
    SBP_TRY(status);
    int64_t *const own = calloc((size_t)roll->length, sizeof *own);
    roll->named = calloc((size_t)comm->size * (size_t)roll->length, sizeof *roll->named);
    if (own != NULL && roll->named != NULL) {
        (void)list_own(comm, groups, count, own);
        status = gather(comm, roll, roll->named, own, roll->length);
    } else {
        status = no_memory(comm);
    }
    free(own);
    return status;
}

static void add_once(struct roll *roll, const struct sbp_wave_group *group)
{
    for (int g = 0; g < roll->count; g++)
        if (sbp_wave_group_equal(&roll->groups[g], group))
            return;
    roll->groups[roll->count++] = *group;
}

/* Reads the lists, the same on all ranks, in their order. Behind each size come so many ranks. */
static enum sbp_status read_roll(struct sbp_comm *comm, struct roll *roll)
{
    const size_t values = (size_t)comm->size * (size_t)roll->length;
    roll->groups = calloc(values, sizeof *roll->groups);
    roll->wave = calloc(values, sizeof *roll->wave);
    int *at = realloc(roll->ranks, ((size_t)comm->size + values) * sizeof *at);
    if (at == NULL || roll->groups == NULL || roll->wave == NULL) {
        roll->ranks = at != NULL ? at : roll->ranks;
        return no_memory(comm);
    }
    roll->ranks = at;
    at += comm->size;
    for (int r = 0; r < comm->size; r++) {
        const int64_t *value = &roll->named[r * roll->length];
        while (*value != 0) {
            const struct sbp_wave_group group = {at, (int)*value++};
            for (int i = 0; i < group.count; i++)
                *at++ = (int)*value++;
            add_once(roll, &group);
        }
    }
    return sbp_waves_make(roll->groups, roll->count, comm->size, roll->wave, &roll->waves) == SBP_OK
               ? SBP_OK
               : no_memory(comm);
}

/* The world's communicator. No group is its team's, which has none of the ranks to be found by. */
static enum sbp_status make_world(struct sbp_comm *comm, const struct roll *roll)
{
    const struct sbp_wave_group nobody = {roll->ranks, 0};
    struct sbp_nccl_team *team;
    ncclUniqueId id;
    SBP_TRY(share_id(comm, roll->everybody, comm->rank == 0, &id));
    SBP_TRY(add_team(comm, &nobody, &team));
    return sbp_nccl_join(comm, &id, comm->size, comm->rank, false, &team->nccl);
}

/* NCCL writes the new communicator when it is through: to where it stays. */
static enum sbp_status split(struct sbp_comm *comm, const struct roll *roll, int wave)
{
    const ncclComm_t world = comm->teams[0].nccl;
    int color = NCCL_SPLIT_NOCOLOR, key = 0;
    for (int g = 0; g < roll->count; g++) {
        const int place = sbp_wave_group_place(&roll->groups[g], comm->rank);
        if (roll->wave[g] == wave && place >= 0) {
            color = g;
            key = place;
        }
    }
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 1;
    comm->splitting = NULL;
    SBP_NCCL_TRY(&comm->diag, world, ncclCommSplit, world, color, key, &comm->splitting, &config);
    if (color == NCCL_SPLIT_NOCOLOR)
        return SBP_OK;
    struct sbp_nccl_team *team;
    SBP_TRY(add_team(comm, &roll->groups[color], &team));
    team->nccl = comm->splitting;
    return sbp_nccl_check(&comm->diag, team->nccl, "ncclCommSplit", ncclInProgress);
}

static enum sbp_status split_all(struct sbp_comm *comm, const struct sbp_wave_group *groups,
                                 int count, struct roll *roll)
{
    const struct sbp_endpoint *host = &comm->host;
    roll->ranks = calloc((size_t)comm->size, sizeof *roll->ranks);
    if (roll->ranks == NULL)
        return no_memory(comm);
    for (int r = 0; r < comm->size; r++)
        roll->ranks[r] = r;
    SBP_TRY(sbp_nccl_check_host(
        comm, host->ops->group(host->comm, roll->ranks, comm->size, 0, &roll->everybody)));
    SBP_TRY(call_roll(comm, groups, count, roll));
    SBP_TRY(read_roll(comm, roll));
    if (roll->count == 0)
        return SBP_OK;
    SBP_TRY(make_world(comm, roll));
    for (int wave = 0; wave < roll->waves; wave++)
        SBP_TRY(split(comm, roll, wave));
    return SBP_OK;
}

static enum sbp_status check_groups(struct sbp_comm *comm, const struct sbp_wave_group *groups,
                                    int count)
{
    if (comm->teams_count > 0)
        return sbp_fail(&comm->diag, SBP_E_BACKEND, "groups are named before the first one");
    for (int g = 0; g < count; g++) {
        for (int i = 0; i < groups[g].count; i++)
            if (groups[g].ranks[i] < 0 || groups[g].ranks[i] >= comm->size ||
                sbp_wave_group_place(&groups[g], groups[g].ranks[i]) != i)
                return sbp_fail(&comm->diag, SBP_E_BACKEND,
                                "group: ranks must be different and under %d", comm->size);
        if (sbp_wave_group_place(&groups[g], comm->rank) < 0)
            return sbp_fail(&comm->diag, SBP_E_BACKEND, "group: rank %d is not in it", comm->rank);
    }
    return SBP_OK;
}

enum sbp_status sbp_nccl_name_groups(struct sbp_comm *comm, const struct sbp_wave_group *groups,
                                     int count)
{
    struct roll roll = {.length = 1};
    SBP_TRY(check_groups(comm, groups, count));
    const enum sbp_status status = split_all(comm, groups, count, &roll);
    free(roll.named);
    free(roll.ranks);
    free(roll.groups);
    free(roll.wave);
    return status;
}

#else

enum sbp_status sbp_nccl_name_groups(struct sbp_comm *comm, const struct sbp_wave_group *groups,
                                     int count)
{
    (void)comm, (void)groups, (void)count;
    return SBP_OK; /* their members make them */
}

#endif
