#include <ctype.h>
#include <string.h>

#include "base/launcher.h"
#include "base/options.h"
#include "base/text.h"
#include "planner/cli/launch.h"
#include "planner/commands/commands.h"

#define DEFAULT_RANKS 4
#define MOST_UNIT     4 /* letters behind a number */

/* The first given option that is in the list; NULL: none. */
static const char *find_among(const struct sbp_word_list *given, const char *const *names)
{
    for (int i = 0; i < given->count; i++)
        for (int n = 0; names[n] != NULL; n++)
            if (strcmp(given->word[i], names[n]) == 0)
                return names[n];
    return NULL;
}

static bool only_plans(const struct sbp_arguments *arguments)
{
    static const char *const planning[] = {"--dry-run", "--print-sbatch", NULL};
    return find_among(&arguments->forward, planning) != NULL;
}

static enum sbp_status measure(const struct sbp_arguments *arguments, struct sbp_diag *diag)
{
    const bool available = sbp_launch_has_mpirun(), rank = sbp_launcher_rank() >= 0;
    const bool nccl = arguments->backend == SBP_BACKEND_NCCL;
    const bool mpi = nccl || arguments->backend == SBP_BACKEND_MPI ||
                     (arguments->backend == SBP_BACKEND_AUTO && (available || rank));
    const char *backend = nccl ? "nccl" : mpi ? "mpi" : "threads";
    struct sbp_launch launch = {.program = "sbplan-calibrate",
                                .build_folder = "calib",
                                .arguments = arguments,
                                .extra = {"--backend", backend, NULL}};
    if (only_plans(arguments)) { /* without ranks, except a launcher's */
        if (arguments->backend == SBP_BACKEND_AUTO)
            launch.extra[0] = NULL;
        else
            launch.extra[1] = sbp_backend_names[arguments->backend];
        return sbp_launch(&launch, diag);
    }
    if (mpi && !available && !rank)
        return sbp_fail(diag, SBP_E_UNSUPPORTED,
                        "sbplan calibrate: --backend %s needs mpirun, which is not in $PATH",
                        backend);
    if (mpi && !rank)
        launch.ranks = arguments->ranks > 0 ? arguments->ranks : DEFAULT_RANKS;
    return sbp_launch(&launch, diag);
}

static enum sbp_status check_options(const struct sbp_arguments *arguments, bool reads,
                                     struct sbp_diag *diag)
{
    static const char *const measuring[] = {
        "-n",        "--max-bytes", "--budget-s", "--seed",    "--collectives",  "--runs",
        "--nominal", "--merge",     "--fresh",    "--dry-run", "--print-sbatch", NULL};
    static const char *const reading[] = {"--nodes", "--ranks-per-node", "--device-preset",
                                          "--ports", "--cluster-nodes",  "--name",
                                          NULL};
    const char *wrong = reads || !only_plans(arguments)
                            ? find_among(&arguments->forward, reads ? measuring : reading)
                            : NULL;
    if (wrong == NULL && reads && arguments->backend != SBP_BACKEND_AUTO)
        wrong = "--backend";
    if (wrong != NULL)
        return sbp_fail(diag, SBP_E_USAGE, "sbplan calibrate: %s says how to %s, and --from LOG %s",
                        wrong, reads ? "measure" : "read logs",
                        reads ? "does not measure" : "is not given");
    if (!reads && arguments->operands.count > 0)
        return sbp_fail(diag, SBP_E_USAGE,
                        "sbplan calibrate: unexpected \"%.60s\", logs are read with --from LOG...",
                        arguments->operands.word[0]);
    return SBP_OK;
}

/* Reads "--from a b c": all but the first are operands, and forwarded as --from, too. */
static enum sbp_status read_logs(const struct sbp_arguments *arguments, struct sbp_diag *diag)
{
    struct sbp_arguments handed = *arguments;
    struct sbp_arena arena = {0};
    const int most = arguments->forward.count + 2 * arguments->operands.count;
    struct sbp_word_list *words = &handed.forward;
    words->word = SBP_NEW(&arena, const char *, most + 1);
    if (words->word == NULL)
        return sbp_fail(diag, SBP_E_MEMORY, "sbplan: out of memory");
    memcpy(words->word, arguments->forward.word,
           (size_t)arguments->forward.count * sizeof *words->word);
    for (int i = 0; i < arguments->operands.count; i++) {
        words->word[words->count++] = "--from";
        words->word[words->count++] = arguments->operands.word[i];
    }
    handed.operands.count = 0;
    const struct sbp_launch launch = {.program = "sbplan-fit",
                                      .build_folder = "calib",
                                      .is_everywhere = true,
                                      .arguments = &handed,
                                      .extra = {NULL}};
    const enum sbp_status status = sbp_launch(&launch, diag);
    sbp_arena_free(&arena);
    return status;
}

/* A number and what is taken for a unit of one (3k, 1.5, 10x), but no name of a file (3.csv). */
static bool looks_like_number(const char *value)
{
    const char *digits = value + (*value == '-' || *value == '+'),
               *unit = digits + strspn(digits, "0123456789");
    if (unit != digits && *unit == '.' && isdigit((unsigned char)unit[1]))
        unit += 1 + strspn(unit + 1, "0123456789");
    return unit != digits && strlen(unit) <= MOST_UNIT && strpbrk(unit, "./_-") == NULL;
}

/* The table that --runs names; NULL: it is a number of repeats, or not given. How many are legal is
 * known to the program that measures. */
static enum sbp_status runs_file(const struct sbp_arguments *arguments, const char **csv,
                                 struct sbp_diag *diag)
{
    const struct sbp_word_list *given = &arguments->forward;
    int times = 0;
    *csv = NULL;
    for (int i = 0; i + 1 < given->count; i++) {
        const char *value = given->word[i + 1];
        int64_t repeats;
        if (strcmp(given->word[i], "--runs") != 0)
            continue;
        times++;
        if (sbp_parse_int64(value, &repeats))
            continue;
        if (value[0] == '\0' || looks_like_number(value))
            return sbp_fail(diag, SBP_E_USAGE,
                            "sbplan calibrate: --runs: \"%.60s\" is not legal, legal is a whole "
                            "number of repeats, or a table to fit, as in runs.csv or ./runs",
                            value);
        *csv = value;
    }
    if (*csv == NULL || times == 1)
        return SBP_OK;
    return sbp_fail(diag, SBP_E_USAGE,
                    "sbplan calibrate: --runs %.60s is given with another --runs, legal is one "
                    "table",
                    *csv);
}

/* A fit takes these options alone. */
static enum sbp_status fit(const struct sbp_arguments *arguments, const char *csv,
                           struct sbp_diag *diag)
{
    static const char *const others[] = {"-n",
                                         "--max-bytes",
                                         "--budget-s",
                                         "--seed",
                                         "--collectives",
                                         "--nominal",
                                         "--merge",
                                         "--fresh",
                                         "--dry-run",
                                         "--diff",
                                         "--print-sbatch",
                                         "--method",
                                         "--statistic",
                                         "--weights",
                                         "--from",
                                         "--nodes",
                                         "--device-preset",
                                         "--ports",
                                         "--ranks-per-node",
                                         "--cluster-nodes",
                                         "--name",
                                         "--quiet",
                                         NULL};
    const char *other = arguments->backend != SBP_BACKEND_AUTO
                            ? "--backend"
                            : find_among(&arguments->forward, others);
    if (other != NULL)
        return sbp_fail(diag, SBP_E_USAGE,
                        "sbplan calibrate: %s says how to measure or read logs, and --runs %s is "
                        "fitted",
                        other, csv);
    return sbp_command_fit(arguments, csv, diag);
}

enum sbp_status sbp_command_calibrate(const struct sbp_arguments *arguments, struct sbp_diag *diag)
{
    const char *csv;
    SBP_TRY(runs_file(arguments, &csv, diag));
    if (csv != NULL)
        return fit(arguments, csv, diag);
    if (arguments->runtime != NULL)
        return sbp_fail(diag, SBP_E_USAGE,
                        "sbplan calibrate: --runtime is where a fit of --runs RUNS.csv begins");
    const bool reads = arguments->from.count > 0;
    SBP_TRY(check_options(arguments, reads, diag));
    return reads ? read_logs(arguments, diag) : measure(arguments, diag);
}
