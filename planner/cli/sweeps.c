#include "planner/cli/sweeps.h"

#include <string.h>

#include "base/text.h"

/* Length of the value at the start of a text: up to a comma outside brackets and quotes. */
static size_t value_length(const char *text)
{
    int depth = 0;
    bool quoted = false;
    size_t length = 0;
    for (; text[length] != '\0'; length++) {
        const char c = text[length];
        if (c == ',' && depth == 0 && !quoted)
            break;
        if (c == '"')
            quoted = !quoted;
        else if (!quoted && (c == '[' || c == '{'))
            depth++;
        else if (!quoted && (c == ']' || c == '}'))
            depth--;
    }
    return length;
}

static bool has_word(const struct sbp_word_list *list, const char *word)
{
    for (int i = 0; i < list->count; i++)
        if (strcmp(list->word[i], word) == 0)
            return true;
    return false;
}

static enum sbp_status parse_values(const char *word, const char *text, struct sbp_arena *arena,
                                    struct sbp_word_list *values, struct sbp_diag *diag)
{
    char *copy = sbp_arena_strdup(arena, text);
    values->word = SBP_NEW(arena, const char *, strlen(text) + 1);
    if (copy == NULL || values->word == NULL)
        return sbp_fail(diag, SBP_E_MEMORY, "out of memory");
    for (bool more = true; more;) {
        const size_t length = value_length(copy);
        more = copy[length] == ',';
        copy[length] = '\0';
        if (length == 0)
            return sbp_fail(diag, SBP_E_USAGE,
                            "--sweep %.80s: a value is empty, legal is KEY=a,b,c", word);
        if (has_word(values, copy))
            return sbp_fail(diag, SBP_E_USAGE, "--sweep %.80s: %.40s is given twice", word, copy);
        values->word[values->count++] = copy;
        copy += length + 1;
    }
    return SBP_OK;
}

static enum sbp_status parse_key(const char *word, struct sbp_arena *arena,
                                 struct sbp_sweeps *sweeps, struct sbp_diag *diag)
{
    const char *equals = strchr(word, '=');
    if (equals == NULL || equals == word)
        return sbp_fail(diag, SBP_E_USAGE, "--sweep %.80s: legal is KEY=a,b,c", word);
    if (sweeps->key_count == SBP_SWEEP_MOST_KEYS)
        return sbp_fail(diag, SBP_E_USAGE, "--sweep: more than %d keys, fewer are legal",
                        SBP_SWEEP_MOST_KEYS);
    char *name = sbp_arena_strdup(arena, word);
    if (name == NULL)
        return sbp_fail(diag, SBP_E_MEMORY, "out of memory");
    name[equals - word] = '\0';
    for (int i = 0; i < sweeps->key_count; i++)
        if (strcmp(sweeps->key[i].name, name) == 0)
            return sbp_fail(diag, SBP_E_USAGE, "--sweep %.80s: %.60s is swept twice", word, name);
    struct sbp_sweep_key *key = &sweeps->key[sweeps->key_count++];
    key->name = name;
    SBP_TRY(parse_values(word, equals + 1, arena, &key->values, diag));
    const int64_t rows = (int64_t)sweeps->row_count * key->values.count;
    if (rows > SBP_SWEEP_MOST_ROWS)
        return sbp_fail(diag, SBP_E_USAGE, "--sweep: %lld rows, at most %d are legal",
                        (long long)rows, SBP_SWEEP_MOST_ROWS);
    sweeps->row_count = (int)rows;
    return SBP_OK;
}

enum sbp_status sbp_sweeps_parse(const struct sbp_word_list *words, struct sbp_arena *arena,
                                 struct sbp_sweeps *sweeps, struct sbp_diag *diag)
{
    *sweeps = (struct sbp_sweeps){.row_count = 1};
    for (int i = 0; i < words->count; i++)
        SBP_TRY(parse_key(words->word[i], arena, sweeps, diag));
    return SBP_OK;
}

const char *sbp_sweeps_value(const struct sbp_sweeps *sweeps, int row, int key)
{
    for (int k = sweeps->key_count - 1; k > key; k--)
        row /= sweeps->key[k].values.count;
    return sweeps->key[key].values.word[row % sweeps->key[key].values.count];
}

enum sbp_status sbp_sweeps_row(const struct sbp_sweeps *sweeps, int row, struct sbp_arena *arena,
                               struct sbp_word_list *words)
{
    words->count = 0;
    words->word = SBP_NEW(arena, const char *, SBP_SWEEP_MOST_KEYS);
    if (words->word == NULL)
        return SBP_E_MEMORY;
    for (int key = 0; key < sweeps->key_count; key++) {
        struct sbp_text text = {0};
        sbp_text_add(&text, "%s=%s", sweeps->key[key].name, sbp_sweeps_value(sweeps, row, key));
        const char *word = text.failed ? NULL : sbp_arena_strdup(arena, text.bytes);
        sbp_text_free(&text);
        if (word == NULL)
            return SBP_E_MEMORY;
        words->word[words->count++] = word;
    }
    return SBP_OK;
}
