/* Reads and writes whole files. Input: a path, and the text to write. Output: the text that was
 * read, or a file that is written completely or not at all. */
#ifndef SBP_BASE_FILE_H
#define SBP_BASE_FILE_H

#include <stdbool.h>
#include <stddef.h>

#include "base/status.h"

/* The whole file, NUL-terminated; *text is owned by the caller (free). E_IO names the file and the
 * reason; files over 1 GiB are refused. */
enum sbp_status sbp_file_read(const char *path, char **text, size_t *length,
                              struct sbp_diag *diag) SBP_MUST_USE;

/* Writes a temporary file beside path, flushes it to disk and renames it over path; an older file's
 * mode and a symbolic link to it stay, a symbolic link that leads nowhere is refused. On failure
 * the old file stands as it was and nothing is left behind. What is no regular file (a pipe,
 * /dev/stdout) is written directly. E_IO names path and reason; E_MEMORY. */
enum sbp_status sbp_file_write(const char *path, const char *text, size_t length,
                               struct sbp_diag *diag) SBP_MUST_USE;

/* Writes several files, all or none: none gets its name before the bytes of all are on the disk.
 * (Renaming itself fails only where somebody changes the folders meanwhile.) As sbp_file_write. */
struct sbp_file_text {
    const char *path, *text;
    size_t length;
};
enum sbp_status sbp_file_write_all(const struct sbp_file_text *files, int count,
                                   struct sbp_diag *diag) SBP_MUST_USE;

/* Before long work: whether sbp_file_write could write there now; makes a temporary file beside
 * path and removes it. E_IO, E_MEMORY as it. */
enum sbp_status sbp_file_check_writable(const char *path, struct sbp_diag *diag) SBP_MUST_USE;

/* Whether two paths lead to one regular file, by links as well, or would once it is made. */
bool sbp_file_is_same(const char *one, const char *two);

/* The last part of a path, behind its last slash. */
const char *sbp_file_name(const char *path);

/* The folder of this program, for what lies beside it; false when it cannot be found out. */
bool sbp_file_program_folder(char *folder, size_t size);

#endif
