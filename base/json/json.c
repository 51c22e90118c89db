#include "base/json/json.h"

#include <ctype.h>
#include <limits.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cjson/cJSON.h>

#include "base/file.h"
#include "base/json/json_syntax_priv.h"
#include "base/text.h"

#define LARGEST_EXACT (INT64_C(1) << 53)
#define QUOTE_BYTES   72 /* what a message shows of a text out of the file */
#define NUMBER_BYTES  32
#define LIST_BYTES    512

/* --- messages --- */

/* Text from a file, fit for a message: quoted and cut to size. */
static const char *quote(const char *text, char *buffer)
{
    const size_t most = QUOTE_BYTES - sizeof "\"\"..."; /* the NUL is counted */
    size_t length = strnlen(text, most + 1);
    const bool cut = length > most;
    if (cut) {
        length = most;
        while (length > 0 && ((unsigned char)text[length] & 0xc0) == 0x80)
            length--; /* a whole number of UTF-8 characters */
    }
    (void)snprintf(buffer, QUOTE_BYTES, "\"%.*s%s\"", (int)length, text, cut ? "..." : "");
    return buffer;
}

/* The shortest decimal that reads back as the number. */
static const char *show_number(double number, char *buffer)
{
    if (fabs(number) < 1e21 && number == rint(number)) {
        (void)snprintf(buffer, NUMBER_BYTES, "%.0f", number);
        return buffer;
    }
    for (int digits = 6; digits <= 17; digits++) {
        (void)snprintf(buffer, NUMBER_BYTES, "%.*g", digits, number);
        if (strtod(buffer, NULL) == number)
            break;
    }
    return buffer;
}

/* "a", "b", "c" */
static const char *list_names(const char *const *names, char *buffer)
{
    size_t length = 0;
    buffer[0] = '\0';
    for (int i = 0; names[i] != NULL && length < LIST_BYTES; i++) {
        const int added = snprintf(buffer + length, LIST_BYTES - length, "%s\"%s\"",
                                   i == 0 ? "" : ", ", names[i]);
        if (added < 0)
            break;
        length += (size_t)added;
    }
    return buffer;
}

static const char *type_name(const struct cJSON *node)
{
    if (node == NULL)
        return "nothing";
    switch (node->type & 0xff) {
    case cJSON_False:
    case cJSON_True:
        return "a truth value";
    case cJSON_NULL:
        return "null";
    case cJSON_Number:
        return "a number";
    case cJSON_String:
        return "a string";
    case cJSON_Array:
        return "an array";
    case cJSON_Object:
        return "an object";
    default:
        return "something else";
    }
}

enum sbp_status sbp_json_refuse(const struct sbp_json *at, const char *format, ...)
{
    char message[sizeof at->diag->text];
    va_list arguments;
    va_start(arguments, format);
    const int length = vsnprintf(message, sizeof message, format, arguments);
    va_end(arguments);
    return sbp_fail(at->diag, SBP_E_INPUT, "%s: %s%s%s", at->file, at->path,
                    at->path[0] == '\0' ? "" : ": ", length < 0 ? "bad value" : message);
}

static enum sbp_status refuse_type(const struct sbp_json *at, const char *expected)
{
    return sbp_json_refuse(at, "expected %s, found %s", expected, type_name(at->node));
}

/* An unknown word among known ones: the nearest, or all of them. */
static enum sbp_status refuse_word(const struct sbp_json *at, const char *what, const char *word,
                                   const char *const *known)
{
    char quoted[QUOTE_BYTES], list[LIST_BYTES];
    const char *nearest = sbp_text_nearest(word, known);
    (void)quote(word, quoted);
    if (nearest != NULL)
        return sbp_json_refuse(at, "unknown %s %s, did you mean \"%s\"?", what, quoted, nearest);
    if (known[0] == NULL)
        return sbp_json_refuse(at, "unknown %s %s, none is legal here", what, quoted);
    return sbp_json_refuse(at, "unknown %s %s, legal are %s", what, quoted,
                           list_names(known, list));
}

/* --- places --- */

void sbp_json_at(const struct cJSON *node, const char *file, struct sbp_diag *diag,
                 struct sbp_json *cursor)
{
    *cursor = (struct sbp_json){.node = node, .file = file, .diag = diag};
}

/* Marks a path that did not fit, so that nobody takes it for a whole one. */
static void end_path(struct sbp_json *at, int length)
{
    if (length < 0 || (size_t)length >= sizeof at->path)
        memcpy(at->path + sizeof at->path - 4, "...", 4);
}

static bool is_plain_key(const char *key)
{
    for (const char *byte = key; *byte != '\0'; byte++)
        if (!isalnum((unsigned char)*byte) && *byte != '_' && *byte != '-')
            return false;
    return *key != '\0';
}

static void step_to_key(const struct sbp_json *object, const struct cJSON *node, const char *key,
                        struct sbp_json *member)
{
    char quoted[QUOTE_BYTES];
    struct sbp_json found = {.node = node, .file = object->file, .diag = object->diag};
    int length;
    if (is_plain_key(key))
        length = snprintf(found.path, sizeof found.path, "%s%s%s", object->path,
                          object->path[0] == '\0' ? "" : ".", key);
    else
        length =
            snprintf(found.path, sizeof found.path, "%s[%s]", object->path, quote(key, quoted));
    end_path(&found, length);
    *member = found;
}

static void step_to_index(const struct sbp_json *array, const struct cJSON *node, int index,
                          struct sbp_json *element)
{
    struct sbp_json found = {.node = node, .file = array->file, .diag = array->diag};
    end_path(&found, snprintf(found.path, sizeof found.path, "%s[%d]", array->path, index));
    *element = found;
}

/* --- parsing --- */

static int compare_keys(const void *left, const void *right)
{
    const struct cJSON *const *a = left;
    const struct cJSON *const *b = right;
    return strcmp((*a)->string, (*b)->string);
}

static enum sbp_status refuse_equal_neighbours(const struct sbp_json *at,
                                               const struct cJSON *const *members, size_t count)
{
    char quoted[QUOTE_BYTES];
    for (size_t i = 1; i < count; i++)
        if (strcmp(members[i - 1]->string, members[i]->string) == 0)
            return sbp_json_refuse(at, "key %s appears twice", quote(members[i]->string, quoted));
    return SBP_OK;
}

/* Sorted, so that an object of n keys costs n log n. */
static enum sbp_status refuse_duplicates(const struct sbp_json *at)
{
    size_t count = 0;
    for (const struct cJSON *member = at->node->child; member != NULL; member = member->next)
        count++;
    if (count < 2)
        return SBP_OK;
    const struct cJSON **members = calloc(count, sizeof *members);
    if (members == NULL)
        return sbp_fail(at->diag, SBP_E_MEMORY, "%s: out of memory", at->file);
    size_t filled = 0;
    for (const struct cJSON *member = at->node->child; member != NULL; member = member->next)
        members[filled++] = member;
    qsort(members, count, sizeof *members, compare_keys);
    const enum sbp_status status = refuse_equal_neighbours(at, members, count);
    free(members);
    return status;
}

/* Whether a value is worth a path of its own, which costs more than the look. */
static bool needs_check(const struct cJSON *node)
{
    return node->child != NULL || (cJSON_IsNumber(node) && !isfinite(node->valuedouble));
}

/* Duplicates and numbers beyond a double, anywhere below; the depth is bounded by the syntax. */
static enum sbp_status check_tree(const struct sbp_json *at)
{
    if (cJSON_IsNumber(at->node) && !isfinite(at->node->valuedouble))
        return sbp_json_refuse(at, "the number is too large for a double");
    if (cJSON_IsObject(at->node))
        SBP_TRY(refuse_duplicates(at));
    int index = 0;
    for (const struct cJSON *child = at->node->child; child != NULL; child = child->next) {
        if (needs_check(child)) {
            struct sbp_json below;
            if (cJSON_IsObject(at->node))
                step_to_key(at, child, child->string, &below);
            else
                step_to_index(at, child, index, &below);
            SBP_TRY(check_tree(&below));
        }
        index++;
    }
    return SBP_OK;
}

enum sbp_status sbp_json_parse(const char *text, const char *file, struct cJSON **root,
                               struct sbp_json *cursor, struct sbp_diag *diag)
{
    *root = NULL;
    SBP_TRY(sbp_json_check_syntax(text, file, diag));
    struct cJSON *tree = cJSON_Parse(text);
    if (tree == NULL)
        return sbp_fail(diag, SBP_E_MEMORY, "%s: out of memory", file);
    struct sbp_json at;
    sbp_json_at(tree, file, diag, &at);
    const enum sbp_status status = check_tree(&at);
    if (status != SBP_OK) {
        cJSON_Delete(tree);
        return status;
    }
    *root = tree;
    *cursor = at;
    return SBP_OK;
}

enum sbp_status sbp_json_open(const char *file, struct cJSON **root, struct sbp_json *cursor,
                              struct sbp_diag *diag)
{
    char *text = NULL;
    size_t length = 0;
    *root = NULL;
    SBP_TRY(sbp_file_read(file, &text, &length, diag));
    enum sbp_status status;
    if (strlen(text) != length)
        status = sbp_fail(diag, SBP_E_INPUT, "%s: not JSON, it holds a zero byte", file);
    else
        status = sbp_json_parse(text, file, root, cursor, diag);
    free(text);
    return status;
}

/* --- containers --- */

static bool is_among(const char *word, const char *const *names)
{
    for (; *names != NULL; names++)
        if (strcmp(word, *names) == 0)
            return true;
    return false;
}

enum sbp_status sbp_json_keys(const struct sbp_json *object, const char *const *known)
{
    if (!cJSON_IsObject(object->node))
        return refuse_type(object, "an object");
    for (const struct cJSON *member = object->node->child; member != NULL; member = member->next)
        if (!is_among(member->string, known))
            return refuse_word(object, "key", member->string, known);
    return SBP_OK;
}

/* cJSON's own look-ups read lists of any type; only an object has keys. */
static const struct cJSON *find_member(const struct sbp_json *object, const char *key)
{
    if (!cJSON_IsObject(object->node))
        return NULL;
    return cJSON_GetObjectItemCaseSensitive(object->node, key);
}

bool sbp_json_has(const struct sbp_json *object, const char *key)
{
    return find_member(object, key) != NULL;
}

enum sbp_status sbp_json_member(const struct sbp_json *object, const char *key,
                                struct sbp_json *member)
{
    if (!cJSON_IsObject(object->node))
        return refuse_type(object, "an object");
    const struct cJSON *node = find_member(object, key);
    if (node == NULL)
        return sbp_json_refuse(object, "key \"%s\" is missing", key);
    step_to_key(object, node, key, member);
    return SBP_OK;
}

enum sbp_status sbp_json_length(const struct sbp_json *array, int *length)
{
    if (!cJSON_IsArray(array->node))
        return refuse_type(array, "an array");
    *length = cJSON_GetArraySize(array->node);
    return SBP_OK;
}

static enum sbp_status refuse_index(const struct sbp_json *array, int index)
{
    return sbp_json_refuse(array, "element %d is missing, there are %d", index,
                           cJSON_GetArraySize(array->node));
}

enum sbp_status sbp_json_element(const struct sbp_json *array, int index, struct sbp_json *element)
{
    if (!cJSON_IsArray(array->node))
        return refuse_type(array, "an array");
    const struct cJSON *node = index < 0 ? NULL : cJSON_GetArrayItem(array->node, index);
    if (node == NULL)
        return refuse_index(array, index);
    step_to_index(array, node, index, element);
    return SBP_OK;
}

enum sbp_status sbp_json_next(const struct sbp_json *array, int index, struct sbp_json *element)
{
    if (element->node->next == NULL)
        return refuse_index(array, index);
    step_to_index(array, element->node->next, index, element);
    return SBP_OK;
}

/* --- scalars --- */

/* The tree may also be built in memory, where NaN is possible: it fails every comparison. */
static bool is_within(double number, double least, double most)
{
    return number >= least && number <= most;
}

enum sbp_status sbp_json_int64(const struct sbp_json *at, int64_t least, int64_t most,
                               int64_t *value)
{
    if (!cJSON_IsNumber(at->node))
        return refuse_type(at, "a whole number");
    if (most > LARGEST_EXACT)
        most = LARGEST_EXACT;
    if (least < -LARGEST_EXACT)
        least = -LARGEST_EXACT;
    const double number = at->node->valuedouble;
    const bool whole = number == rint(number);
    if (!whole || !is_within(number, (double)least, (double)most)) {
        char shown[NUMBER_BYTES];
        return sbp_json_refuse(
            at, "%s is %s, legal is a whole number from %lld to %lld", show_number(number, shown),
            whole ? "out of range" : "not a whole number", (long long)least, (long long)most);
    }
    *value = (int64_t)number;
    return SBP_OK;
}

/* Bounds at the ends of double are none. */
static enum sbp_status refuse_range(const struct sbp_json *at, double least, double most)
{
    const double huge = 1e300;
    char number[NUMBER_BYTES], low[NUMBER_BYTES], high[NUMBER_BYTES];
    (void)show_number(at->node->valuedouble, number);
    (void)show_number(least, low);
    (void)show_number(most, high);
    if (most >= huge && least <= -huge)
        return sbp_json_refuse(at, "%s is out of range, legal is any finite number", number);
    if (most >= huge)
        return sbp_json_refuse(at, "%s is out of range, legal is %s or more", number, low);
    if (least <= -huge)
        return sbp_json_refuse(at, "%s is out of range, legal is %s or less", number, high);
    return sbp_json_refuse(at, "%s is out of range, legal is %s to %s", number, low, high);
}

enum sbp_status sbp_json_double(const struct sbp_json *at, double least, double most, double *value)
{
    if (!cJSON_IsNumber(at->node))
        return refuse_type(at, "a number");
    if (!isfinite(at->node->valuedouble) || !is_within(at->node->valuedouble, least, most))
        return refuse_range(at, least, most);
    *value = at->node->valuedouble;
    return SBP_OK;
}

enum sbp_status sbp_json_bool(const struct sbp_json *at, bool *value)
{
    if (!cJSON_IsBool(at->node))
        return refuse_type(at, "true or false");
    *value = cJSON_IsTrue(at->node);
    return SBP_OK;
}

enum sbp_status sbp_json_string(const struct sbp_json *at, const char **text)
{
    if (!cJSON_IsString(at->node))
        return refuse_type(at, "a string");
    *text = at->node->valuestring;
    return SBP_OK;
}

enum sbp_status sbp_json_name(const struct sbp_json *at, char *name, int size)
{
    const char *text = "";
    char quoted[QUOTE_BYTES];
    SBP_TRY(sbp_json_string(at, &text));
    const size_t length = strlen(text);
    if (length == 0)
        return sbp_json_refuse(at, "must not be empty");
    if (length >= (size_t)size)
        return sbp_json_refuse(at, "%s is %zu bytes long, legal are at most %d",
                               quote(text, quoted), length, size - 1);
    if (!sbp_text_is_plain(text))
        return sbp_json_refuse(at, "%s holds a control character", quote(text, quoted));
    memcpy(name, text, length + 1);
    return SBP_OK;
}

enum sbp_status sbp_json_choice(const struct sbp_json *at, const char *const *names, int *index)
{
    const char *text = "";
    SBP_TRY(sbp_json_string(at, &text));
    for (int i = 0; names[i] != NULL; i++) {
        if (strcmp(text, names[i]) == 0) {
            *index = i;
            return SBP_OK;
        }
    }
    return refuse_word(at, "value", text, names);
}

/* --- members with a default --- */

/* The member, when there is one; a place without keys is refused either way. */
static enum sbp_status find_optional(const struct sbp_json *object, const char *key,
                                     struct sbp_json *member, bool *found)
{
    *found = sbp_json_has(object, key);
    if (!*found && cJSON_IsObject(object->node))
        return SBP_OK;
    return sbp_json_member(object, key, member);
}

enum sbp_status sbp_json_get_int64(const struct sbp_json *object, const char *key, int64_t least,
                                   int64_t most, int64_t *value)
{
    struct sbp_json member;
    bool found;
    SBP_TRY(find_optional(object, key, &member, &found));
    return found ? sbp_json_int64(&member, least, most, value) : SBP_OK;
}

enum sbp_status sbp_json_get_double(const struct sbp_json *object, const char *key, double least,
                                    double most, double *value)
{
    struct sbp_json member;
    bool found;
    SBP_TRY(find_optional(object, key, &member, &found));
    return found ? sbp_json_double(&member, least, most, value) : SBP_OK;
}

enum sbp_status sbp_json_get_bool(const struct sbp_json *object, const char *key, bool *value)
{
    struct sbp_json member;
    bool found;
    SBP_TRY(find_optional(object, key, &member, &found));
    return found ? sbp_json_bool(&member, value) : SBP_OK;
}

enum sbp_status sbp_json_get_choice(const struct sbp_json *object, const char *key,
                                    const char *const *names, int *index)
{
    struct sbp_json member;
    bool found;
    SBP_TRY(find_optional(object, key, &member, &found));
    return found ? sbp_json_choice(&member, names, index) : SBP_OK;
}
