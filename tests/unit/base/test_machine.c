#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/machine.h"
#include "tests/support/unit.h"

static void write_in(const char *folder, const char *name, const char *text)
{
    char path[64];
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

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_limits)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
