#include "executor/run/run_memory.h"

#include <math.h>
#include <stdio.h>
#include <unistd.h>

#include "base/machine.h"
#include "base/text.h"

int64_t sbp_run_arena_bytes(const struct sbp_step *step, int stage)
{
    const struct sbp_stage_memory *memory = &step->memory[stage];
    return memory->device_bytes - memory->reserve_bytes - memory->message_bytes;
}

/* Without a flush the backend has the copies of what a stage has sent and the next has not taken:
 * no more than of the micro-batches that the two have in flight. Replicas send sums of gradients,
 * all of a step's on two ways at the most; groups of a pyramid have one micro-batch in flight, and
 * what they sent of the one before. */
static double sent_bytes(const struct sbp_step *step, int stage)
{
    const int before = stage > 0 ? stage - 1 : stage;
    double bytes = 0;
    if (!sbp_timeline_delays_gradients(step->parallel.schedule))
        return 0;
    for (int chunk = 0; chunk < sbp_step_chunks(step); chunk++) {
        const struct sbp_program *program = sbp_step_chunk(step, stage, chunk);
        for (int i = 0; i < program->instr_count; i++) {
            const struct sbp_instr *instr = &program->instr[i];
            const bool sends = instr->kind == SBP_INSTR_SEND || instr->kind == SBP_INSTR_PASS;
            if (sends && instr->box.kind != SBP_LOCAL)
                bytes += (double)sbp_program_buffer_bytes(program, instr->buffer[SBP_AT_IN]);
        }
    }
    return bytes * (step->replicates ? 1 : step->pyramid ? 2 : step->memory[before].in_flight);
}

/* The backend has the copies of the blocks of a ring that a rank has passed on and the next has not
 * taken. Each waits for the one before, and so a rank, round the whole ring, for the next one: of
 * N members it is no more than N - 1 rounds ahead. It may have N blocks out, those of one pass
 * forward and the first of the next; backward, which every program with a ring has, one pass sends
 * 2 N - 1, no fewer, and that is the most counted here. */
static double passed_bytes(const struct sbp_step *step, int stage)
{
    double most = 0;
    for (int chunk = 0; chunk < sbp_step_chunks(step); chunk++) {
        const struct sbp_program *program = sbp_step_chunk(step, stage, chunk);
        double of_pass = 0;
        for (int i = 0; i < program->instr_count; i++) {
            const struct sbp_instr *instr = &program->instr[i];
            const bool passes =
                instr->box.kind == SBP_SEND_RECV && sbp_program_is_operators_own(program, instr);
            of_pass = passes ? of_pass + instr->times * sbp_price_call_bytes(program, instr) : 0;
            most = fmax(most, of_pass);
        }
    }
    return most;
}

struct sbp_run_need sbp_run_need_of(const struct sbp_step *step, int64_t rank,
                                    const struct sbp_verify_need *verify,
                                    const struct sbp_memory_ops *arena)
{
    const int stage = (int)(rank / step->mesh.devices);
    const double check = verify->rank_bytes + (rank == 0 ? verify->reference_bytes : 0);
    const double states = (double)step->memory[stage].host_bytes;
    /* What is sent is copied once more, until it has left. */
    const double slots = 2 * (double)sbp_stage_slot_bytes(step, stage) + sent_bytes(step, stage) +
                         passed_bytes(step, stage);
    const double own =
        arena == &sbp_device_host_memory ? (double)sbp_run_arena_bytes(step, stage) : 0;
    return (struct sbp_run_need){own + states + slots + check, check};
}

void sbp_run_host_find(struct sbp_run_host *host)
{
    *host = (struct sbp_run_host){.free_bytes =
                                      sbp_machine_free_bytes(SBP_PROCESSES, SBP_CONTROL_GROUP)};
    if (gethostname(host->name, sizeof host->name - 1) != 0)
        host->name[0] = '\0'; /* without a name all hosts are one */
}

void sbp_run_host_add(struct sbp_run_host *host, const struct sbp_run_need *need)
{
    host->ranks++;
    host->need.bytes += need->bytes;
    host->need.verify_bytes += need->verify_bytes;
}

enum sbp_status sbp_run_host_check(const struct sbp_run_host *host, struct sbp_diag *diag)
{
    char needs[32], has[32], checks[32], of_it[128] = "";
    if (host->free_bytes < 0 || host->need.bytes <= (double)host->free_bytes)
        return SBP_OK;
    if (host->need.verify_bytes > 0)
        (void)snprintf(of_it, sizeof of_it,
                       " (%s of it to verify; full takes the most, sampled less, shrunk the least)",
                       sbp_format_bytes(host->need.verify_bytes, checks));
    return sbp_fail(diag, SBP_E_MEMORY, "%d rank%s on host %s need%s %s of memory%s, %s are free",
                    host->ranks, host->ranks == 1 ? "" : "s", host->name,
                    host->ranks == 1 ? "s" : "", sbp_format_bytes(host->need.bytes, needs), of_it,
                    sbp_format_bytes((double)host->free_bytes, has));
}

enum sbp_status sbp_run_check_threads(const struct sbp_step *step,
                                      const struct sbp_verify_need *verify,
                                      const struct sbp_memory_ops *arena, double *bytes,
                                      struct sbp_diag *diag)
{
    const int64_t ranks = step->stages * step->mesh.devices;
    struct sbp_run_host host;
    if (ranks > 1024)
        return sbp_fail(diag, SBP_E_INPUT, "plan is for %lld ranks, the threads backend runs 1024",
                        (long long)ranks);
    sbp_run_host_find(&host);
    for (int64_t rank = 0; rank < ranks; rank++) {
        const struct sbp_run_need need = sbp_run_need_of(step, rank, verify, arena);
        sbp_run_host_add(&host, &need);
    }
    *bytes = host.need.bytes;
    return sbp_run_host_check(&host, diag);
}
