/* Files: round trips, whole-or-nothing under failures, links, modes, devices. Each test works in a
 * folder of its own. */
#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/file.h"
#include "base/math/random.h"
#include "tests/support/unit.h"

struct folder {
    char path[32], file[128];
    struct sbp_diag diag;
};

static int set_up(void **state)
{
    struct folder *folder = calloc(1, sizeof *folder);
    if (folder == NULL)
        return -1;
    strcpy(folder->path, "test_base_file_XXXXXX");
    if (mkdtemp(folder->path) == NULL) {
        free(folder);
        return -1;
    }
    (void)snprintf(folder->file, sizeof folder->file, "%s/plan.json", folder->path);
    *state = folder;
    return 0;
}

static int tear_down(void **state)
{
    struct folder *folder = *state;
    char command[64];
    (void)snprintf(command, sizeof command, "rm -rf %s", folder->path);
    const int left = system(command);
    free(folder);
    return left;
}

static int count_entries(const char *path)
{
    DIR *folder = opendir(path);
    assert_non_null(folder);
    int count = 0;
    for (const struct dirent *entry = readdir(folder); entry != NULL; entry = readdir(folder))
        count += strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0;
    assert_int_equal(closedir(folder), 0);
    return count;
}

static void assert_content(struct folder *folder, const char *expected, size_t expected_length)
{
    char *text = NULL;
    size_t length = 0;
    assert_int_equal(sbp_file_read(folder->file, &text, &length, &folder->diag), SBP_OK);
    assert_int_equal(length, expected_length);
    assert_memory_equal(text, expected, length);
    assert_int_equal(text[length], 0);
    free(text);
}

static void assert_written(struct folder *folder, const char *text)
{
    const enum sbp_status status = sbp_file_write(folder->file, text, strlen(text), &folder->diag);
    if (status != SBP_OK)
        fail_msg("%s", folder->diag.text);
}

static void test_round_trips(void **state)
{
    struct folder *folder = *state;
    static const size_t lengths[] = {0, 1, 16382, 16383, 16384, 16385, 1000000};
    struct sbp_random random;
    sbp_random_seed(&random, 1);
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        char *bytes = malloc(lengths[i] + 1);
        assert_non_null(bytes);
        for (size_t j = 0; j < lengths[i]; j++)
            bytes[j] = (char)sbp_random_below(&random, 256);
        assert_int_equal(sbp_file_write(folder->file, bytes, lengths[i], &folder->diag), SBP_OK);
        assert_content(folder, bytes, lengths[i]);
        assert_int_equal(count_entries(folder->path), 1); /* no temporary file stays */
        free(bytes);
    }
}

static void test_read_failures(void **state)
{
    struct folder *folder = *state;
    char *text = NULL;
    char expected[256];
    size_t length = 0;
    assert_int_equal(sbp_file_read(folder->file, &text, &length, &folder->diag), SBP_E_IO);
    (void)snprintf(expected, sizeof expected, "%s: cannot be opened: No such file or directory",
                   folder->file);
    assert_string_equal(folder->diag.text, expected);
    folder->diag.text[0] = '\0';
    assert_int_equal(sbp_file_read(folder->path, &text, &length, &folder->diag), SBP_E_IO);
    (void)snprintf(expected, sizeof expected, "%s: cannot be read: Is a directory", folder->path);
    assert_string_equal(folder->diag.text, expected);
    assert_null(text);
}

static void test_write_failures(void **state)
{
    struct folder *folder = *state;
    char expected[256];
    assert_int_equal(sbp_file_write("no/such/plan.json", "x", 1, &folder->diag), SBP_E_IO);
    assert_string_equal(folder->diag.text,
                        "no/such/plan.json: cannot be written: No such file or directory");
    folder->diag.text[0] = '\0';
    assert_int_equal(sbp_file_write(folder->path, "x", 1, &folder->diag), SBP_E_IO);
    (void)snprintf(expected, sizeof expected, "%s: cannot be written: Is a directory",
                   folder->path);
    assert_string_equal(folder->diag.text, expected);
}

/* Asked before, the answer is that of writing; nothing is left behind. */
static void test_says_before_whether_it_can_write(void **state)
{
    struct folder *folder = *state;
    char below[160], link[160], loop[160], long_name[400];
    const char *const bad[] = {folder->path, "nowhere/plan.json", "nowhere/", below, link, loop,
                               long_name};
    assert_int_equal(sbp_file_check_writable(folder->file, &folder->diag), SBP_OK);
    assert_int_equal(count_entries(folder->path), 0);
    assert_written(folder, "old");
    assert_int_equal(sbp_file_check_writable(folder->file, &folder->diag), SBP_OK);
    assert_int_equal(sbp_file_check_writable("plan.json", &folder->diag), SBP_OK);
    assert_int_equal(sbp_file_check_writable("/dev/null", &folder->diag), SBP_OK);
    (void)snprintf(below, sizeof below, "%s/plan.json", folder->file);
    (void)snprintf(link, sizeof link, "%s/link.json", folder->path);
    (void)snprintf(loop, sizeof loop, "%s/loop.json", folder->path);
    (void)snprintf(long_name, sizeof long_name, "%s/%0256d", folder->path, 0);
    assert_int_equal(symlink("nothing.json", link), 0);
    assert_int_equal(symlink("loop.json", loop), 0);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct sbp_diag written = {{0}};
        folder->diag.text[0] = '\0';
        assert_int_equal(sbp_file_check_writable(bad[i], &folder->diag), SBP_E_IO);
        assert_int_equal(sbp_file_write(bad[i], "x", 1, &written), SBP_E_IO);
        assert_string_equal(folder->diag.text, written.text);
    }
    assert_int_equal(count_entries(folder->path), 3);
}

/* A name as long as names may be has a shorter temporary one. */
static void test_longest_name(void **state)
{
    struct folder *folder = *state;
    char path[400];
    (void)snprintf(path, sizeof path, "%s/%0255d", folder->path, 0);
    assert_int_equal(sbp_file_check_writable(path, &folder->diag), SBP_OK);
    assert_int_equal(sbp_file_write(path, "x", 1, &folder->diag), SBP_OK);
    assert_int_equal(sbp_file_write(path, "y", 1, &folder->diag), SBP_OK);
    assert_int_equal(count_entries(folder->path), 1);
}

static void test_same_files(void **state)
{
    struct folder *folder = *state;
    char hard[64], soft[64], dotted[64], other[64], absent[64], absent_too[64];
    (void)snprintf(hard, sizeof hard, "%s/hard.json", folder->path);
    (void)snprintf(soft, sizeof soft, "%s/soft.json", folder->path);
    (void)snprintf(dotted, sizeof dotted, "%s/./plan.json", folder->path);
    (void)snprintf(other, sizeof other, "%s/other.json", folder->path);
    (void)snprintf(absent, sizeof absent, "%s/absent.json", folder->path);
    (void)snprintf(absent_too, sizeof absent_too, "./%s//absent.json", folder->path);
    assert_written(folder, "x");
    assert_int_equal(link(folder->file, hard), 0);
    assert_int_equal(symlink("plan.json", soft), 0);
    assert_int_equal(sbp_file_write(other, "x", 1, &folder->diag), SBP_OK);
    assert_true(sbp_file_is_same(folder->file, folder->file));
    assert_true(sbp_file_is_same(folder->file, dotted));
    assert_true(sbp_file_is_same(hard, folder->file));
    assert_true(sbp_file_is_same(hard, soft));
    assert_true(sbp_file_is_same(absent, absent_too));
    assert_false(sbp_file_is_same(folder->file, other));
    assert_false(sbp_file_is_same(folder->file, absent));
    assert_false(sbp_file_is_same(absent, "absent.json"));
    assert_false(sbp_file_is_same("nowhere/a", "nowhere/a/b"));
    assert_false(sbp_file_is_same("/dev/null", "/dev/null"));
}

/* A disk that fills up half-way, played by a limit on file sizes. */
static void test_old_file_survives_a_full_disk(void **state)
{
    struct folder *folder = *state;
    static char large[100000];
    struct rlimit before;
    char expected[256];
    memset(large, 'x', sizeof large);
    assert_written(folder, "the old plan");
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    const struct rlimit tight = {.rlim_cur = 4096, .rlim_max = before.rlim_max};
    void (*handler)(int) = signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &tight), 0);
    const enum sbp_status status = sbp_file_write(folder->file, large, sizeof large, &folder->diag);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    (void)signal(SIGXFSZ, handler);
    assert_int_equal(status, SBP_E_IO);
    (void)snprintf(expected, sizeof expected, "%s: cannot be written: File too large",
                   folder->file);
    assert_string_equal(folder->diag.text, expected);
    assert_content(folder, "the old plan", 12);
    assert_int_equal(count_entries(folder->path), 1);
}

/* The first file fits, the second does not: neither is written. */
static void test_all_or_none_on_a_full_disk(void **state)
{
    struct folder *folder = *state;
    static char large[100000];
    char second[64], third[64];
    struct rlimit before;
    (void)snprintf(second, sizeof second, "%s/plan-2.json", folder->path);
    (void)snprintf(third, sizeof third, "%s/plan-3.json", folder->path);
    memset(large, 'x', sizeof large);
    assert_written(folder, "the old plan");
    const struct sbp_file_text files[] = {
        {folder->file, "new", 3}, {second, large, sizeof large}, {third, "new", 3}};
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    const struct rlimit tight = {.rlim_cur = 4096, .rlim_max = before.rlim_max};
    void (*handler)(int) = signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &tight), 0);
    const enum sbp_status status = sbp_file_write_all(files, 3, &folder->diag);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    (void)signal(SIGXFSZ, handler);
    assert_int_equal(status, SBP_E_IO);
    assert_content(folder, "the old plan", 12);
    assert_int_equal(count_entries(folder->path), 1);
    assert_int_equal(sbp_file_write_all(files, 3, NULL), SBP_OK);
    assert_content(folder, "new", 3);
    assert_int_equal(count_entries(folder->path), 3);
}

static void test_mode_and_link_stay(void **state)
{
    struct folder *folder = *state;
    struct stat status;
    char link[64];
    assert_written(folder, "old");
    assert_int_equal(chmod(folder->file, 0640), 0);
    (void)snprintf(link, sizeof link, "%s/latest.json", folder->path);
    assert_int_equal(symlink("plan.json", link), 0);
    assert_int_equal(sbp_file_write(link, "new", 3, &folder->diag), SBP_OK);
    assert_content(folder, "new", 3);
    assert_int_equal(lstat(link, &status), 0);
    assert_true(S_ISLNK(status.st_mode));
    assert_int_equal(stat(folder->file, &status), 0);
    assert_int_equal(status.st_mode & 07777, 0640);
}

static void test_new_files_follow_the_umask(void **state)
{
    struct folder *folder = *state;
    struct stat status;
    const mode_t before = umask(027);
    assert_written(folder, "x");
    (void)umask(before);
    assert_int_equal(stat(folder->file, &status), 0);
    assert_int_equal(status.st_mode & 07777, 0640);
}

/* A stale temporary file of a crashed run with the same process number is neither used nor lost. */
static void test_stale_temporary_files(void **state)
{
    struct folder *folder = *state;
    char target[96];
    (void)snprintf(target, sizeof target, "%s/plan.json", folder->path);
    (void)snprintf(folder->file, sizeof folder->file, "%s.%ld.0.tmp", target, (long)getpid());
    FILE *stale = fopen(folder->file, "w");
    assert_non_null(stale);
    assert_true(fputs("stale", stale) >= 0);
    assert_int_equal(fclose(stale), 0);
    assert_int_equal(sbp_file_write(target, "new", 3, &folder->diag), SBP_OK);
    assert_content(folder, "stale", 5);
    assert_int_equal(count_entries(folder->path), 2);
}

static void test_devices_are_written_through(void **state)
{
    struct folder *folder = *state;
    struct stat status;
    assert_int_equal(sbp_file_write("/dev/null", "x", 1, &folder->diag), SBP_OK);
    assert_int_equal(stat("/dev/null", &status), 0);
    assert_true(S_ISCHR(status.st_mode));
    if (access("/dev/full", W_OK) == 0) {
        assert_int_equal(sbp_file_write("/dev/full", "x", 1, &folder->diag), SBP_E_IO);
        assert_string_equal(folder->diag.text,
                            "/dev/full: cannot be written: No space left on device");
    }
}

#define IN_FOLDER(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)

static void test_name(void **state)
{
    (void)state;
    assert_string_equal(sbp_file_name("plans/gpt2.json"), "gpt2.json");
    assert_string_equal(sbp_file_name("gpt2.json"), "gpt2.json");
    assert_string_equal(sbp_file_name("plans/"), "");
}

/* A child is told to end as soon as its temporary file is there. */
static void test_signals_leave_no_temporary_file(void **state)
{
    struct folder *folder = *state;
    static char large[16 << 20];
    memset(large, 'x', sizeof large);
    int status = 0;
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0)
        _exit(signal(SIGTERM, SIG_DFL) == SIG_ERR ||
              sbp_file_write(folder->file, large, sizeof large, NULL) != SBP_OK);
    while (count_entries(folder->path) == 0)
        continue;
    assert_int_equal(kill(child, SIGTERM), 0);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status) || WEXITSTATUS(status) == 0);
    assert_content(folder, large, sizeof large);
    assert_int_equal(count_entries(folder->path), 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_name),
        IN_FOLDER(test_round_trips),
        IN_FOLDER(test_read_failures),
        IN_FOLDER(test_write_failures),
        IN_FOLDER(test_old_file_survives_a_full_disk),
        IN_FOLDER(test_longest_name),
        IN_FOLDER(test_same_files),
        IN_FOLDER(test_all_or_none_on_a_full_disk),
        IN_FOLDER(test_signals_leave_no_temporary_file),
        IN_FOLDER(test_mode_and_link_stay),
        IN_FOLDER(test_new_files_follow_the_umask),
        IN_FOLDER(test_stale_temporary_files),
        IN_FOLDER(test_devices_are_written_through),
        IN_FOLDER(test_says_before_whether_it_can_write),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
