#include "tests/fuzz/fuzz.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

char *fuzz_text(const uint8_t *data, size_t size)
{
    char *text = malloc(size + 1);
    fuzz_check(text != NULL, "memory for the input");
    memcpy(text, data, size);
    text[size] = '\0';
    return text;
}

int fuzz_lines(char *text, char **line, int most)
{
    int count = 0;
    for (char *next = text; next != NULL && count < most;) {
        line[count++] = next;
        next = strchr(next, '\n');
        if (next != NULL)
            *next++ = '\0';
    }
    return count;
}

struct fuzz_file fuzz_file_open(const uint8_t *data, size_t size)
{
    struct fuzz_file file = {.descriptor = memfd_create("fuzz", 0)};
    fuzz_check(file.descriptor >= 0, "a file in memory");
    for (size_t done = 0; done < size;) {
        const ssize_t part = write(file.descriptor, data + done, size - done);
        fuzz_check(part > 0, "a write to it");
        done += (size_t)part;
    }
    (void)snprintf(file.path, sizeof file.path, "/proc/self/fd/%d", file.descriptor);
    return file;
}

void fuzz_check(int holds, const char *what)
{
    if (holds)
        return;
    (void)fprintf(stderr, "broken: %s\n", what);
    abort();
}
