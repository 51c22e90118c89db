/* Command lines, one word a line: what is accepted lies within the bounds of its option, by the
 * table of sbplan and by one of the other programs' kinds. */
#include <math.h>
#include <stdlib.h>

#include "planner/cli/options.h"
#include "tests/fuzz/fuzz.h"

enum { MOST_WORDS = 16 };

static const struct sbp_command command = {
    .name = "fuzz",
    .operands = "MODEL [CLUSTER]",
    .least_operands = 1,
    .most_operands = 2,
    .options =
        "-o -n --space --objective --algorithm --seed --time-limit --search-memory "
        "--max-evaluations "
        "--restarts --memory-limit --fix --tokens --devices --set --top --sweep --from "
        "--strategy --runnable --global-batch --sequence --precision --vocab-multiple --name "
        "--backend --steps --json --help"};

static void read_command(int count, char **words)
{
    struct sbp_arguments arguments;
    struct sbp_diag diag = {{0}};
    if (sbp_cli_arguments_read(&command, count, words, &arguments, &diag) == SBP_OK) {
        fuzz_check(arguments.help || arguments.operands.count >= 1, "an operand");
        fuzz_check(arguments.devices >= 0 && arguments.top >= 0, "counts");
        fuzz_check(arguments.time_limit_s.most >= 0 && arguments.search_memory_bytes.most >= 0 &&
                       isfinite(arguments.tokens),
                   "numbers");
        fuzz_check(arguments.record != NULL, "a record");
    } else {
        fuzz_check(diag.text[0] != '\0', "a reason after a refusal");
    }
    sbp_cli_arguments_free(&arguments);
}

struct settings {
    int number, choice;
    int64_t whole, count, size;
    double tokens, seconds, rate;
    const char *text, *name;
    bool flag;
    struct sbp_word_list list;
};
#define FIELD(kind, field) SBP_OPTION_FIELD(kind, struct settings, field)

static void read_table(int count, char **words)
{
    static const char *const names[] = {"one", "two", NULL};
    static const struct sbp_option table[] = {
        {"--int", "N", "", FIELD(INT, number), .least = 1, .most = 9},
        {"--whole", "N", "", FIELD(WHOLE, whole), .least = -3, .most = INT64_MAX},
        {"--count", "N", "", FIELD(COUNT, count), .least = 1, .most = INT64_MAX},
        {"--size", "N", "", FIELD(SIZE, size), .least = 1, .most = 1 << 20},
        {"--tokens", "N", "", FIELD(TOKENS, tokens), .least = 1},
        {"--seconds", "S", "", FIELD(SECONDS, seconds)},
        {"--rate", "X", "", FIELD(RATE, rate), .most = 10},
        {"--text", "T", "", FIELD(TEXT, text), .most = 4},
        {"--choice", "C", "", FIELD(CHOICE, choice), .names = names},
        {"--name", "C", "", FIELD(NAME, name), .names = names},
        {"--list", "T", "", FIELD(LIST, list)},
        {"--flag", NULL, "", FIELD(FLAG, flag)},
        {.name = NULL}};
    const char *room[MOST_WORDS + 1], *operand;
    struct settings is = {.number = 1, .count = 1, .size = 1, .rate = 1, .list = {.word = room}};
    struct sbp_diag diag = {{0}};
    if (sbp_options_read(table, count, words, &is, &operand, &diag) != SBP_OK) {
        fuzz_check(diag.text[0] != '\0', "a reason after a refusal");
        return;
    }
    fuzz_check(is.number >= 1 && is.number <= 9 && is.whole >= -3 && is.count >= 1, "counts");
    fuzz_check(is.size >= 1 && is.size <= 1 << 20, "a size");
    fuzz_check(is.seconds >= 0 && isfinite(is.tokens), "numbers");
    fuzz_check(is.rate > 0 && is.rate <= 10, "a rate");
    fuzz_check(is.choice == 0 || is.choice == 1, "a choice");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = fuzz_text(data, size), *words[MOST_WORDS];
    const int count = fuzz_lines(text, words, MOST_WORDS);
    read_command(count, words);
    read_table(count, words);
    free(text);
    return 0;
}
