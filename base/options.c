#include "base/options.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/text.h"

enum { MOST_OPTIONS = 63, MOST_WORD = 60 };

static enum sbp_status refuse_unknown(const struct sbp_option *options, const char *word,
                                      int length, struct sbp_diag *diag)
{
    const char *names[MOST_OPTIONS + 1] = {0};
    char name[MOST_WORD + 1];
    for (int i = 0; i < MOST_OPTIONS && options[i].name != NULL; i++)
        names[i] = options[i].name;
    (void)snprintf(name, sizeof name, "%.*s", length, word);
    const char *nearest = sbp_nearest(name, names);
    return sbp_fail(diag, SBP_E_USAGE, "unknown option \"%s\"%s%s%s", name,
                    nearest == NULL ? ", see --help" : ", did you mean \"",
                    nearest == NULL ? "" : nearest, nearest == NULL ? "" : "\"?");
}

/* Takes the option at argv[*at]; steps over a value that is a word of its own. */
static enum sbp_status take(const struct sbp_option *options, int argc, char **argv, int *at,
                            void *settings, struct sbp_diag *diag)
{
    const char *word = argv[*at];
    const size_t length = strcspn(word, "=");
    const struct sbp_option *option = options;
    while (option->name != NULL &&
           (strlen(option->name) != length || memcmp(option->name, word, length) != 0))
        option++;
    if (option->name == NULL)
        return refuse_unknown(options, word, (int)length, diag);
    const char *value = word[length] == '=' ? word + length + 1 : NULL;
    if (option->argument == NULL && value != NULL)
        return sbp_fail(diag, SBP_E_USAGE, "%s takes no value", option->name);
    if (option->argument != NULL && value == NULL) {
        if (*at + 1 >= argc)
            return sbp_fail(diag, SBP_E_USAGE, "%s needs a value: %s", option->name,
                            option->argument);
        value = argv[++*at];
    }
    if (!option->set(settings, value))
        return sbp_fail(diag, SBP_E_USAGE, "%s: \"%.*s\" is not legal; legal: %s", option->name,
                        MOST_WORD, value == NULL ? "" : value, option->legal);
    return SBP_OK;
}

enum sbp_status sbp_options_read(const struct sbp_option *options, int argc, char **argv,
                                 void *settings, const char **operand, struct sbp_diag *diag)
{
    if (operand != NULL)
        *operand = NULL;
    for (int i = 1; i < argc; i++) {
        if (argv[i][0] == '-' && argv[i][1] != '\0') {
            SBP_TRY(take(options, argc, argv, &i, settings, diag));
        } else if (operand == NULL || *operand != NULL) {
            return sbp_fail(diag, SBP_E_USAGE, "\"%.*s\" is one word too many, see --help",
                            MOST_WORD, argv[i]);
        } else {
            *operand = argv[i];
        }
    }
    return SBP_OK;
}

void sbp_options_print(const struct sbp_option *options, FILE *out)
{
    int wide = 0;
    for (const struct sbp_option *o = options; o->name != NULL; o++) {
        const int length =
            (int)strlen(o->name) + (o->argument == NULL ? 0 : 1 + (int)strlen(o->argument));
        wide = length > wide ? length : wide;
    }
    for (const struct sbp_option *o = options; o->name != NULL; o++) {
        const char *argument = o->argument == NULL ? "" : o->argument;
        const int used = (int)strlen(o->name) + 1 + (int)strlen(argument);
        (void)fprintf(out, "  %s %s%*s  %s\n", o->name, argument, wide + 1 - used, "", o->help);
    }
}

/* The first of the environment's variables that holds a number >= 0, else -1. */
static int64_t find_number(const char *const *names, int count)
{
    for (int i = 0; i < count; i++) {
        const char *value = getenv(names[i]);
        int64_t number;
        if (value != NULL && sbp_parse_int64(value, &number) && number >= 0)
            return number;
    }
    return -1;
}

/* Processes of the step that srun started. Only its processes have the variable: the shells of
 * sbatch and salloc have SLURM_PROCID, too, as 0. */
static int64_t find_srun_processes(void)
{
    static const char *const name = "SLURM_STEP_NUM_TASKS";
    return find_number(&name, 1);
}

enum { CONNECTED = 3, NUMBERED }; /* SLURM_PROCID is a number, and no way to the others */
static const char *const rank_names[NUMBERED] = {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK",
                                                 "SLURM_PROCID"};

/* mpirun may itself run below srun, its processes' own numbers come first. Of a single process srun
 * is no launcher: it may be a user's shell. */
int64_t sbp_launcher_rank(void)
{
    return find_number(rank_names, find_srun_processes() > 1 ? NUMBERED : CONNECTED);
}

bool sbp_launcher_connects(void)
{
    return find_number(rank_names, CONNECTED) >= 0;
}

int64_t sbp_launcher_size(void)
{
    static const char *const names[] = {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE"};
    if (sbp_launcher_rank() < 0)
        return 1;
    const int64_t processes = find_number(names, 2);
    return processes < 0 ? find_srun_processes() : processes;
}

enum sbp_status sbp_launcher_alone(struct sbp_diag *diag)
{
    const int64_t processes = sbp_launcher_size();
    if (processes <= 1)
        return SBP_OK;
    return sbp_fail(diag, SBP_E_USAGE,
                    "--backend threads runs all ranks in one process, but the launcher started "
                    "%lld: use --backend mpi, or no launcher",
                    (long long)processes);
}

void sbp_launcher_yield(void)
{
    struct timespec left = {.tv_sec = 5};
    while (sbp_launcher_rank() > 0 && nanosleep(&left, &left) != 0 && errno == EINTR)
        continue;
}
