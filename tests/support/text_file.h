/* A text as a file, for readers that take a path. */
#ifndef SBP_TESTS_TEXT_FILE_H
#define SBP_TESTS_TEXT_FILE_H

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/support/unit.h"

struct text_file {
    char path[32];
};

/* The caller removes it. Fails the test where it cannot be written. */
static inline struct text_file text_file_make(const char *text)
{
    struct text_file file = {.path = "/tmp/sbplan-text-XXXXXX"};
    const int descriptor = mkstemp(file.path);
    assert_true(descriptor >= 0);
    assert_int_equal(write(descriptor, text, strlen(text)), strlen(text));
    assert_int_equal(close(descriptor), 0);
    return file;
}

static inline void text_file_remove(const struct text_file *file)
{
    assert_int_equal(unlink(file->path), 0);
}

#endif
