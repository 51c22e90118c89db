#include <stdlib.h>
#include <string.h>

#include "base/launcher.h"
#include "base/options.h"
#include "tests/support/unit.h"

struct settings {
    bool verify;
    int steps, backend, mode;
    int64_t seed, evaluations, bytes;
    double tokens, limit_s, budget_s;
    const char *name, *device, *even;
    struct sbp_word_list log;
};

static bool set_even(void *field, const char *value)
{
    *(const char **)field = value;
    return strlen(value) % 2 == 0;
}

#define FIELD(kind, field) SBP_OPTION_FIELD(kind, struct settings, field)

static const struct sbp_option options[] = {
    {"--steps", "N", "training steps", FIELD(INT, steps), .least = 1, .most = 100},
    {"--verify", NULL, "compare", FIELD(FLAG, verify)},
    {"--mode", NULL, "of comparing", FIELD(CHOICE, mode), .names = sbp_verify_names,
     .least = SBP_VERIFY_FULL},
    {"--seed", "N", "of all", FIELD(WHOLE, seed), .least = -3, .most = (int64_t)1 << 53},
    {"--count", "N", "of evaluations", FIELD(COUNT, evaluations), .least = 1, .most = 2000000},
    {"--bytes", "BYTES", "at most", FIELD(SIZE, bytes), .least = 4096, .most = 1 << 20},
    {"--tokens", "N", "of the training", FIELD(TOKENS, tokens), .least = 1},
    {"--limit", "SECONDS", "of the search", FIELD(SECONDS, limit_s)},
    {"--budget", "SECONDS", "of measuring", FIELD(RATE, budget_s), .most = 60},
    {"--backend", "NAME", "of ranks", FIELD(CHOICE, backend), .names = sbp_backend_names},
    {"--device", "NAME", "of ranks", FIELD(NAME, device), .names = sbp_device_names + 1},
    {"--name", "NAME", "of the cluster", FIELD(TEXT, name), .most = 3},
    {"--from", "LOG", "may be repeated", FIELD(LIST, log)},
    {"--even", "TEXT", "of even length", FIELD(CHECKED, even), .set = set_even,
     .legal = "an even number of bytes"},
    {.name = NULL},
};

/* Splits words at blanks and reads them. */
static enum sbp_status parse(const char *words, struct settings *settings, const char **operand,
                             struct sbp_diag *diag)
{
    static char copy[192];
    char *argv[16] = {"program"};
    int argc = 1;
    (void)snprintf(copy, sizeof copy, "%s", words);
    for (char *word = strtok(copy, " "); word != NULL; word = strtok(NULL, " "))
        argv[argc++] = word;
    static const char *logs[16];
    *settings = (struct settings){.log.word = logs};
    *diag = (struct sbp_diag){{0}};
    return sbp_options_read(options, argc, argv, settings, operand, diag);
}

static void test_taken(void **state)
{
    (void)state;
    struct settings settings;
    struct sbp_diag diag;
    const char *operand = "";
    assert_int_equal(parse("--steps 3 plan.json --verify", &settings, &operand, &diag), SBP_OK);
    assert_int_equal(settings.steps, 3);
    assert_true(settings.verify);
    assert_string_equal(operand, "plan.json");
    assert_int_equal(parse("--steps=12", &settings, &operand, &diag), SBP_OK);
    assert_int_equal(settings.steps, 12);
    assert_false(settings.verify);
    assert_null(operand);
}

static void test_kinds(void **state)
{
    (void)state;
    struct settings settings;
    struct sbp_diag diag;
    assert_int_equal(parse("--seed -3 --count 1.5M --bytes 8K --tokens 300B --limit 0 --budget 60",
                           &settings, NULL, &diag),
                     SBP_OK);
    assert_int_equal(settings.seed, -3);
    assert_int_equal(settings.evaluations, 1500000);
    assert_int_equal(settings.bytes, 8192);
    assert_true(settings.tokens == 3e11 && settings.limit_s == 0 && settings.budget_s == 60);
    assert_int_equal(parse("--backend nccl --device cuda --name abc --from a --even=bc --from b",
                           &settings, NULL, &diag),
                     SBP_OK);
    assert_int_equal(settings.backend, SBP_BACKEND_NCCL);
    assert_string_equal(settings.device, "cuda");
    assert_string_equal(settings.name, "abc");
    assert_string_equal(settings.even, "bc");
    assert_int_equal(settings.log.count, 2);
    assert_string_equal(settings.log.word[1], "b");
}

/* A flag that stands for one of several names. */
static void test_flag_of_names(void **state)
{
    (void)state;
    struct settings settings;
    struct sbp_diag diag;
    const char *operand = "";
    assert_int_equal(parse("plan.json", &settings, &operand, &diag), SBP_OK);
    assert_int_equal(settings.mode, SBP_VERIFY_NONE);
    assert_int_equal(parse("--mode shrunk", &settings, &operand, &diag), SBP_OK);
    assert_int_equal(settings.mode, SBP_VERIFY_FULL);
    assert_string_equal(operand, "shrunk");
    assert_int_equal(parse("--mode=shrunk", &settings, &operand, &diag), SBP_OK);
    assert_int_equal(settings.mode, SBP_VERIFY_SHRUNK);
}

static void test_operands(void **state)
{
    (void)state;
    char *argv[] = {"program", "a", "--verify", "b", "-", "c"};
    const char *word[6];
    struct sbp_word_list operands = {.count = 7, .word = word};
    struct settings settings = {0};
    struct sbp_diag diag = {{0}};
    assert_int_equal(sbp_options_read_list(options, 6, argv, &settings, &operands, &diag), SBP_OK);
    assert_int_equal(operands.count, 4);
    assert_string_equal(operands.word[0], "a");
    assert_string_equal(operands.word[2], "-");
    assert_string_equal(operands.word[3], "c");
    assert_true(settings.verify);
    assert_int_equal(sbp_options_read_list(options, 1, argv, &settings, &operands, &diag), SBP_OK);
    assert_int_equal(operands.count, 0);
}

static void test_refused(void **state)
{
    (void)state;
    static const char *const cases[][2] = {
        {"--step 3", "unknown option \"--step\", did you mean \"--steps\"?"},
        {"--stesp=3", "unknown option \"--stesp\", did you mean \"--steps\"?"},
        {"--zzzzzzzz", "unknown option \"--zzzzzzzz\", see --help"},
        {"--steps", "--steps needs a value: N"},
        {"--steps 0", "--steps: \"0\" is not legal; legal: a whole number from 1 to 100"},
        {"--steps 101", "--steps: \"101\" is not legal; legal: a whole number from 1 to 100"},
        {"--steps=", "--steps: \"\" is not legal; legal: a whole number from 1 to 100"},
        {"--steps 4294967297",
         "--steps: \"4294967297\" is not legal; legal: a whole number from 1 to 100"},
        {"--seed -4",
         "--seed: \"-4\" is not legal; legal: a whole number from -3 to 9007199254740992"},
        {"--count 3M", "--count: \"3M\" is not legal; legal: a whole number from 1 to 2000000"},
        {"--count 1.5", "--count: \"1.5\" is not legal; legal: a whole number from 1 to 2000000"},
        {"--bytes 4095", "--bytes: \"4095\" is not legal; legal: a size as in 4096, 512M or 80G, "
                         "from 4096 to 1048576"},
        {"--bytes 2M", "--bytes: \"2M\" is not legal; legal: a size as in 4096, 512M or 80G, "
                       "from 4096 to 1048576"},
        {"--tokens 0", "--tokens: \"0\" is not legal; legal: a whole number from 1, as in 1000, "
                       "300B or 3e11"},
        {"--limit -1", "--limit: \"-1\" is not legal; legal: a number of seconds from 0"},
        {"--budget 0", "--budget: \"0\" is not legal; legal: a number above 0 up to 60"},
        {"--budget 61", "--budget: \"61\" is not legal; legal: a number above 0 up to 60"},
        {"--backend shm", "--backend: \"shm\" is not legal; legal: auto, threads, mpi, nccl"},
        {"--device auto", "--device: \"auto\" is not legal; legal: cpu, cuda"},
        {"--name alps", "--name: \"alps\" is not legal; legal: a text of 1 to 3 bytes"},
        {"--name=", "--name: \"\" is not legal; legal: a text of 1 to 3 bytes"},
        {"--even odd", "--even: \"odd\" is not legal; legal: an even number of bytes"},
        {"--verify=yes", "--verify takes no value"},
        {"--mode=half", "--mode: \"half\" is not legal; legal: none, full, sampled, shrunk"},
        {"--mode=", "--mode: \"\" is not legal; legal: none, full, sampled, shrunk"},
        {"a b", "\"b\" is one word too many, see --help"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct settings settings;
        struct sbp_diag diag;
        const char *operand;
        assert_int_equal(parse(cases[i][0], &settings, &operand, &diag), SBP_E_USAGE);
        assert_string_equal(diag.text, cases[i][1]);
    }
    struct settings settings;
    struct sbp_diag diag;
    assert_int_equal(parse("plan.json", &settings, NULL, &diag), SBP_E_USAGE);
    assert_string_equal(diag.text, "\"plan.json\" is one word too many, see --help");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_taken),         cmocka_unit_test(test_kinds),
        cmocka_unit_test(test_flag_of_names), cmocka_unit_test(test_operands),
        cmocka_unit_test(test_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
