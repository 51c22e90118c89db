/* JSON reading: the exact text of every refusal, and that what is legal passes. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cjson/cJSON.h>

#include "base/json/json.h"
#include "base/math/random.h"
#include "tests/support/seeded.h"
#include "tests/support/unit.h"

#define SEED UINT64_C(31337)

/* One parsed text; zero the diag between two complaints. */
struct document {
    struct cJSON *tree;
    struct sbp_json root;
    struct sbp_diag diag;
};

static void open_document(struct document *document, const char *text)
{
    memset(document, 0, sizeof *document);
    const enum sbp_status status =
        sbp_json_parse(text, "m.json", &document->tree, &document->root, &document->diag);
    if (status != SBP_OK)
        fail_msg("%s was refused: %s", text, document->diag.text);
}

static void close_document(struct document *document)
{
    cJSON_Delete(document->tree);
    document->tree = NULL;
}

static void assert_refused(struct document *document, enum sbp_status status, const char *expected)
{
    assert_int_equal(status, SBP_E_INPUT);
    assert_string_equal(document->diag.text, expected);
    document->diag.text[0] = '\0';
}

static void member(struct document *document, const char *key, struct sbp_json *found)
{
    assert_int_equal(sbp_json_member(&document->root, key, found), SBP_OK);
}

/* --- text that is no JSON, or not ours --- */

static void test_broken_text(void **state)
{
    (void)state;
    static const struct {
        const char *text, *expected;
    } rows[] = {
        /* truncated */
        {"", "line 1: the text ends where a value was expected"},
        {"\n\n ", "line 3: the text ends where a value was expected"},
        {"{\n  \"layers\": [\n    {\"op\": \"linear\"},\n",
         "line 4: the text ends inside the array that line 2 opens"},
        {"{\n  \"a\": 1", "line 2: the text ends inside the object that line 1 opens"},
        {"{\n  \"a\": 1,\n", "line 3: the text ends inside the object that line 1 opens"},
        {"{\n  \"a\"", "line 2: the text ends inside the object that line 1 opens"},
        {"{\n  \"a\":", "line 2: the text ends inside the object that line 1 opens"},
        {"{", "line 1: the text ends inside the object that line 1 opens"},
        {"[1,\n{\"a\": \"lin", "line 2: the text ends inside a string"},
        {"[\"a\\",
         "line 1: the text ends where an escape like \\n or \\\\ in a string was expected"},
        {"[-", "line 1: the text ends where a digit was expected"},
        {"[1e", "line 1: the text ends where a digit was expected"},
        /* misplaced */
        {"{} {}", "line 1: expected nothing behind the value, found '{'"},
        {"[1 2]", "line 1: expected ',' or ']', found '2'"},
        {"[1}", "line 1: expected ',' or ']', found '}'"},
        {"{\"a\": 1 \"b\": 2}", "line 1: expected ',' or '}', found '\"'"},
        {"[1,]", "line 1: expected a value, found ']'"},
        {"{\"a\": 1,}", "line 1: expected a key in quotes, found '}'"},
        {"{a: 1}", "line 1: expected a key in quotes, found 'a'"},
        {"{\"a\" 1}", "line 1: expected ':' behind the key, found '1'"},
        {"\n// remark\n{}", "line 2: expected a value, found '/'"},
        {"[\x01]", "line 1: expected a value, found byte 0x01"},
        {"[\xc3\xa9]", "line 1: expected a value, found byte 0xc3"},
        /* numbers */
        {"[NaN]", "line 1: NaN is not a number of JSON, which are all finite"},
        {"[\n-Infinity]", "line 2: -Infinity is not a number of JSON, which are all finite"},
        {"[inf]", "line 1: inf is not a number of JSON, which are all finite"},
        {"{\"a\": [0, 1e999]}", "a[1]: the number is too large for a double"},
        {"-1e400", "the number is too large for a double"},
        {"[01]", "line 1: a number begins with a needless 0"},
        {"[-00]", "line 1: a number begins with a needless 0"},
        {"[1.]", "line 1: expected a digit, found ']'"},
        {"[.5]", "line 1: expected a value, found '.'"},
        {"[+1]", "line 1: expected a value, found '+'"},
        {"[0x10]", "line 1: expected ',' or ']', found 'x'"},
        {"[1234567890123456789012345678901234567890123456789012345678901234]",
         "line 1: a number of more than 63 characters"},
        /* words and strings */
        {"[True]", "line 1: unknown word True, legal are true, false, null and strings in quotes"},
        {"[-true]",
         "line 1: unknown word -true, legal are true, false, null and strings in quotes"},
        {"[\"a\nb\"]", "line 1: a string is not closed on its line"},
        {"[\"a\tb\"]", "line 1: a string holds the control character 0x09"},
        {"[\"\\q\"]", "line 1: expected an escape like \\n or \\\\ in a string, found 'q'"},
        {"[\"\\u12g4\"]", "line 1: \\u takes four hexadecimal digits"},
        {"[\"a\\u0000b\"]", "line 1: a string holds the character \\u0000"},
        {"[\"\\ud800x\"]", "line 1: \\ud800 is half of a surrogate pair"},
        {"[\"\\ud800\\u0041\"]", "line 1: \\ud800 is half of a surrogate pair"},
        {"[\"\\udc00\"]", "line 1: \\udc00 is half of a surrogate pair"},
        /* UTF-8: stray, cut, too long, a surrogate, beyond the last character */
        {"[\"a\xff\"]", "line 1: a string holds byte 0xff, which is no UTF-8 there"},
        {"[\"\x80\"]", "line 1: a string holds byte 0x80, which is no UTF-8 there"},
        {"[\"\xc3\"]", "line 1: a string holds byte 0xc3, which is no UTF-8 there"},
        {"[\"\xe2\x82", "line 1: a string holds byte 0xe2, which is no UTF-8 there"},
        {"[\"\xc0\xaf\"]", "line 1: a string holds byte 0xc0, which is no UTF-8 there"},
        {"[\"\xe0\x9f\xbf\"]", "line 1: a string holds byte 0xe0, which is no UTF-8 there"},
        {"[\"\xf0\x8f\xbf\xbf\"]", "line 1: a string holds byte 0xf0, which is no UTF-8 there"},
        {"[\"\xed\xa0\x80\"]", "line 1: a string holds byte 0xed, which is no UTF-8 there"},
        {"[\"\xf4\x90\x80\x80\"]", "line 1: a string holds byte 0xf4, which is no UTF-8 there"},
        /* duplicates */
        {"{\"a\": 1, \"b\": 2, \"a\": 3}", "key \"a\" appears twice"},
        {"{\"layers\": [{}, {\"op\": 1, \"op\": 1}]}", "layers[1]: key \"op\" appears twice"},
        {"[\"x\", {\"a.b\": {\"c\": 0, \"c\": 0}}]", "[1][\"a.b\"]: key \"c\" appears twice"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct document document = {0};
        char expected[256];
        (void)snprintf(expected, sizeof expected, "m.json: %s", rows[i].expected);
        assert_refused(
            &document,
            sbp_json_parse(rows[i].text, "m.json", &document.tree, &document.root, &document.diag),
            expected);
        assert_null(document.tree);
    }
}

static void test_nesting(void **state)
{
    (void)state;
    char text[2 * 65 + 1];
    memset(text, '[', 65);
    memset(text + 65, ']', 65);
    text[130] = '\0';
    struct document document = {0};
    assert_refused(&document,
                   sbp_json_parse(text, "m.json", &document.tree, &document.root, &document.diag),
                   "m.json: line 1: nested deeper than 64");
    text[129] = '\0';
    open_document(&document, text + 1);
    close_document(&document);
}

static void test_legal_text(void **state)
{
    (void)state;
    static const char *const texts[] = {
        "0",
        "-0",
        "\"\"",
        "null",
        " [ ] ",
        "{}\n",
        "\xef\xbb\xbf{}",
        "[0.5, 1E+3, 2e-7, 10]",
        "[\"\\u00e9 \\ud83d\\ude00 \\\" \\\\ \\/ \\b\\f\\n\\r\\t\"]",
        "[\"\xc2\x80 \xe0\xa0\x80 \xed\x9f\xbf \xf0\x90\x80\x80 \xf4\x8f\xbf\xbf\"]",
        "\r\n\t{\"a\":{\"a\":[{}]}}",
        "[123456789012345678901234567890123456789012345678901234567890123]"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        struct document document;
        open_document(&document, texts[i]);
        close_document(&document);
    }
}

/* The parser takes every text that the check lets pass: no complaint may ever be about memory. */
static void test_check_and_parser_agree(void **state)
{
    (void)state;
    static const char *const pieces[] = {"{",  "}",    "[",     "]",    ",",       ":",    "\"a\"",
                                         "\"", "\\",   "1",     "-",    "0",       ".5",   "e3",
                                         " ",  "true", "\\u00", "null", "\"b\":1", "\xff", "\n"};
    struct sbp_random random = seeded(SEED);
    int accepted = 0;
    for (int round = 0; round < 200000; round++) {
        char text[128] = "";
        const int count = 1 + (int)sbp_random_below(&random, 8);
        for (int i = 0; i < count; i++)
            strcat(text, pieces[sbp_random_below(&random, sizeof pieces / sizeof *pieces)]);
        struct document document = {0};
        const enum sbp_status status =
            sbp_json_parse(text, "m.json", &document.tree, &document.root, &document.diag);
        if (status != SBP_OK && (status != SBP_E_INPUT || document.diag.text[0] == '\0'))
            fail_msg("text <%s> gave %s: %s", text, sbp_status_name(status), document.diag.text);
        if (strchr(document.diag.text, '\n') != NULL)
            fail_msg("text <%s> gave two lines: %s", text, document.diag.text);
        accepted += status == SBP_OK;
        cJSON_Delete(document.tree);
    }
    assert_true(accepted > 1000);
}

/* --- files --- */

static void test_open(void **state)
{
    (void)state;
    struct document document = {0};
    assert_int_equal(
        sbp_json_open("no/such/model.json", &document.tree, &document.root, &document.diag),
        SBP_E_IO);
    assert_string_equal(document.diag.text,
                        "no/such/model.json: cannot be opened: No such file or directory");
    document.diag.text[0] = '\0';

    char name[] = "test_base_json_XXXXXX";
    const int file = mkstemp(name);
    assert_true(file >= 0);
    assert_int_equal(write(file, "{\"a\": 5}\0x", 10), 10);
    char expected[64];
    (void)snprintf(expected, sizeof expected, "%s: not JSON, it holds a zero byte", name);
    assert_refused(&document, sbp_json_open(name, &document.tree, &document.root, &document.diag),
                   expected);
    assert_int_equal(ftruncate(file, 8), 0);
    assert_int_equal(sbp_json_open(name, &document.tree, &document.root, &document.diag), SBP_OK);
    int64_t value = 0;
    assert_int_equal(sbp_json_get_int64(&document.root, "a", 0, 9, &value), SBP_OK);
    assert_int_equal(value, 5);
    close_document(&document);
    assert_int_equal(close(file), 0);
    assert_int_equal(unlink(name), 0);
}

/* --- keys, members, elements --- */

static void test_keys(void **state)
{
    (void)state;
    static const char *const known[] = {"hidden", "layers", "heads", NULL};
    static const char *const none[] = {NULL};
    struct document document;
    struct sbp_json at;
    open_document(&document, "{\"slip\": {\"layers\": 1, \"hiden\": 2}, \"far\": {\"zebra\": 0},"
                             " \"right\": {\"heads\": 1}, \"list\": [], \"odd\": {\"a\\nb\": 1}}");
    member(&document, "slip", &at);
    assert_refused(&document, sbp_json_keys(&at, known),
                   "m.json: slip: unknown key \"hiden\", did you mean \"hidden\"?");
    member(&document, "far", &at);
    assert_refused(&document, sbp_json_keys(&at, known),
                   "m.json: far: unknown key \"zebra\", legal are \"hidden\", \"layers\", "
                   "\"heads\"");
    assert_refused(&document, sbp_json_keys(&at, none),
                   "m.json: far: unknown key \"zebra\", none is legal here");
    member(&document, "odd", &at);
    assert_refused(&document, sbp_json_keys(&at, none),
                   "m.json: odd: unknown key \"a\\x0ab\", none is legal here");
    member(&document, "list", &at);
    assert_refused(&document, sbp_json_keys(&at, known),
                   "m.json: list: expected an object, found an array");
    member(&document, "right", &at);
    assert_int_equal(sbp_json_keys(&at, known), SBP_OK);
    close_document(&document);
}

static void test_members_and_elements(void **state)
{
    (void)state;
    struct document document;
    struct sbp_json layers, layer, at;
    int length = -1;
    open_document(&document, "{\"layers\": [{\"op\": \"linear\"}, {\"op\": 7}]}");
    member(&document, "layers", &layers);
    assert_refused(&document, sbp_json_member(&document.root, "hidden", &at),
                   "m.json: key \"hidden\" is missing");
    assert_refused(&document, sbp_json_member(&layers, "op", &at),
                   "m.json: layers: expected an object, found an array");
    assert_refused(&document, sbp_json_length(&document.root, &length),
                   "m.json: expected an array, found an object");
    assert_int_equal(sbp_json_length(&layers, &length), SBP_OK);
    assert_int_equal(length, 2);
    assert_refused(&document, sbp_json_element(&layers, 2, &layer),
                   "m.json: layers: element 2 is missing, there are 2");
    assert_refused(&document, sbp_json_element(&layers, -1, &layer),
                   "m.json: layers: element -1 is missing, there are 2");
    assert_refused(&document, sbp_json_element(&document.root, 0, &layer),
                   "m.json: expected an array, found an object");
    assert_int_equal(sbp_json_element(&layers, 1, &layer), SBP_OK);
    assert_refused(&document, sbp_json_member(&layer, "name", &at),
                   "m.json: layers[1]: key \"name\" is missing");
    assert_int_equal(sbp_json_member(&layer, "op", &layer), SBP_OK); /* in place */
    assert_string_equal(layer.path, "layers[1].op");
    assert_true(sbp_json_has(&document.root, "layers"));
    assert_false(sbp_json_has(&document.root, "Layers"));
    assert_false(sbp_json_has(&layers, "op"));
    assert_refused(&document, sbp_json_refuse(&layer, "unknown operator \"%s\"", "linar"),
                   "m.json: layers[1].op: unknown operator \"linar\"");
    close_document(&document);
}

static void test_walk(void **state)
{
    (void)state;
    struct document document;
    struct sbp_json at;
    open_document(&document, "[5, 6, 7]");
    assert_int_equal(sbp_json_element(&document.root, 0, &at), SBP_OK);
    for (int i = 0; i < 3; i++) {
        int64_t value = 0;
        char path[16];
        if (i > 0)
            assert_int_equal(sbp_json_next(&document.root, i, &at), SBP_OK);
        (void)snprintf(path, sizeof path, "[%d]", i);
        assert_string_equal(at.path, path);
        assert_int_equal(sbp_json_int64(&at, 0, 9, &value), SBP_OK);
        assert_int_equal(value, 5 + i);
    }
    assert_refused(&document, sbp_json_next(&document.root, 3, &at),
                   "m.json: element 3 is missing, there are 3");
    close_document(&document);
}

static void test_long_paths_are_marked(void **state)
{
    (void)state;
    struct document document;
    char key[251], text[300];
    memset(key, 'k', 250);
    key[250] = '\0';
    (void)snprintf(text, sizeof text, "{\"%s\": [0]}", key);
    open_document(&document, text);
    struct sbp_json at;
    member(&document, key, &at);
    assert_int_equal(strlen(at.path), sizeof at.path - 1);
    assert_string_equal(at.path + strlen(at.path) - 4, "k...");
    close_document(&document);
}

/* --- scalars --- */

static void test_int64(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int64_t least, most;
        const char *expected; /* NULL: legal */
        int64_t value;
    } rows[] = {
        {"7", 1, 64, NULL, 7},
        {"1", 1, 64, NULL, 1},
        {"64", 1, 64, NULL, 64},
        {"-3", -5, 5, NULL, -3},
        {"1e3", 1, INT64_MAX, NULL, 1000},
        {"9007199254740992", 1, INT64_MAX, NULL, INT64_C(1) << 53},
        {"-9007199254740992", INT64_MIN, 0, NULL, -(INT64_C(1) << 53)},
        {"0", 1, 64, "0 is out of range, legal is a whole number from 1 to 64", 0},
        {"65", 1, 64, "65 is out of range, legal is a whole number from 1 to 64", 0},
        {"-1", 0, 64, "-1 is out of range, legal is a whole number from 0 to 64", 0},
        {"1.5", 1, 64, "1.5 is not a whole number, legal is a whole number from 1 to 64", 0},
        {"4611686018427387904", 1, INT64_MAX,
         "4611686018427387904 is out of range, legal is a whole number from 1 to 9007199254740992",
         0},
        {"1e300", 1, 64, "1e+300 is out of range, legal is a whole number from 1 to 64", 0},
        {"\"8\"", 1, 64, "expected a whole number, found a string", 0},
        {"true", 1, 64, "expected a whole number, found a truth value", 0},
        {"false", 1, 64, "expected a whole number, found a truth value", 0},
        {"null", 1, 64, "expected a whole number, found null", 0},
        {"[1]", 1, 64, "expected a whole number, found an array", 0},
        {"{}", 1, 64, "expected a whole number, found an object", 0},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct document document;
        struct sbp_json at;
        char text[64], expected[160];
        int64_t value = 0;
        (void)snprintf(text, sizeof text, "{\"n\": %s}", rows[i].text);
        open_document(&document, text);
        member(&document, "n", &at);
        const enum sbp_status status = sbp_json_int64(&at, rows[i].least, rows[i].most, &value);
        (void)snprintf(expected, sizeof expected, "m.json: n: %s",
                       rows[i].expected == NULL ? "" : rows[i].expected);
        if (rows[i].expected == NULL)
            assert_int_equal(status, SBP_OK);
        else
            assert_refused(&document, status, expected);
        assert_int_equal(value, rows[i].value);
        close_document(&document);
    }
}

static void test_double(void **state)
{
    (void)state;
    struct document document;
    struct sbp_json half, text;
    double value = 0;
    open_document(&document, "{\"half\": 0.5, \"text\": \"0.5\"}");
    member(&document, "half", &half);
    member(&document, "text", &text);
    assert_int_equal(sbp_json_double(&half, 0.5, 0.5, &value), SBP_OK);
    assert_true(value == 0.5);
    assert_refused(&document, sbp_json_double(&half, 0.75, 1, &value),
                   "m.json: half: 0.5 is out of range, legal is 0.75 to 1");
    assert_refused(&document, sbp_json_double(&half, 1, INFINITY, &value),
                   "m.json: half: 0.5 is out of range, legal is 1 or more");
    assert_refused(&document, sbp_json_double(&half, -INFINITY, 1e-7, &value),
                   "m.json: half: 0.5 is out of range, legal is 1e-07 or less");
    assert_refused(&document, sbp_json_double(&text, 0, 1, &value),
                   "m.json: text: expected a number, found a string");
    close_document(&document);
}

/* NaN cannot be written, but a tree in memory can hold it. */
static void test_nan_in_memory(void **state)
{
    (void)state;
    struct document document = {0};
    double value = 0;
    int64_t whole = 0;
    document.tree = cJSON_CreateNumber(NAN);
    sbp_json_at(document.tree, "memory", &document.diag, &document.root);
    assert_refused(&document, sbp_json_double(&document.root, -INFINITY, INFINITY, &value),
                   "memory: nan is out of range, legal is any finite number");
    assert_refused(&document, sbp_json_int64(&document.root, 0, 9, &whole),
                   "memory: nan is not a whole number, legal is a whole number from 0 to 9");
    close_document(&document);
    sbp_json_at(NULL, "memory", &document.diag, &document.root);
    assert_refused(&document, sbp_json_double(&document.root, 0, 1, &value),
                   "memory: expected a number, found nothing");
}

static void test_bool_and_strings(void **state)
{
    (void)state;
    struct document document;
    struct sbp_json yes, word, empty, lines;
    bool truth = false;
    const char *text = NULL;
    char name[7];
    open_document(&document,
                  "{\"yes\": true, \"word\": \"linear\", \"empty\": \"\", \"lines\": \"a\\nb\"}");
    member(&document, "yes", &yes);
    member(&document, "word", &word);
    member(&document, "empty", &empty);
    member(&document, "lines", &lines);
    assert_int_equal(sbp_json_bool(&yes, &truth), SBP_OK);
    assert_true(truth);
    assert_refused(&document, sbp_json_bool(&word, &truth),
                   "m.json: word: expected true or false, found a string");
    assert_int_equal(sbp_json_string(&word, &text), SBP_OK);
    assert_string_equal(text, "linear");
    assert_refused(&document, sbp_json_string(&yes, &text),
                   "m.json: yes: expected a string, found a truth value");
    assert_int_equal(sbp_json_name(&word, name, sizeof name), SBP_OK);
    assert_string_equal(name, "linear");
    assert_refused(&document, sbp_json_name(&word, name, 6),
                   "m.json: word: \"linear\" is 6 bytes long, legal are at most 5");
    assert_refused(&document, sbp_json_name(&empty, name, sizeof name),
                   "m.json: empty: must not be empty");
    assert_refused(&document, sbp_json_name(&lines, name, sizeof name),
                   "m.json: lines: \"a\\x0ab\" holds a control character");
    assert_refused(&document, sbp_json_name(&yes, name, sizeof name),
                   "m.json: yes: expected a string, found a truth value");
    close_document(&document);
}

static void test_choice(void **state)
{
    (void)state;
    static const char *const operators[] = {"linear", "relu", "gelu", NULL};
    struct document document;
    struct sbp_json at;
    int index = -1;
    open_document(&document,
                  "{\"a\": \"gelu\", \"b\": \"linar\", \"c\": \"convolution\", \"d\": 4}");
    member(&document, "a", &at);
    assert_int_equal(sbp_json_choice(&at, operators, &index), SBP_OK);
    assert_int_equal(index, 2);
    member(&document, "b", &at);
    assert_refused(&document, sbp_json_choice(&at, operators, &index),
                   "m.json: b: unknown value \"linar\", did you mean \"linear\"?");
    member(&document, "c", &at);
    assert_refused(&document, sbp_json_choice(&at, operators, &index),
                   "m.json: c: unknown value \"convolution\", legal are \"linear\", \"relu\", "
                   "\"gelu\"");
    member(&document, "d", &at);
    assert_refused(&document, sbp_json_choice(&at, operators, &index),
                   "m.json: d: expected a string, found a number");
    assert_int_equal(index, 2);
    close_document(&document);
}

static void test_long_texts_are_cut(void **state)
{
    (void)state;
    static const char *const operators[] = {"linear", NULL};
    struct document document;
    int index;
    char text[203];
    memset(text, 'x', 202);
    text[0] = text[201] = '"';
    text[202] = '\0';
    open_document(&document, text);
    assert_int_equal(sbp_json_choice(&document.root, operators, &index), SBP_E_INPUT);
    assert_true(strlen(document.diag.text) < 140);
    assert_non_null(strstr(document.diag.text, "xxx...\", legal are \"linear\""));
    close_document(&document);
}

static void test_defaults(void **state)
{
    (void)state;
    struct document document;
    struct sbp_json list;
    int64_t whole = 11;
    double number = 1.25;
    bool truth = true;
    open_document(&document, "{\"n\": 3, \"x\": 0.5, \"t\": false, \"list\": [], \"null\": null}");
    assert_int_equal(sbp_json_get_int64(&document.root, "absent", 0, 9, &whole), SBP_OK);
    assert_int_equal(sbp_json_get_double(&document.root, "absent", 0, 9, &number), SBP_OK);
    assert_int_equal(sbp_json_get_bool(&document.root, "absent", &truth), SBP_OK);
    assert_true(whole == 11 && number == 1.25 && truth);
    assert_int_equal(sbp_json_get_int64(&document.root, "n", 0, 9, &whole), SBP_OK);
    assert_int_equal(sbp_json_get_double(&document.root, "x", 0, 9, &number), SBP_OK);
    assert_int_equal(sbp_json_get_bool(&document.root, "t", &truth), SBP_OK);
    assert_true(whole == 3 && number == 0.5 && !truth);
    assert_refused(&document, sbp_json_get_int64(&document.root, "n", 4, 9, &whole),
                   "m.json: n: 3 is out of range, legal is a whole number from 4 to 9");
    assert_refused(&document, sbp_json_get_double(&document.root, "null", 0, 9, &number),
                   "m.json: null: expected a number, found null");
    member(&document, "list", &list);
    assert_refused(&document, sbp_json_get_bool(&list, "t", &truth),
                   "m.json: list: expected an object, found an array");
    close_document(&document);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_broken_text),
        cmocka_unit_test(test_nesting),
        cmocka_unit_test(test_legal_text),
        cmocka_unit_test(test_check_and_parser_agree),
        cmocka_unit_test(test_open),
        cmocka_unit_test(test_keys),
        cmocka_unit_test(test_members_and_elements),
        cmocka_unit_test(test_walk),
        cmocka_unit_test(test_long_paths_are_marked),
        cmocka_unit_test(test_int64),
        cmocka_unit_test(test_double),
        cmocka_unit_test(test_nan_in_memory),
        cmocka_unit_test(test_bool_and_strings),
        cmocka_unit_test(test_choice),
        cmocka_unit_test(test_long_texts_are_cut),
        cmocka_unit_test(test_defaults),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
