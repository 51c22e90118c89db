#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/machine.h"
#include "tests/support/unit.h"

static void write_in(const char *folder, const char *name, const char *text)
{
    char path[128];
    (void)snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *out = fopen(path, "w");
    assert_non_null(out);
    assert_true(fputs(text, out) >= 0);
    assert_int_equal(fclose(out), 0);
}

static void test_limits(void **state)
{
    (void)state;
    char folder[] = "/tmp/sbplan-machine-XXXXXX";
    struct sbp_machine whole, limited;
    assert_non_null(mkdtemp(folder));
    sbp_machine_find(folder, &whole);
    assert_int_equal(whole.cores, sysconf(_SC_NPROCESSORS_ONLN));
    assert_int_equal(whole.memory_bytes, (int64_t)sysconf(_SC_PHYS_PAGES) * sysconf(_SC_PAGESIZE));

    static const struct {
        const char *cpu, *memory;
        int cores;            /* 0: all */
        int64_t memory_bytes; /* 0: all */
    } cases[] = {
        {"max 100000\n", "max\n", 0, 0},
        {"50000 100000\n", "65536\n", 1, 65536},
        {"100001 100000\n", "9223372036854775807\n", 2, 0},
        {"100000000000 100000\n", "0\n", 0, 0},
        {"", "", 0, 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        write_in(folder, "cpu.max", cases[i].cpu);
        write_in(folder, "memory.max", cases[i].memory);
        sbp_machine_find(folder, &limited);
        const int most = cases[i].cores == 0 ? whole.cores : cases[i].cores;
        assert_int_equal(limited.cores, most < whole.cores ? most : whole.cores);
        assert_int_equal(limited.memory_bytes,
                         cases[i].memory_bytes == 0 ? whole.memory_bytes : cases[i].memory_bytes);
    }
    char path[64];
    (void)snprintf(path, sizeof path, "%s/cpu.max", folder);
    assert_int_equal(unlink(path), 0);
    (void)snprintf(path, sizeof path, "%s/memory.max", folder);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(rmdir(folder), 0);
}

static int64_t free_of(const char *root)
{
    char processes[80], groups[80];
    (void)snprintf(processes, sizeof processes, "%s/proc", root);
    (void)snprintf(groups, sizeof groups, "%s/groups", root);
    return sbp_machine_free_bytes(processes, groups);
}

/* What is available, and what limits of either version of control groups leave, on all levels. */
static void test_free_memory(void **state)
{
    (void)state;
    static const char *const folders[] = {"proc",           "proc/self",  "groups",
                                          "groups/a",       "groups/a/b", "groups/memory",
                                          "groups/memory/c"};
    static const struct {
        const char *name, *text;
        int64_t free_bytes; /* with this file and those before it */
    } files[] = {
        {"proc/meminfo", "MemTotal: 9000 kB\nMemFree: 10 kB\nMemAvailable:    5000 kB\n", 5120000},
        {"proc/self/cgroup", "5:devices:/x\n4:memory:/c\n0::/a/b\n", 5120000},
        {"groups/a/b/memory.max", "max\n", 5120000},
        {"groups/a/b/memory.current", "2000000\n", 5120000},
        {"groups/a/memory.max", "6000000\n", 5120000},
        {"groups/a/memory.current", "2000000\n", 4000000},
        {"groups/a/memory.stat", "anon 1\ninactive_file 1000\n", 4001000},
        {"groups/memory/c/memory.limit_in_bytes", "3000000\n", 4001000},
        {"groups/memory/c/memory.usage_in_bytes", "500000\n", 2500000},
        {"groups/memory/c/memory.stat", "inactive_file 7\ntotal_inactive_file 200000\n", 2700000},
        {"groups/memory/memory.limit_in_bytes", "9223372036854771712\n", 2700000},
        {"groups/memory/memory.usage_in_bytes", "8000000\n", 2700000},
        {"groups/memory.max", "1000000\n", 2700000},
        {"groups/memory.current", "300000\n", 700000},
        {"groups/a/b/memory.max", "1999999\n", 0}, /* the kernel is slow to count */
    };
    char root[] = "/tmp/sbplan-machine-XXXXXX", path[128];
    assert_non_null(mkdtemp(root));
    assert_int_equal(free_of(root), -1);
    for (size_t i = 0; i < sizeof folders / sizeof *folders; i++) {
        (void)snprintf(path, sizeof path, "%s/%s", root, folders[i]);
        assert_int_equal(mkdir(path, 0700), 0);
    }
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        write_in(root, files[i].name, files[i].text);
        if (free_of(root) != files[i].free_bytes)
            fail_msg("with %s: %lld, not %lld", files[i].name, (long long)free_of(root),
                     (long long)files[i].free_bytes);
    }
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        (void)snprintf(path, sizeof path, "%s/%s", root, files[i].name);
        (void)unlink(path); /* one stands twice */
    }
    for (size_t i = sizeof folders / sizeof *folders; i-- > 0;) {
        (void)snprintf(path, sizeof path, "%s/%s", root, folders[i]);
        assert_int_equal(rmdir(path), 0);
    }
    assert_int_equal(rmdir(root), 0);
    const int64_t here = sbp_machine_free_bytes(SBP_PROCESSES, SBP_CONTROL_GROUP);
    assert_true(here > 0 && here <= (int64_t)sysconf(_SC_PHYS_PAGES) * sysconf(_SC_PAGESIZE));
}

/* Address space, beside what the process has by now. */
static void test_space(void **state)
{
    (void)state;
    struct sbp_diag diag = {0};
    struct rlimit before;
    void *space;
    const int64_t much = (int64_t)1 << 40;
    assert_int_equal(getrlimit(RLIMIT_AS, &before), 0);
    if (before.rlim_cur != RLIM_INFINITY)
        skip();
    assert_true(sbp_machine_space_limit() == INT64_MAX);
    assert_int_equal(sbp_machine_reserve(much, "4 ranks", &space, &diag), SBP_OK);
    assert_non_null(space);
    sbp_machine_release(space, much);
    const struct rlimit tight = {.rlim_cur = (rlim_t)much, .rlim_max = before.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_AS, &tight), 0);
    assert_true(sbp_machine_space_limit() == much);
    const enum sbp_status status = sbp_machine_reserve(much, "4 ranks", &space, &diag);
    assert_int_equal(setrlimit(RLIMIT_AS, &before), 0);
    assert_int_equal(status, SBP_E_MEMORY);
    assert_null(space);
    assert_string_equal(diag.text,
                        "4 ranks: need 1.00 TiB of address space on top of the program's "
                        "own, the limit is 1.00 TiB for all (ulimit -v)");
    sbp_machine_release(space, much);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_limits),
                                       cmocka_unit_test(test_free_memory),
                                       cmocka_unit_test(test_space)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
