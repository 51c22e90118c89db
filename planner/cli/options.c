#include "planner/cli/options.h"

#include <math.h>
#include <string.h>

#include "base/file.h"
#include "base/text.h"
#include "planner/cli/help.h"
#include "planner/inner/cut_solve.h"

#define MOST_CHOICES 16
#define MOST_COUNT   ((int64_t)1 << 53)
#define MOST_OPTIONS 64

/* --- the table of options --- */

enum value_kind {
    FLAG,    /* bool */
    TEXT,    /* const char * */
    OUTPUT,  /* the same: a file that can be written */
    LIST,    /* struct sbp_word_list; may be given more than once */
    WHOLE,   /* int64_t */
    COUNT,   /* int64_t, with k, M, G, B, T as powers of 1000 */
    TOKENS,  /* the same as a double, which also takes 3e11 */
    SIZE,    /* int64_t bytes, with K, M, G as powers of 1024 */
    SECONDS, /* double, 0 and more */
    CHOICE,  /* int: place in a list of names */
    HANDED,  /* any text: the program that is started checks it */
    SWITCH,  /* a flag that is only handed on */
};

typedef void fill_names(const char *names[MOST_CHOICES]);

static fill_names space_names, algorithm_names, objective_names, precision_names, backend_names,
    device_names;

struct option {
    const char *name, *argument;
    enum value_kind kind;
    size_t offset;
    int64_t least, most;
    fill_names *choices;
    const char *help;
};

#define AT(field) offsetof(struct sbp_arguments, field)

static const struct option options[] = {
    {"-o", "FILE", OUTPUT, AT(output), 0, 0, NULL, "write the result to a file"},
    {"--problem", "FILE", OUTPUT, AT(problem), 0, 0, NULL,
     "write the pairwise problem as well, in the format of the IOPDDL benchmark"},
    {"--space", "NAME", CHOICE, AT(space), 0, 0, space_names,
     "strategies to search among (default full)"},
    {"--objective", "NAME", CHOICE, AT(objective), 0, 0, objective_names,
     "what is made least (default step-time)"},
    {"--algorithm", "NAME", CHOICE, AT(algorithm), 0, 0, algorithm_names,
     "how it is searched (default auto: exact where it can)"},
    {"--seed", "N", WHOLE, AT(seed), 0, MOST_COUNT, NULL, "of everything random (default 0)"},
    {"--time-limit", "SECONDS", SECONDS, AT(time_limit_s), 0, 0, NULL,
     "end the search then with the best so far (default 0: no limit)"},
    {"--max-evaluations", "N", COUNT, AT(max_evaluations), 1, MOST_COUNT, NULL,
     "end the search after so many strategies"},
    {"--restarts", "N", COUNT, AT(restarts), 1, 1000000000, NULL,
     "of coordinate-descent and metropolis-hastings (default 100)"},
    {"--memory-limit", "BYTES", SIZE, AT(memory_limit_bytes), 1, MOST_COUNT, NULL,
     "memory of a device (default: the cluster's); 80G, 512M"},
    {"--fix", "LAYER=ROLE:FACTOR,...", LIST, AT(fix), 0, 0, NULL,
     "fix factors of a layer and of its repeats, those of several levels as 4/2 outermost first "
     "(of "
     "a stage where there are several); may be repeated"},
    {"--runnable", NULL, FLAG, AT(runnable), 0, 0, NULL,
     "only plans that `sbplan run` executes: one stage, the batch at once, nothing sharded"},
    {"--strategy", "FILE", TEXT, AT(strategy), 0, 0, NULL, "the strategy to price, or a plan"},
    {"--tokens", "N", TOKENS, AT(tokens), 1, 0, NULL,
     "also say what training on so many tokens takes; 300B, 3e11"},
    {"--devices", "N", WHOLE, AT(devices), 1, (int64_t)1 << 31, NULL,
     "use so many of the cluster's devices, innermost first"},
    {"--set", "KEY=VALUE", LIST, AT(set), 0, 0, NULL,
     "how a step is cut (below), boxing=full|paper|path, max_batch_split=N, devices=N, or a path "
     "into the model (layers=24) or the cluster (cluster.levels[0].size=4, "
     "cluster.device.memory_bytes=40G); may be repeated"},
    {"--sweep", "KEY=a,b,c", LIST, AT(sweep), 0, 0, NULL,
     "search for each value of a key of --set, each with its own limits, in one table; may be "
     "repeated: all combinations"},
    {"--global-batch", "N", WHOLE, AT(global_batch), 1, (int64_t)1 << 31, NULL,
     "sequences or images a step (needed)"},
    {"--sequence", "N", WHOLE, AT(sequence), 1, (int64_t)1 << 31, NULL,
     "tokens of a sequence (needed but for images)"},
    {"--precision", "NAME", CHOICE, AT(precision), 0, 0, precision_names,
     "of the training (default fp32)"},
    {"--vocab-multiple", "N", WHOLE, AT(vocab_multiple), 1, (int64_t)1 << 20, NULL,
     "pad the vocabulary to a multiple (default 128)"},
    {"--name", "NAME", TEXT, AT(name), 0, 0, NULL, "of the model, or cluster"},
    {"-n", "RANKS", WHOLE, AT(ranks), 2, 1024, NULL, "ranks to measure (default 4)"},
    {"--backend", "NAME", CHOICE, AT(backend), 0, 0, backend_names,
     "how ranks communicate (default auto)"},
    {"--device", "NAME", CHOICE, AT(device), 0, 0, device_names,
     "where ranks compute (default auto)"},
    {"--max-bytes", "BYTES", HANDED, 0, 0, 0, NULL, "largest message (default 16M)"},
    {"--budget-s", "SECONDS", HANDED, 0, 0, 0, NULL, "time for all measurements (default 30)"},
    {"--collectives", "LIST", HANDED, 0, 0, 0, NULL,
     "measure these alone, with commas between (default: all)"},
    {"--runs", "N", HANDED, 0, 0, 0, NULL, "repeats of the whole (default 3)"},
    {"--nominal", "BYTES", HANDED, 0, 0, 0, NULL,
     "bytes a second that a network port is sold for (default: what the system says)"},
    {"--merge", "FILE", HANDED, 0, 0, 0, NULL, "measure on top of an older calibration"},
    {"--diff", "FILE", HANDED, 0, 0, 0, NULL,
     "say what changed from an older calibration, after measuring or --from a newer one"},
    {"--fresh", NULL, SWITCH, 0, 0, 0, NULL,
     "drop an unfinished calibration instead of going on with it"},
    {"--dry-run", NULL, SWITCH, 0, 0, 0, NULL, "print the plan of measurements and its node-hours"},
    {"--print-sbatch", NULL, SWITCH, 0, 0, 0, NULL, "print a job script for Slurm"},
    {"--method", "NAME", HANDED, 0, 0, 0, NULL,
     "how times become a network: curves (default) or paper, one alpha and beta "
     "(AutoDDL, 3.2)"},
    {"--statistic", "NAME", HANDED, 0, 0, 0, NULL,
     "what counts of the repeats of a collective: median (default) or least, where other programs "
     "run beside"},
    {"--weights", "NAME", HANDED, 0, 0, 0, NULL,
     "of the errors of --method paper: relative (default), symmetric or none, as the paper"},
    {"--from", "LOG...", LIST, AT(from), 0, 0, NULL,
     "do not measure: read logs of nccl-tests (text or JSON), rccl-tests or the OSU benchmarks, or "
     "fit the samples of a calibration again"},
    {"--device-preset", "NAME", HANDED, 0, 0, 0, NULL,
     "with --from and -o, the devices, of which logs say nothing: p100, v100-16g, v100-32g, "
     "a100-40g, a100-80g, l40s, h100-sxm, h200-sxm, gh200, b200, gb200, mi300x, mi355x"},
    {"--ports", "N", HANDED, 0, 0, 0, NULL,
     "network ports of a node (default: each of its devices has one)"},
    {"--cluster-nodes", "N", HANDED, 0, 0, 0, NULL,
     "nodes of the cluster file (default: the most that were measured)"},
    {"--nodes", "N", HANDED, 0, 0, 0, NULL,
     "nodes of the logs' runs, where a log does not say; of --dry-run, --print-sbatch"},
    {"--ranks-per-node", "N", HANDED, 0, 0, 0, NULL, "ranks on each"},
    {"--quiet", NULL, SWITCH, 0, 0, 0, NULL, "print nothing but errors"},
    {"--steps", "N", HANDED, 0, 0, 0, NULL, "training steps (default 1)"},
    {"--verify", NULL, SWITCH, 0, 0, 0, NULL,
     "compare gradients, loss and updates with one device in double precision"},
    {"--dtype", "NAME", HANDED, 0, 0, 0, NULL, "f32 (default) or f64: of the run"},
    {"--trace", "FILE", HANDED, 0, 0, 0, NULL, "write the timeline of the last step"},
    {"--top", "K", WHOLE, AT(top), 1, 100, NULL,
     "the K best plans that are split or cut otherwise, in one table; with -o plan.json the next "
     "ones go to plan-2.json, plan-3.json, ..."},
    {"--json", NULL, FLAG, AT(json), 0, 0, NULL, "print one JSON object and nothing else"},
    {"--help", NULL, FLAG, AT(help), 0, 0, NULL, "print this"},
};
enum { OPTIONS = sizeof options / sizeof *options };

static void space_names(const char *names[MOST_CHOICES])
{
    for (int i = 0; i < SBP_SPACES; i++)
        names[i] = sbp_space_names()[i];
}

static void algorithm_names(const char *names[MOST_CHOICES])
{
    names[0] = "auto";
    for (int i = 0; sbp_solvers[i].name != NULL && i + 2 < MOST_CHOICES; i++)
        names[i + 1] = sbp_solvers[i].name;
}

static void objective_names(const char *names[MOST_CHOICES])
{
    names[SBP_STEP_TIME] = "step-time";
    names[SBP_COMMUNICATION] = "communication";
}

static void precision_names(const char *names[MOST_CHOICES])
{
    names[0] = "fp32";
    names[1] = "mixed";
}

static void backend_names(const char *names[MOST_CHOICES])
{
    names[0] = "auto";
    names[1] = "threads";
    names[2] = "mpi";
    names[3] = "nccl";
}

static void device_names(const char *names[MOST_CHOICES])
{
    names[0] = "auto";
    names[1] = "cpu";
    names[2] = "cuda";
}

/* Whether the option stands in the command's list of names. */
static bool has_option(const struct sbp_command *command, const struct option *option)
{
    const size_t length = strlen(option->name);
    for (const char *at = command->options; (at = strstr(at, option->name)) != NULL; at += length)
        if ((at == command->options || at[-1] == ' ') && (at[length] == ' ' || at[length] == '\0'))
            return true;
    return false;
}

static bool is_flag(const struct option *option)
{
    return option->argument == NULL;
}

/* --- values --- */

#define REFUSE(...) sbp_fail(diag, SBP_E_USAGE, __VA_ARGS__)

/* Where an option is complained about: "sbplan search: --space". */
struct place {
    const struct sbp_command *command;
    const struct option *option;
    struct sbp_diag *diag;
};

static enum sbp_status refuse_value(const struct place *place, const char *value, const char *legal)
{
    return sbp_fail(place->diag, SBP_E_USAGE, "sbplan %s: %s: \"%.60s\" is not legal, legal is %s",
                    place->command->name, place->option->name, value, legal);
}

static enum sbp_status read_choice(const struct place *place, const char *value, int *choice)
{
    const char *names[MOST_CHOICES] = {0};
    place->option->choices(names);
    for (int i = 0; names[i] != NULL; i++) {
        if (strcmp(names[i], value) == 0) {
            *choice = i;
            return SBP_OK;
        }
    }
    const char *nearest = sbp_nearest(value, names);
    if (nearest != NULL)
        return sbp_fail(place->diag, SBP_E_USAGE,
                        "sbplan %s: %s: unknown value \"%.60s\", did you mean \"%s\"?",
                        place->command->name, place->option->name, value, nearest);
    struct sbp_text legal = {0};
    for (int i = 0; names[i] != NULL; i++)
        sbp_text_add(&legal, "%s%s", i == 0 ? "" : ", ", names[i]);
    const enum sbp_status status =
        refuse_value(place, value, legal.failed ? "one of the help's" : legal.bytes);
    sbp_text_free(&legal);
    return status;
}

/* "300B", "3e11", "1.5M": powers of 1000. */
static bool parse_count(const char *value, double *count)
{
    static const struct {
        char letter;
        double factor;
    } SUFFIXES[] = {{'k', 1e3}, {'K', 1e3}, {'M', 1e6}, {'G', 1e9}, {'B', 1e9}, {'T', 1e12}};
    char digits[64];
    const size_t length = strlen(value);
    if (length == 0 || length >= sizeof digits)
        return false;
    memcpy(digits, value, length + 1);
    double factor = 1;
    for (size_t i = 0; i < sizeof SUFFIXES / sizeof *SUFFIXES; i++)
        if (value[length - 1] == SUFFIXES[i].letter) {
            factor = SUFFIXES[i].factor;
            digits[length - 1] = '\0';
        }
    if (!sbp_parse_double(digits, count))
        return false;
    *count *= factor;
    return *count == rint(*count) && *count <= 1e300;
}

static enum sbp_status read_number(const struct place *place, const char *value, double *number)
{
    if (!parse_count(value, number) || *number < (double)place->option->least)
        return refuse_value(place, value, "a whole number from 1, as in 1000, 300B or 3e11");
    return SBP_OK;
}

static enum sbp_status read_whole(const struct place *place, const char *value, int64_t *whole)
{
    const struct option *option = place->option;
    char legal[96];
    double number = 0;
    bool read = option->kind == SIZE ? sbp_parse_size(value, whole) : sbp_parse_int64(value, whole);
    if (option->kind == COUNT) {
        read = parse_count(value, &number) && number >= 0 && number <= (double)MOST_COUNT;
        *whole = read ? (int64_t)number : 0;
    }
    if (read && *whole >= option->least && *whole <= option->most)
        return SBP_OK;
    (void)snprintf(legal, sizeof legal, "%s from %lld to %lld",
                   option->kind == SIZE ? "a size as in 4096, 512M or 80G," : "a whole number",
                   (long long)option->least, (long long)option->most);
    return refuse_value(place, value, legal);
}

static enum sbp_status read_seconds(const struct place *place, const char *value, double *seconds)
{
    if (!sbp_parse_double(value, seconds) || *seconds < 0)
        return refuse_value(place, value, "a number of seconds from 0");
    return SBP_OK;
}

/* What cannot be written is told before hours of work, not behind them. */
static enum sbp_status read_text(const struct place *place, const char *value, const char **text)
{
    if (*value == '\0')
        return refuse_value(place, value, "a text that is not empty");
    *text = value;
    return place->option->kind == OUTPUT ? sbp_file_check_writable(value, place->diag) : SBP_OK;
}

/* Lists and forwarded words have room for every word of the command line. */
static void push_word(struct sbp_word_list *list, const char *word)
{
    list->word[list->count++] = word;
}

static enum sbp_status read_value(const struct place *place, const char *value,
                                  struct sbp_arguments *arguments)
{
    void *field = (char *)arguments + place->option->offset;
    const bool by_command = place->option->kind == FLAG || place->option->kind == CHOICE;
    if (place->command->forwards && !by_command) {
        push_word(&arguments->forward, place->option->name);
        if (!is_flag(place->option))
            push_word(&arguments->forward, value);
    }
    switch (place->option->kind) {
    case FLAG:
        *(bool *)field = true;
        return SBP_OK;
    case TEXT:
    case OUTPUT:
        return read_text(place, value, field);
    case LIST:
        push_word(field, value);
        return SBP_OK;
    case TOKENS:
        return read_number(place, value, field);
    case WHOLE:
    case COUNT:
    case SIZE:
        return read_whole(place, value, field);
    case SECONDS:
        return read_seconds(place, value, field);
    case CHOICE:
        return read_choice(place, value, field);
    case HANDED:
    case SWITCH:
        break;
    }
    return SBP_OK;
}

/* --- words --- */

static enum sbp_status refuse_option(const struct sbp_command *command, const char *word,
                                     size_t length, struct sbp_diag *diag)
{
    const char *names[MOST_OPTIONS] = {0};
    char name[64];
    int count = 0;
    (void)snprintf(name, sizeof name, "%.*s", (int)(length < 60 ? length : 60), word);
    for (int i = 0; i < OPTIONS; i++)
        if (has_option(command, &options[i]))
            names[count++] = options[i].name;
    const char *nearest = sbp_nearest(name, names);
    if (nearest != NULL)
        return REFUSE("sbplan %s: unknown option \"%s\", did you mean \"%s\"?", command->name, name,
                      nearest);
    return REFUSE("sbplan %s: unknown option \"%s\", see sbplan %s --help", command->name, name,
                  command->name);
}

static const struct option *find_option(const struct sbp_command *command, const char *word,
                                        size_t length)
{
    for (int i = 0; i < OPTIONS; i++)
        if (strlen(options[i].name) == length && memcmp(options[i].name, word, length) == 0 &&
            has_option(command, &options[i]))
            return &options[i];
    return NULL;
}

/* Of an option without its "=value". */
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
    const char *equals = word[length] == '=' ? word + length : NULL;
    const struct option *option = find_option(command, word, length);
    if (option == NULL)
        return refuse_option(command, word, length, diag);
    const struct place place = {.command = command, .option = option, .diag = diag};
    const char *value = equals == NULL ? "" : equals + 1;
    if (is_flag(option) && equals != NULL)
        return REFUSE("sbplan %s: %s takes no value", command->name, option->name);
    if (!is_flag(option) && equals == NULL) {
        if (*at + 1 >= count)
            return REFUSE("sbplan %s: %s needs a value: %s", command->name, option->name,
                          option->argument);
        value = words[++*at];
    }
    return read_value(&place, value, arguments);
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

/* As a shell takes it: in quotes where it would read more into it than a word. */
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

/* Where it writes and in which form it prints is no part of how a plan was found. */
static bool is_recorded(const struct option *option)
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
        const struct option *option = find_option(command, words[i], length);
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
    return check_operands(command, arguments, diag);
}

enum sbp_status sbp_arguments_read(const struct sbp_command *command, int count, char **words,
                                   struct sbp_arguments *arguments, struct sbp_diag *diag)
{
    *arguments = (struct sbp_arguments){.command = command};
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

void sbp_arguments_free(struct sbp_arguments *arguments)
{
    if (arguments == NULL)
        return;
    sbp_arena_free(&arguments->arena);
    *arguments = (struct sbp_arguments){0};
}

/* --- help --- */

static void print_option(FILE *out, const struct option *option)
{
    struct sbp_text help = {0};
    const char *names[MOST_CHOICES] = {0};
    sbp_text_add(&help, "%s", option->help);
    if (option->kind == CHOICE)
        option->choices(names);
    for (int i = 0; names[i] != NULL; i++)
        sbp_text_add(&help, "%s%s", i == 0 ? ": " : ", ", names[i]);
    sbp_help_entry(out, option->name, is_flag(option) ? "" : " ",
                   is_flag(option) ? "" : option->argument,
                   help.failed ? option->help : help.bytes);
    sbp_text_free(&help);
}

static bool has_option_named(const struct sbp_command *command, const char *name)
{
    for (int i = 0; i < OPTIONS; i++)
        if (strcmp(options[i].name, name) == 0)
            return has_option(command, &options[i]);
    return false;
}

void sbp_help_print_command(const struct sbp_command *command, FILE *out)
{
    (void)fprintf(out, "Usage: sbplan %s%s%s [options]\n", command->name,
                  command->operands[0] == '\0' ? "" : " ", command->operands);
    sbp_help_wrapped(out, command->summary, 0, 0);
    (void)fprintf(out, "\nOptions:\n");
    for (int i = 0; i < OPTIONS; i++)
        if (has_option(command, &options[i]))
            print_option(out, &options[i]);
    if (has_option_named(command, "--space"))
        sbp_help_spaces(out);
    if (has_option_named(command, "--algorithm"))
        sbp_help_algorithms(out);
    if (has_option_named(command, "--set"))
        sbp_help_cuts(out);
    if (command->notes != NULL) {
        (void)fputc('\n', out);
        sbp_help_wrapped(out, command->notes, 0, 0);
    }
}

void sbp_help_print(FILE *out)
{
    (void)fprintf(out, "Usage: sbplan COMMAND [arguments]\n"
                       "Plans how to split the training of a model over the devices of a cluster.\n"
                       "\nCommands:\n");
    for (const struct sbp_command *command = sbp_commands; command->name != NULL; command++)
        (void)fprintf(out, "  %-10s %s\n", command->name, command->summary);
    (void)fprintf(out, "\nsbplan COMMAND --help says more; sbplan --version says which one this "
                       "is.\n");
}
