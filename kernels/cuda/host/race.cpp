/* Answers the calls that compilers put before memory accesses for ThreadSanitizer: finds accesses
 * that nothing orders, and those beyond shared memory.
 *
 * Of every word the last write and two reads are remembered (FastTrack, Flanagan and Freund, 2009,
 * keeps less than all for the same reason: a race that is hidden behind another is still found).
 * What is found is no matter of the order in which fibers ran. */
#include "kernels/cuda/cuda.h"
extern "C" {
#include "kernels/cuda/host/host.h"
}
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
    moment when;    /* launch 0: none; thread -1: no kernel's */
    const void *pc; /* or, of no kernel, what it is called */
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

bool (*is_behind)(uint64_t before); /* NULL: launches follow each other */

/* Whether `before` comes before `after` for certain. Blocks have shared memory of their own. */
bool is_ordered(const moment &before, const moment &after, bool is_shared)
{
    if (before.launch != after.launch)
        return is_shared || is_behind == NULL || is_behind(before.launch);
    if (before.block != after.block)
        return is_shared;
    return before.thread == after.thread || before.barriers != after.barriers ||
           (before.thread / 32 == after.thread / 32 && before.warp_barriers != after.warp_barriers);
}

void say_place(char *text, size_t size, const access &of)
{
    const int length = snprintf(text, size, of.when.thread >= 0 ? "at " : "in ");
    if (of.when.thread >= 0)
        describe(text + length, size - (size_t)length, of.pc);
    else
        snprintf(text + length, size - (size_t)length, "%s", (const char *)of.pc);
}

/* Streams are told apart by the upper half of a launch's number. */
void say_race(char *text, size_t size, const access &before, const access &after)
{
    char one[700], other[700];
    say_place(one, sizeof one, before);
    say_place(other, sizeof other, after);
    if (before.when.launch != after.when.launch)
        snprintf(text, size, "a missing wait: stream %d %s %s what stream %d %s %s",
                 (int)(after.when.launch >> 32), after.writes ? "writes" : "reads", other,
                 (int)(before.when.launch >> 32), before.writes ? "writes" : "reads", one);
    else
        snprintf(text, size, "a race: thread %d %s %s; thread %d%s %s %s", before.when.thread,
                 before.writes ? "writes" : "reads", one, after.when.thread,
                 before.when.block == after.when.block ? "" : " of another block",
                 after.writes ? "writes" : "reads", other);
}

bool are_ordered(const access &before, const access &after, bool is_shared)
{
    return before.when.launch == 0 || (before.bytes & after.bytes) == 0 ||
           is_ordered(before.when, after.when, is_shared);
}

/* Remembers an access, and finds one before it that nothing orders; launch 0: none. */
access remember(word &at_word, const access &now_done, bool is_shared)
{
    access found = {};
    if (!are_ordered(at_word.write, now_done, is_shared))
        found = at_word.write;
    if (now_done.writes) {
        for (const access &read : at_word.read)
            if (!are_ordered(read, now_done, is_shared))
                found = read;
        at_word.write = now_done;
        return found;
    }
    const access &first = at_word.read[0];
    const bool replaces =
        first.when.launch == 0 ||
        (first.when.launch == now_done.when.launch && first.when.thread == now_done.when.thread) ||
        is_ordered(first.when, now_done.when, is_shared);
    at_word.read[replaces ? 0 : 1] = now_done;
    return found;
}

/* The same of all words that bytes lie in. */
access remember_all(const void *address, size_t bytes, access done, bool is_shared)
{
    access found = {};
    const uintptr_t first = (uintptr_t)address, end = first + bytes;
    for (uintptr_t byte = first; byte < end && found.when.launch == 0;) {
        const uintptr_t index = byte / WORD_BYTES, next = (index + 1) * WORD_BYTES;
        const uintptr_t stop = next < end ? next : end;
        done.bytes = ((1U << (stop - byte)) - 1) << byte % WORD_BYTES;
        found = remember(word_of(index), done, is_shared);
        byte = stop;
    }
    return found;
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
    const access found = remember_all(address, bytes, done, kind == memory::shared);
    if (found.when.launch == 0)
        return;
    char text[1700];
    say_race(text, sizeof text, found, done);
    fault_here(text);
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

/* ---- what tests call ------------------------------------------------------------------------ */

void sbp_gpu_host_orders(bool (*is_behind)(uint64_t before))
{
    gpu_host::is_behind = is_behind;
}

const char *sbp_gpu_host_touch(uint64_t launch, const void *first, size_t bytes, bool writes,
                               const char *what)
{
    static char text[1700];
    gpu_host::access done = {};
    done.when.launch = launch;
    done.when.thread = -1;
    done.pc = what;
    done.writes = writes;
    const gpu_host::access found = gpu_host::remember_all(first, bytes, done, false);
    if (found.when.launch == 0)
        return NULL;
    gpu_host::say_race(text, sizeof text, found, done);
    return text;
}

void sbp_gpu_host_forget(const void *first, size_t bytes)
{
    using namespace gpu_host;
    const uintptr_t from = (uintptr_t)first / WORD_BYTES, end = from + bytes / WORD_BYTES + 1;
    for (uintptr_t index = from; index < end; index += PAGE_WORDS - index % PAGE_WORDS) {
        const auto found = pages.find(index / PAGE_WORDS);
        const uintptr_t stop = (index / PAGE_WORDS + 1) * PAGE_WORDS;
        for (uintptr_t w = index; found != pages.end() && w < stop && w < end; w++)
            found->second->words[w % PAGE_WORDS] = word();
    }
}

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
