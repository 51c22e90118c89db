/* Answers the calls that compilers put before memory accesses for ThreadSanitizer: finds accesses
 * that nothing orders, and those beyond shared memory.
 *
 * Of every word the last write and two reads are remembered (FastTrack, Flanagan and Freund, 2009,
 * keeps less than all for the same reason: a race that is hidden behind another is still found).
 * What is found is no matter of the order in which fibers ran. */
#include "kernels/cuda/cuda.h"
#include "kernels/cuda/host/host_priv.hpp"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <unordered_map>

#include <link.h>
#include <unistd.h>

namespace gpu_host {
namespace {
struct access {
    moment when; /* launch 0: none */
    const void *pc;
    unsigned bytes; /* of the word, a bit each */
    bool writes;
};

struct word {
    access write, read[2];
};

const uintptr_t WORD_BYTES = 4, PAGE_WORDS = 256, NEAR = 64;

/* Words are found by their addresses; pages that were used of late in a table beside. */
struct page {
    word words[PAGE_WORDS];
};
std::unordered_map<uintptr_t, std::unique_ptr<page>> pages;
struct near_page {
    uintptr_t number;
    page *at;
};
near_page near[NEAR];

word &word_of(uintptr_t index)
{
    const uintptr_t number = index / PAGE_WORDS;
    near_page &entry = near[number % NEAR];
    if (entry.at == NULL || entry.number != number) {
        std::unique_ptr<page> &at_page = pages[number];
        if (at_page == nullptr)
            at_page.reset(new page());
        entry = {number, at_page.get()};
    }
    return entry.at->words[index % PAGE_WORDS];
}

/* Whether `before` comes before `after` for certain. Blocks have shared memory of their own. */
bool is_ordered(const moment &before, const moment &after, bool is_shared)
{
    if (before.launch != after.launch)
        return true;
    if (before.block != after.block)
        return is_shared;
    return before.thread == after.thread || before.barriers != after.barriers ||
           (before.thread / 32 == after.thread / 32 && before.warp_barriers != after.warp_barriers);
}

void fail_race(const access &before, const access &after)
{
    char one[700], other[700], text[1700];
    describe(one, sizeof one, before.pc);
    describe(other, sizeof other, after.pc);
    snprintf(text, sizeof text, "a race: thread %d %s at %s; thread %d%s %s at %s",
             before.when.thread, before.writes ? "writes" : "reads", one, after.when.thread,
             before.when.block == after.when.block ? "" : " of another block",
             after.writes ? "writes" : "reads", other);
    fault_here(text);
}

void expect_ordered(const access &before, const access &after, bool is_shared)
{
    if (before.when.launch != 0 && (before.bytes & after.bytes) != 0 &&
        !is_ordered(before.when, after.when, is_shared))
        fail_race(before, after);
}

void remember(word &at_word, const access &now_done, bool is_shared)
{
    expect_ordered(at_word.write, now_done, is_shared);
    if (now_done.writes) {
        expect_ordered(at_word.read[0], now_done, is_shared);
        expect_ordered(at_word.read[1], now_done, is_shared);
        at_word.write = now_done;
        return;
    }
    const access &first = at_word.read[0];
    const bool replaces = first.when.launch == 0 || first.when.thread == now_done.when.thread ||
                          is_ordered(first.when, now_done.when, is_shared);
    at_word.read[replaces ? 0 : 1] = now_done;
}

void note(const void *address, size_t bytes, bool writes, const void *pc)
{
    access done = {};
    if (!now(&done.when)) /* first: else another thread's kernel may run */
        return;
    const memory kind = memory_of(address, bytes);
    if (kind == memory::own)
        return;
    if (kind == memory::beyond_shared || kind == memory::elsewhere) {
        char where[700], text[900];
        describe(where, sizeof where, pc);
        snprintf(text, sizeof text, "thread %d goes beyond %s memory at %s", done.when.thread,
                 kind == memory::elsewhere ? "the device's" : "shared", where);
        fault_here(text);
    }
    done.pc = pc;
    done.writes = writes;
    const uintptr_t first = (uintptr_t)address, end = first + bytes;
    for (uintptr_t byte = first; byte < end;) {
        const uintptr_t index = byte / WORD_BYTES, next = (index + 1) * WORD_BYTES;
        const uintptr_t stop = next < end ? next : end;
        done.bytes = ((1U << (stop - byte)) - 1) << byte % WORD_BYTES;
        remember(word_of(index), done, kind == memory::shared);
        byte = stop;
    }
}

int find_base(struct dl_phdr_info *info, size_t, void *base)
{
    *(uintptr_t *)base = info->dlpi_addr; /* the program itself comes first */
    return 1;
}
} // namespace

/* By the tool that comes with the compiler's assembler. */
void describe(char *text, size_t size, const void *return_address)
{
    char command[160], program[512] = "";
    uintptr_t base = 0;
    dl_iterate_phdr(find_base, &base);
    const uintptr_t offset = (uintptr_t)return_address - 1 - base;
    const ssize_t length = readlink("/proc/self/exe", program, sizeof program - 1);
    snprintf(text, size, "+%#zx", (size_t)offset);
    snprintf(command, sizeof command, "addr2line -i -e \"$SBP_GPU_HOST_PROGRAM\" %#zx",
             (size_t)offset);
    if (length <= 0 || setenv("SBP_GPU_HOST_PROGRAM", program, 1) != 0)
        return;
    FILE *lines = popen(command, "r");
    if (lines == NULL)
        return;
    size_t used = 0;
    char line[300];
    while (fgets(line, sizeof line, lines) != NULL && used + strlen(line) + 16 < size) {
        line[strcspn(line, "\n (")] = 0;
        used +=
            (size_t)snprintf(text + used, size - used, "%s%s", used > 0 ? ", within " : "", line);
    }
    pclose(lines);
}
} // namespace gpu_host

/* ---- calls of the compilers ----------------------------------------------------------------- */

#define ANSWER(name, bytes, writes)                                                                \
    extern "C" void name(void *address);                                                           \
    void name(void *address)                                                                       \
    {                                                                                              \
        gpu_host::note(address, bytes, writes, __builtin_return_address(0));                       \
    }
#define ANSWER_BOTH(bytes)                                                                         \
    ANSWER(__tsan_read##bytes, bytes, false)                                                       \
    ANSWER(__tsan_write##bytes, bytes, true)
#define ANSWER_UNALIGNED(bytes)                                                                    \
    ANSWER(__tsan_unaligned_read##bytes, bytes, false)                                             \
    ANSWER(__tsan_unaligned_write##bytes, bytes, true)
ANSWER_BOTH(1)
ANSWER_BOTH(2)
ANSWER_BOTH(4)
ANSWER_BOTH(8)
ANSWER_BOTH(16)
ANSWER_UNALIGNED(2)
ANSWER_UNALIGNED(4)
ANSWER_UNALIGNED(8)
ANSWER_UNALIGNED(16)

extern "C" {
void *__tsan_memcpy(void *to, const void *from, size_t bytes);
void *__tsan_memmove(void *to, const void *from, size_t bytes);
void *__tsan_memset(void *to, int value, size_t bytes);
void __tsan_read_range(void *address, size_t bytes);
void __tsan_write_range(void *address, size_t bytes);
void __tsan_init(void);
void __tsan_func_entry(void *caller);
void __tsan_func_exit(void);
void __tsan_vptr_update(void **at, void *value);
void __tsan_vptr_read(void **at);
}

void __tsan_read_range(void *address, size_t bytes)
{
    gpu_host::note(address, bytes, false, __builtin_return_address(0));
}

void __tsan_write_range(void *address, size_t bytes)
{
    gpu_host::note(address, bytes, true, __builtin_return_address(0));
}

/* Newer clangs copy and fill structs through these. */
void *__tsan_memcpy(void *to, const void *from, size_t bytes)
{
    gpu_host::note(from, bytes, false, __builtin_return_address(0));
    gpu_host::note(to, bytes, true, __builtin_return_address(0));
    return memcpy(to, from, bytes);
}

void *__tsan_memmove(void *to, const void *from, size_t bytes)
{
    gpu_host::note(from, bytes, false, __builtin_return_address(0));
    gpu_host::note(to, bytes, true, __builtin_return_address(0));
    return memmove(to, from, bytes);
}

void *__tsan_memset(void *to, int value, size_t bytes)
{
    gpu_host::note(to, bytes, true, __builtin_return_address(0));
    return memset(to, value, bytes);
}

void __tsan_init(void)
{
}
void __tsan_func_entry(void *)
{
}
void __tsan_func_exit(void)
{
}
void __tsan_vptr_update(void **, void *)
{
}
void __tsan_vptr_read(void **)
{
}
