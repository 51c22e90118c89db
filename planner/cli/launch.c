#include "planner/cli/launch.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/text.h"

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

static enum sbp_status become(const struct words *words, struct sbp_diag *diag)
{
    char *const *arguments;
    /* execvp does not change the words; its type predates const. */
    memcpy(&arguments, &words->word, sizeof arguments);
    (void)fflush(stdout);
    (void)fflush(stderr);
    (void)execvp(arguments[0], arguments);
    return sbp_fail(diag, SBP_E_IO, "%s: cannot be started: %s", arguments[0], strerror(errno));
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
    if (launch->ranks > 0)
        print_words(&words);
    const enum sbp_status status = become(&words, diag);
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
    return start(launch, program, diag);
}
