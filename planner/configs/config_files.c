/* Finds the files of listed models, clusters, devices and runtimes. */
#include <ctype.h>
#include <dirent.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cjson/cJSON.h>

#include "base/file.h"
#include "base/text.h"
#include "planner/configs/config_files.h"
#include "planner/plan/input_kind.h"

#define MOST_FOLDERS 4
#define SUFFIX       ".json"
#define RUNTIME      "runtime" /* key of a cluster */
#define NO_RUNTIME   "none"    /* of --runtime: the machine alone */

static const char *const kind_names[SBP_CONFIG_KINDS] = {"model", "cluster", "device", "runtime",
                                                         "set of runs"};

const char *sbp_config_kind_name(enum sbp_config_kind kind)
{
    return kind_names[kind];
}

struct folders {
    int count;
    char path[MOST_FOLDERS][PATH_MAX];
};

static void add_folder(struct folders *folders, const char *root, const char *below)
{
    const int length = snprintf(folders->path[folders->count], PATH_MAX, "%s/%s", root, below);
    if (length > 0 && length < PATH_MAX)
        folders->count++;
}

/* The folders to look at: a program in its build tree reads the configs of the source tree, an
 * installed one its own. */
static struct folders find_folders(enum sbp_config_kind kind)
{
    static const char *const BELOW[SBP_CONFIG_KINDS] = {"models", "clusters", "devices", "runtimes",
                                                        "runs"};
    const char *below = BELOW[kind];
    const char *environment = getenv("SBPLAN_CONFIGS");
    char own[PATH_MAX], installed[PATH_MAX + 32];
    struct folders folders = {0};
    if (environment != NULL && *environment != '\0')
        add_folder(&folders, environment, below);
    const bool known = sbp_file_program_folder(own, sizeof own);
    if (known && strncmp(own, SBP_BUILD_ROOT, strlen(SBP_BUILD_ROOT)) == 0)
        add_folder(&folders, SBP_SOURCE_CONFIGS, below);
    if (known) {
        (void)snprintf(installed, sizeof installed, "%s/../share/sbplan/configs", own);
        add_folder(&folders, installed, below);
    }
    add_folder(&folders, SBP_INSTALLED_CONFIGS, below);
    return folders;
}

static bool is_file(const char *path)
{
    struct stat file;
    return stat(path, &file) == 0 && !S_ISDIR(file.st_mode);
}

/* --- listing --- */

static bool is_config(const struct dirent *entry)
{
    const size_t length = strlen(entry->d_name);
    return length > strlen(SUFFIX) && entry->d_name[0] != '.' &&
           strcmp(entry->d_name + length - strlen(SUFFIX), SUFFIX) == 0;
}

static bool is_named(const struct sbp_config_names *names, const char *name)
{
    for (int i = 0; i < names->count; i++)
        if (strcmp(names->name[i], name) == 0)
            return true;
    return false;
}

/* Grows both arrays by doubling; the old ones stay unused in the arena. */
static bool make_room(struct sbp_config_names *names, int *capacity, struct sbp_arena *arena)
{
    if (names->count + 1 < *capacity)
        return true;
    *capacity = 2 * *capacity + 16;
    const char **name = SBP_NEW(arena, const char *, *capacity);
    const char **path = SBP_NEW(arena, const char *, *capacity);
    if (name == NULL || path == NULL)
        return false;
    for (int i = 0; i < names->count; i++) {
        name[i] = names->name[i];
        path[i] = names->path[i];
    }
    names->name = name;
    names->path = path;
    return true;
}

/* Inserts a name in order. */
static bool insert(struct sbp_config_names *names, int *capacity, const char *folder,
                   const char *entry, struct sbp_arena *arena)
{
    char path[2 * PATH_MAX];
    (void)snprintf(path, sizeof path, "%s/%s", folder, entry);
    char *name = sbp_arena_strdup(arena, entry);
    char *copy = sbp_arena_strdup(arena, path);
    if (name == NULL || copy == NULL || !make_room(names, capacity, arena))
        return false;
    name[strlen(name) - strlen(SUFFIX)] = '\0';
    if (is_named(names, name))
        return true;
    int at = names->count++;
    for (; at > 0 && strcmp(names->name[at - 1], name) > 0; at--) {
        names->name[at] = names->name[at - 1];
        names->path[at] = names->path[at - 1];
    }
    names->name[at] = name;
    names->path[at] = copy;
    return true;
}

enum sbp_status sbp_config_list(enum sbp_config_kind kind, struct sbp_arena *arena,
                                struct sbp_config_names *names, struct sbp_diag *diag)
{
    const struct folders folders = find_folders(kind);
    int capacity = 0;
    *names = (struct sbp_config_names){0};
    bool complete = make_room(names, &capacity, arena);
    for (int i = 0; i < folders.count && complete; i++) {
        DIR *folder = opendir(folders.path[i]);
        if (folder == NULL)
            continue;
        for (struct dirent *entry; complete && (entry = readdir(folder)) != NULL;)
            if (is_config(entry))
                complete = insert(names, &capacity, folders.path[i], entry->d_name, arena);
        (void)closedir(folder);
    }
    return complete ? SBP_OK : sbp_fail(diag, SBP_E_MEMORY, "out of memory");
}

/* --- one file --- */

/* Takes the next run of letters or of digits off a name; returns its length, 0 at the end. */
static size_t next_part(const char **name, const char **part)
{
    while (**name != '\0' && !isalnum((unsigned char)**name))
        ++*name;
    *part = *name;
    const bool digits = isdigit((unsigned char)**name) != 0;
    while (isalnum((unsigned char)**name) && (isdigit((unsigned char)**name) != 0) == digits)
        ++*name;
    return (size_t)(*name - *part);
}

/* Whether a name begins with the first part of a word and has the others in their order:
 * llama-3.1-8b those of llama3-8b. */
static bool has_parts(const char *name, const char *word)
{
    const char *part, *own;
    bool first = true;
    for (size_t length; (length = next_part(&word, &part)) > 0; first = false) {
        size_t found;
        do
            found = next_part(&name, &own);
        while (found > 0 && !first && (found != length || strncasecmp(own, part, length) != 0));
        if (found != length || strncasecmp(own, part, length) != 0)
            return false;
    }
    return !first;
}

/* The name that was meant: the last, which is the newest, of those with all parts of the word, else
 * the nearest by letters; NULL: none. */
static const char *meant_name(const struct sbp_config_names *names, const char *word)
{
    for (int i = names->count - 1; i >= 0; i--)
        if (has_parts(names->name[i], word))
            return names->name[i];
    return sbp_text_nearest(word, names->name);
}

/* Refuses a name that is listed as another kind. */
static enum sbp_status check_swapped(enum sbp_config_kind kind, const char *word,
                                     struct sbp_arena *arena, struct sbp_diag *diag)
{
    for (int other = 0; other < SBP_CONFIG_KINDS; other++) {
        struct sbp_config_names names;
        if (other == (int)kind)
            continue;
        SBP_TRY(sbp_config_list((enum sbp_config_kind)other, arena, &names, diag));
        if (is_named(&names, word))
            return sbp_fail(diag, SBP_E_INPUT, "%s: this is a listed %s, not a %s%s", word,
                            sbp_config_kind_name((enum sbp_config_kind)other),
                            sbp_config_kind_name(kind),
                            other <= SBP_CONFIG_CLUSTER && kind <= SBP_CONFIG_CLUSTER
                                ? ": MODEL stands before CLUSTER; swapped?"
                                : "");
    }
    return SBP_OK;
}

static enum sbp_status refuse_name(enum sbp_config_kind kind, const char *word,
                                   struct sbp_arena *arena, struct sbp_diag *diag)
{
    const char *what = sbp_config_kind_name(kind);
    struct sbp_config_names names;
    SBP_TRY(sbp_config_list(kind, arena, &names, diag));
    SBP_TRY(check_swapped(kind, word, arena, diag));
    const char *meant = meant_name(&names, word);
    if (meant != NULL)
        return sbp_fail(diag, SBP_E_INPUT,
                        "%s: neither a file nor a listed %s, did you mean \"%s\"?", word, what,
                        meant);
    if (kind == SBP_CONFIG_RUNS)
        return sbp_fail(diag, SBP_E_INPUT, "%s: neither a file nor a set of runs", word);
    return sbp_fail(diag, SBP_E_INPUT, "%s: neither a file nor a listed %s, see sbplan list %ss",
                    word, what, what);
}

enum sbp_status sbp_config_find(enum sbp_config_kind kind, const char *word,
                                struct sbp_arena *arena, const char **path, struct sbp_diag *diag)
{
    const size_t length = strlen(word);
    const bool is_path =
        strchr(word, '/') != NULL ||
        (length > strlen(SUFFIX) && strcmp(word + length - strlen(SUFFIX), SUFFIX) == 0);
    *path = word;
    if (is_path)
        return SBP_OK;
    struct sbp_config_names names;
    SBP_TRY(sbp_config_list(kind, arena, &names, diag));
    for (int i = 0; i < names.count; i++)
        if (strcmp(names.name[i], word) == 0) {
            *path = names.path[i];
            return SBP_OK;
        }
    return is_file(word) ? SBP_OK : refuse_name(kind, word, arena, diag);
}

bool sbp_config_is_listed(const char *word, enum sbp_config_kind *kind)
{
    struct sbp_diag unused = {{0}};
    struct sbp_arena arena = {0};
    bool found = false;
    for (int i = SBP_CONFIG_MODEL; i <= SBP_CONFIG_CLUSTER && !found; i++) {
        struct sbp_config_names names;
        *kind = (enum sbp_config_kind)i;
        found = sbp_config_list(*kind, &arena, &names, &unused) == SBP_OK && is_named(&names, word);
    }
    sbp_arena_free(&arena);
    return found && !is_file(word);
}

/* --- parts of a cluster --- */

/* Puts a part in the place of what the cluster has under the key; takes the part over. */
static enum sbp_status put_part(struct cJSON *cluster, const char *key, struct cJSON *part,
                                struct sbp_diag *diag)
{
    cJSON_DeleteItemFromObjectCaseSensitive(cluster, key);
    if (cJSON_AddItemToObject(cluster, key, part))
        return SBP_OK;
    cJSON_Delete(part);
    return sbp_fail(diag, SBP_E_MEMORY, "out of memory");
}

/* Reads the part, too, so that what is wrong in it is said with its own file's name. */
static enum sbp_status put_runtime(struct cJSON *cluster, const char *word, struct sbp_arena *arena,
                                   struct sbp_diag *diag)
{
    const char *path = NULL;
    struct cJSON *root = NULL;
    struct sbp_runtime runtime;
    struct sbp_json at;
    SBP_TRY(sbp_config_find(SBP_CONFIG_RUNTIME, word, arena, &path, diag));
    SBP_TRY(sbp_input_kind_open(path, SBP_INPUT_RUNTIME, &root, &at, diag));
    const enum sbp_status status = sbp_runtime_read(&at, INT64_MAX, &runtime);
    if (status == SBP_OK)
        return put_part(cluster, RUNTIME, root, diag);
    cJSON_Delete(root);
    return status;
}

enum sbp_status sbp_config_expand(struct cJSON *cluster, const char *file, const char *runtime,
                                  struct sbp_arena *arena, struct sbp_diag *diag)
{
    const struct cJSON *given = cJSON_GetObjectItemCaseSensitive(cluster, RUNTIME);
    struct sbp_diag why = {{0}};
    if (runtime != NULL && strcmp(runtime, NO_RUNTIME) == 0) {
        cJSON_DeleteItemFromObjectCaseSensitive(cluster, RUNTIME);
        return SBP_OK;
    }
    if (runtime != NULL)
        return put_runtime(cluster, runtime, arena, diag);
    if (!cJSON_IsString(given))
        return SBP_OK;
    const char *word = sbp_arena_strdup(arena, given->valuestring);
    if (word == NULL)
        return sbp_fail(diag, SBP_E_MEMORY, "out of memory");
    const enum sbp_status status = put_runtime(cluster, word, arena, &why);
    return status == SBP_OK ? SBP_OK : sbp_fail(diag, status, "%s: runtime: %s", file, why.text);
}
