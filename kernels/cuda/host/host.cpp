#include "kernels/cuda/cuda.h"
#include "kernels/cuda/host/host_priv.hpp"

#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include <sys/mman.h>

extern "C" {
#include "base/math/random.h"
}

#if defined(__SANITIZE_ADDRESS__)
#define HAS_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define HAS_ASAN 1
#endif
#endif
#ifdef HAS_ASAN
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

#if !defined(__x86_64__)
#include <ucontext.h>
#endif

namespace gpu_host {
indices at;

namespace {
const int WARP = 32, MOST_THREADS = 1024, VALUE_BYTES = 64;
const size_t STACK_BYTES = 256 << 10, GUARD_BYTES = 4096;
const size_t ARENA_BYTES = 512 << 10, GAP_BYTES = 64;

/* ---- switching ------------------------------------------------------------------------------ */

#if defined(__x86_64__)
typedef void *context;

/* Keeps the registers that a call keeps on the stack, and goes on with another one's (System V). */
extern "C" void sbp_gpu_host_switch(context *from, context to);
asm(".text\n.globl sbp_gpu_host_switch\n.type sbp_gpu_host_switch, @function\n"
    "sbp_gpu_host_switch:\n"
    "push %rbp\npush %rbx\npush %r12\npush %r13\npush %r14\npush %r15\n"
    "mov %rsp, (%rdi)\nmov %rsi, %rsp\n"
    "pop %r15\npop %r14\npop %r13\npop %r12\npop %rbx\npop %rbp\nret\n"
    ".size sbp_gpu_host_switch, .-sbp_gpu_host_switch\n");

void make_context(context *made, unsigned char *stack, void (*enter)())
{
    void **top = (void **)(stack + STACK_BYTES);
    *--top = NULL; /* where enter would return to: its stack is aligned as after a call */
    *--top = (void *)enter;
    for (int i = 0; i < 6; i++)
        *--top = NULL;
    *made = top;
}

void switch_context(context *from, context *to)
{
    sbp_gpu_host_switch(from, *to);
}
#else
typedef ucontext_t context;

void make_context(context *made, unsigned char *stack, void (*enter)())
{
    getcontext(made);
    made->uc_stack.ss_sp = stack;
    made->uc_stack.ss_size = STACK_BYTES;
    made->uc_link = NULL;
    makecontext(made, enter, 0);
}

void switch_context(context *from, context *to)
{
    swapcontext(from, to);
}
#endif

/* ---- the state of a launch ------------------------------------------------------------------ */

enum state { READY, AT_WARP, AT_BLOCK, DONE };

struct fiber {
    context registers;
    dim3 index;
    state at;
    place where;
    bool orders, said;
    uint32_t barriers, warp_barriers;
    int meetings;
    unsigned char value[2][VALUE_BYTES]; /* of this meeting and of the one before, or after */
    void *fake_stack;                    /* of AddressSanitizer */
};

/* Shared memory of a place in the source. */
struct piece {
    const char *file;
    int line;
    size_t bytes;
    unsigned char *at;
};

struct machine {
    std::vector<fiber> fibers;
    unsigned char *stacks, *arena;
    std::vector<bool> legal; /* bytes of the arena that are somebody's */
    size_t arena_used, shared_bytes;
    std::vector<piece> pieces;
    context scheduler;
    const void *scheduler_stack;
    size_t scheduler_stack_bytes;
    void *scheduler_fake_stack;
    int current, said, threads;
    bool is_seeded, has_failed, catches;
    void (*body)(void *);
    void *argument;
    size_t argument_bytes;
    const void *reach; /* NULL: anywhere */
    size_t reach_bytes;
    char fault[2048];
    uint64_t launches, blocks;
    struct sbp_random random;
    uint64_t seed; /* that it began with */
    struct sbp_gpu_host_counts counts;
};
machine m;
thread_local bool is_running; /* a fiber does, of this thread */
sbp_gpu_host_enqueue streams;

/* ---- fibers --------------------------------------------------------------------------------- */

unsigned char *stack_of(int thread)
{
    return m.stacks + (size_t)thread * (STACK_BYTES + GUARD_BYTES) + GUARD_BYTES;
}

void make_stacks()
{
    const size_t bytes = (size_t)MOST_THREADS * (STACK_BYTES + GUARD_BYTES);
    void *made = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    m.arena = (unsigned char *)aligned_alloc(256, ARENA_BYTES);
    if (made == MAP_FAILED || m.arena == NULL) {
        fputs("no memory for the threads of a kernel\n", stderr);
        abort();
    }
    m.stacks = (unsigned char *)made;
    for (int i = 0; i < MOST_THREADS; i++)
        mprotect(stack_of(i) - GUARD_BYTES, GUARD_BYTES, PROT_NONE);
    m.legal.assign(ARENA_BYTES, false);
}

void before_switch(void **fake_stack, const void *stack, size_t bytes)
{
#ifdef HAS_ASAN
    __sanitizer_start_switch_fiber(fake_stack, stack, bytes);
#else
    (void)fake_stack, (void)stack, (void)bytes;
#endif
}

void after_switch(void *fake_stack, const void **from, size_t *bytes)
{
#ifdef HAS_ASAN
    __sanitizer_finish_switch_fiber(fake_stack, from, bytes);
#else
    (void)fake_stack, (void)from, (void)bytes;
#endif
}

void to_scheduler(state at, place where)
{
    fiber &me = m.fibers[(size_t)m.current];
    me.at = at;
    me.where = where;
    m.counts.switches++;
    before_switch(at == DONE ? NULL : &me.fake_stack, m.scheduler_stack, m.scheduler_stack_bytes);
    switch_context(&me.registers, &m.scheduler);
    after_switch(me.fake_stack, NULL, NULL);
}

void enter()
{
    after_switch(NULL, &m.scheduler_stack, &m.scheduler_stack_bytes);
    m.body(m.argument);
    to_scheduler(DONE, place{"the end", "", 0});
    abort();
}

void to_fiber(int thread)
{
    fiber &next = m.fibers[(size_t)thread];
    m.current = thread;
    at.thread = next.index;
    is_running = true;
    before_switch(&m.scheduler_fake_stack, stack_of(thread), STACK_BYTES);
    switch_context(&m.scheduler, &next.registers);
    after_switch(m.scheduler_fake_stack, NULL, NULL);
    is_running = false;
}

/* ---- faults --------------------------------------------------------------------------------- */

void fail(const char *text)
{
    if (!m.catches) {
        fprintf(stderr, "kernel fault: %s (orders drawn from seed %" PRIu64 ")\n", text, m.seed);
        abort();
    }
    if (!m.has_failed)
        snprintf(m.fault, sizeof m.fault, "%s", text);
    m.has_failed = true;
}

const char *state_name(const fiber &of)
{
    return of.at == DONE ? "has ended" : of.at == READY ? "runs" : "waits";
}

void describe_fiber(char *text, size_t size, int thread)
{
    const fiber &of = m.fibers[(size_t)thread];
    if (of.at == DONE)
        snprintf(text, size, "thread %d has ended", thread);
    else
        snprintf(text, size, "thread %d %s in %s at %s:%d", thread, state_name(of), of.where.what,
                 of.where.file, of.where.line);
}

void fail_meeting(const char *what, int one, int other)
{
    char first[512], second[512], text[1200];
    describe_fiber(first, sizeof first, one);
    describe_fiber(second, sizeof second, other);
    snprintf(text, sizeof text, "block (%u,%u,%u): %s: %s; %s", at.block.x, at.block.y, at.block.z,
             what, first, second);
    fail(text);
}

/* ---- the scheduler -------------------------------------------------------------------------- */

bool is_same(const place &a, const place &b)
{
    return a.line == b.line && strcmp(a.file, b.file) == 0 && strcmp(a.what, b.what) == 0;
}

/* Lets threads first .. first + count - 1 go on when all of them have come. */
bool release(int first, int count, state at_meeting)
{
    for (int i = first; i < first + count; i++)
        if (m.fibers[(size_t)i].at != at_meeting)
            return false;
    const fiber &leader = m.fibers[(size_t)first];
    for (int i = first + 1; i < first + count; i++)
        if (!is_same(m.fibers[(size_t)i].where, leader.where)) {
            fail_meeting("threads meet at different places", first, i);
            return false;
        }
    m.said = 0;
    for (int i = first; i < first + count; i++) {
        fiber &of = m.fibers[(size_t)i];
        of.at = READY;
        of.warp_barriers += of.orders;
        of.barriers += at_meeting == AT_BLOCK;
        m.said += of.said;
    }
    return true;
}

int draw(int below)
{
    return (int)sbp_random_below(&m.random, (uint64_t)below);
}

std::vector<int64_t> draw_order(int64_t count)
{
    std::vector<int64_t> order((size_t)count);
    for (int64_t i = 0; i < count; i++) {
        const size_t to = (size_t)sbp_random_below(&m.random, (uint64_t)i + 1);
        order[(size_t)i] = order[to];
        order[to] = i;
    }
    return order;
}

/* Runs a warp until its lanes wait for the block, or have ended. */
void run_warp(int warp)
{
    const int first = warp * WARP;
    do {
        const int turn = draw(WARP);
        for (int i = 0; i < WARP && !m.has_failed; i++) {
            const int thread = first + (i ^ turn);
            if (m.fibers[(size_t)thread].at == READY)
                to_fiber(thread);
        }
    } while (!m.has_failed && release(first, WARP, AT_WARP));
}

/* Names a thread that waits and one that does something else, of its warp if there is one. */
void fail_stuck(int threads)
{
    int one = 0, other = -1;
    for (int i = 0; i < threads; i++)
        if (m.fibers[(size_t)i].at != DONE)
            one = i;
    for (int i = 0; i < threads; i++)
        if (m.fibers[(size_t)i].at != m.fibers[(size_t)one].at &&
            (other < 0 || i / WARP == one / WARP))
            other = i;
    fail_meeting("not all threads come to a meeting", one, other);
}

/* No byte of the arena is anybody's, and all that were are not-a-number. */
void clear_arena()
{
#ifdef HAS_ASAN
    ASAN_UNPOISON_MEMORY_REGION(m.arena, ARENA_BYTES);
#endif
    memset(m.arena, 0xff, m.arena_used);
    for (size_t i = 0; i < m.arena_used; i++)
        m.legal[i] = false;
#ifdef HAS_ASAN
    ASAN_POISON_MEMORY_REGION(m.arena, ARENA_BYTES);
#endif
    m.arena_used = 0;
    m.pieces.clear();
}

unsigned char *add_piece(size_t bytes, const char *file, int line)
{
    unsigned char *const at_piece = m.arena + m.arena_used;
    if (m.arena_used + bytes + GAP_BYTES > ARENA_BYTES) {
        fputs("a kernel asks for more shared memory than there is\n", stderr);
        abort();
    }
    for (size_t i = 0; i < bytes; i++)
        m.legal[m.arena_used + i] = true;
#ifdef HAS_ASAN
    ASAN_UNPOISON_MEMORY_REGION(at_piece, bytes);
#endif
    memset(at_piece, 0xff, bytes); /* not a number */
    m.arena_used += (bytes + GAP_BYTES + 255) / 256 * 256;
    m.pieces.push_back(piece{file, line, bytes, at_piece});
    return at_piece;
}

void begin_block(int threads)
{
    clear_arena();
    add_piece(m.shared_bytes, "", 0);
    m.blocks++;
    for (int i = 0; i < threads; i++) {
        fiber &of = m.fibers[(size_t)i];
        const unsigned thread = (unsigned)i;
        of = fiber();
        of.index = dim3(thread % at.block_size.x, thread / at.block_size.x % at.block_size.y,
                        thread / at.block_size.x / at.block_size.y);
#ifdef HAS_ASAN
        ASAN_UNPOISON_MEMORY_REGION(stack_of(i), STACK_BYTES);
#endif
        make_context(&of.registers, stack_of(i), enter);
    }
}

void run_block(int threads)
{
    begin_block(threads);
    for (;;) {
        const std::vector<int64_t> order = draw_order(threads / WARP);
        int done = 0;
        for (size_t w = 0; w < order.size() && !m.has_failed; w++)
            run_warp((int)order[w]);
        for (int i = 0; i < threads; i++)
            done += m.fibers[(size_t)i].at == DONE;
        if (m.has_failed || done == threads)
            return;
        if (!release(0, threads, AT_BLOCK)) {
            if (!m.has_failed)
                fail_stuck(threads);
            return;
        }
        m.counts.barriers++;
    }
}
} // namespace

void launch(dim3 grid, dim3 block, size_t shared_bytes, void (*body)(void *), void *argument,
            size_t argument_bytes)
{
    const int threads = (int)(block.x * block.y * block.z);
    if (grid.x == 0 || grid.y == 0 || grid.z == 0) {
        fail("a launch of no blocks");
        return;
    }
    if (threads <= 0 || threads > MOST_THREADS || threads % WARP != 0) {
        fail("a launch of blocks that are not whole warps, at most 1024 threads");
        return;
    }
    if (m.stacks == NULL)
        make_stacks();
    if (!m.is_seeded)
        sbp_gpu_host_seed(1);
    m.fibers.resize((size_t)threads);
    m.threads = threads;
    m.body = body;
    m.argument = argument;
    m.argument_bytes = argument_bytes;
    m.shared_bytes = shared_bytes;
    m.launches++;
    at.block_size = block;
    at.grid_size = grid;
    const std::vector<int64_t> order = draw_order((int64_t)grid.x * grid.y * grid.z);
    for (size_t i = 0; i < order.size() && !m.has_failed; i++) {
        at.block = dim3((unsigned)(order[i] % grid.x), (unsigned)(order[i] / grid.x % grid.y),
                        (unsigned)(order[i] / grid.x / grid.y));
        run_block(threads);
    }
    m.counts.launches++;
    m.counts.threads += (int64_t)order.size() * threads;
}

int hand_over(void *stream, void (*work)(void *argument), void *argument)
{
    if (streams != NULL)
        return streams(stream, work, argument);
    work(argument);
    return 0;
}

/* ---- what kernels call ---------------------------------------------------------------------- */

static bool is_within(const unsigned char *byte, const void *first, size_t bytes)
{
    return (uintptr_t)byte - (uintptr_t)first < bytes;
}

void barrier(place where)
{
    barrier_count(false, where);
}

int barrier_count(bool said, place where)
{
    m.fibers[(size_t)m.current].said = said;
    to_scheduler(AT_BLOCK, where);
    return m.said;
}

void meet(const void *mine, size_t bytes, place where, bool orders)
{
    fiber &me = m.fibers[(size_t)m.current];
    if (bytes > VALUE_BYTES)
        abort();
    me.meetings++;
    me.orders = orders;
    if (bytes > 0)
        memcpy(me.value[me.meetings % 2], mine, bytes);
    to_scheduler(AT_WARP, where);
}

/* A lane that goes on to its next meeting shows that value in the other place. */
const void *of_lane(int lane)
{
    const fiber &me = m.fibers[(size_t)m.current];
    return m.fibers[(size_t)(m.current / WARP * WARP + lane)].value[me.meetings % 2];
}

int lane()
{
    return m.current % WARP;
}

void require_all_lanes(unsigned mask, place where)
{
    char text[512];
    if (mask == 0xffffffffU)
        return;
    snprintf(text, sizeof text, "%s at %s:%d names the lanes %#x, legal are all", where.what,
             where.file, where.line, mask);
    fault_here(text);
}

void note_chunk(const void *at_chunk, size_t bytes, size_t alignment)
{
    const size_t wide_bytes = 16;
    if ((uintptr_t)at_chunk % alignment != 0) {
        char where[700], text[900];
        describe(where, sizeof where, __builtin_return_address(0));
        snprintf(text, sizeof text, "thread %d takes %zu bytes that are not aligned at %s",
                 m.current, bytes, where);
        fault_here(text);
    }
    if (!is_within((const unsigned char *)at_chunk, m.arena, ARENA_BYTES))
        m.counts.wide += (int64_t)(bytes / wide_bytes);
}

void *shared(size_t bytes, const char *file, int line)
{
    for (const piece &of : m.pieces)
        if (of.file == file && of.line == line && of.bytes == bytes)
            return of.at;
    return add_piece(bytes, file, line);
}

void *dynamic_shared()
{
    return m.arena;
}

/* ---- what race.cpp asks --------------------------------------------------------------------- */

bool now(moment *moment)
{
    if (!is_running)
        return false;
    const fiber &me = m.fibers[(size_t)m.current];
    *moment = {m.launches, m.blocks, me.barriers, me.warp_barriers, m.current};
    return true;
}

memory memory_of(const void *address, size_t bytes)
{
    const unsigned char *const byte = (const unsigned char *)address;
    if (byte >= (unsigned char *)m.fibers.data() &&
        byte < (unsigned char *)(m.fibers.data() + m.fibers.size()))
        return memory::own; /* what lanes show each other, in order */
    if (is_within(byte, m.argument, m.argument_bytes) || is_within(byte, &at, sizeof at))
        return memory::own;
    if (byte >= m.stacks && byte < stack_of(MOST_THREADS - 1) + STACK_BYTES)
        return memory::own;
    if (byte < m.arena || byte >= m.arena + ARENA_BYTES)
        return m.reach == NULL || (is_within(byte, m.reach, m.reach_bytes) &&
                                   is_within(byte + bytes - 1, m.reach, m.reach_bytes))
                   ? memory::global
                   : memory::elsewhere;
    const size_t first = (size_t)(byte - m.arena);
    for (size_t i = first; i < first + bytes; i++)
        if (i >= ARENA_BYTES || !m.legal[i])
            return memory::beyond_shared;
    return memory::shared;
}

void fault_here(const char *text)
{
    is_running = false;
    fail(text);
    to_scheduler(DONE, place{"a fault", "", 0});
    abort();
}
} // namespace gpu_host

/* ---- what tests call ------------------------------------------------------------------------ */

void sbp_gpu_host_seed(uint64_t seed)
{
    sbp_random_seed(&gpu_host::m.random, seed);
    gpu_host::m.is_seeded = true;
    gpu_host::m.seed = seed;
}

void sbp_gpu_host_reach(const void *first, size_t bytes)
{
    gpu_host::m.reach = first;
    gpu_host::m.reach_bytes = bytes;
}

void sbp_gpu_host_number(uint64_t launch)
{
    gpu_host::m.launches = launch - 1;
}

void sbp_gpu_host_streams(sbp_gpu_host_enqueue enqueue)
{
    gpu_host::streams = enqueue;
}

const char *sbp_gpu_host_try(void (*body)(void *argument), void *argument)
{
    gpu_host::machine &m = gpu_host::m;
    m.catches = true;
    m.has_failed = false;
    body(argument);
    const bool has_failed = m.has_failed;
    m.catches = m.has_failed = false;
    return has_failed ? m.fault : NULL;
}

struct sbp_gpu_host_counts sbp_gpu_host_counts(void)
{
    return gpu_host::m.counts;
}
