#include "planner/commands/commands.h"

#include <limits.h>
#include <string.h>

#include "base/text.h"
#include "planner/cli/foreign_words.h"
#include "planner/cli/outputs.h"

#define MODEL_OPTIONS "--devices --set "
#define DEGREE_OPTIONS                                                                             \
    "--tp --pp --vpp --dp --cp --ep --etp --micro-batch --zero --sequence-parallel --recompute "
#define SOLVER_OPTIONS "--algorithm --seed --time-limit --max-evaluations --restarts "

#define NAMES_NOTE "MODEL and CLUSTER are files or names that `sbplan list` shows. "

#define OPERANDS(text, least, most)                                                                \
    .operands = (text), .least_operands = (least), .most_operands = (most)

const struct sbp_command sbp_commands[] = {
    {.name = "search",
     OPERANDS("MODEL CLUSTER", 2, 2),
     .summary = "find the cheapest way to split a model over a cluster",
     .notes = NAMES_NOTE
     "Exit status: 0 a plan was found, 1 there is none, 2 bad usage or bad input. Ctrl-C, "
     "SIGTERM and SIGHUP end the search with the best plan so far, marked \"stopped\", and exit "
     "status 0; without one it is 1. The second ends it at once, with 130, 143 or 129.",
     .options =
         "-o --problem --runtime --space --target --quick --objective --runnable " SOLVER_OPTIONS
         "--search-memory --memory-limit --fix " DEGREE_OPTIONS "--tokens " MODEL_OPTIONS
         "--top --sweep --json --help",
     .run = sbp_command_search},
    {.name = "explain",
     OPERANDS("PLAN", 1, 1),
     .summary = "say what a plan does: layer by layer, tensor by tensor, transfer by transfer",
     .notes = "The plan is checked, compiled and priced again.",
     .options = "--trace --json --help",
     .run = sbp_command_explain},
    {.name = "report",
     OPERANDS("FILE...", 1, INT_MAX),
     .summary = "write a page to look at: timeline, memory, layers, communication, alternatives",
     .notes =
         "A FILE is a plan, or what sbplan search --sweep --json or sbplan run --json printed; "
         "at least one is a plan, and the first one is shown in full. The page is one HTML "
         "file that needs nothing else. Exit status: 0 written, 2 bad usage or bad input.",
     .options = "-o --help",
     .run = sbp_command_report},
    {.name = "export",
     OPERANDS("PLAN", 1, 1),
     .summary = "write a plan as a trainer's own files say it, and price what is lost",
     .notes = "What the trainer cannot express is replaced by the nearest that it can, which is "
              "listed and priced beside the plan. Exit status: 0 written, 2 bad usage, bad input, "
              "or a plan that the trainer cannot express at all.",
     .options = "--to -o --json --help",
     .run = sbp_command_export},
    {.name = "compare",
     OPERANDS("MODEL CLUSTER, or PLAN PLAN", 2, 2),
     .summary = "search every space of strategies and show the best of each in one table",
     .notes = NAMES_NOTE
     "--time-limit is of all spaces together: each may take an equal share of what those before it "
     "left. --max-evaluations and --search-memory are each space's. Ctrl-C, SIGTERM and SIGHUP end "
     "it; spaces that were not searched say so. Exit status: 0 some space has a plan, 1 none has, "
     "2 "
     "bad usage or bad input. Two plan files in their place are compared with each other: which is "
     "faster, and why. `sbplan diff PLAN PLAN` is the same.",
     .options = "--runtime --objective " SOLVER_OPTIONS
                "--search-memory --memory-limit " MODEL_OPTIONS "--json --help",
     .run = sbp_command_compare},
    {.name = "advise",
     OPERANDS("MODEL CLUSTER", 2, 2),
     .summary = "say how many nodes pay, what the bottleneck is, what training takes",
     .notes = NAMES_NOTE
     "Searches the machine as it is and with twice or half of its nodes, bandwidths, memory, "
     "arithmetic and batch; a device that keeps 90 % of its best rate pays. Each answer stands "
     "above the command that shows more. --time-limit is of all searches together. Exit status: 0 "
     "answered, 1 nothing fits, 2 bad usage or bad input. Ctrl-C, SIGTERM and SIGHUP end it with "
     "what was searched.",
     .options = "--runtime --quick --seed --time-limit --max-evaluations --search-memory "
                "--tokens --set --json --help",
     .run = sbp_command_advise},
    {.name = "price",
     OPERANDS("MODEL CLUSTER", 2, 2),
     .summary = "price a plan by its degrees, by flags of Megatron-LM, or by a strategy file",
     .notes = NAMES_NOTE
     "Degrees (--tp 8 --pp 4 ...) stand for the strategy of Megatron-LM; tensor parallel takes the "
     "innermost devices, then context, then data, and stages the outermost. What they leave open "
     "of the step, --set says. The strategy file is {\"layers\": [{\"name\": \"fc1\", \"roles\": "
     "{\"batch\": [4], "
     "\"column\": [8]}}, ...]}: for every layer that has a choice, how many ways each role splits "
     "it at each level, outermost first; replicate, mirror, partial and context are roles, too. A "
     "layer may say where its output rests between layers, \"rest\": \"B\" or {\"S0\": [4], "
     "\"B\": [8]} (split by batch S0, sequence S1, features S2; B whole; P partial sums; M whole, "
     "and so is its gradient: a level's members all, or none), and the ZeRO level of its weights, "
     "\"zero\": 3. Other rests are searched. A \"parallel\" object holds what "
     "--set says of stages and micro-batches. A plan file is a strategy file, too.",
     .options =
         DEGREE_OPTIONS "--megatron --strategy -o --runtime --seed --time-limit --search-memory "
                        "--memory-limit --measured --tokens " MODEL_OPTIONS "--json --help",
     .run = sbp_command_price},
    {.name = "solve",
     OPERANDS("PROBLEM.json", 1, 1),
     .summary = "solve a pairwise problem by itself (the format of the IOPDDL benchmark)",
     .notes = "Exit status: 0 a choice was found, 1 there is none, 2 bad usage or bad input.",
     .options = SOLVER_OPTIONS "--json --help",
     .run = sbp_command_solve},
    {.name = "import",
     OPERANDS("hf CONFIG.json", 2, 2),
     .summary = "make a model file of a Hugging Face config.json",
     .options = "-o --global-batch --sequence --precision --vocab-multiple --name --help",
     .run = sbp_command_import},
    {.name = "list",
     OPERANDS("models|clusters|devices|runtimes", 1, 1),
     .summary = "list the models, clusters, devices or runtimes that have names",
     .notes =
         "They are looked for in $SBPLAN_CONFIGS (models/, clusters/, devices/ and runtimes/ in "
         "it), then where "
         "sbplan was built or installed.",
     .options = "--json --help",
     .run = sbp_command_list},
    {.name = "validate",
     OPERANDS("[SET...]", 0, INT_MAX),
     .summary = "price published training runs and say how far predictions are from measurements",
     .notes = "A SET is a file of runs or a name of configs/runs; without one all are priced. "
              "Columns: mean absolute error and mean error of step times; the error after all "
              "predictions are multiplied by the one factor that fits best; that of a constant "
              "utilisation of the devices' peak, fitted likewise; rank correlation (Spearman) over "
              "all runs; number of groups of 4 runs and more that have model, batch and devices in "
              "common, mean rank correlation in them, and what taking the predicted best of a "
              "group costs above its best; error of the most memory of a step and of what stays "
              "between steps; whether the bounds of the set's file "
              "hold. Exit status: 0 all bounds hold, 1 one does not, 2 bad usage or bad input.",
     .options = "--runtime --rows --json --help",
     .run = sbp_command_validate},
    {.name = "calibrate",
     OPERANDS("[--from LOG... | --runs RUNS.csv MODEL CLUSTER]", 0, INT_MAX),
     .summary = "measure this machine's ranks, read published logs, or fit a trainer to measured "
                "steps",
     .notes =
         "Starts sbplan-calibrate, under mpirun where there is one, and prints the command; "
         "with --from, sbplan-fit, which needs no ranks. What a log does not say of its run, "
         "a first line of it may: \"#@ ranks=16 | nodes=2 | collective=all_gather\". With --runs "
         "RUNS.csv, a table of measured steps (its columns: docs/calibrate.md), writes the "
         "profile of a trainer that --runtime takes. Exit status: "
         "0 done, 2 bad "
         "usage or bad input, 130, 143 or 129 interrupted by SIGINT, SIGTERM or SIGHUP: the same "
         "command goes on.",
     .options =
         "-n -o --backend --collectives --max-bytes --budget-s --runs --nominal --merge "
         "--diff --fresh --dry-run --print-sbatch --method --statistic --weights --seed --from "
         "--device-preset --ports --cluster-nodes --name --nodes --ranks-per-node --runtime --json "
         "--quiet --help",
     .forwards = true,
     .run = sbp_command_calibrate},
    {.name = "run",
     OPERANDS("PLAN", 1, 1),
     .summary = "train some steps as a plan says and compare with one device",
     .notes = "Starts sbplan-run, with --backend mpi under mpirun, and prints that command. Exit "
              "status: 0 done, 1 verification failed, a loss or gradient is no finite number, or a "
              "rank is lost, 2 bad usage or "
              "bad input, 130, 143 or 129 interrupted by SIGINT, SIGTERM or SIGHUP.",
     .options = "--steps --verify --backend --device --dtype --math --seed --labels --deadline "
                "--check-collectives --messages --trace --json --help",
     .forwards = true,
     .run = sbp_command_run},
    {.name = "bench",
     OPERANDS("PLAN...", 1, INT_MAX),
     .summary = "measure plans of one model beside each other and beside their predictions",
     .notes =
         "Plans take turns, round by round; a round counts as the median of its steps, and the "
         "interval is that of the median over rounds. Plans of other batches are compared by "
         "their rates. Starts sbplan-run, with --backend mpi under mpirun, and prints that "
         "command. Exit status: 0 done, 1 a loss or gradient is no finite number, or a rank is "
         "lost, 2 bad usage or bad input, 130, 143 or 129 interrupted by SIGINT, SIGTERM or "
         "SIGHUP.",
     .options =
         "--rounds --steps --warmup --backend --device --dtype --seed --deadline --json --help",
     .forwards = true,
     .run = sbp_command_bench},
    {.name = "completion",
     OPERANDS("bash|zsh|fish", 1, 1),
     .summary = "print a script that completes command lines in a shell",
     .notes = "source <(sbplan completion bash); in fish: sbplan completion fish | source. An "
              "installation has them where shells look.",
     .options = "--help",
     .run = sbp_command_completion},
    {.name = "manual",
     OPERANDS("", 0, 0),
     .summary = "print the manual page, of all commands and options",
     .notes = "sbplan manual | man -l -; an installation has it: man sbplan.",
     .options = "--help",
     .run = sbp_command_manual},
    {.name = NULL},
};

static const struct sbp_command *find_command(const char *name)
{
    for (const struct sbp_command *command = sbp_commands; command->name != NULL; command++)
        if (strcmp(command->name, name) == 0)
            return command;
    return NULL;
}

static enum sbp_status refuse_command(const char *word, struct sbp_diag *diag)
{
    const char *names[32] = {0};
    for (int i = 0; sbp_commands[i].name != NULL; i++)
        names[i] = sbp_commands[i].name;
    const char *advice = sbp_foreign_words_advice(word, strlen(word));
    if (advice != NULL)
        return sbp_fail(diag, SBP_E_USAGE,
                        "sbplan: unknown command \"%.60s\": %s; options of sbplan search MODEL "
                        "CLUSTER",
                        word, advice);
    const char *nearest = sbp_text_nearest(word, names);
    if (nearest != NULL)
        return sbp_fail(diag, SBP_E_USAGE,
                        "sbplan: unknown command \"%.60s\", did you mean \"%s\"?", word, nearest);
    return sbp_fail(diag, SBP_E_USAGE, "sbplan: unknown command \"%.60s\", see sbplan --help",
                    word);
}

static enum sbp_status run_command(const struct sbp_command *command, int count, char **words,
                                   const atomic_int *stop, struct sbp_diag *diag)
{
    struct sbp_arguments arguments;
    enum sbp_status status = sbp_cli_arguments_read(command, count, words, &arguments, diag);
    arguments.stop = stop;
    if (status == SBP_OK && arguments.help)
        sbp_options_print_help(command, stdout);
    else if (status == SBP_OK)
        status = sbp_outputs_check(&arguments, diag);
    if (status == SBP_OK && !arguments.help)
        status = command->run(&arguments, diag);
    sbp_cli_arguments_free(&arguments);
    return status;
}

static void print_help(void)
{
    (void)printf("Usage: sbplan COMMAND [arguments]\n"
                 "Plans how to split the training of a model over the devices of a cluster.\n"
                 "\nCommands:\n");
    for (const struct sbp_command *command = sbp_commands; command->name != NULL; command++)
        (void)printf("  %-10s %s\n", command->name, command->summary);
    (void)printf("\nsbplan COMMAND --help says more; sbplan --version says which one this is.\n");
}

enum sbp_status sbp_commands_run(int argc, char **argv, const atomic_int *stop,
                                 struct sbp_diag *diag)
{
    if (argc < 2)
        return sbp_fail(diag, SBP_E_USAGE, "sbplan: no command given, see sbplan --help");
    const bool asks = strcmp(argv[1], "help") == 0;
    const char *word = asks && argc > 2 ? argv[2] : argv[1];
    if (strcmp(word, "help") == 0 || strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0) {
        print_help();
        return SBP_OK;
    }
    if (strcmp(word, "--version") == 0) {
        (void)printf("sbplan " SBP_VERSION "\n");
        return SBP_OK;
    }
    const struct sbp_command *command = find_command(strcmp(word, "diff") == 0 ? "compare" : word);
    if (command == NULL)
        return refuse_command(word, diag);
    if (asks) {
        sbp_options_print_help(command, stdout);
        return SBP_OK;
    }
    return run_command(command, argc - 2, argv + 2, stop, diag);
}
