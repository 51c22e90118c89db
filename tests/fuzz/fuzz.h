/* Shared parts of the fuzz targets: any bytes go in, and nothing but a status may come out.
 *
 * A target is linked with libFuzzer, or with replay.c, which feeds it the files it is given.
 */
#ifndef SBP_TESTS_FUZZ_H
#define SBP_TESTS_FUZZ_H

#include <stddef.h>
#include <stdint.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* The bytes as text that ends in NUL; the caller frees it. */
char *fuzz_text(const uint8_t *data, size_t size);

/* Parts a text into its lines, at most so many; returns their number. */
int fuzz_lines(char *text, char **line, int most);

/* The bytes as a file in memory for readers that open a path; close the descriptor after use. */
struct fuzz_file {
    int descriptor;
    char path[32];
};
struct fuzz_file fuzz_file_open(const uint8_t *data, size_t size);

/* Stops at a result that breaks a promise of the reader. */
void fuzz_check(int holds, const char *what);

#endif
