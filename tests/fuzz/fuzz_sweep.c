/* Words of --sweep, one a line: every row has one value of every key, and no two rows are alike. */
#include <stdlib.h>
#include <string.h>

#include "planner/cli/sweeps.h"
#include "tests/fuzz/fuzz.h"

static void check(const struct sbp_sweeps *sweeps, struct sbp_arena *arena)
{
    struct sbp_word_list last = {0}, row;
    fuzz_check(sweeps->key_count <= SBP_SWEEP_MOST_KEYS, "as many keys as are legal");
    fuzz_check(sweeps->row_count <= SBP_SWEEP_MOST_ROWS, "as many rows as are legal");
    for (int i = 0; i < sweeps->row_count; i++) {
        int differ = i == 0;
        fuzz_check(sbp_sweeps_row(sweeps, i, arena, &row) == SBP_OK, "words of a row");
        fuzz_check(row.count == sweeps->key_count, "a word for each key");
        for (int k = 0; k < row.count; k++)
            differ = differ || strcmp(row.word[k], last.word[k]) != 0;
        fuzz_check(differ, "a row unlike the last");
        last = row;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = fuzz_text(data, size), *line[8];
    struct sbp_arena arena = {0};
    struct sbp_sweeps sweeps;
    struct sbp_diag diag = {{0}};
    const int count = fuzz_lines(text, line, 8);
    const struct sbp_word_list words = {count, (const char **)line};
    if (sbp_sweeps_parse(&words, &arena, &sweeps, &diag) == SBP_OK)
        check(&sweeps, &arena);
    else
        fuzz_check(diag.text[0] != '\0', "a reason after a refusal");
    sbp_arena_free(&arena);
    free(text);
    return 0;
}
