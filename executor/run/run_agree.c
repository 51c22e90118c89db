#include "executor/run/run_agree.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/math/random.h"

enum { TAG_PLEDGE = 3 };

/* A rank's word about the program that it is about to run, or the reason why it cannot. */
struct pledge {
    uint64_t program;
    int64_t status;
    struct sbp_run_host host;
    char reason[1024];
};

static uint64_t mix(uint64_t hash, const int64_t *values, int count)
{
    return hash * 0x100000001b3 ^ sbp_hash_bytes(values, (uint64_t)count * sizeof *values);
}

/* Ranks with other rates would not wait for each other, but train parts of different models. */
static uint64_t mix_training(uint64_t hash, const struct sbp_training *training)
{
    const struct sbp_update *update = &training->update;
    const double rates[] = {update->learning_rate, update->momentum,         update->beta1,
                            update->beta2,         update->epsilon,          update->weight_decay,
                            training->clip_norm,   (double)update->optimizer};
    return hash * 0x100000001b3 ^ sbp_hash_bytes(rates, sizeof rates);
}

static uint64_t mix_program(uint64_t hash, const struct sbp_program *program)
{
    for (int i = 0; i < program->instr_count; i++) {
        const struct sbp_instr *instr = &program->instr[i];
        const int64_t one[] = {instr->kind,     instr->op,       instr->phase,   instr->tensor,
                               instr->box.kind, instr->box.axes, instr->section, instr->stages};
        hash = mix(hash, one, (int)(sizeof one / sizeof *one));
    }
    for (int i = 0; i < program->buffer_count; i++)
        hash = mix(hash, &program->buffer[i].elements, 1);
    return mix(hash, &program->arena_bytes, 1);
}

static uint64_t hash_pact(const struct sbp_run_pact *pact)
{
    const struct sbp_run_options *options = pact->options;
    const int64_t whole[] = {
        pact->ranks,     pact->step->stages,     (int64_t)pact->step->parallel.schedule,
        options->steps,  options->verify,        options->sampled,
        options->trace,  options->compares,      options->real,
        options->tf32,   (int64_t)options->seed, pact->step->micro_batches,
        options->labels, options->messages};
    uint64_t hash = mix(0, whole, (int)(sizeof whole / sizeof *whole));
    hash = hash * 0x100000001b3 ^ sbp_hash_bytes(options->device, strlen(options->device));
    hash = mix_training(hash, &sbp_step_program(pact->step, 0)->graph->training);
    for (int piece = 0; piece < pact->step->pieces; piece++)
        hash = mix_program(hash, sbp_step_program(pact->step, piece));
    for (int stage = 0; stage < pact->step->stages; stage++)
        hash = mix(hash, &pact->tasks[stage].count, 1);
    return hash;
}

/* The hosts that ranks spoke of so far. */
struct hosts {
    struct sbp_run_host *host; /* (ranks), of which `count` are filled */
    int count;
};

static void add_to_host(struct hosts *hosts, const struct sbp_run_host *one)
{
    int at = 0;
    while (at < hosts->count && strcmp(hosts->host[at].name, one->name) != 0)
        at++;
    struct sbp_run_host *host = &hosts->host[at];
    if (at == hosts->count) {
        hosts->count++;
        *host = *one;
        host->ranks = 0;
        host->need = (struct sbp_run_need){0};
    }
    sbp_run_host_add(host, &one->need);
    if (one->free_bytes >= 0 && (host->free_bytes < 0 || one->free_bytes < host->free_bytes))
        host->free_bytes = one->free_bytes;
}

static enum sbp_status hear(const struct sbp_run_pact *pact, const struct sbp_comm_ops *ops,
                            struct sbp_comm *comm, int peer, const struct pledge *own,
                            struct hosts *hosts, struct sbp_diag *diag)
{
    struct pledge other;
    sbp_post_wait(pact->post, peer);
    const enum sbp_status status = ops->receive(comm, peer, TAG_PLEDGE, &other, sizeof other);
    sbp_post_wait(pact->post, SBP_WAITS_NOT);
    if (status != SBP_OK)
        return sbp_fail(diag, status, "%s", ops->reason(comm));
    if (other.status != SBP_OK)
        return sbp_fail(diag, (enum sbp_status)other.status, "rank %d: %s", peer, other.reason);
    if (other.program != own->program)
        return sbp_fail(
            diag, SBP_E_INPUT,
            "rank %d has another plan, other options or another device than rank 0: all "
            "must be alike",
            peer);
    add_to_host(hosts, &other.host);
    return SBP_OK;
}

/* Rank 0 hears all others, and ends all when one differs or a host is too small. */
static enum sbp_status hear_all(const struct sbp_run_pact *pact, const struct sbp_comm_ops *ops,
                                struct sbp_comm *comm, const struct pledge *own,
                                struct hosts *hosts, struct sbp_diag *diag)
{
    add_to_host(hosts, &own->host);
    for (int peer = 1; peer < ops->size(comm); peer++)
        SBP_TRY(hear(pact, ops, comm, peer, own, hosts, diag));
    if (ops->size(comm) != pact->ranks)
        return SBP_OK; /* every rank sees it, and none begins */
    for (int i = 0; i < hosts->count; i++)
        SBP_TRY(sbp_run_host_check(&hosts->host[i], diag));
    return SBP_OK;
}

enum sbp_status sbp_run_agree(const struct sbp_run_pact *pact, const struct sbp_comm_ops *ops,
                              struct sbp_comm *comm, int *ranks_here, struct sbp_diag *diag)
{
    struct pledge own = {.program = hash_pact(pact), .status = SBP_OK};
    sbp_run_host_find(&own.host);
    sbp_run_host_add(&own.host, &pact->need);
    if (ops->rank(comm) != 0) {
        const enum sbp_status status = ops->send(comm, 0, TAG_PLEDGE, &own, sizeof own);
        return status == SBP_OK ? SBP_OK : sbp_fail(diag, status, "%s", ops->reason(comm));
    }
    struct hosts hosts = {.host = calloc((size_t)ops->size(comm), sizeof *hosts.host)};
    if (hosts.host == NULL)
        return sbp_fail(diag, SBP_E_MEMORY, "out of memory for the list of hosts");
    const enum sbp_status status = hear_all(pact, ops, comm, &own, &hosts, diag);
    *ranks_here = hosts.host[0].ranks;
    free(hosts.host);
    return status;
}

/* A host's name, as the doubles that its bytes fill. */
union moved_name {
    char name[64];
    double moved[64 / sizeof(double)];
};

/* names, members: (size) of the ranks. */
static enum sbp_status gather_names(const struct sbp_comm_ops *ops, struct sbp_comm *comm,
                                    union moved_name *names, int *members)
{
    struct sbp_run_host host;
    union moved_name own = {.moved = {0}};
    int everybody;
    sbp_run_host_find(&host);
    (void)snprintf(own.name, sizeof own.name, "%s", host.name);
    for (int r = 0; r < ops->size(comm); r++)
        members[r] = r;
    SBP_TRY(ops->group(comm, members, ops->size(comm), 0, &everybody));
    return ops->all_gather(comm, everybody, names, own.moved, sizeof own.moved / sizeof(double),
                           SBP_F64);
}

enum sbp_status sbp_run_place_here(const struct sbp_comm_ops *ops, struct sbp_comm *comm,
                                   int *place, struct sbp_diag *diag)
{
    const int own = ops->rank(comm);
    union moved_name *names = calloc((size_t)ops->size(comm), sizeof *names);
    int *members = calloc((size_t)ops->size(comm), sizeof *members);
    enum sbp_status status = names == NULL || members == NULL
                                 ? sbp_fail(diag, SBP_E_MEMORY, "out of memory for hosts' names")
                                 : gather_names(ops, comm, names, members);
    *place = 0;
    for (int r = 0; status == SBP_OK && r < own; r++)
        *place += strcmp(names[r].name, names[own].name) == 0;
    if (status != SBP_OK) /* of the two texts the first stays */
        (void)sbp_fail(diag, status, "%s", ops->reason(comm));
    free(members);
    free(names);
    return status;
}

/* Rank 0 speaks for itself; the others tell it, and wait for the end that it brings. */
static enum sbp_status refusing_rank(const struct sbp_comm_ops *ops, struct sbp_comm *comm,
                                     void *argument, struct sbp_diag *diag)
{
    const struct pledge *own = argument;
    if (ops->rank(comm) == 0)
        return sbp_fail(diag, (enum sbp_status)own->status, "%s", own->reason);
    SBP_TRY(ops->send(comm, 0, TAG_PLEDGE, own, sizeof *own));
    return ops->barrier(comm);
}

enum sbp_status sbp_run_refuse(enum sbp_status status, struct sbp_diag *diag)
{
    struct pledge own = {.status = status};
    (void)snprintf(own.reason, sizeof own.reason, "%s", diag->text);
    const enum sbp_status ended = sbp_mpi_run(refusing_rank, &own, diag);
    return ended == SBP_OK ? status : ended;
}
