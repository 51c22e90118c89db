#include "planner/cli/options.h"

#include <string.h>

#include "base/launcher.h"
#include "base/options.h"
#include "base/text.h"
#include "costmodel/cluster/cluster.h"
#include "costmodel/cluster/preset.h"
#include "planner/cli/foreign_words.h"
#include "planner/cli/help_priv.h"
#include "planner/export/export.h"
#include "planner/inner/cut_solve.h"

#define MOST_CHOICES 16
#define MOST_NAME    64
#define MOST_COUNT   ((int64_t)1 << 53)
#define MOST_OPTIONS 64

/* --- the table of options --- */

#define FIELD(kind, field) SBP_OPTION_FIELD(kind, struct sbp_arguments, field)
#define HANDED             .kind = SBP_OPTION_HANDED
#define DEGREE(name)       FIELD(WHOLE, degrees.name), .least = 1, .most = (int64_t)1 << 31

static const char *const objective_names[] = {
    [SBP_STEP_TIME] = "step-time", [SBP_COMMUNICATION] = "communication", NULL};
static const char *const precision_names[] = {"auto", "mixed", "bf16", "fp16", "fp32", NULL};

static const char *recompute_at(int place)
{
    return place < SBP_RECOMPUTES ? sbp_parallel_recompute_name((enum sbp_recompute)place) : NULL;
}

static const char *space_at(int place)
{
    return sbp_request_space_names()[place];
}

static const char *algorithm_at(int place)
{
    return place == 0 ? "auto" : sbp_solvers[place - 1].name;
}

static bool set_seconds(void *field, const char *value)
{
    struct sbp_limit *const limit = field;
    limit->is_given = true;
    limit->most = 0;
    return strcmp(value, "none") == 0 ||
           (sbp_parse_double(value, &limit->most) && limit->most >= 0);
}

static bool set_bytes(void *field, const char *value)
{
    struct sbp_limit *const limit = field;
    limit->is_given = true;
    limit->most = 0;
    return strcmp(value, "none") == 0 || (sbp_parse_scaled(value, true, &limit->most) &&
                                          limit->most >= 0 && limit->most <= (double)MOST_COUNT);
}

/* Seconds, with or without a unit: "2.46", "2.46s", "310ms". */
static bool set_duration(void *field, const char *value)
{
    static const struct {
        const char *name;
        double s;
    } units[] = {{"us", 1e-6}, {"ms", 1e-3}, {"s", 1}, {"", 1}};
    char number[32];
    double *duration_s = field;
    const size_t digits = strspn(value, "0123456789.eE+-");
    if (digits >= sizeof number)
        return false;
    memcpy(number, value, digits);
    number[digits] = '\0';
    for (size_t i = 0; i < sizeof units / sizeof *units; i++)
        if (strcmp(value + digits, units[i].name) == 0 && sbp_parse_double(number, duration_s)) {
            *duration_s *= units[i].s;
            return *duration_s > 0 && *duration_s < 1e9;
        }
    return false;
}

static const struct sbp_option options[] = {
    {"-o", "FILE", "write the result to a file", FIELD(OUTPUT, output)},
    {"--problem", "FILE",
     "write the pairwise problem as well, in the format of the IOPDDL benchmark",
     FIELD(OUTPUT, problem)},
    {"--runtime", "NAME",
     "the trainer: what it hides behind arithmetic, its launches, its reserve (sbplan list "
     "runtimes; default the cluster's, none: the machine alone)",
     FIELD(TEXT, runtime)},
    {"--space", "NAME", "strategies to search among (default full)", FIELD(CHOICE, space),
     .name_at = space_at},
    {"--objective", "NAME", "what is made least (default step-time)", FIELD(CHOICE, objective),
     .names = objective_names},
    {"--algorithm", "NAME", "how it is searched (default auto: exact where it can)",
     FIELD(CHOICE, algorithm), .name_at = algorithm_at},
    {"--seed", "N", "of everything random (default 0)", FIELD(WHOLE, seed), .most = MOST_COUNT},
    {"--time-limit", "SECONDS",
     "end then with the best so far (default 60, of solve none); 0 or none: no limit",
     FIELD(CHECKED, time_limit_s), .set = set_seconds,
     .legal = "a number of seconds from 0, or none"},
    {"--search-memory", "BYTES",
     "memory that the search itself may take (default 4G); what would need more is left out, and "
     "the answer says so; 0 or none: no limit",
     FIELD(CHECKED, search_memory_bytes), .set = set_bytes,
     .legal = "a number of bytes such as 4G or 512M, or none"},
    {"--max-evaluations", "N", "end the search after so many strategies",
     FIELD(COUNT, max_evaluations), .least = 1, .most = MOST_COUNT},
    {"--restarts", "N", "of coordinate-descent and metropolis-hastings (default 100)",
     FIELD(COUNT, restarts), .least = 1, .most = 1000000000},
    {"--memory-limit", "BYTES", "memory of a device (default: the cluster's); 80G, 512M",
     FIELD(SIZE, memory_limit_bytes), .least = 1, .most = MOST_COUNT},
    {"--fix", "LAYER=ROLE:FACTOR,...",
     "fix factors of a layer and of its repeats, those of several levels as 4/2 outermost first "
     "(of a stage where there are several); may be repeated",
     FIELD(LIST, fix)},
    {"--quick", NULL,
     "of space full only common roles and rests (no repeated work), in a fraction of the time; the "
     "proof covers these alone",
     FIELD(FLAG, quick)},
    {"--runnable", NULL,
     "only plans that `sbplan run` executes: operators with kernels, in roles that it has",
     FIELD(FLAG, runnable)},
    {"--strategy", "FILE", "the strategy to price, or a plan", FIELD(TEXT, strategy)},
    {"--tp", "N", "tensor parallel: so many ways, innermost devices first (default 1)",
     DEGREE(tensor)},
    {"--pp", "N", "pipeline parallel: so many stages, outermost devices first (default 1)",
     DEGREE(pipeline)},
    {"--vpp", "N", "virtual pipeline: so many pieces a stage, interleaved (default 1)",
     DEGREE(chunks)},
    {"--dp", "N", "data parallel: so many replicas (default: what the others leave)", DEGREE(data)},
    {"--cp", "N", "context parallel: sequences split so many ways (default 1)", DEGREE(context)},
    {"--ep", "N", "expert parallel: experts lie so many ways apart (default 1)", DEGREE(expert)},
    {"--etp", "N", "expert tensor parallel: each expert split so many ways (default: as --tp)",
     DEGREE(expert_tensor)},
    {"--micro-batch", "N", "sequences that a replica works on at a time (default 1)",
     DEGREE(micro_batch)},
    {"--zero", "0..3", "ZeRO level; 3 is FSDP (default 0)", FIELD(WHOLE, degrees.zero), .least = 0,
     .most = 3},
    {"--sequence-parallel", NULL,
     "with --tp, split by sequence what tensor parallel leaves whole (norms, residual adds)",
     FIELD(FLAG, degrees.sequence_parallel)},
    {"--recompute", "NAME",
     "what is formed again in the backward pass; attention is what Megatron-LM calls selective, "
     "selective keeps every second product (default none)",
     FIELD(CHOICE, degrees.recompute), .name_at = recompute_at},
    {"--megatron", "FLAGS",
     "a command line of Megatron-LM in place of the degrees, \"--tensor-model-parallel-size 8 "
     "...\"; what it says of the model is checked",
     FIELD(TEXT, megatron)},
    {"--measured", "SECONDS",
     "also say how far a step that took so long is from the prediction, and which constant alone "
     "would explain it; 2.46s, 310ms",
     FIELD(CHECKED, measured_s), .set = set_duration, .legal = "a time as 2.46s or 310ms"},
    {"--tokens", "N", "also say what training on so many tokens takes; 300B, 3e11",
     FIELD(TOKENS, tokens), .least = 1},
    {"--devices", "N", "use so many of the cluster's devices, innermost first",
     FIELD(WHOLE, devices), .least = 1, .most = SBP_CLUSTER_MOST_DEVICES},
    {"--set", "KEY=VALUE",
     "how a step is cut (below), boxing=full|paper|path, max_batch_split=N, devices=N, or a path "
     "into the model (layers=24) or the cluster (cluster.levels[0].size=4, "
     "cluster.device.memory_bytes=40G); may be repeated",
     FIELD(LIST, set)},
    {"--sweep", "KEY=a,b,c",
     "search for each value of a key of --set, each with its own limits, in one table; may be "
     "repeated: all combinations",
     FIELD(LIST, sweep)},
    {"--global-batch", "N", "sequences or images a step (needed)", FIELD(WHOLE, global_batch),
     .least = 1, .most = (int64_t)1 << 31},
    {"--sequence", "N", "tokens of a sequence (needed but for images)", FIELD(WHOLE, sequence),
     .least = 1, .most = (int64_t)1 << 31},
    {"--precision", "NAME",
     "of the training (default auto, the config's torch_dtype; bf16 is mixed)",
     FIELD(CHOICE, precision), .names = precision_names},
    {"--vocab-multiple", "N", "pad the vocabulary to a multiple (default 128)",
     FIELD(WHOLE, vocab_multiple), .least = 1, .most = (int64_t)1 << 20},
    {"--target", "NAME", "only plans that `sbplan export --to NAME` writes without a loss",
     FIELD(CHOICE, target), .name_at = sbp_export_search_name},
    {"--to", "NAME", "who reads the file", FIELD(CHOICE, to), .name_at = sbp_export_name},
    {"--name", "NAME", "of the model; with --from, of the cluster", FIELD(TEXT, name)},
    {"-n", "RANKS", "ranks to measure (default 4); 1: a device alone, without collectives",
     FIELD(WHOLE, ranks), .least = 1, .most = 1024},
    {"--backend", "NAME", "how ranks communicate (default auto)", FIELD(CHOICE, backend),
     .names = sbp_backend_names},
    {"--device", "NAME", "where ranks compute (default auto)", FIELD(CHOICE, device),
     .names = sbp_device_names},
    {"--max-bytes", "BYTES", "largest message (default 16M)", HANDED},
    {"--budget-s", "SECONDS", "time for all measurements (default 30)", HANDED},
    {"--collectives", "LIST", "measure these alone, with commas between (default: all)", HANDED},
    {"--runs", "N",
     "repeats of the whole (default 3); RUNS.csv: fit a trainer's profile to measured steps",
     HANDED},
    {"--nominal", "BYTES",
     "bytes a second that a network port is sold for (default: what the system says)", HANDED},
    {"--merge", "FILE", "measure on top of an older calibration", HANDED},
    {"--diff", "FILE",
     "say what changed from an older calibration, after measuring or --from a newer one", HANDED},
    {"--fresh", NULL, "drop an unfinished calibration instead of going on with it", HANDED},
    {"--dry-run", NULL, "print the plan of measurements and its node-hours", HANDED},
    {"--print-sbatch", NULL, "print a job script for Slurm", HANDED},
    {"--method", "NAME",
     "how times become a network: curves (default) or paper, one alpha and beta (AutoDDL, 3.2)",
     HANDED},
    {"--statistic", "NAME",
     "what counts of the repeats of a collective: median (default) or least, where other programs "
     "run beside",
     HANDED},
    {"--weights", "NAME",
     "of the errors of --method paper: relative (default), symmetric or none, as the paper",
     HANDED},
    {"--from", "LOG...",
     "do not measure: read logs of nccl-tests (text or JSON), rccl-tests or the OSU benchmarks, or "
     "fit the samples of a calibration again",
     FIELD(LIST, from)},
    {"--device-preset", "NAME", "with --from and -o, the devices, of which logs say nothing",
     HANDED, .name_at = sbp_preset_name},
    {"--ports", "N", "network ports of a node (default: each of its devices has one)", HANDED},
    {"--cluster-nodes", "N", "nodes of the cluster file (default: the most that were measured)",
     HANDED},
    {"--nodes", "N",
     "nodes of the logs' runs, where a log does not say; of --dry-run, --print-sbatch", HANDED},
    {"--ranks-per-node", "N", "ranks on each", HANDED},
    {"--quiet", NULL, "print nothing but errors", HANDED},
    {"--rounds", "N",
     "rounds, in each of which every plan runs once (default 8, the fewest that give an interval "
     "of 99 %)",
     HANDED},
    {"--steps", "N", "training steps (default 1; of bench: of a round, 3)", HANDED},
    {"--warmup", "N", "first steps of a round, which are dropped (default 1)", HANDED},
    {"--verify", NULL,
     "compare gradients, loss and updates with one device in double precision; sampled: of "
     "gradients "
     "a sample, in less memory; shrunk: of the same plan on a smaller model; --verify alone is "
     "full, "
     "--verify=NAME",
     HANDED, .names = sbp_verify_names},
    {"--dtype", "NAME", "tensors in f32, f64, bf16 or f16 (default: as the plan)", HANDED},
    {"--math", "NAME",
     "products of f32 tensors on GPUs in f32 (default), or in tf32, which is faster", HANDED},
    {"--labels", "NAME",
     "of tokens: drawn (default); of-ids, seven in eight by their ids, which can be learnt; or "
     "masked, of one token in seven",
     HANDED},
    {"--deadline", "S",
     "seconds beside a step's predicted time for which ranks may wait (default 60)", HANDED},
    {"--check-collectives", NULL,
     "before every collective its ranks compare what they are about to call", HANDED},
    {"--messages", "NAME",
     "with --backend nccl, between stages: by nccl, by mpi (out of GPU memory where it can), or "
     "auto "
     "(default), the faster one by a few of them",
     HANDED},
    {"--trace", "FILE",
     "write the timeline of the step (of a run: predicted, and measured of the last one), which "
     "Perfetto and chrome://tracing open",
     FIELD(TEXT, trace)},
    {"--top", "K",
     "the K best plans that are split or cut otherwise, in one table by layout; with -o plan.json "
     "the next ones go to plan-2.json, plan-3.json, ...",
     FIELD(WHOLE, top), .least = 1, .most = 100},
    {"--rows", NULL, "also print every run", FIELD(FLAG, rows)},
    {"--json", NULL, "print one JSON object and nothing else", FIELD(FLAG, json)},
    {"--help", NULL, "print this", FIELD(FLAG, help)},
    {.name = NULL},
};

/* Whether the option stands in the command's list of names. */
static bool has_option(const struct sbp_command *command, const struct sbp_option *option)
{
    const size_t length = strlen(option->name);
    for (const char *at = command->options; (at = strstr(at, option->name)) != NULL; at += length)
        if ((at == command->options || at[-1] == ' ') && (at[length] == ' ' || at[length] == '\0'))
            return true;
    return false;
}

const struct sbp_option *sbp_options_next(const struct sbp_command *command,
                                          const struct sbp_option *after)
{
    const struct sbp_option *option = after == NULL ? options : after + 1;
    while (option->name != NULL && command != NULL && !has_option(command, option))
        option++;
    return option->name == NULL ? NULL : option;
}

static bool is_flag(const struct sbp_option *option)
{
    return option->argument == NULL;
}

/* --- values --- */

#define REFUSE(...) sbp_fail(diag, SBP_E_USAGE, __VA_ARGS__)

/* Words of other tools that are near to no legal one, or to a wrong one. */
static const struct {
    const char *option, *word, *meant;
} MEANT[] = {{"--device", "gpu", "cuda"},        {"--backend", "gpu", "nccl"},
             {"--backend", "gloo", "mpi"},       {"--precision", "bfloat16", "bf16"},
             {"--precision", "float16", "fp16"}, {"--precision", "float32", "fp32"}};

static const char *meant_value(const struct sbp_option *option, const char *value)
{
    for (size_t i = 0; i < sizeof MEANT / sizeof *MEANT; i++)
        if (strcmp(option->name, MEANT[i].option) == 0 && strcmp(value, MEANT[i].word) == 0)
            return MEANT[i].meant;
    return NULL;
}

static enum sbp_status refuse_value(const struct sbp_command *command,
                                    const struct sbp_option *option, const char *value,
                                    struct sbp_diag *diag)
{
    const char *names[MOST_CHOICES + 1] = {0};
    for (int i = 0; i < MOST_CHOICES && sbp_option_name_at(option, i) != NULL; i++)
        names[i] = sbp_option_name_at(option, i);
    const char *advice = sbp_foreign_words_advice(value, strlen(value));
    if (advice != NULL && option->name_at == space_at)
        return REFUSE("sbplan %s: %s: unknown value \"%.60s\": %s", command->name, option->name,
                      value, advice);
    const char *meant = meant_value(option, value);
    const char *nearest = meant != NULL ? meant : sbp_text_nearest(value, names);
    if (nearest != NULL)
        return REFUSE("sbplan %s: %s: unknown value \"%.60s\", did you mean \"%s\"?", command->name,
                      option->name, value, nearest);
    struct sbp_text legal = {0};
    sbp_option_add_legal(option, &legal);
    const enum sbp_status status =
        REFUSE("sbplan %s: %s: \"%.60s\" is not legal, legal is %s", command->name, option->name,
               value, legal.failed ? "what the help says" : legal.bytes);
    sbp_text_free(&legal);
    return status;
}

/* Adds a word to a list, which has room for every word of the command line. */
static void push_word(struct sbp_word_list *list, const char *word)
{
    list->word[list->count++] = word;
}

/* `word` holds the option, and the value of a flag that takes one. */
static enum sbp_status read_value(const struct sbp_command *command,
                                  const struct sbp_option *option, const char *word,
                                  const char *value, struct sbp_arguments *arguments,
                                  struct sbp_diag *diag)
{
    const bool by_command = option->kind == SBP_OPTION_FLAG || option->kind == SBP_OPTION_CHOICE;
    if (command->forwards && !by_command) {
        push_word(&arguments->forward, is_flag(option) ? word : option->name);
        if (!is_flag(option))
            push_word(&arguments->forward, value);
    }
    const enum sbp_status status = sbp_option_set(option, value, arguments, diag);
    return status == SBP_NO ? refuse_value(command, option, value, diag) : status;
}

/* --- words --- */

/* Whether the command takes a model and a cluster, of which foreign words speak. */
static bool has_set(const struct sbp_command *command)
{
    return strstr(command->options, "--set ") != NULL;
}

/* Of `run` and `bench`, whose ranks the plan says; NULL. */
static const char *ranks_advice(const struct sbp_command *command, const char *name)
{
    static const char *const WORDS[] = {"-n", "-np", "--np", "--ranks", "--nproc", "--devices"};
    const bool trains = strcmp(command->name, "run") == 0 || strcmp(command->name, "bench") == 0;
    for (size_t i = 0; trains && i < sizeof WORDS / sizeof *WORDS; i++)
        if (strcmp(name, WORDS[i]) == 0)
            return "a run has the plan's devices as ranks: sbplan search ... --devices N makes a "
                   "plan for N of them";
    return NULL;
}

static enum sbp_status refuse_option(const struct sbp_command *command, const char *word,
                                     size_t length, struct sbp_diag *diag)
{
    const char *names[MOST_OPTIONS] = {0};
    char name[MOST_NAME];
    int count = 0;
    (void)snprintf(name, sizeof name, "%.*s", (int)(length < 60 ? length : 60), word);
    const struct sbp_option *option = NULL;
    while ((option = sbp_options_next(command, option)) != NULL)
        names[count++] = option->name;
    const char *advice = has_set(command) ? sbp_foreign_words_advice(name, strlen(name))
                                          : ranks_advice(command, name);
    if (advice != NULL)
        return REFUSE("sbplan %s: unknown option \"%s\": %s", command->name, name, advice);
    const char *nearest = sbp_text_nearest(name, names);
    if (nearest != NULL)
        return REFUSE("sbplan %s: unknown option \"%s\", did you mean \"%s\"?", command->name, name,
                      nearest);
    return REFUSE("sbplan %s: unknown option \"%s\", see sbplan %s --help", command->name, name,
                  command->name);
}

static const struct sbp_option *find_option(const struct sbp_command *command, const char *word,
                                            size_t length)
{
    const struct sbp_option *option = sbp_option_find(options, word, length);
    return option != NULL && has_option(command, option) ? option : NULL;
}

/* Length of an option's name without "=value". */
static size_t name_length(const char *word)
{
    return strncmp(word, "--", 2) == 0 ? strcspn(word, "=") : strlen(word);
}

/* Takes the option at words[*at] and its value, which may be the next word. */
static enum sbp_status read_option(const struct sbp_command *command, int count, char **words,
                                   int *at, struct sbp_arguments *arguments, struct sbp_diag *diag)
{
    const char *word = words[*at];
    const size_t length = name_length(word);
    const struct sbp_option *option = find_option(command, word, length);
    char place[MOST_NAME];
    const char *value;
    if (option == NULL)
        return refuse_option(command, word, length, diag);
    (void)snprintf(place, sizeof place, "sbplan %s: ", command->name);
    SBP_TRY(sbp_option_value(option, count, words, at, place, &value, diag));
    return read_value(command, option, word, value, arguments, diag);
}

static enum sbp_status check_operands(const struct sbp_command *command,
                                      const struct sbp_arguments *arguments, struct sbp_diag *diag)
{
    const int count = arguments->operands.count;
    if (arguments->help)
        return SBP_OK;
    if (count > command->most_operands)
        return REFUSE("sbplan %s: unexpected \"%.60s\", legal is: sbplan %s %s", command->name,
                      arguments->operands.word[command->most_operands], command->name,
                      command->operands);
    if (count < command->least_operands)
        return REFUSE("sbplan %s: %d of %d arguments given, legal is: sbplan %s %s", command->name,
                      count, command->least_operands, command->name, command->operands);
    return SBP_OK;
}

/* Adds a word in quotes where a shell would read more into it than a word. */
static void add_quoted(struct sbp_text *text, const char *word)
{
    static const char PLAIN[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
                                "%+,-./:=@_";
    if (*word != '\0' && word[strspn(word, PLAIN)] == '\0') {
        sbp_text_add(text, "%s", word);
        return;
    }
    sbp_text_add(text, "'");
    for (; *word != '\0'; word++)
        sbp_text_add(text, *word == '\'' ? "'\\''" : "%c", *word);
    sbp_text_add(text, "'");
}

/* Whether a plan records an option: not those that say where and how the command prints. */
static bool is_recorded(const struct sbp_option *option)
{
    static const char *const left_out[] = {"-o", "--problem", "--json"};
    for (size_t i = 0; i < sizeof left_out / sizeof *left_out; i++)
        if (strcmp(option->name, left_out[i]) == 0)
            return false;
    return true;
}

static const char *record_of(const struct sbp_command *command, int count, char **words,
                             struct sbp_arena *arena)
{
    struct sbp_text text = {0};
    sbp_text_add(&text, "sbplan %s", command->name);
    for (int i = 0; i < count; i++) {
        const size_t length = name_length(words[i]);
        const struct sbp_option *option = find_option(command, words[i], length);
        if (option != NULL && !is_recorded(option)) {
            i += !is_flag(option) && words[i][length] == '\0'; /* its value is the next word */
        } else {
            sbp_text_add(&text, " ");
            add_quoted(&text, words[i]);
        }
    }
    const char *record = text.failed ? NULL : sbp_arena_strdup(arena, text.bytes);
    sbp_text_free(&text);
    return record;
}

static enum sbp_status read_words(const struct sbp_command *command, int count, char **words,
                                  struct sbp_arguments *arguments, struct sbp_diag *diag)
{
    bool only_operands = false;
    for (int i = 0; i < count; i++) {
        if (!only_operands && strcmp(words[i], "--") == 0)
            only_operands = true;
        else if (!only_operands && strcmp(words[i], "-h") == 0)
            arguments->help = true;
        else if (!only_operands && words[i][0] == '-' && words[i][1] != '\0')
            SBP_TRY(read_option(command, count, words, &i, arguments, diag));
        else
            push_word(&arguments->operands, words[i]);
    }
    if (arguments->operands.count == 1 && strcmp(arguments->operands.word[0], "help") == 0)
        arguments->help = true;
    return check_operands(command, arguments, diag);
}

enum sbp_status sbp_cli_arguments_read(const struct sbp_command *command, int count, char **words,
                                       struct sbp_arguments *arguments, struct sbp_diag *diag)
{
    *arguments = (struct sbp_arguments){
        .command = command, .degrees = sbp_degrees_none(), .space = -1, .target = -1, .to = -1};
    struct sbp_word_list *lists[] = {&arguments->operands, &arguments->fix, &arguments->set,
                                     &arguments->sweep, &arguments->from};
    bool complete = true;
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) {
        lists[i]->word = SBP_NEW(&arguments->arena, const char *, count + 1);
        complete = complete && lists[i]->word != NULL;
    }
    arguments->forward.word = SBP_NEW(&arguments->arena, const char *, 2 * count + 1);
    arguments->record = record_of(command, count, words, &arguments->arena);
    if (!complete || arguments->forward.word == NULL || arguments->record == NULL)
        return sbp_fail(diag, SBP_E_MEMORY, "sbplan: out of memory");
    return read_words(command, count, words, arguments, diag);
}

void sbp_cli_arguments_free(struct sbp_arguments *arguments)
{
    if (arguments == NULL)
        return;
    sbp_arena_free(&arguments->arena);
    *arguments = (struct sbp_arguments){0};
}

/* --- help --- */

static void print_option(FILE *out, const struct sbp_option *option)
{
    struct sbp_text help = {0};
    sbp_text_add(&help, "%s%s", option->help, sbp_option_name_at(option, 0) == NULL ? "" : ": ");
    sbp_option_add_names(option, &help);
    sbp_help_entry(out, option->name, is_flag(option) ? "" : " ",
                   is_flag(option) ? "" : option->argument,
                   help.failed ? option->help : help.bytes);
    sbp_text_free(&help);
}

static bool has_option_named(const struct sbp_command *command, const char *name)
{
    return find_option(command, name, strlen(name)) != NULL;
}

/* Whether the command takes a number with a suffix. */
static bool has_scaled(const struct sbp_command *command)
{
    const struct sbp_option *option = NULL;
    while ((option = sbp_options_next(command, option)) != NULL)
        if (option->kind == SBP_OPTION_COUNT || option->kind == SBP_OPTION_SIZE ||
            option->kind == SBP_OPTION_TOKENS)
            return true;
    return has_option_named(command, "--max-bytes");
}

void sbp_options_print_help(const struct sbp_command *command, FILE *out)
{
    (void)fprintf(out, "Usage: sbplan %s%s%s [options]\n", command->name,
                  command->operands[0] == '\0' ? "" : " ", command->operands);
    sbp_help_wrapped(out, command->summary, 0, 0);
    (void)fprintf(out, "\nOptions:\n");
    const struct sbp_option *option = NULL;
    while ((option = sbp_options_next(command, option)) != NULL)
        print_option(out, option);
    if (has_option_named(command, "--space"))
        sbp_help_spaces(out);
    if (has_option_named(command, "--algorithm"))
        sbp_help_algorithms(out);
    if (has_option_named(command, "--set"))
        sbp_help_cuts(out);
    if (has_scaled(command)) {
        (void)fputc('\n', out);
        sbp_help_wrapped(out, SBP_SCALED_HELP, 0, 0);
    }
    if (command->notes != NULL) {
        (void)fputc('\n', out);
        sbp_help_wrapped(out, command->notes, 0, 0);
    }
}
