#include "executor/comm/thread_call_priv.h"

#include <string.h>

#include "executor/comm/comm_backend.h"

enum { FOLD_BYTES = 8192 };

bool sbp_thread_call_matches(const struct sbp_thread_call *a, const struct sbp_thread_call *b)
{
    return a->kind == b->kind && a->count == b->count && a->real == b->real &&
           a->reduction == b->reduction && a->root == b->root;
}

void sbp_thread_call_describe(struct sbp_text *text, int rank, const struct sbp_thread_call *call)
{
    sbp_text_add(text, "rank %d calls %s of %lld %s", rank, sbp_thread_call_name(call->kind),
                 (long long)call->count, sbp_real_name(call->real));
    if (call->kind == SBP_THREAD_ALL_REDUCE)
        sbp_text_add(text, " (%s)", call->reduction == SBP_SUM ? "sum" : "max");
    if (call->kind == SBP_THREAD_BROADCAST || call->kind == SBP_THREAD_REDUCE)
        sbp_text_add(text, " (root %d)", call->root);
}

/* A member's send buffer from an element on, as another member reads it. */
static const void *block_of(const struct sbp_thread_call *call, int64_t first_element)
{
    return sbp_comm_place_const(call->send, first_element, call->real);
}

static void copy(void *to, const void *from, int64_t count, enum sbp_real real)
{
    if (count > 0 && to != from)
        memcpy(to, from, (size_t)(count * sbp_comm_real_bytes(real)));
}

/* sum += x; max takes x when it is larger or not a number, so that a NaN survives. */
#define DEFINE_FOLD(name, type)                                                                    \
    static void name(type *restrict sum, const type *restrict x, int64_t count,                    \
                     enum sbp_comm_reduction reduction)                                            \
    {                                                                                              \
        if (reduction == SBP_SUM) {                                                                \
            for (int64_t i = 0; i < count; i++)                                                    \
                sum[i] += x[i];                                                                    \
        } else {                                                                                   \
            for (int64_t i = 0; i < count; i++)                                                    \
                sum[i] = x[i] > sum[i] || x[i] != x[i] ? x[i] : sum[i];                            \
        }                                                                                          \
    }
DEFINE_FOLD(fold_f32, float)
DEFINE_FOLD(fold_f64, double)

/* The same of elements of 16 bits: folded in single precision, and rounded once. */
static void fold_half(uint16_t *result, const struct sbp_thread_call *calls, int size,
                      int64_t first, int64_t count)
{
    const enum sbp_real real = calls[0].real;
    float folded[FOLD_BYTES / sizeof(uint16_t)], block[FOLD_BYTES / sizeof(uint16_t)];
    for (int m = 0; m < size; m++) {
        const uint16_t *from = block_of(&calls[m], first);
        for (int64_t i = 0; i < count; i++)
            (m == 0 ? folded : block)[i] = sbp_comm_load_half(from[i], real);
        if (m > 0)
            fold_f32(folded, block, count, calls[m].reduction);
    }
    for (int64_t i = 0; i < count; i++)
        result[i] = sbp_comm_store_half(folded[i], real);
}

/* result(count) = the members' elements from `first` on, folded in group order: the same bits
 * whoever folds, and for all-reduce and reduce-scatter alike. */
static void fold_members(void *result, const struct sbp_thread_call *calls, int size, int64_t first,
                         int64_t count)
{
    if (sbp_comm_real_bytes(calls[0].real) == 2) {
        fold_half(result, calls, size, first, count);
        return;
    }
    copy(result, block_of(&calls[0], first), count, calls[0].real);
    for (int m = 1; m < size; m++) {
        const void *block = block_of(&calls[m], first);
        if (calls[m].real == SBP_F32)
            fold_f32(result, block, count, calls[m].reduction);
        else
            fold_f64(result, block, count, calls[m].reduction);
    }
}

/* First element of slice `index` when count elements are cut into `size` slices. */
static int64_t slice_first(int64_t count, int size, int index)
{
    const int64_t rest = count % size;
    return count / size * index + (index < rest ? index : rest);
}

/* Each member folds its slice of all buffers and writes it into all: a slice is touched by one
 * member only, so no second buffer is needed. */
static void move_all_reduce(const struct sbp_thread_call *calls, int size, int index)
{
    const struct sbp_thread_call *const own = &calls[index];
    double folded[FOLD_BYTES / sizeof(double)];
    const int64_t step = FOLD_BYTES / sbp_comm_real_bytes(own->real);
    const int64_t end = slice_first(own->count, size, index + 1);
    for (int64_t first = slice_first(own->count, size, index); first < end; first += step) {
        const int64_t count = end - first < step ? end - first : step;
        fold_members(folded, calls, size, first, count);
        for (int m = 0; m < size; m++)
            copy(sbp_comm_place(calls[m].receive, first, own->real), folded, count, own->real);
    }
}

static void move_all_gather(const struct sbp_thread_call *calls, int size, int index)
{
    const struct sbp_thread_call *const own = &calls[index];
    for (int m = 0; m < size; m++)
        copy(sbp_comm_place(own->receive, own->count * m, own->real), block_of(&calls[m], 0),
             own->count, own->real);
}

static void move_reduce_scatter(const struct sbp_thread_call *calls, int size, int index)
{
    const struct sbp_thread_call *const own = &calls[index];
    double folded[FOLD_BYTES / sizeof(double)]; /* receive may be a block of what is sent */
    const int64_t step = FOLD_BYTES / sbp_comm_real_bytes(own->real);
    for (int64_t first = 0; first < own->count; first += step) {
        const int64_t count = own->count - first < step ? own->count - first : step;
        fold_members(folded, calls, size, own->count * index + first, count);
        copy(sbp_comm_place(own->receive, first, own->real), folded, count, own->real);
    }
}

/* The others' buffers are read alone. */
static void move_reduce(const struct sbp_thread_call *calls, int size, int index)
{
    const struct sbp_thread_call *const own = &calls[index];
    double folded[FOLD_BYTES / sizeof(double)];
    const int64_t step = FOLD_BYTES / sbp_comm_real_bytes(own->real);
    for (int64_t first = 0; first < own->count && index == own->root; first += step) {
        const int64_t count = own->count - first < step ? own->count - first : step;
        fold_members(folded, calls, size, first, count);
        copy(sbp_comm_place(own->receive, first, own->real), folded, count, own->real);
    }
}

static void move_all_to_all(const struct sbp_thread_call *calls, int size, int index)
{
    const struct sbp_thread_call *const own = &calls[index];
    for (int m = 0; m < size; m++)
        copy(sbp_comm_place(own->receive, own->count * m, own->real),
             block_of(&calls[m], own->count * index), own->count, own->real);
}

static void move_broadcast(const struct sbp_thread_call *calls, int size, int index)
{
    (void)size; /* others of the table need it */
    const struct sbp_thread_call *const own = &calls[index];
    if (index != own->root)
        copy(own->receive, block_of(&calls[own->root], 0), own->count, own->real);
}

static const struct {
    const char *name;
    void (*move)(const struct sbp_thread_call *calls, int size, int index); /* NULL: nothing to */
} kinds[] = {
    [SBP_THREAD_BARRIER] = {"barrier", NULL},
    [SBP_THREAD_ALL_REDUCE] = {"all-reduce", move_all_reduce},
    [SBP_THREAD_ALL_GATHER] = {"all-gather", move_all_gather},
    [SBP_THREAD_REDUCE_SCATTER] = {"reduce-scatter", move_reduce_scatter},
    [SBP_THREAD_REDUCE] = {"reduce", move_reduce},
    [SBP_THREAD_ALL_TO_ALL] = {"all-to-all", move_all_to_all},
    [SBP_THREAD_BROADCAST] = {"broadcast", move_broadcast},
};

const char *sbp_thread_call_name(enum sbp_thread_call_kind kind)
{
    return kinds[kind].name;
}

void sbp_thread_call_move(const struct sbp_thread_call *calls, int size, int index)
{
    if (kinds[calls[index].kind].move != NULL)
        kinds[calls[index].kind].move(calls, size, index);
}
