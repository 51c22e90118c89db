/* Checks bytes: states of parameters tensor by tensor, buffers by their lifetimes, and the total of
 * a device. */
#include <stdlib.h>

#include "planner/verify/verify_priv.h"

/* ---- states of parameters ------------------------------------------------------------------- */

/* Bytes of a buffer: buffers begin at multiples of 64. */
static int64_t slot(int64_t elements, int64_t element_bytes)
{
    return (elements * element_bytes + 63) / 64 * 64;
}

/* Moments a parameter: momentum has one, Adam two. */
static int moments_of(const struct sbp_verification *c)
{
    const struct sbp_update *update = &c->graph->training.update;
    if (update->optimizer == SBP_SGD)
        return update->momentum > 0 ? 1 : 0;
    return 2;
}

/* Versions of its weights that a piece of the model holds. Without a flush a stage updates while
 * micro-batches are in flight that read the weights of before, except the last one, which ends each
 * where it began it (Fournier and Oyallon, CDP-v2); under CDP-v1 that one computes gradients of the
 * older weights, too. */
static int64_t versions_of(const struct sbp_verification *c, int piece)
{
    if (sbp_verify_hands_on(c)) /* each updates where nobody reads the older one any more */
        return 1;
    switch (c->plan->cut.parallel.schedule) {
    case SBP_CDP_V1:
        return 2;
    case SBP_CDP_V2:
        return piece == c->step->pieces - 1 ? 1 : 2;
    default:
        return 1;
    }
}

/* Adds a weight's states; whole blocks have room for all shards. ZeRO level 1 shards optimizer
 * states, 2 gradients, 3 parameters (Rajbhandari et al., 2020, section 5). */
static void add_weight(const struct sbp_verification *c, const struct sbp_held_weight *held,
                       int64_t versions, struct sbp_stage_memory *memory)
{
    const struct sbp_element_bytes *bytes = &c->bytes;
    const int64_t gradients = held->level < 2 ? held->padded : held->shard;
    memory->parameters += held->local;
    memory->weight_bytes +=
        versions * slot(held->level < 3 ? held->padded : held->shard, bytes->weight);
    memory->gradient_bytes += slot(gradients, bytes->gradient) + slot(gradients, bytes->sum);
    if (sbp_verify_hands_on(c)) /* a finished sum beside the next one */
        memory->gradient_bytes += slot(gradients, bytes->sum > 0 ? bytes->sum : bytes->gradient);
    if (c->plan->cut.parallel.offload)
        return;
    memory->master_bytes += slot(held->shard, bytes->master) +
                            (bytes->gradient_master > 0 ? slot(held->shard, bytes->master) : 0);
    memory->moment_bytes += moments_of(c) * slot(held->shard, bytes->moment);
}

/* Whether the program deals a weight to one of its members: to the first, where other pieces hold
 * it, too. */
static bool is_dealt(const struct sbp_verification *c, const struct sbp_program *program,
                     const struct sbp_held_weight *held, int tensor)
{
    const struct sbp_weight_shard *shard = &program->shard[tensor];
    const struct sbp_held_weight *leader = &held[shard->leader];
    return shard->owner >= 0 && shard->owner < held[tensor].members && leader->op >= 0 &&
           program->shard[shard->leader].leader == shard->leader && leader->level > 0 &&
           leader->shared == held[tensor].shared && leader->local >= held[tensor].local &&
           (c->pieces_of[tensor] < 2 || shard->owner == 0);
}

/* Checks that no member owns two weights of a round, whose place in memory is that of the largest.
 */
static enum sbp_status check_owners(const struct sbp_verification *c,
                                    const struct sbp_program *program,
                                    const struct sbp_held_weight *held)
{
    const struct sbp_weight_shard *shard = program->shard;
    for (int t = 0; t < c->graph->tensor_count; t++) {
        bool fits = held[t].op < 0 || held[t].level == 0 || is_dealt(c, program, held, t);
        for (int other = 0; other < t && held[t].op >= 0 && held[t].level > 0; other++)
            fits &= held[other].op < 0 || held[other].level == 0 ||
                    shard[other].leader != shard[t].leader || shard[other].owner != shard[t].owner;
        if (!fits)
            return sbp_verify_refuse(c, "%s: member %lld cannot own it with what it owns already",
                                     c->graph->tensor[t].name, (long long)shard[t].owner);
    }
    return SBP_OK;
}

/* The piece whose operators a program names: alike ones share it. */
static int compiled_piece(const struct sbp_verification *c, int piece)
{
    int first = 0;
    while (c->step->program_of[first] != c->step->program_of[piece])
        first++;
    return first;
}

/* Adds offloaded states and the bucket that they pass through (Myelin, section V.B). */
static void add_hosted(const struct sbp_verification *c, int64_t updated,
                       struct sbp_stage_memory *memory)
{
    const struct sbp_element_bytes *bytes = &c->bytes;
    const int64_t hosted = bytes->master + moments_of(c) * bytes->moment;
    const int64_t most = c->plan->cut.parallel.bucket_parameters;
    if (!c->plan->cut.parallel.offload)
        return;
    memory->host_bytes += updated * hosted;
    const int64_t bucket =
        hosted == 0 ? 0 : slot(updated < most ? updated : most, hosted + bytes->gradient_master);
    if (bucket > memory->bucket_bytes)
        memory->bucket_bytes = bucket;
}

static enum sbp_status add_piece(struct sbp_verification *c, int piece,
                                 struct sbp_stage_memory *memory)
{
    const struct sbp_arena_mark mark = sbp_arena_mark(&c->scratch);
    struct sbp_held_weight *held =
        SBP_NEW(&c->scratch, struct sbp_held_weight, c->graph->tensor_count);
    int64_t updated = 0;
    if (held == NULL)
        return SBP_E_MEMORY;
    const struct sbp_program *program = &c->step->program[c->step->program_of[piece]];
    const bool has_owners = c->plan->cut.parallel.owner != SBP_OWNER_NONE;
    const int like = has_owners ? compiled_piece(c, piece) : piece;
    SBP_TRY(sbp_verify_hold(c, c->step->first[like], c->step->first[like + 1], held));
    if (has_owners)
        SBP_TRY(check_owners(c, program, held));
    for (int tensor = 0; tensor < c->graph->tensor_count; tensor++)
        if (held[tensor].op >= 0 && program->shard[tensor].leader == tensor) {
            add_weight(c, &held[tensor], versions_of(c, piece), memory);
            updated += held[tensor].shard;
        } else if (held[tensor].op >= 0) {
            memory->parameters += held[tensor].local;
        }
    add_hosted(c, updated, memory);
    sbp_arena_release(&c->scratch, mark);
    return SBP_OK;
}

static enum sbp_status check_states(const struct sbp_verification *c, int stage,
                                    const struct sbp_stage_memory *mine)
{
    const struct sbp_stage_memory *given = &c->step->memory[stage];
    const struct {
        const char *name;
        int64_t mine, given;
    } part[] = {{"parameters", mine->weight_bytes, given->weight_bytes},
                {"gradients", mine->gradient_bytes, given->gradient_bytes},
                {"moments", mine->moment_bytes, given->moment_bytes},
                {"master copies", mine->master_bytes, given->master_bytes},
                {"offload bucket", mine->bucket_bytes, given->bucket_bytes},
                {"reserve", mine->reserve_bytes, given->reserve_bytes},
                {"messages", mine->message_bytes, given->message_bytes},
                {"host memory", mine->host_bytes, given->host_bytes},
                {"parameters in number", mine->parameters, given->parameters}};
    for (size_t i = 0; i < sizeof part / sizeof *part; i++)
        if (part[i].mine != part[i].given)
            return sbp_verify_refuse(c, "stage %d: memory: %s are %lld, the plan says %lld", stage,
                                     part[i].name, (long long)part[i].mine,
                                     (long long)part[i].given);
    return SBP_OK;
}

/* ---- buffers -------------------------------------------------------------------------------- */

/* A buffer's lifetime (first and last instruction) and its place in the arena. */
struct place {
    int first, last;
    int64_t begin, end;
};

static int64_t element_of(const struct sbp_verification *c, const struct sbp_buffer *buffer)
{
    const struct sbp_element_bytes *b = &c->bytes;
    const bool computed = buffer->use == SBP_USE_GATHERED || buffer->use == SBP_USE_UNREDUCED;
    switch (buffer->type) {
    case SBP_BUFFER_INT32:
        return 4;
    case SBP_BUFFER_BYTE:
        return 1;
    case SBP_BUFFER_LOSS:
        return b->loss;
    case SBP_BUFFER_STATISTIC:
        return b->statistic;
    default:
        break;
    }
    if (computed && b->compute > 0)
        return b->compute;
    switch (buffer->use) {
    case SBP_USE_WEIGHT:
    case SBP_USE_VERSION:
    case SBP_USE_GATHERED:
        return b->weight;
    case SBP_USE_GRADIENT:
    case SBP_USE_UNREDUCED:
        return b->gradient;
    case SBP_USE_SUM:
        return b->sum;
    case SBP_USE_MOMENT:
        return b->moment;
    case SBP_USE_MASTER:
        return b->master;
    case SBP_USE_BUCKET:
        return b->master + b->gradient_master + moments_of(c) * b->moment;
    default:
        return b->activation;
    }
}

static bool persists(const struct sbp_buffer *buffer)
{
    return buffer->use != SBP_USE_ACTIVATION && buffer->use != SBP_USE_WORK &&
           buffer->use != SBP_USE_GATHERED && buffer->use != SBP_USE_UNREDUCED;
}

/* Finds lifetimes: from the first to the last instruction that names a buffer. Buffers of a group
 * end together, and the loss is read after the step. */
static void find_times(const struct sbp_program *program, int *group_end, struct place *place)
{
    const int end = program->instr_count - 1;
    for (int b = 0; b < program->buffer_count; b++)
        place[b] = (struct place){.first = -1, .last = -1};
    for (int i = 0; i <= end; i++)
        for (int k = 0; k < SBP_INSTR_BUFFERS; k++) {
            const int b = program->instr[i].buffer[k];
            if (b < 0)
                continue;
            place[b].first = place[b].first < 0 ? i : place[b].first;
            place[b].last = i;
        }
    if (program->loss_buffer >= 0)
        place[program->loss_buffer].last = end;
    for (int b = 0; b < program->buffer_count; b++)
        if (place[b].last > group_end[program->buffer[b].group])
            group_end[program->buffer[b].group] = place[b].last;
    for (int b = 0; b < program->buffer_count; b++) {
        if (program->buffer[b].group > 0 && place[b].first >= 0)
            place[b].last = group_end[program->buffer[b].group];
        if (persists(&program->buffer[b]))
            place[b] = (struct place){.first = 0, .last = end};
    }
}

/* The buffers that live at a time, in the order of the arena. */
struct live {
    struct place *held; /* by begin */
    int count;
};

/* Index of the first buffer that begins at or after an offset. */
static int find_place(const struct live *live, int64_t begin)
{
    int low = 0, high = live->count;
    while (low < high) {
        const int middle = (low + high) / 2;
        if (live->held[middle].begin < begin)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static bool put(struct live *live, const struct place *place)
{
    const int at = find_place(live, place->begin);
    if ((at > 0 && live->held[at - 1].end > place->begin) ||
        (at < live->count && live->held[at].begin < place->end))
        return false;
    for (int i = live->count++; i > at; i--)
        live->held[i] = live->held[i - 1];
    live->held[at] = *place;
    return true;
}

static void take(struct live *live, const struct place *place)
{
    const int at = find_place(live, place->begin);
    for (int i = at; i + 1 < live->count; i++)
        live->held[i] = live->held[i + 1];
    live->count--;
}

static int by_first(const void *a, const void *b)
{
    const struct place *one = a, *two = b;
    return (one->first > two->first) - (one->first < two->first);
}

static int by_last(const void *a, const void *b)
{
    const struct place *one = a, *two = b;
    return (one->last > two->last) - (one->last < two->last);
}

/* Whether no two buffers that live at the same time overlap. born, died: the same places in order
 * of begin and of end. */
static bool lie_apart(struct place *born, struct place *died, int count, struct live *live)
{
    qsort(born, (size_t)count, sizeof *born, by_first);
    qsort(died, (size_t)count, sizeof *died, by_last);
    for (int i = 0, d = 0; i < count; i++) {
        for (; died[d].last < born[i].first; d++)
            take(live, &died[d]);
        if (!put(live, &born[i]))
            return false;
    }
    return true;
}

/* Bytes of a program's buffers on a device. */
struct room {
    int64_t persistent_bytes; /* token ids left out: each micro-batch has its own */
    int64_t kept_bytes;       /* live between the passes of a micro-batch */
    /* Of zero-bubble: those of kept_bytes that weight gradients read, and others that these read
     * and the work on input gradients leaves. */
    int64_t parked_inputs_bytes, parked_gradients_bytes;
    int64_t arena_bytes;
};

/* The work that an instruction is of: 0 forward, 1 backward, 2 weight gradients that wait. */
static int work_of(const struct sbp_program *program, int instr)
{
    const enum sbp_section section = program->instr[instr].section;
    if (section == SBP_SECTION_FORWARD)
        return 0;
    return program->parallel.schedule == SBP_ZERO_BUBBLE &&
                   (section == SBP_SECTION_BACKWARD_WEIGHT || section == SBP_SECTION_STEP)
               ? 2
               : 1;
}

/* The last work that names a micro-batch's own token ids or labels. */
static int last_reader(const struct sbp_program *program, int buffer)
{
    int last = 1;
    for (int i = 0; i < program->instr_count; i++)
        for (int k = 0; k < SBP_INSTR_BUFFERS; k++)
            if (program->instr[i].buffer[k] == buffer && work_of(program, i) > last)
                last = work_of(program, i);
    return last;
}

static void add_held(const struct sbp_program *program, const struct place *place, int buffer,
                     struct room *room)
{
    const bool index = program->buffer[buffer].use == SBP_USE_INDEX;
    const int64_t bytes = place->end - place->begin;
    const int from = index ? 0 : work_of(program, place->first);
    const int to = index ? last_reader(program, buffer) : work_of(program, place->last);
    room->kept_bytes += from == 0 && to > 0 ? bytes : 0;
    room->parked_inputs_bytes += from == 0 && to == 2 ? bytes : 0;
    room->parked_gradients_bytes += from == 1 && to == 2 ? bytes : 0;
}

static struct room add_up(const struct sbp_program *program, const struct place *place)
{
    struct room room = {0};
    for (int b = 0; b < program->buffer_count; b++) {
        const bool index = program->buffer[b].use == SBP_USE_INDEX;
        if (persists(&program->buffer[b]) && !index)
            room.persistent_bytes += place[b].end - place[b].begin;
        else if (place[b].first >= 0)
            add_held(program, &place[b], b, &room);
        if (place[b].first >= 0 && place[b].end > room.arena_bytes)
            room.arena_bytes = place[b].end;
    }
    return room;
}

/* Whether a state takes the place of the same of its round's leader. */
static bool may_share(const struct sbp_program *program, const struct sbp_buffer *buffer)
{
    const struct sbp_buffer *first = &program->buffer[buffer->shares];
    return buffer->tensor >= 0 && program->shard[buffer->tensor].owner >= 0 && first->shares < 0 &&
           first->tensor == program->shard[buffer->tensor].leader &&
           first->tensor != buffer->tensor && first->use == buffer->use &&
           first->offset_bytes == buffer->offset_bytes && persists(first);
}

static enum sbp_status check_layout(struct sbp_verification *c, const struct sbp_program *program,
                                    struct room *room)
{
    const int buffers = program->buffer_count;
    struct place *place = SBP_NEW(&c->scratch, struct place, 4 * (size_t)buffers + 1);
    int *group_end = SBP_NEW(&c->scratch, int, program->groups + 1);
    if (place == NULL || group_end == NULL)
        return SBP_E_MEMORY;
    struct place *born = place + buffers, *died = born + buffers;
    struct live live = {.held = died + buffers};
    int used = 0;
    find_times(program, group_end, place);
    for (int b = 0; b < buffers; b++) {
        const struct sbp_buffer *buffer = &program->buffer[b];
        place[b].begin = buffer->offset_bytes;
        place[b].end = place[b].begin + slot(buffer->elements, element_of(c, buffer));
        if (buffer->shares >= 0 && !may_share(program, buffer))
            return sbp_verify_refuse(c, "buffer %d lies in the place of one that a device has", b);
        if (buffer->shares >= 0)
            place[b].end = place[b].begin;
        if (place[b].first != buffer->first || place[b].last != buffer->last ||
            place[b].begin % 64 != 0)
            return sbp_verify_refuse(c, "buffer %d lives from %d to %d at %lld, not from %d to %d",
                                     b, buffer->first, buffer->last, (long long)place[b].begin,
                                     place[b].first, place[b].last);
        if (place[b].first >= 0 && place[b].end > place[b].begin)
            born[used] = died[used] = place[b], used++;
    }
    if (!lie_apart(born, died, used, &live))
        return sbp_verify_refuse(c, "two buffers that live at the same time overlap");
    *room = add_up(program, place);
    if (room->arena_bytes != program->arena_bytes || room->kept_bytes != program->kept_bytes)
        return sbp_verify_refuse(c,
                                 "the arena has %lld bytes and keeps %lld, the program says %lld "
                                 "and %lld",
                                 (long long)room->arena_bytes, (long long)room->kept_bytes,
                                 (long long)program->arena_bytes, (long long)program->kept_bytes);
    return SBP_OK;
}

/* ---- a device ------------------------------------------------------------------------------- */

/* Whether all pieces of the model are on each device, and none of its steps has a flush. */
static bool shares_device(const struct sbp_verification *c)
{
    return c->plan->cut.parallel.chunks > 1 &&
           sbp_timeline_delays_gradients(c->plan->cut.parallel.schedule);
}

/* Micro-batches in flight at a stage, at most, where the order of the schedule decides; 0
 * elsewhere. */
static int in_flight_of(const struct sbp_verification *c, int stage)
{
    const int64_t behind = c->step->stages - stage;
    const int64_t asked = c->plan->cut.parallel.pipeline_limit;
    const int64_t limit = behind == 1 ? 1 : asked > 0 ? asked : c->step->stages;
    switch (c->plan->cut.parallel.schedule) {
    case SBP_GPIPE:
        return (int)c->micro_batches;
    case SBP_ONE_F_ONE_B:
        return (int)(behind < c->micro_batches ? behind : c->micro_batches);
    case SBP_CDP_V1:
    case SBP_CDP_V2:
        if (sbp_verify_pyramid(c))
            return 1;
        if (sbp_verify_replicates(c))
            return c->step->pieces;
        if (shares_device(c))
            return c->step->pieces * (c->step->pieces + 1) / 2;
        return (int)(behind < c->micro_batches ? behind : c->micro_batches);
    case SBP_MESSAGE_DRIVEN: /* all that was injected may be in front of the last stage */
        return (int)(limit < c->micro_batches ? limit : c->micro_batches);
    default:
        return 0;
    }
}

/* Bytes of the micro-batches in flight beside the one at work. Zero-bubble runs ahead of its
 * backward passes by the stages behind, and by what its limit has beyond the stages; weight
 * gradients wait for as many micro-batches as are left of the limit (Qi et al. 2023, section 2). */
static int64_t others_bytes(const struct sbp_verification *c, int stage, const struct room *room)
{
    const struct sbp_stage_memory *given = &c->step->memory[stage];
    const int64_t stages = c->step->stages, behind = stages - 1 - stage;
    const int64_t asked = c->plan->cut.parallel.pipeline_limit;
    if (c->plan->cut.parallel.schedule != SBP_ZERO_BUBBLE)
        return (given->in_flight - 1) * room->kept_bytes;
    const int64_t limit = asked > 0 ? asked : stages;
    const int64_t spare = limit - stages < behind ? limit - stages : behind;
    const int64_t planned = behind + (spare > 0 ? spare : 0);
    const int64_t ahead = planned < limit - 1 ? planned : limit - 1, delay = limit - 1 - ahead;
    const int64_t most = c->micro_batches - 1;
    return (ahead < most ? ahead : most) * (room->kept_bytes - room->parked_inputs_bytes) +
           (given->in_flight - 1) * room->parked_inputs_bytes +
           (delay < most ? delay : most) * room->parked_gradients_bytes;
}

/* Bytes of a device that has all pieces of the model in turn: of each, micro-batches in flight for
 * the pieces behind it, and one (Fournier and Oyallon, section 4.1); a replica has one. */
static int64_t shared_bytes(const struct sbp_verification *c, const struct room *room)
{
    const int pieces = c->step->pieces;
    int64_t bytes = 0, most = 0;
    for (int piece = 0; piece < pieces; piece++) {
        const int64_t work =
            room[piece].arena_bytes - room[piece].persistent_bytes - room[piece].kept_bytes;
        const int64_t frames = sbp_verify_replicates(c) ? 1 : pieces - piece;
        bytes += room[piece].persistent_bytes + frames * room[piece].kept_bytes;
        most = work > most ? work : most;
    }
    return bytes + most;
}

/* Checks a device: what it always holds, what its micro-batches in flight hold, and the rest of the
 * current one. With several chunks only the timeline knows the peak; then the device must hold at
 * least what it always holds. */
static enum sbp_status check_device(const struct sbp_verification *c, int stage,
                                    const struct room *room /* (chunks) */)
{
    const struct sbp_stage_memory *given = &c->step->memory[stage];
    const int chunks = (int)c->plan->cut.parallel.chunks;
    const int expected = in_flight_of(c, stage);
    int64_t always = given->reserve_bytes + given->message_bytes + room[0].persistent_bytes;
    if (chunks > 1)
        always = given->reserve_bytes + given->message_bytes + given->bucket_bytes +
                 given->weight_bytes + given->gradient_bytes + given->moment_bytes +
                 given->master_bytes;
    const int64_t work = room[0].arena_bytes - room[0].persistent_bytes;
    const int64_t total = shares_device(c) ? given->reserve_bytes + shared_bytes(c, room)
                                           : always + work + others_bytes(c, stage, &room[0]);
    const bool exact = chunks == 1 || shares_device(c);
    if (expected > 0 && given->in_flight != expected)
        return sbp_verify_refuse(c,
                                 "stage %d holds %d micro-batches, its schedule has %d in flight",
                                 stage, given->in_flight, expected);
    if (given->in_flight < 1 ||
        (exact ? given->device_bytes != total : given->device_bytes < always))
        return sbp_verify_refuse(c,
                                 "stage %d: memory: a device holds %lld bytes, the plan says %lld",
                                 stage, (long long)total, (long long)given->device_bytes);
    return SBP_OK;
}

/* Slots of either side for what a stage sends in a direction: two, or half of all micro-batches
 * that the first stage injects where arrivals decide, but one a message; each is as large as the
 * largest message of its pieces. */
static int64_t side_bytes(const struct sbp_verification *c, int stage, enum sbp_section section)
{
    const int stages = c->step->stages, in_flight = in_flight_of(c, 0);
    const bool driven = c->plan->cut.parallel.schedule == SBP_MESSAGE_DRIVEN;
    int64_t messages = 0, largest = 0, slots = driven && in_flight > 4 ? (in_flight + 1) / 2 : 2;
    for (int piece = stage; piece < c->step->pieces; piece += stages) {
        const struct sbp_program *program = &c->step->program[c->step->program_of[piece]];
        for (int i = 0; i < program->instr_count; i++) {
            const struct sbp_instr *instr = &program->instr[i];
            if (instr->kind != SBP_INSTR_SEND || instr->section != section)
                continue;
            messages += c->micro_batches;
            largest = instr->box.elements > largest ? instr->box.elements : largest;
        }
    }
    slots = messages < slots ? messages : slots;
    return slot(slots * largest, c->bytes.activation);
}

/* Slots of messages, of trainers that have them: of a stage's own, and of what comes to it. Without
 * a flush there are none. */
static int64_t slots_bytes(const struct sbp_verification *c, int stage)
{
    const int stages = c->step->stages;
    if (!c->plan->workload.cluster.runtime.has_slots || stages == 1 ||
        sbp_timeline_delays_gradients(c->plan->cut.parallel.schedule))
        return 0;
    return side_bytes(c, stage, SBP_SECTION_FORWARD) + side_bytes(c, stage, SBP_SECTION_BACKWARD) +
           side_bytes(c, (stage + stages - 1) % stages, SBP_SECTION_FORWARD) +
           side_bytes(c, (stage + 1) % stages, SBP_SECTION_BACKWARD);
}

static enum sbp_status check_stage(struct sbp_verification *c, int stage,
                                   const struct room *program)
{
    const int chunks = (int)c->plan->cut.parallel.chunks;
    struct sbp_stage_memory mine = {.reserve_bytes = c->plan->workload.cluster.reserve_bytes,
                                    .message_bytes = slots_bytes(c, stage)};
    struct room *room = SBP_NEW(&c->scratch, struct room, chunks);
    if (room == NULL)
        return SBP_E_MEMORY;
    for (int chunk = 0; chunk < chunks; chunk++) {
        const int piece = sbp_verify_piece(c, stage, chunk);
        SBP_TRY(add_piece(c, piece, &mine));
        room[chunk] = program[c->step->program_of[piece]];
    }
    SBP_TRY(check_states(c, stage, &mine));
    return check_device(c, stage, room);
}

static enum sbp_status check_limit(const struct sbp_verification *c)
{
    const struct sbp_step_totals *totals = &c->step->totals;
    const struct sbp_cluster *cluster = &c->plan->workload.cluster;
    const bool asked = c->request != NULL && c->request->memory_limit_bytes > 0;
    const int64_t limit = asked ? c->request->memory_limit_bytes : cluster->memory_bytes;
    int64_t device = 0, host = 0;
    for (int stage = 0; stage < c->step->stages; stage++) {
        const struct sbp_stage_memory *memory = &c->step->memory[stage];
        device = memory->device_bytes > device ? memory->device_bytes : device;
        host = memory->host_bytes > host ? memory->host_bytes : host;
    }
    if (device != totals->device_bytes || host != totals->host_bytes)
        return sbp_verify_refuse(c,
                                 "memory: the fullest stage holds %lld bytes, the plan says %lld",
                                 (long long)device, (long long)totals->device_bytes);
    if (device > limit)
        return sbp_verify_refuse(c, "memory: a device holds %lld bytes and has %lld",
                                 (long long)device, (long long)limit);
    return SBP_OK;
}

enum sbp_status sbp_verify_memory(struct sbp_verification *c)
{
    struct room *room = SBP_NEW(&c->scratch, struct room, c->step->program_count);
    if (room == NULL)
        return SBP_E_MEMORY;
    for (int i = 0; i < c->step->program_count; i++) {
        const struct sbp_arena_mark mark = sbp_arena_mark(&c->scratch);
        SBP_TRY(check_layout(c, &c->step->program[i], &room[i]));
        sbp_arena_release(&c->scratch, mark);
    }
    for (int stage = 0; stage < c->step->stages; stage++)
        SBP_TRY(check_stage(c, stage, room));
    return check_limit(c);
}
