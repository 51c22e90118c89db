#include "tests/ranks/comm_checks.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/math/half.h"
#include "base/math/random.h"

enum { MAX_WORLD = 64, MAX_AXES = 6, MAX_FAMILIES = 80, PARTITIONS = 6, GUARD_BYTES = 64 };

enum check_kind { ALL_REDUCE, ALL_GATHER, REDUCE_SCATTER, ALL_TO_ALL, REDUCE, BROADCAST, KINDS };

static const char *const kind_names[KINDS] = {
    "all-reduce", "all-gather", "reduce-scatter", "all-to-all", "reduce", "broadcast",
};

/* This rank's group of a family of disjoint groups that cover the world. */
struct family {
    int handle, count, index;
    int ranks[MAX_WORLD];
};

struct context {
    const struct comm_checks *checks;
    const struct sbp_comm_ops *ops;
    struct sbp_comm *comm;
    struct sbp_diag *diag;
    int rank, size;
    int families_count;
    struct family families[MAX_FAMILIES];
};

/* One collective of one group. */
struct trial {
    int round;
    enum check_kind kind;
    int64_t count;
    enum sbp_real real;
    enum sbp_comm_reduction reduction;
    int root;
    bool integers; /* small ones, whose sums are exact in any order */
    const struct family *family;
};

uint64_t comm_checks_seed(void)
{
    const char *text = getenv("SBP_TEST_SEED");
    const uint64_t seed = text != NULL ? strtoull(text, NULL, 0) : 20240613;
    fprintf(stderr, "seed %" PRIu64 "\n", seed);
    return seed;
}

static int below(struct sbp_random *random, int bound)
{
    return (int)sbp_random_below(random, (uint64_t)bound);
}

/* As an element of the type holds it. */
static double rounded(enum sbp_real real, double value)
{
    double element; /* room for any */
    sbp_half_put(real, &element, 0, value);
    return sbp_half_get(real, &element, 0);
}

static void shuffle(struct sbp_random *random, int *values, int count)
{
    for (int i = count - 1; i > 0; i--) {
        const int j = below(random, i + 1);
        const int value = values[i];
        values[i] = values[j];
        values[j] = value;
    }
}

/* Groups ------------------------------------------------------------------------------------ */

static void add_family(struct context *context, const struct family *family)
{
    struct family *added = &context->families[context->families_count++];
    *added = *family;
    for (int i = 0; i < family->count; i++)
        added->index = family->ranks[i] == context->rank ? i : added->index;
}

static enum sbp_status name_families(struct context *context)
{
    static _Thread_local int ranks[MAX_FAMILIES * MAX_WORLD];
    int counts[MAX_FAMILIES], *at = ranks;
    for (int f = 0; f < context->families_count; f++) {
        counts[f] = context->families[f].count;
        memcpy(at, context->families[f].ranks, (size_t)counts[f] * sizeof *at);
        at += counts[f];
    }
    return context->ops->name_groups(context->comm, ranks, counts, context->families_count);
}

static enum sbp_status make_families(struct context *context)
{
    enum sbp_status status = context->ops->name_groups != NULL ? name_families(context) : SBP_OK;
    for (int f = 0; status == SBP_OK && f < context->families_count; f++) {
        struct family *family = &context->families[f];
        status =
            context->ops->group(context->comm, family->ranks, family->count, f, &family->handle);
    }
    return status == SBP_OK
               ? SBP_OK
               : sbp_fail(context->diag, status, "group: %s", context->ops->reason(context->comm));
}

/* Prime factors of the world's size, in random order: a mesh. Returns the number of axes. */
static int make_mesh(struct sbp_random *random, int size, int *axes)
{
    int count = 0;
    for (int factor = 2; size > 1; factor++)
        for (; size % factor == 0; size /= factor)
            axes[count++] = factor;
    shuffle(random, axes, count);
    return count;
}

/* Does `other` differ from `rank` in coordinates of the axes in mask only? */
static bool shares_group(int rank, int other, const int *axes, int axes_count, unsigned mask)
{
    for (int a = axes_count - 1; a >= 0; a--) {
        if ((mask >> a & 1) == 0 && rank % axes[a] != other % axes[a])
            return false;
        rank /= axes[a];
        other /= axes[a];
    }
    return true;
}

/* Every subset of axes gives a family of groups; their order is rank order or, every other time,
 * one that all members draw alike. */
static void add_mesh_families(struct context *context, struct sbp_random *random)
{
    int axes[MAX_AXES];
    const int axes_count = make_mesh(random, context->size, axes);
    for (unsigned mask = 0; mask < 1U << axes_count; mask++) {
        struct family family = {0};
        for (int r = 0; r < context->size; r++)
            if (shares_group(context->rank, r, axes, axes_count, mask))
                family.ranks[family.count++] = r;
        const uint64_t key = sbp_random_next(random);
        struct sbp_random order;
        sbp_random_seed(&order, key + (uint64_t)family.ranks[0]);
        if (key % 2 == 1)
            shuffle(&order, family.ranks, family.count);
        add_family(context, &family);
    }
}

/* A random order of all ranks, cut at random places. */
static void add_partition(struct context *context, struct sbp_random *random)
{
    int order[MAX_WORLD];
    for (int r = 0; r < context->size; r++)
        order[r] = r;
    shuffle(random, order, context->size);
    struct family own = {0};
    for (int first = 0; first < context->size;) {
        struct family family = {.count = 1 + below(random, context->size - first)};
        bool mine = false;
        for (int i = 0; i < family.count; i++) {
            family.ranks[i] = order[first + i];
            mine = mine || family.ranks[i] == context->rank;
        }
        own = mine ? family : own;
        first += family.count;
    }
    add_family(context, &own);
}

static enum sbp_status start(struct context *context, const struct comm_checks *checks,
                             const struct sbp_comm_ops *ops, struct sbp_comm *comm,
                             struct sbp_diag *diag)
{
    *context = (struct context){.checks = checks, .ops = ops, .comm = comm, .diag = diag};
    context->rank = ops->rank(comm);
    context->size = ops->size(comm);
    if (context->size > MAX_WORLD)
        return sbp_fail(diag, SBP_E_RANGE, "checks are for up to %d ranks", (int)MAX_WORLD);
    return SBP_OK;
}

/* Data and expectations --------------------------------------------------------------------- */

/* Element i of the buffer that `rank` brings to a trial. */
static double datum(const struct context *context, const struct trial *trial, int rank, int64_t i)
{
    const uint64_t stream = (uint64_t)trial->round * MAX_WORLD + (uint64_t)rank;
    const uint64_t largest = sbp_real_bytes(trial->real) == 2 ? 16 : 1000; /* sums stay exact */
    if (trial->integers)
        return (double)(sbp_random_bits_at(context->checks->seed, stream, (uint64_t)i) %
                        (2 * largest + 1)) -
               (double)largest;
    const double value = 2 * sbp_random_unit_at(context->checks->seed, stream, (uint64_t)i) - 1;
    return rounded(trial->real, value);
}

/* The group-order fold of element i; *magnitude = sum |x|. */
static double folded(const struct context *context, const struct trial *trial, int64_t i,
                     double *magnitude)
{
    const int *ranks = trial->family->ranks;
    double result = datum(context, trial, ranks[0], i);
    *magnitude = fabs(result);
    for (int m = 1; m < trial->family->count; m++) {
        const double x = datum(context, trial, ranks[m], i);
        *magnitude += fabs(x);
        if (trial->reduction == SBP_MAX && trial->kind == ALL_REDUCE)
            result = x > result ? x : result;
        else if (trial->real != SBP_F64)
            result = (double)((float)result + (float)x);
        else
            result += x;
    }
    return rounded(trial->real, result); /* once, of 16 bits */
}

/* The value that element i of the result must have, and by how much it may differ. */
static double expected(const struct context *context, const struct trial *trial, int64_t i,
                       double *tolerance)
{
    const struct family *family = trial->family;
    const double unit = sbp_real_roundoff(trial->real);
    double value = 0;
    double magnitude = 0;
    switch (trial->kind) {
    case ALL_REDUCE:
        value = folded(context, trial, i, &magnitude);
        break;
    case REDUCE_SCATTER:
        value = folded(context, trial, family->index * trial->count + i, &magnitude);
        break;
    case ALL_GATHER:
        value = datum(context, trial, family->ranks[i / trial->count], i % trial->count);
        break;
    case ALL_TO_ALL:
        value = datum(context, trial, family->ranks[i / trial->count],
                      family->index * trial->count + i % trial->count);
        break;
    case REDUCE:
        value = family->index == trial->root ? folded(context, trial, i, &magnitude)
                                             : datum(context, trial, context->rank, i);
        break;
    case BROADCAST:
    case KINDS:
        value = datum(context, trial, family->ranks[trial->root], i);
        break;
    }
    const bool exact = trial->integers || context->checks->ordered;
    *tolerance = exact ? 0 : 2 * family->count * unit * magnitude;
    return value;
}

/* Trials ------------------------------------------------------------------------------------ */

static int64_t draw_count(struct sbp_random *random)
{
    static const int64_t special[] = {0, 1, 2, 3, 7, 64, 1023, 4097};
    if (below(random, 2) == 0)
        return special[below(random, (int)(sizeof special / sizeof *special))];
    return below(random, 8) == 0 ? 9000 + below(random, 3000) : below(random, 300);
}

/* Members of a group draw alike, disjoint groups differently. */
static struct trial draw_trial(const struct context *context, const struct family *family,
                               int round)
{
    struct sbp_random random;
    sbp_random_seed(&random, sbp_random_bits_at(context->checks->seed, (uint64_t)round + 1,
                                                (uint64_t)family->ranks[0]));
    return (struct trial){
        .round = round,
        .kind = (enum check_kind)below(&random, KINDS),
        .count = draw_count(&random),
        .real = (enum sbp_real)below(&random, context->checks->half ? SBP_REALS : 2),
        .reduction = below(&random, 3) == 0 ? SBP_MAX : SBP_SUM,
        .root = below(&random, family->count),
        .integers = below(&random, 2) == 0,
        .family = family,
    };
}

static bool is_in_place(const struct trial *trial)
{
    return trial->kind == ALL_REDUCE || trial->kind == REDUCE || trial->kind == BROADCAST;
}

static int64_t send_count(const struct trial *trial)
{
    const bool blocks = trial->kind == REDUCE_SCATTER || trial->kind == ALL_TO_ALL;
    return blocks ? trial->count * trial->family->count : trial->count;
}

static int64_t receive_count(const struct trial *trial)
{
    const bool blocks = trial->kind == ALL_GATHER || trial->kind == ALL_TO_ALL;
    return blocks ? trial->count * trial->family->count : trial->count;
}

static enum sbp_status issue(struct context *context, const struct trial *trial, void *receive,
                             const void *send)
{
    const struct sbp_comm_ops *ops = context->ops;
    const int group = trial->family->handle;
    switch (trial->kind) {
    case ALL_REDUCE:
        return ops->all_reduce(context->comm, group, receive, trial->count, trial->real,
                               trial->reduction);
    case ALL_GATHER:
        return ops->all_gather(context->comm, group, receive, send, trial->count, trial->real);
    case REDUCE_SCATTER:
        return ops->reduce_scatter(context->comm, group, receive, send, trial->count, trial->real);
    case ALL_TO_ALL:
        return ops->all_to_all(context->comm, group, receive, send, trial->count, trial->real);
    case REDUCE:
        return ops->reduce(context->comm, group, trial->root, receive, trial->count, trial->real);
    case BROADCAST:
    case KINDS:
        break;
    }
    return ops->broadcast(context->comm, group, trial->root, receive, trial->count, trial->real);
}

static enum sbp_status fail_trial(const struct context *context, const struct trial *trial,
                                  const char *what, int64_t i, double got, double wanted)
{
    return sbp_fail(context->diag, SBP_E_INTERNAL,
                    "seed %" PRIu64 ", round %d, rank %d of %d, %s of %" PRId64
                    " %s, member %d of %d: %s %" PRId64 " is %.17g, expected %.17g",
                    context->checks->seed, trial->round, context->rank, context->size,
                    kind_names[trial->kind], trial->count, sbp_real_name(trial->real),
                    trial->family->index, trial->family->count, what, i, got, wanted);
}

static enum sbp_status compare(const struct context *context, const struct trial *trial,
                               const unsigned char *receive, const void *send, int64_t real_bytes)
{
    for (int64_t i = 0; i < receive_count(trial); i++) {
        double tolerance;
        const double wanted = expected(context, trial, i, &tolerance);
        const double got = sbp_half_get(trial->real, receive, i);
        if (!(fabs(got - wanted) <= tolerance))
            return fail_trial(context, trial, "element", i, got, wanted);
    }
    for (int64_t i = 0; i < GUARD_BYTES; i++) {
        const unsigned char got = receive[receive_count(trial) * real_bytes + i];
        if (got != 0xa5)
            return fail_trial(context, trial, "byte behind the buffer", i, got, 0xa5);
    }
    for (int64_t i = 0; i < send_count(trial) && !is_in_place(trial); i++) {
        const double wanted = datum(context, trial, context->rank, i);
        const double got = sbp_half_get(trial->real, send, i);
        if (got != wanted)
            return fail_trial(context, trial, "sent element", i, got, wanted);
    }
    return SBP_OK;
}

static enum sbp_status run_in(struct context *context, const struct trial *trial,
                              unsigned char *receive, void *send, int64_t real_bytes)
{
    memset(receive, 0xa5, (size_t)(receive_count(trial) * real_bytes + GUARD_BYTES));
    const bool speaks = trial->kind != BROADCAST || trial->family->index == trial->root;
    for (int64_t i = 0; i < send_count(trial) && speaks; i++)
        sbp_half_put(trial->real, is_in_place(trial) ? receive : send, i,
                     datum(context, trial, context->rank, i));
    const enum sbp_status status = issue(context, trial, receive, send);
    if (status != SBP_OK)
        return sbp_fail(context->diag, status, "round %d: %s", trial->round,
                        context->ops->reason(context->comm));
    return compare(context, trial, receive, send, real_bytes);
}

static enum sbp_status run_trial(struct context *context, const struct trial *trial)
{
    const int64_t real_bytes = sbp_real_bytes(trial->real);
    unsigned char *receive = malloc((size_t)(receive_count(trial) * real_bytes + GUARD_BYTES));
    void *send = malloc((size_t)(send_count(trial) * real_bytes + 1));
    enum sbp_status status = SBP_E_MEMORY;
    if (receive != NULL && send != NULL)
        status = run_in(context, trial, receive, send, real_bytes);
    free(receive);
    free(send);
    return status;
}

/* P -> B must have the bits of P -> S and then S -> B. */
static enum sbp_status check_composition(struct context *context, const struct family *family,
                                         int round)
{
    enum { COUNT = 37 };
    const struct trial trial = {.round = round, .real = SBP_F32, .family = family};
    const int64_t all = (int64_t)COUNT * family->count;
    float at_once[(size_t)COUNT * MAX_WORLD];
    float partial[(size_t)COUNT * MAX_WORLD];
    float scattered[COUNT];
    float gathered[(size_t)COUNT * MAX_WORLD];
    for (int64_t i = 0; i < all; i++)
        at_once[i] = partial[i] = (float)datum(context, &trial, context->rank, i);
    SBP_TRY(
        context->ops->all_reduce(context->comm, family->handle, at_once, all, SBP_F32, SBP_SUM));
    SBP_TRY(context->ops->reduce_scatter(context->comm, family->handle, scattered, partial, COUNT,
                                         SBP_F32));
    SBP_TRY(context->ops->all_gather(context->comm, family->handle, gathered, scattered, COUNT,
                                     SBP_F32));
    for (int64_t i = 0; i < all; i++)
        if (memcmp(&at_once[i], &gathered[i], sizeof *gathered) != 0)
            return fail_trial(context, &trial, "all-reduce against its two halves: element", i,
                              (double)at_once[i], (double)gathered[i]);
    return SBP_OK;
}

/* Halves of an all-reduce in one buffer, on whole numbers, whose sums no order changes. */
static enum sbp_status check_in_place(struct context *context, const struct family *family,
                                      int round)
{
    enum { COUNT = 37 };
    const struct trial trial = {
        .round = round, .real = SBP_F32, .integers = true, .family = family};
    const int64_t all = (int64_t)COUNT * family->count;
    float at_once[(size_t)COUNT * MAX_WORLD];
    float halves[(size_t)COUNT * MAX_WORLD];
    float *own = &halves[COUNT * family->index];
    for (int64_t i = 0; i < all; i++)
        at_once[i] = halves[i] = (float)datum(context, &trial, context->rank, i);
    SBP_TRY(
        context->ops->all_reduce(context->comm, family->handle, at_once, all, SBP_F32, SBP_SUM));
    SBP_TRY(
        context->ops->reduce_scatter(context->comm, family->handle, own, halves, COUNT, SBP_F32));
    SBP_TRY(context->ops->all_gather(context->comm, family->handle, halves, own, COUNT, SBP_F32));
    for (int64_t i = 0; i < all; i++)
        if (at_once[i] != halves[i])
            return fail_trial(context, &trial, "all-reduce against halves in place: element", i,
                              (double)at_once[i], (double)halves[i]);
    return SBP_OK;
}

static enum sbp_status run_rounds(struct context *context)
{
    struct sbp_random random;
    sbp_random_seed(&random, context->checks->seed);
    add_mesh_families(context, &random);
    for (int p = 0; p < PARTITIONS; p++)
        add_partition(context, &random);
    SBP_TRY(make_families(context));
    for (int round = 0; round < context->checks->rounds; round++) {
        const struct family *family = &context->families[below(&random, context->families_count)];
        const struct trial trial = draw_trial(context, family, round);
        SBP_TRY(run_trial(context, &trial));
        if (context->checks->ordered && round % 8 == 0)
            SBP_TRY(check_composition(context, family, round));
        if (round % 8 == 4)
            SBP_TRY(check_in_place(context, family, round));
        if (below(&random, 10) == 0)
            SBP_TRY(context->ops->barrier(context->comm));
    }
    return SBP_OK;
}

enum sbp_status comm_checks_collectives(const struct sbp_comm_ops *ops, struct sbp_comm *comm,
                                        void *argument, struct sbp_diag *diag)
{
    struct context *context = malloc(sizeof *context);
    if (context == NULL)
        return SBP_E_MEMORY;
    enum sbp_status status = start(context, argument, ops, comm, diag);
    if (status == SBP_OK)
        status = run_rounds(context);
    free(context);
    return status;
}

/* Messages ---------------------------------------------------------------------------------- */

enum { BURST = 12, TAGS = 4, MESSAGE_BYTES = 3000 };

struct note {
    int source, target, tag, bytes;
    uint64_t stream; /* of its content */
};

/* The messages that all ranks send in one burst, drawn by everybody alike: notes(size, BURST). */
static void draw_notes(struct sbp_random *random, int size, int burst, struct note *notes)
{
    for (int n = 0; n < size * BURST; n++)
        notes[n] = (struct note){.source = n / BURST,
                                 .target = below(random, size),
                                 .tag = below(random, TAGS),
                                 .bytes = below(random, 4) == 0 ? 0 : below(random, MESSAGE_BYTES),
                                 .stream = (uint64_t)burst * MAX_WORLD * BURST + (uint64_t)n};
}

static unsigned char note_byte(const struct context *context, const struct note *note, int i)
{
    return (unsigned char)(sbp_random_bits_at(context->checks->seed, note->stream, (uint64_t)i) &
                           255);
}

static enum sbp_status send_note(struct context *context, const struct note *note)
{
    unsigned char bytes[MESSAGE_BYTES];
    for (int i = 0; i < note->bytes; i++)
        bytes[i] = note_byte(context, note, i);
    const enum sbp_status status = context->ops->send(context->comm, note->target, note->tag,
                                                      note->bytes > 0 ? bytes : NULL, note->bytes);
    memset(bytes, 0, sizeof bytes); /* the backend has its own copy */
    return status;
}

/* Waits for every other message by asking for it, if the checks say so. */
static enum sbp_status wait_for_note(struct context *context, const struct note *note, void *bytes)
{
    const struct sbp_comm_ops *ops = context->ops;
    bool arrived = false;
    if (!context->checks->polled || note->stream % 2 == 0)
        return ops->receive(context->comm, note->source, note->tag, bytes, note->bytes);
    while (!arrived)
        SBP_TRY(
            ops->try_receive(context->comm, note->source, note->tag, bytes, note->bytes, &arrived));
    return SBP_OK;
}

static enum sbp_status receive_note(struct context *context, const struct note *note)
{
    unsigned char bytes[MESSAGE_BYTES];
    SBP_TRY(wait_for_note(context, note, note->bytes > 0 ? bytes : NULL));
    for (int i = 0; i < note->bytes; i++)
        if (bytes[i] != note_byte(context, note, i))
            return sbp_fail(context->diag, SBP_E_INTERNAL,
                            "seed %" PRIu64 ": message %d -> %d, tag %d: byte %d is %d, "
                            "expected %d",
                            context->checks->seed, note->source, note->target, note->tag, i,
                            bytes[i], note_byte(context, note, i));
    return SBP_OK;
}

/* Sends all, then receives by tag and source backwards: not in the order of sending, except among
 * messages of one source and tag. */
static enum sbp_status run_burst(struct context *context, const struct note *notes)
{
    for (int n = 0; n < BURST; n++)
        SBP_TRY(send_note(context, &notes[context->rank * BURST + n]));
    for (int tag = TAGS - 1; tag >= 0; tag--)
        for (int source = context->size - 1; source >= 0; source--)
            for (int n = source * BURST; n < (source + 1) * BURST; n++)
                if (notes[n].tag == tag && notes[n].target == context->rank)
                    SBP_TRY(receive_note(context, &notes[n]));
    return SBP_OK;
}

static enum sbp_status run_bursts(struct context *context, struct note *notes)
{
    struct sbp_random random;
    sbp_random_seed(&random, context->checks->seed + 1);
    for (int burst = 0; burst < context->checks->rounds; burst++) {
        draw_notes(&random, context->size, burst, notes);
        const enum sbp_status status = run_burst(context, notes);
        if (status != SBP_OK)
            return sbp_fail(context->diag, status, "burst %d: %s", burst,
                            context->ops->reason(context->comm));
    }
    return SBP_OK;
}

/* A message that was not sent yet does not arrive, and leaves the buffer alone. */
static enum sbp_status check_absence(struct context *context)
{
    const struct sbp_comm_ops *ops = context->ops;
    const int next = (context->rank + 1) % context->size;
    const int before = (context->rank + context->size - 1) % context->size;
    unsigned char byte = 7;
    bool arrived = true;
    SBP_TRY(ops->try_receive(context->comm, before, TAGS, &byte, 1, &arrived));
    if (arrived || byte != 7)
        return sbp_fail(context->diag, SBP_E_INTERNAL, "a message arrived before it was sent");
    SBP_TRY(ops->barrier(context->comm));
    byte = (unsigned char)context->rank;
    SBP_TRY(ops->send(context->comm, next, TAGS, &byte, 1));
    for (arrived = false; !arrived;)
        SBP_TRY(ops->try_receive(context->comm, before, TAGS, &byte, 1, &arrived));
    return byte == before ? SBP_OK
                          : sbp_fail(context->diag, SBP_E_INTERNAL, "a byte is not as sent");
}

/* All ranks send before any receives: what is too long to be kept by others on its way has not left
 * then, and leaves while it is asked for. */
static enum sbp_status pass_on(struct context *context, char *bytes, int64_t count)
{
    const struct sbp_comm_ops *ops = context->ops;
    const int next = (context->rank + 1) % context->size;
    const int before = (context->rank + context->size - 1) % context->size;
    bool left = true, arrived = false;
    memset(bytes, context->rank, (size_t)count);
    SBP_TRY(ops->send(context->comm, next, TAGS, bytes, count));
    SBP_TRY(ops->have_left(context->comm, &left));
    if (left)
        return sbp_fail(context->diag, SBP_E_INTERNAL, "a message left for nobody");
    SBP_TRY(ops->barrier(context->comm));
    while (!arrived)
        SBP_TRY(ops->try_receive(context->comm, before, TAGS, bytes, count, &arrived));
    while (!left)
        SBP_TRY(ops->have_left(context->comm, &left));
    return bytes[count - 1] == before ? SBP_OK
                                      : sbp_fail(context->diag, SBP_E_INTERNAL, "not as sent");
}

static enum sbp_status check_leaving(struct context *context)
{
    enum { LONG_BYTES = 8 << 20 };
    if (context->size < 2)
        return SBP_OK;
    char *bytes = malloc(LONG_BYTES);
    const enum sbp_status status =
        bytes == NULL ? SBP_E_MEMORY : pass_on(context, bytes, LONG_BYTES);
    free(bytes);
    return status;
}

enum sbp_status comm_checks_messages(const struct sbp_comm_ops *ops, struct sbp_comm *comm,
                                     void *argument, struct sbp_diag *diag)
{
    struct context *context = malloc(sizeof *context);
    struct note *notes = malloc((size_t)MAX_WORLD * BURST * sizeof *notes);
    enum sbp_status status = SBP_E_MEMORY;
    if (context != NULL && notes != NULL) {
        status = start(context, argument, ops, comm, diag);
        if (status == SBP_OK)
            status = run_bursts(context, notes);
        if (status == SBP_OK && context->checks->polled)
            status = check_absence(context);
        if (status == SBP_OK && context->checks->waits)
            status = check_leaving(context);
    }
    free(context);
    free(notes);
    return status;
}
