/* The JSON reader: what is accepted can be walked whole, and every accessor holds its bounds. */
#include <cjson/cJSON.h>
#include <stdlib.h>
#include <string.h>

#include "base/json/json.h"
#include "tests/fuzz/fuzz.h"

static void read_scalars(const struct sbp_json *at)
{
    static const char *const names[] = {"linear", "relu", NULL};
    int64_t whole;
    double real;
    bool flag;
    const char *text;
    char name[8];
    int index;
    if (sbp_json_int64(at, -5, 1000, &whole) == SBP_OK)
        fuzz_check(whole >= -5 && whole <= 1000, "an integer within its bounds");
    if (sbp_json_double(at, 0, 1e9, &real) == SBP_OK)
        fuzz_check(real >= 0 && real <= 1e9, "a number within its bounds");
    (void)!sbp_json_bool(at, &flag);
    (void)!sbp_json_string(at, &text);
    if (sbp_json_name(at, name, (int)sizeof name) == SBP_OK)
        fuzz_check(strlen(name) < sizeof name && name[0] != '\0', "a name within its field");
    if (sbp_json_choice(at, names, &index) == SBP_OK)
        fuzz_check(index == 0 || index == 1, "a choice out of the list");
}

static void walk(const struct sbp_json *at)
{
    static const char *const known[] = {"name", "layers", NULL};
    int length;
    read_scalars(at);
    (void)!sbp_json_keys(at, known);
    if (sbp_json_length(at, &length) == SBP_OK) {
        struct sbp_json element;
        for (int i = 0; i < length; i++) {
            fuzz_check((i == 0 ? sbp_json_element(at, 0, &element)
                               : sbp_json_next(at, i, &element)) == SBP_OK,
                       "an element below the length");
            walk(&element);
        }
        fuzz_check(sbp_json_element(at, length, &element) != SBP_OK, "no element at the length");
    }
    for (const struct cJSON *child = at->node->child; child != NULL; child = child->next) {
        struct sbp_json member;
        if (child->string != NULL && sbp_json_member(at, child->string, &member) == SBP_OK)
            walk(&member);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = fuzz_text(data, size);
    struct cJSON *root = NULL;
    struct sbp_diag diag = {0};
    struct sbp_json cursor;
    if (sbp_json_parse(text, "input", &root, &cursor, &diag) == SBP_OK)
        walk(&cursor);
    else
        fuzz_check(root == NULL && diag.text[0] != '\0', "nothing but a reason after a refusal");
    cJSON_Delete(root);
    free(text);
    return 0;
}
