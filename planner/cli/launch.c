#include "planner/cli/launch.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/machine.h"
#include "base/signals.h"
#include "base/text.h"
#include "planner/cli/mpirun.h"

/* mpirun and a rank with one thread of BLAS take so many bytes of address space (Open MPI 4.1,
 * OpenBLAS 0.3). */
#define MPI_BYTES ((int64_t)448 << 20)

/* --- finding programs --- */

static bool is_program(const char *folder, const char *name, char *path)
{
    const int length = snprintf(path, PATH_MAX, "%s/%s", folder, name);
    return length > 0 && length < PATH_MAX && access(path, X_OK) == 0;
}

static bool find_in_path(const char *name, char *path)
{
    const char *folders = getenv("PATH");
    char folder[PATH_MAX];
    while (folders != NULL && *folders != '\0') {
        const size_t length = strcspn(folders, ":");
        if (length > 0 && length < sizeof folder) {
            memcpy(folder, folders, length);
            folder[length] = '\0';
            if (is_program(folder, name, path))
                return true;
        }
        folders += length + (folders[length] == ':');
    }
    return false;
}

static bool find_program(const struct sbp_launch *launch, char *path)
{
    char own[PATH_MAX], sibling[PATH_MAX];
    if (sbp_file_program_folder(own, sizeof own)) {
        if (is_program(own, launch->program, path))
            return true;
        const int length = snprintf(sibling, sizeof sibling, "%s/../%s", own, launch->build_folder);
        char folder[PATH_MAX];
        if (length > 0 && (size_t)length < sizeof sibling && realpath(sibling, folder) != NULL &&
            is_program(folder, launch->program, path))
            return true;
    }
    return find_in_path(launch->program, path);
}

bool sbp_launch_has_mpirun(void)
{
    char path[PATH_MAX];
    return find_in_path("mpirun", path);
}

/* --- the command --- */

struct words {
    const char **word;
    int count;
};

static void push(struct words *words, const char *word)
{
    words->word[words->count++] = word;
}

/* Words of mpirun (Open MPI's options). Ranks that share cores must yield them while they wait and
 * must not be bound to one; Open MPI refuses to run as root unless told; quiet, it does not bury a
 * program's own message under banners. */
static void push_mpirun(struct words *words, const char *ranks)
{
    static const char *const OPTIONS[] = {"-q", "--oversubscribe", "--mca", "mpi_yield_when_idle",
                                          "1",  "--bind-to",       "none"};
    push(words, "mpirun");
    push(words, "-n");
    push(words, ranks);
    for (size_t i = 0; i < sizeof OPTIONS / sizeof *OPTIONS; i++)
        push(words, OPTIONS[i]);
    if (geteuid() == 0)
        push(words, "--allow-run-as-root");
}

static void push_list(struct words *words, const struct sbp_word_list *list)
{
    for (int i = 0; i < list->count; i++)
        push(words, list->word[i]);
}

static void print_words(const struct words *words)
{
    for (int i = 0; i < words->count; i++)
        (void)sbp_text_print_line(stderr, "%s%s", i == 0 ? "" : " ", words->word[i]);
    (void)fputc('\n', stderr);
}

/* A signal that came by now ends sbplan; the program does not know of it. */
static enum sbp_status become(char *const *words, const atomic_int *stop, struct sbp_diag *diag)
{
    (void)fflush(stdout);
    (void)fflush(stderr);
    sbp_signals_restore();
    if (*stop != 0)
        return sbp_fail(diag, sbp_signals_status(*stop), "interrupted by %s",
                        sbp_signals_name(*stop));
    (void)execvp(words[0], words);
    return sbp_fail(diag, SBP_E_IO, "%s: cannot be started: %s", words[0], strerror(errno));
}

/* Under a limit of address space OpenBLAS and MPI's libraries may wait for ever while they are
 * loaded; later the programs themselves compare it with their ranks' need. One thread of OpenBLAS
 * is what the programs use, and each more takes space as soon as it is loaded. */
static enum sbp_status check_space(const struct sbp_launch *launch, struct sbp_diag *diag)
{
    char needs[32], has[32];
    const int64_t limit = sbp_machine_space_limit();
    if (launch->is_everywhere || limit == INT64_MAX)
        return SBP_OK;
    if (launch->ranks > 0 && limit < MPI_BYTES)
        return sbp_fail(diag, SBP_E_MEMORY,
                        "sbplan %s: needs %s of address space to start, the limit is %s (ulimit "
                        "-v)",
                        launch->arguments->command->name,
                        sbp_format_bytes((double)MPI_BYTES, needs),
                        sbp_format_bytes((double)limit, has));
    return setenv("OPENBLAS_NUM_THREADS", "1", 1) == 0
               ? SBP_OK
               : sbp_fail(diag, SBP_E_MEMORY, "out of memory");
}

static enum sbp_status start_words(const struct sbp_launch *launch, const struct words *words,
                                   struct sbp_diag *diag)
{
    const struct sbp_arguments *arguments = launch->arguments;
    char command[64];
    char *const *started;
    /* execvp does not change the words; its type predates const. */
    memcpy(&started, &words->word, sizeof started);
    if (launch->ranks == 0)
        return become(started, arguments->stop, diag);
    (void)snprintf(command, sizeof command, "sbplan %s", arguments->command->name);
    print_words(words);
    const struct sbp_mpirun mpirun = {command, started, arguments->stop};
    return sbp_mpirun_run(&mpirun, diag);
}

static enum sbp_status start(const struct sbp_launch *launch, const char *program,
                             struct sbp_diag *diag)
{
    const struct sbp_arguments *arguments = launch->arguments;
    struct sbp_arena arena = {0};
    char ranks[24];
    const int most = arguments->operands.count + arguments->forward.count + 32;
    struct words words = {.word = SBP_NEW(&arena, const char *, most)};
    if (words.word == NULL)
        return sbp_fail(diag, SBP_E_MEMORY, "out of memory");
    (void)snprintf(ranks, sizeof ranks, "%lld", (long long)launch->ranks);
    if (launch->ranks > 0)
        push_mpirun(&words, ranks);
    push(&words, program);
    push_list(&words, &arguments->operands);
    push_list(&words, &arguments->forward);
    if (arguments->json)
        push(&words, "--json");
    for (int i = 0; launch->extra[i] != NULL; i++)
        push(&words, launch->extra[i]);
    const enum sbp_status status = start_words(launch, &words, diag);
    sbp_arena_free(&arena);
    return status;
}

enum sbp_status sbp_launch(const struct sbp_launch *launch, struct sbp_diag *diag)
{
    char program[PATH_MAX];
    if (SBP_PLANNER_ONLY && !launch->is_everywhere)
        return sbp_fail(diag, SBP_E_UNSUPPORTED,
                        "sbplan %s: not in this build, which plans only: build with meson "
                        "-Dplanner_only=false",
                        launch->arguments->command->name);
    if (!find_program(launch, program))
        return sbp_fail(diag, SBP_E_UNSUPPORTED,
                        "sbplan %s: %s is neither beside sbplan nor in $PATH",
                        launch->arguments->command->name, launch->program);
    SBP_TRY(check_space(launch, diag));
    return start(launch, program, diag);
}
