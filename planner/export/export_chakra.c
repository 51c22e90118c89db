/* Execution traces of Chakra (MLCommons, schema/protobuf/et_def.proto): PATH.RANK.et, one a rank,
 * and PATH.groups.json, the ranks of each group that a collective's pg_name names.
 *
 * A trace has the executor's tasks of the rank's stage (costmodel/program/task.h) with their
 * prices: arithmetic, collectives, messages between stages. A node depends on what its lane did
 * before: the stage's own tasks follow each other, and so do messages on a link, and sums of
 * gradients beside the backward pass. The files are protobuf messages, each behind its length.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cjson/cJSON.h>

#include "base/json/json_write.h"
#include "costmodel/program/task_play.h"
#include "planner/export/export_priv.h"

#define FORMAT_VERSION "0.0.4"
#define MOST_NODES     4000000 /* of all ranks: about 600 MB */
#define MOST_KINDS     128     /* of groups */
#define NONE           UINT64_MAX

/* ---- protobuf -------------------------------------------------------------------------------- */

/* Bytes, zeros among them, behind the text's end. */
static void put(struct sbp_text *out, const void *bytes, size_t count)
{
    if (out->failed)
        return;
    if (out->length + count + 1 > out->capacity) {
        const size_t capacity = 2 * (out->length + count) + 256;
        char *grown = realloc(out->bytes, capacity);
        if (grown == NULL) {
            out->failed = true;
            return;
        }
        out->bytes = grown;
        out->capacity = capacity;
    }
    memcpy(out->bytes + out->length, bytes, count);
    out->length += count;
    out->bytes[out->length] = '\0';
}

static void put_varint(struct sbp_text *out, uint64_t value)
{
    do {
        const uint8_t byte = (uint8_t)((value & 0x7f) | (value > 0x7f ? 0x80 : 0));
        put(out, &byte, 1);
        value >>= 7;
    } while (value > 0);
}

enum wire { VARINT = 0, DELIMITED = 2 };

static void put_key(struct sbp_text *out, int field, enum wire wire)
{
    put_varint(out, (uint64_t)field << 3 | (uint64_t)wire);
}

static void put_number(struct sbp_text *out, int field, uint64_t value)
{
    put_key(out, field, VARINT);
    put_varint(out, value);
}

static void put_bytes(struct sbp_text *out, int field, const void *bytes, size_t count)
{
    put_key(out, field, DELIMITED);
    put_varint(out, count);
    put(out, bytes, count);
}

static void put_text(struct sbp_text *out, int field, const char *text)
{
    put_bytes(out, field, text, strlen(text));
}

/* Fields of GlobalMetadata, Node and AttributeProto. */
enum { META_VERSION = 1 };
enum { NODE_ID = 1, NODE_NAME, NODE_TYPE, NODE_DATA_DEPS = 5, NODE_DURATION = 7, NODE_ATTR = 10 };
enum { ATTR_NAME = 1, ATTR_INT32 = 7, ATTR_INT64 = 9, ATTR_BOOL = 27, ATTR_STRING = 29 };
enum node_type { COMP = 4, SEND = 5, RECV = 6, COLL = 7 };

static void put_attribute(struct sbp_text *out, struct sbp_text *scratch, const char *name,
                          int field, uint64_t value)
{
    scratch->length = 0;
    put_text(scratch, ATTR_NAME, name);
    put_number(scratch, field, value);
    put_bytes(out, NODE_ATTR, scratch->bytes, scratch->length);
    out->failed |= scratch->failed;
}

static void put_word(struct sbp_text *out, struct sbp_text *scratch, const char *name,
                     const char *word)
{
    scratch->length = 0;
    put_text(scratch, ATTR_NAME, name);
    put_text(scratch, ATTR_STRING, word);
    put_bytes(out, NODE_ATTR, scratch->bytes, scratch->length);
    out->failed |= scratch->failed;
}

/* ---- groups ---------------------------------------------------------------------------------- */

/* Groups over the same axes, of one stage each or over the stages that hold a tensor. */
struct group_kind {
    sbp_axes axes;
    int tensor; /* -1: all stages */
    bool spans;
};

struct tracer {
    const struct sbp_step *step;
    struct sbp_tasks *tasks; /* (stages) */
    int64_t devices;         /* of a stage */
    int kind_count;
    struct group_kind kind[MOST_KINDS];
    struct sbp_text node, scratch;
};

/* -1: there are too many. */
static int kind_of(struct tracer *tracer, const struct sbp_instr *instr)
{
    const struct group_kind wanted = {.axes = instr->box.axes,
                                      .spans = instr->stages > 1,
                                      .tensor = instr->stages > 1 ? instr->tensor : -1};
    for (int i = 0; i < tracer->kind_count; i++)
        if (tracer->kind[i].axes == wanted.axes && tracer->kind[i].spans == wanted.spans &&
            tracer->kind[i].tensor == wanted.tensor)
            return i;
    if (tracer->kind_count == MOST_KINDS)
        return -1;
    tracer->kind[tracer->kind_count] = wanted;
    return tracer->kind_count++;
}

static bool is_member(const struct tracer *tracer, const struct group_kind *kind, int stage)
{
    return kind->tensor < 0 || sbp_step_holds(tracer->step, stage, kind->tensor);
}

/* The number of a group: its first device's, among those of its kind. */
static int64_t group_number(const struct tracer *tracer, int kind, int stage, int64_t device)
{
    const int64_t first =
        sbp_mesh_group_rank(&tracer->step->mesh, tracer->kind[kind].axes, device, 0);
    const int64_t all = tracer->devices * tracer->step->stages;
    return kind * all + (tracer->kind[kind].spans ? 0 : stage * tracer->devices) + first;
}

static void push_members(struct cJSON *list, const struct tracer *tracer, int kind, int stage,
                         int64_t device, bool *failed)
{
    const struct group_kind *group = &tracer->kind[kind];
    const int64_t size = sbp_mesh_group_size(&tracer->step->mesh, group->axes);
    for (int64_t member = 0; member < size && !*failed; member++)
        sbp_json_push_number(
            list,
            (double)(stage * tracer->devices +
                     sbp_mesh_group_rank(&tracer->step->mesh, group->axes, device, member)),
            failed);
}

/* {"12": [0, 1, 2, 3], ...} */
static void put_group(struct cJSON *json, const struct tracer *tracer, int kind, int stage,
                      int64_t device, bool *failed)
{
    char name[24];
    const bool spans = tracer->kind[kind].spans;
    (void)snprintf(name, sizeof name, "%lld", (long long)group_number(tracer, kind, stage, device));
    struct cJSON *list = sbp_json_put_array(json, name, failed);
    for (int other = 0; other < tracer->step->stages; other++)
        if (spans ? is_member(tracer, &tracer->kind[kind], other) : other == stage)
            push_members(list, tracer, kind, other, device, failed);
}

static enum sbp_status write_groups(const struct tracer *tracer, struct sbp_text *text)
{
    struct cJSON *json = cJSON_CreateObject();
    bool failed = json == NULL;
    for (int kind = 0; kind < tracer->kind_count; kind++)
        for (int stage = 0; stage < (tracer->kind[kind].spans ? 1 : tracer->step->stages); stage++)
            for (int64_t device = 0; device < tracer->devices && !failed; device++)
                if (sbp_mesh_group_place(&tracer->step->mesh, tracer->kind[kind].axes, device) == 0)
                    put_group(json, tracer, kind, stage, device, &failed);
    char *written = failed ? NULL : sbp_json_text(json);
    if (written != NULL)
        put(text, written, strlen(written));
    failed |= written == NULL || text->failed;
    free(written);
    cJSON_Delete(json);
    return failed ? SBP_E_MEMORY : SBP_OK;
}

/* ---- one rank -------------------------------------------------------------------------------- */

/* The next node of a lane depends on these. */
struct rank {
    struct tracer *tracer;
    struct sbp_text *out;
    int stage;
    int64_t device;
    uint64_t next;    /* id */
    uint64_t last;    /* node of the stage itself; NONE */
    uint64_t sent[2]; /* forward, backward */
    uint64_t beside;  /* sum of gradients beside the backward pass */
    uint64_t *ended;  /* (tasks) last node of sums beside; NONE */
    double left_s;    /* of times that whole microseconds left out */
};

static uint64_t microseconds(struct rank *rank, double seconds)
{
    rank->left_s += seconds;
    const double whole = floor(rank->left_s * 1e6);
    rank->left_s -= whole * 1e-6;
    return (uint64_t)whole;
}

/* Begins a node behind one or two others. Returns its id. */
static uint64_t begin_node(struct rank *rank, const char *name, enum node_type type,
                           const uint64_t behind[2], double seconds)
{
    struct sbp_text *node = &rank->tracer->node, *scratch = &rank->tracer->scratch;
    node->length = scratch->length = 0;
    put_number(node, NODE_ID, rank->next);
    put_text(node, NODE_NAME, name);
    put_number(node, NODE_TYPE, (uint64_t)type);
    for (int i = 0; i < 2; i++)
        if (behind[i] != NONE && (i == 0 || behind[i] != behind[0]))
            put_varint(scratch, behind[i]);
    if (scratch->length > 0)
        put_bytes(node, NODE_DATA_DEPS, scratch->bytes, scratch->length);
    put_number(node, NODE_DURATION, microseconds(rank, seconds));
    put_attribute(node, scratch, "is_cpu_op", ATTR_BOOL, 0);
    return rank->next++;
}

static void end_node(struct rank *rank)
{
    const struct sbp_text *node = &rank->tracer->node;
    put_varint(rank->out, node->length);
    put(rank->out, node->bytes, node->length);
    rank->out->failed |= node->failed;
}

static void compute(struct rank *rank, const char *name, double seconds)
{
    const uint64_t behind[2] = {rank->last, NONE};
    rank->last = begin_node(rank, name, COMP, behind, seconds);
    end_node(rank);
}

static int comm_type(enum sbp_collective kind)
{
    static const int types[SBP_COLLECTIVES] = {
        [SBP_ALL_REDUCE] = 0, [SBP_ALL_GATHER] = 2,     [SBP_REDUCE_SCATTER] = 7,
        [SBP_ALL_TO_ALL] = 6, [SBP_BROADCAST_COLL] = 5, [SBP_SEND_RECV] = -1,
        [SBP_LOCAL] = -1};
    return types[kind];
}

/* A collective, of the stage itself or beside it. */
static enum sbp_status collective(struct rank *rank, const char *name, const struct sbp_task *task,
                                  const struct sbp_instr *instr, double seconds)
{
    struct tracer *tracer = rank->tracer;
    const struct sbp_program *program = sbp_step_chunk(tracer->step, rank->stage, task->chunk);
    const uint64_t behind[2] = {rank->last, task->is_beside ? rank->beside : NONE};
    const int kind = kind_of(tracer, instr), type = comm_type(instr->box.kind);
    char group[24];
    if (kind < 0 || type < 0)
        return SBP_E_UNSUPPORTED;
    (void)snprintf(group, sizeof group, "%lld",
                   (long long)group_number(tracer, kind, rank->stage, rank->device));
    const uint64_t id = begin_node(rank, name, COLL, behind, seconds);
    put_attribute(&tracer->node, &tracer->scratch, "comm_type", ATTR_INT64, (uint64_t)type);
    put_attribute(&tracer->node, &tracer->scratch, "comm_size", ATTR_INT64,
                  (uint64_t)(sbp_price_call_bytes(program, instr) * instr->times));
    put_word(&tracer->node, &tracer->scratch, "pg_name", group);
    end_node(rank);
    *(task->is_beside ? &rank->beside : &rank->last) = id;
    return SBP_OK;
}

/* A message to a neighbour, or from one: the same device of the other stage. */
static void message(struct rank *rank, const char *name, const struct sbp_task *task,
                    const struct sbp_instr *instr, double seconds)
{
    struct tracer *tracer = rank->tracer;
    const struct sbp_step *step = tracer->step;
    const struct sbp_program *program = sbp_step_chunk(step, rank->stage, task->chunk);
    const bool sends = instr->kind == SBP_INSTR_SEND;
    const int back = instr->section == SBP_SECTION_FORWARD ? 0 : 1;
    const int piece = sbp_step_piece(step, rank->stage, task->chunk);
    const int other = piece + ((back == 0) == sends ? 1 : -1), to = sends ? other : piece;
    const int64_t own = rank->stage * tracer->devices + rank->device;
    const int64_t peer = sbp_step_stage_of(step, other) * tracer->devices + rank->device;
    const uint64_t behind[2] = {rank->last, sends ? rank->sent[back] : NONE};
    const int buffer = instr->buffer[sends ? SBP_AT_IN : SBP_AT_OUT];
    const uint64_t id = begin_node(rank, name, sends ? SEND : RECV, behind, seconds);
    put_attribute(&tracer->node, &tracer->scratch, "comm_src", ATTR_INT32,
                  (uint64_t)(sends ? own : peer));
    put_attribute(&tracer->node, &tracer->scratch, "comm_dst", ATTR_INT32,
                  (uint64_t)(sends ? peer : own));
    put_attribute(&tracer->node, &tracer->scratch, "comm_size", ATTR_INT64,
                  (uint64_t)sbp_program_buffer_bytes(program, buffer));
    put_attribute(&tracer->node, &tracer->scratch, "comm_tag", ATTR_INT32,
                  (uint64_t)((task->micro_batch * step->pieces + to) * 2 + back));
    end_node(rank);
    *(sends ? &rank->sent[back] : &rank->last) = id;
}

/* Tasks that wait for a sum beside get a node of no length behind it. */
static void wait_for_sum(struct rank *rank, const struct sbp_task *task)
{
    const uint64_t sum = task->after > 0 ? rank->ended[task->after - 1] : NONE;
    if (sum == NONE)
        return;
    const uint64_t behind[2] = {rank->last, sum};
    rank->last = begin_node(rank, "wait", COMP, behind, 0);
    end_node(rank);
}

static enum sbp_status add_task(struct rank *rank, int64_t at)
{
    const struct sbp_step *step = rank->tracer->step;
    const struct sbp_task *task = &rank->tracer->tasks[rank->stage].task[at];
    const struct sbp_instr *instr = sbp_task_instr(step, rank->stage, task);
    const struct sbp_task_price price = sbp_task_price(step, rank->stage, task);
    const bool passes = instr->kind == SBP_INSTR_SEND || instr->kind == SBP_INSTR_RECEIVE;
    char name[160];
    sbp_task_name(sbp_step_chunk(step, rank->stage, task->chunk), task, name, sizeof name);
    rank->ended[at] = NONE;
    wait_for_sum(rank, task);
    if (price.compute_s > 0)
        compute(rank, name, price.compute_s);
    if (passes && instr->box.kind != SBP_LOCAL)
        message(rank, name, task, instr, instr->kind == SBP_INSTR_SEND ? price.communication_s : 0);
    else if (!passes && sbp_program_is_call(instr))
        SBP_TRY(collective(rank, name, task, instr, price.communication_s));
    else if (!passes && price.communication_s > 0)
        compute(rank, name, price.communication_s);
    if (task->is_beside)
        rank->ended[at] = rank->beside;
    return SBP_OK;
}

static enum sbp_status write_rank(struct tracer *tracer, int64_t number, struct sbp_arena *arena,
                                  struct sbp_text *out)
{
    const int stage = (int)(number / tracer->devices);
    const struct sbp_tasks *tasks = &tracer->tasks[stage];
    const struct sbp_arena_mark mark = sbp_arena_mark(arena);
    struct rank rank = {.tracer = tracer,
                        .out = out,
                        .stage = stage,
                        .device = number % tracer->devices,
                        .last = NONE,
                        .sent = {NONE, NONE},
                        .beside = NONE,
                        .ended = SBP_NEW(arena, uint64_t, tasks->count + 1)};
    enum sbp_status status = rank.ended == NULL ? SBP_E_MEMORY : SBP_OK;
    tracer->node.length = 0;
    put_text(&tracer->node, META_VERSION, FORMAT_VERSION);
    end_node(&rank);
    for (int64_t at = 0; at < tasks->count && status == SBP_OK; at++)
        status = add_task(&rank, at);
    sbp_arena_release(arena, mark);
    return status == SBP_OK && out->failed ? SBP_E_MEMORY : status;
}

/* ---- all ranks ------------------------------------------------------------------------------- */

/* Lists the tasks of all stages, which must not be too many for all ranks. */
static enum sbp_status list_tasks(struct tracer *tracer, struct sbp_arena *arena,
                                  struct sbp_diag *diag)
{
    const struct sbp_step *step = tracer->step;
    double nodes = 0;
    tracer->tasks = SBP_NEW(arena, struct sbp_tasks, step->stages);
    if (tracer->tasks == NULL)
        return sbp_fail(diag, SBP_E_MEMORY, "out of memory");
    for (int piece = 0; piece < step->pieces; piece++)
        nodes += (double)sbp_step_program(step, piece)->instr_count * (double)step->micro_batches *
                 (double)tracer->devices;
    if (nodes > MOST_NODES)
        return sbp_fail(diag, SBP_E_INPUT,
                        "traces of all ranks would have %.3g nodes, at most %d are written: a plan "
                        "of fewer micro-batches or devices is legal",
                        nodes, MOST_NODES);
    for (int stage = 0; stage < step->stages; stage++) {
        SBP_TRY(sbp_tasks_make(step, stage, arena, &tracer->tasks[stage], diag));
        tracer->tasks[stage].begin[0] = tracer->tasks[stage].begin[1] = NULL; /* one order */
    }
    return SBP_OK;
}

/* The price of what stands in the traces. */
static enum sbp_status play(const struct tracer *tracer, struct sbp_arena *arena, double *step_s,
                            struct sbp_diag *diag)
{
    struct sbp_play played;
    double **length_s = sbp_tasks_lengths(tracer->step, tracer->tasks, NULL, arena);
    if (length_s == NULL)
        return sbp_fail(diag, SBP_E_MEMORY, "out of memory");
    SBP_TRY(sbp_tasks_play(tracer->step, tracer->tasks, length_s, arena, &played, diag));
    *step_s = played.step_s;
    return SBP_OK;
}

static enum sbp_status write_files(struct tracer *tracer, const char *path,
                                   struct sbp_export_files *files, struct sbp_arena *arena,
                                   struct sbp_diag *diag)
{
    const int64_t ranks = tracer->devices * tracer->step->stages;
    SBP_TRY(sbp_export_files_make((int)ranks + 1, files, diag));
    enum sbp_status status = SBP_OK;
    for (int64_t rank = 0; rank < ranks && status == SBP_OK; rank++) {
        sbp_text_add(&files->file[rank].name, "%s.%lld.et", path, (long long)rank);
        status = write_rank(tracer, rank, arena, &files->file[rank].text);
    }
    sbp_text_add(&files->file[ranks].name, "%s.groups.json", path);
    if (status == SBP_OK)
        status = write_groups(tracer, &files->file[ranks].text);
    return status == SBP_OK ? SBP_OK
                            : sbp_fail(diag, status == SBP_E_UNSUPPORTED ? SBP_E_INPUT : status,
                                       status == SBP_E_UNSUPPORTED
                                           ? "messages within a stage, or too many kinds of groups"
                                           : "out of memory");
}

static enum sbp_status trace(struct sbp_export *export, const struct sbp_step *step,
                             const char *path, struct sbp_export_files *files,
                             struct sbp_diag *diag)
{
    struct tracer tracer = {.step = step, .devices = step->mesh.devices};
    struct sbp_arena arena;
    sbp_arena_init(&arena);
    enum sbp_status status = list_tasks(&tracer, &arena, diag);
    if (status == SBP_OK)
        status = play(&tracer, &arena, &export->exported_s, diag);
    if (status == SBP_OK)
        status = write_files(&tracer, path, files, &arena, diag);
    sbp_text_free(&tracer.node);
    sbp_text_free(&tracer.scratch);
    sbp_arena_free(&arena);
    return status;
}

static bool hides(const struct sbp_runtime *runtime)
{
    for (int i = 0; i < SBP_HIDINGS; i++)
        if (runtime->hidden[i] > 0)
            return true;
    return false;
}

/* Lists the parts of the step's price that no node holds. */
static enum sbp_status lose_times(struct sbp_export *export)
{
    const struct sbp_runtime *runtime = &export->plan.workload.cluster.runtime;
    if (hides(runtime))
        SBP_TRY(sbp_export_lose(
            export, "what trainer %s hides within a pass follows the arithmetic", runtime->name));
    if (runtime->host_s > 0)
        SBP_TRY(sbp_export_lose(export,
                                "no pass waits for the host%s%s, which takes %.3g us to launch an "
                                "operator",
                                runtime->name[0] == '\0' ? "" : " of trainer ", runtime->name,
                                runtime->host_s * 1e6));
    return export->plan.cut.parallel.schedule == SBP_MESSAGE_DRIVEN
               ? sbp_export_lose(export,
                                 "works have one order, and not that in which messages come")
               : SBP_OK;
}

enum sbp_status sbp_export_chakra(struct sbp_export *export, const char *path,
                                  struct sbp_export_files *files, struct sbp_diag *diag)
{
    struct sbp_step step;
    if (sbp_timeline_delays_gradients(export->plan.cut.parallel.schedule))
        return sbp_fail(diag, SBP_E_INPUT,
                        "a step of schedule %s has neither begin nor end, a trace has both; other "
                        "schedules are legal",
                        sbp_timeline_schedule_name(export->plan.cut.parallel.schedule));
    if (lose_times(export) != SBP_OK)
        return sbp_fail(diag, SBP_E_MEMORY, "out of memory");
    SBP_TRY(sbp_cut_named_step(&export->plan.cut, &export->plan.strategy, false, &step, diag));
    const enum sbp_status status = trace(export, &step, path, files, diag);
    sbp_step_free(&step);
    return status == SBP_E_UNSUPPORTED ? SBP_E_INPUT : status;
}
