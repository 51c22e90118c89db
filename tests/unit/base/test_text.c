/* Text: growing strings, units, numbers, nearest names (against a recursive distance). */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/math/random.h"
#include "base/text.h"
#include "tests/support/seeded.h"
#include "tests/support/unit.h"

#define SEED         UINT64_C(5150)
#define COUNT(array) (sizeof(array) / sizeof *(array))

static void test_strings_grow(void **state)
{
    (void)state;
    struct sbp_text text = {0};
    char expected[4000] = "";
    for (int i = 0; i < 500; i++) {
        sbp_text_add(&text, "%d,%s", i, i % 2 == 0 ? "" : "odd");
        const size_t length = strlen(expected);
        (void)snprintf(expected + length, sizeof expected - length, "%d,%s", i,
                       i % 2 == 0 ? "" : "odd");
        assert_int_equal(text.length, strlen(expected));
        assert_string_equal(text.bytes, expected);
    }
    assert_false(text.failed);
    sbp_text_free(&text);
    assert_null(text.bytes);
    sbp_text_add(&text, "again");
    assert_string_equal(text.bytes, "again");
    sbp_text_free(&text);
    sbp_text_free(NULL);
}

static void test_failure_stays(void **state)
{
    (void)state;
    struct sbp_text text = {.failed = true};
    sbp_text_add(&text, "x");
    assert_null(text.bytes);
    assert_true(text.failed);
}

static void test_outside_text_is_shown(void **state)
{
    (void)state;
    static const struct {
        const char *outside, *shown;
    } rows[] = {
        {"", ""},
        {"plain words", "plain words"},
        {"\033[31mred\a", "\\x1b[31mred\\x07"},
        {"one\ntwo\r\t\177", "one\\x0atwo\\x0d\\x09\\x7f"},
        {"gr\xc3\xbc\xc3\x9f \xe2\x82\xac \xf0\x9f\x98\x80",
         "gr\xc3\xbc\xc3\x9f \xe2\x82\xac \xf0\x9f\x98\x80"},
        {"\xc2\x9b"
         "2J",
         "\\xc2\\x9b"
         "2J"}, /* CSI as one character, and as a byte */
        {"\x9b"
         "2J",
         "\\x9b"
         "2J"},
        {"cut \xe2\x82", "cut \\xe2\\x82"},
        {"\xc0\x9b", "\\xc0\\x9b"},
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        struct sbp_text text = {0};
        char buffer[64];
        sbp_text_add_shown(&text, rows[i].outside);
        assert_string_equal(text.bytes == NULL ? "" : text.bytes, rows[i].shown);
        sbp_text_free(&text);
        (void)snprintf(buffer, sizeof buffer, "%s", rows[i].outside);
        sbp_text_show(buffer, sizeof buffer);
        assert_string_equal(buffer, rows[i].shown);
        assert_int_equal(sbp_text_is_plain(rows[i].outside),
                         strcmp(rows[i].outside, rows[i].shown) == 0);
    }
}

static void test_lines_keep_their_own_newlines(void **state)
{
    (void)state;
    char printed[64] = "";
    FILE *out = fmemopen(printed, sizeof printed, "w");
    assert_non_null(out);
    assert_true(sbp_text_print_line(out, "\nwrote %s\n", "a\nwrote b"));
    assert_true(sbp_text_print_line(out, "%s", "\n"));
    assert_true(sbp_text_print_line(out, "\n"));
    assert_int_equal(fclose(out), 0);
    assert_string_equal(printed, "\nwrote a\\x0awrote b\n\\x0a\n");
}

struct format_row {
    double value;
    const char *expected;
};

static void assert_formats(const char *(*format)(double, char *), const struct format_row *rows,
                           size_t count)
{
    for (size_t i = 0; i < count; i++) {
        char buffer[32];
        assert_ptr_equal(format(rows[i].value, buffer), buffer);
        if (strcmp(buffer, rows[i].expected) != 0)
            fail_msg("%.17g is \"%s\", expected \"%s\"", rows[i].value, buffer, rows[i].expected);
    }
}

static void test_units(void **state)
{
    (void)state;
    static const struct format_row seconds[] = {
        {0, "0 s"},           {0.0123, "12.3 ms"},   {0.01234, "12.3 ms"},
        {1, "1.00 s"},        {0.9994, "999 ms"},    {0.9996, "1.00 s"},
        {9.996, "10.0 s"},    {59.94, "59.9 s"},     {59.96, "1.00 min"},
        {5400, "1.50 h"},     {86400, "1.00 d"},     {86390, "1.00 d"},
        {3.5e-6, "3.50 us"},  {2e-9, "2.00 ns"},     {3e-12, "0.003 ns"},
        {8.64e9, "100000 d"}, {-0.0123, "-12.3 ms"}, {INFINITY, "inf s"},
        {1e30, "1.16e+25 d"},
    };
    static const struct format_row bytes[] = {
        {0, "0 B"},
        {512, "512 B"},
        {1000, "1000 B"},
        {1023, "1023 B"},
        {1024, "1.00 KiB"},
        {1.25 * 0x1p30, "1.25 GiB"},
        {1023.4 * 1024, "1023 KiB"},
        {1023.6 * 1024, "1.00 MiB"},
        {16 * 0x1p20, "16.0 MiB"},
        {0x1p63, "8.00 EiB"},
    };
    static const struct format_row counts[] = {
        {0, "0"},
        {7, "7"},
        {999, "999"},
        {1000, "1.000 k"},
        {0.5, "0.500"},
        {1234, "1.234 k"},
        {124439808, "124.4 M"},
        {999960, "1.000 M"},
        {999940, "999.9 k"},
        {3.1e12, "3.100 T"},
        {68.6e6, "68.60 M"},
    };
    assert_formats(sbp_format_seconds, seconds, COUNT(seconds));
    assert_formats(sbp_format_bytes, bytes, COUNT(bytes));
    assert_formats(sbp_format_count, counts, COUNT(counts));
}

/* Whatever the value, the text stays near it and inside the buffer. */
static void test_units_keep_the_value(void **state)
{
    (void)state;
    struct sbp_random random = seeded(SEED);
    for (int i = 0; i < 20000; i++) {
        static const char prefixes[] = " kMGTPE";
        char buffer[32];
        const double value = pow(10, 20 * sbp_random_unit(&random));
        (void)sbp_format_count(value, buffer);
        char *end;
        double shown = strtod(buffer, &end);
        if (*end == ' ')
            shown *= pow(1000, (double)(strchr(prefixes, end[1]) - prefixes));
        if (!(fabs(shown - value) <= 5.1e-4 * value) || strlen(buffer) > 10)
            fail_msg("%.17g is \"%s\"", value, buffer);
    }
}

static void test_parse_scaled(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        double count, bytes; /* -1: none */
    } rows[] = {
        {"0", 0, 0},
        {"4096", 4096, 4096},
        {"1k", 1000, 1024},
        {"1K", 1000, 1024},
        {"16M", 16e6, 16 << 20},
        {"16m", 16e6, 16 << 20},
        {"1.5G", 1.5e9, 1610612736},
        {"0.3k", 300, 307},
        {"1.005k", 1005, 1029},
        {"1T", 1e12, 0x1p40},
        {"8P", 8e15, 0x1p53},
        {"2Ki", 2048, 2048},
        {"2KiB", 2048, 2048},
        {"3Gi", 0xcp28, 0xcp28},
        {"300B", 3e11, -1},
        {"9007199254740992", 0x1p53, 0x1p53},
        {"1e3", 1000, 1000},
        {"3e11", 3e11, 3e11},
        {"", -1, -1},
        {"K", -1, -1},
        {"-1", -1, -1},
        {"+1", -1, -1},
        {" 1", -1, -1},
        {"1 K", 1000, 1024},
        {"80GB", -1, 80e9},
        {"80 GB", -1, 80e9},
        {"80GiB", 0x50p30, 0x50p30},
        {"80 GiB", 0x50p30, 0x50p30},
        {"1 ", -1, -1},
        {"1  K", -1, -1},
        {"1K ", -1, -1},
        {"1.5", -1, -1},
        {"1KB", -1, 1000},
        {"1kB", -1, 1000},
        {"1KBi", -1, -1},
        {"1Bi", -1, -1},
        {"1i", -1, -1},
        {"16Q", -1, -1},
        {"1MM", -1, -1},
        {"1e999", -1, -1},
        {"1e308G", -1, -1},
        {"nan", -1, -1},
        {"inf", -1, -1},
        {"0x10", -1, -1},
    };
    for (size_t i = 0; i < COUNT(rows); i++)
        for (int is_bytes = 0; is_bytes < 2; is_bytes++) {
            const double expected = is_bytes ? rows[i].bytes : rows[i].count;
            double value = -1;
            const bool is_number = sbp_parse_scaled(rows[i].text, is_bytes != 0, &value);
            if (is_number != (expected >= 0) || value != expected)
                fail_msg("\"%s\" gives %d and %.17g, expected %.17g", rows[i].text, is_number,
                         value, expected);
        }
}

static void test_format_digits(void **state)
{
    (void)state;
    static const struct {
        double value;
        const char *text;
    } rows[] = {
        {543.834031, "543.8"},  {16170.4, "16170"}, {2.4968192, "2.497"}, {0, "0"},
        {0.0533509, "0.05335"}, {9.9996, "10.00"},  {0.82741, "0.8274"},  {123456789, "123456789"}};
    for (size_t i = 0; i < COUNT(rows); i++) {
        char text[32];
        assert_string_equal(sbp_format_digits(rows[i].value, 4, text), rows[i].text);
    }
}

static void test_parse_numbers(void **state)
{
    (void)state;
    static const char *const bad_numbers[] = {"",      " 1",    "1 ",  "1x", "nan", "inf", "-inf",
                                              "0x1p3", "1e999", "--1", ".",  "-",   "e5",  "1,5"};
    static const char *const bad_integers[] = {
        "",   " 1", "1 ", "1.0", "1e3", "0x10", "9223372036854775808", "-9223372036854775809",
        ".5", "-",  "ten"};
    double number = 42;
    int64_t whole = 42;
    for (size_t i = 0; i < COUNT(bad_numbers); i++)
        if (sbp_parse_double(bad_numbers[i], &number))
            fail_msg("\"%s\" was taken for %g", bad_numbers[i], number);
    for (size_t i = 0; i < COUNT(bad_integers); i++)
        if (sbp_parse_int64(bad_integers[i], &whole))
            fail_msg("\"%s\" was taken for %lld", bad_integers[i], (long long)whole);
    assert_true(number == 42 && whole == 42);
    assert_true(sbp_parse_double("-1.5e-3", &number) && number == -1.5e-3);
    assert_true(sbp_parse_double(".5", &number) && number == 0.5);
    assert_true(sbp_parse_int64("-9223372036854775808", &whole) && whole == INT64_MIN);
    assert_true(sbp_parse_int64("9223372036854775807", &whole) && whole == INT64_MAX);
}

static void test_nearest(void **state)
{
    (void)state;
    static const char *const names[] = {"linear",    "relu",          "gelu", "embedding",
                                        "layernorm", "cross_entropy", "add",  NULL};
    static const char *const rows[][2] = {
        {"linar", "linear"},
        {"Linear", "linear"},
        {"lienar", "linear"},
        {"rleu", "relu"},
        {"elu", "relu"},
        {"embeding", "embedding"},
        {"layer_norm", "layernorm"},
        {"cross-entorpy", "cross_entropy"},
        {"ad", "add"},
        {"a", NULL},
        {"", NULL},
        {"convolution", NULL},
        {"pool", NULL},
        {"add", "add"},
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        const char *nearest = sbp_text_nearest(rows[i][0], names);
        if ((nearest == NULL) != (rows[i][1] == NULL) ||
            (nearest != NULL && strcmp(nearest, rows[i][1]) != 0))
            fail_msg("nearest to \"%s\" is %s, expected %s", rows[i][0],
                     nearest == NULL ? "none" : nearest, rows[i][1] == NULL ? "none" : rows[i][1]);
    }
    char long_word[200];
    memset(long_word, 'x', sizeof long_word);
    long_word[199] = '\0';
    assert_null(sbp_text_nearest(long_word, names));
    static const char *const none[] = {NULL};
    assert_null(sbp_text_nearest("linear", none));
}

/* Optimal string alignment by its recursive definition. */
static int naive_distance(const char *a, int m, const char *b, int n)
{
    if (m == 0 || n == 0)
        return m + n;
    int best = naive_distance(a, m - 1, b, n - 1) + (a[m - 1] != b[n - 1]);
    const int deleted = naive_distance(a, m - 1, b, n) + 1;
    const int inserted = naive_distance(a, m, b, n - 1) + 1;
    best = deleted < best ? deleted : best;
    best = inserted < best ? inserted : best;
    if (m > 1 && n > 1 && a[m - 1] == b[n - 2] && a[m - 2] == b[n - 1]) {
        const int swapped = naive_distance(a, m - 2, b, n - 2) + 1;
        best = swapped < best ? swapped : best;
    }
    return best;
}

static void test_nearest_against_definition(void **state)
{
    (void)state;
    struct sbp_random random = seeded(SEED);
    int near = 0;
    for (int round = 0; round < 3000; round++) {
        char words[2][8];
        for (int i = 0; i < 2; i++) {
            const int length = 1 + (int)sbp_random_below(&random, 7);
            for (int j = 0; j < length; j++)
                words[i][j] = (char)('a' + sbp_random_below(&random, 2));
            words[i][length] = '\0';
        }
        const char *const names[] = {words[1], NULL};
        const int m = (int)strlen(words[0]), n = (int)strlen(words[1]);
        const int longer = m > n ? m : n;
        const int distance = naive_distance(words[0], m, words[1], n);
        const bool expected = distance < longer && distance <= (longer < 6 ? 1 : 2);
        near += expected;
        if ((sbp_text_nearest(words[0], names) != NULL) != expected)
            fail_msg("\"%s\" and \"%s\": distance %d", words[0], words[1], distance);
    }
    assert_true(near > 300 && near < 2700);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_strings_grow),
        cmocka_unit_test(test_failure_stays),
        cmocka_unit_test(test_outside_text_is_shown),
        cmocka_unit_test(test_lines_keep_their_own_newlines),
        cmocka_unit_test(test_units),
        cmocka_unit_test(test_units_keep_the_value),
        cmocka_unit_test(test_parse_scaled),
        cmocka_unit_test(test_format_digits),
        cmocka_unit_test(test_parse_numbers),
        cmocka_unit_test(test_nearest),
        cmocka_unit_test(test_nearest_against_definition),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
