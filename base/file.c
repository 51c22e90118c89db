#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/signals.h"
#include "base/text.h"

#define MOST_BYTES  ((size_t)1 << 30)
#define FIRST_BYTES ((size_t)1 << 14)

/* Reads to the end of the file, whose size is not asked: it may be a pipe. */
static enum sbp_status read_stream(FILE *in, const char *path, struct sbp_text *text,
                                   struct sbp_diag *diag)
{
    size_t got = 1;
    while (got > 0) {
        if (text->capacity - text->length < 2) {
            const size_t capacity = text->capacity == 0 ? FIRST_BYTES : 2 * text->capacity;
            char *bytes = realloc(text->bytes, capacity);
            if (bytes == NULL)
                return sbp_fail(diag, SBP_E_MEMORY, "%s: out of memory while reading", path);
            text->bytes = bytes;
            text->capacity = capacity;
        }
        errno = 0;
        got = fread(text->bytes + text->length, 1, text->capacity - text->length - 1, in);
        if (ferror(in))
            return sbp_fail(diag, SBP_E_IO, "%s: cannot be read: %s", path, strerror(errno));
        text->length += got;
        if (text->length > MOST_BYTES)
            return sbp_fail(diag, SBP_E_IO, "%s: larger than 1 GiB", path);
    }
    text->bytes[text->length] = '\0';
    return SBP_OK;
}

enum sbp_status sbp_file_read(const char *path, char **text, size_t *length, struct sbp_diag *diag)
{
    FILE *in = fopen(path, "rb");
    if (in == NULL)
        return sbp_fail(diag, SBP_E_IO, "%s: cannot be opened: %s", path, strerror(errno));
    struct sbp_text whole = {0};
    const enum sbp_status status = read_stream(in, path, &whole, diag);
    (void)fclose(in); /* nothing was written */
    if (status != SBP_OK) {
        sbp_text_free(&whole);
        return status;
    }
    *text = whole.bytes;
    *length = whole.length;
    return SBP_OK;
}

static bool write_all(int file, const char *text, size_t length)
{
    while (length > 0) {
        const ssize_t written = write(file, text, length);
        if (written < 0 && errno == EINTR)
            continue;
        if (written < 0)
            return false;
        text += written;
        length -= (size_t)written;
    }
    return true;
}

/* A name beside `target` that nobody has; the file is open for writing. -1 on failure. */
static int open_beside(const char *target, struct sbp_text *name)
{
    for (int attempt = 0; attempt < 100; attempt++) {
        name->length = 0;
        sbp_text_add(name, "%s.%ld.%d.tmp", target, (long)getpid(), attempt);
        if (name->failed) {
            errno = ENOMEM;
            return -1;
        }
        const int file = open(name->bytes, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        if (file >= 0 || errno != EEXIST)
            return file;
    }
    return -1;
}

const char *sbp_file_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash == NULL ? path : slash + 1;
}

/* The folder of a path, with the slash behind it. */
static void add_folder(struct sbp_text *folder, const char *path)
{
    const char *slash = strrchr(path, '/');
    sbp_text_add(folder, "%.*s", slash == NULL ? 2 : (int)(slash - path) + 1,
                 slash == NULL ? "./" : path);
}

/* The rename itself reaches the disk with the folder. Best effort: the new file is whole already,
 * and some file systems refuse to sync folders. */
static void sync_folder(const char *target)
{
    struct sbp_text folder = {0};
    add_folder(&folder, target);
    const int file = folder.failed ? -1 : open(folder.bytes, O_RDONLY | O_CLOEXEC);
    if (file >= 0) {
        (void)fsync(file);
        (void)close(file);
    }
    sbp_text_free(&folder);
}

/* errno tells why on false; the temporary file is gone then, and no signal ends the program while
 * it is there. */
static bool replace_file(const char *target, const struct stat *old, const char *text,
                         size_t length)
{
    struct sbp_text name = {0};
    sigset_t before;
    sbp_signals_hold(&before);
    const int file = open_beside(target, &name);
    bool done = false;
    if (file >= 0) {
        done = write_all(file, text, length) &&
               (old == NULL || fchmod(file, old->st_mode & 07777) == 0) && fsync(file) == 0;
        int reason = errno;
        if (close(file) != 0 && done) {
            done = false;
            reason = errno;
        }
        errno = reason;
        done = done && rename(name.bytes, target) == 0;
        if (!done) {
            reason = errno;
            (void)unlink(name.bytes);
            errno = reason;
        }
    }
    const int reason = errno;
    sbp_signals_release(&before);
    sbp_text_free(&name);
    if (done)
        sync_folder(target);
    errno = reason;
    return done;
}

/* Terminals, pipes and /dev/null cannot be replaced; they take the bytes as they come. */
static bool write_through(const char *path, const char *text, size_t length)
{
    const int file = open(path, O_WRONLY | O_CLOEXEC);
    if (file < 0)
        return false;
    const bool written = write_all(file, text, length);
    const int reason = errno;
    const bool closed = close(file) == 0;
    if (!written)
        errno = reason;
    return written && closed;
}

/* errno is the reason. */
static enum sbp_status refuse_write(const char *path, struct sbp_diag *diag)
{
    return sbp_fail(diag, SBP_E_IO, "%s: cannot be written: %s", path, strerror(errno));
}

enum sbp_status sbp_file_write(const char *path, const char *text, size_t length,
                               struct sbp_diag *diag)
{
    struct stat old;
    const bool exists = stat(path, &old) == 0;
    bool done;
    if (exists && !S_ISREG(old.st_mode)) {
        done = write_through(path, text, length);
    } else if (exists) {
        char *target = realpath(path, NULL); /* a symbolic link stays one */
        done = target != NULL && replace_file(target, &old, text, length);
        const int reason = errno;
        free(target);
        errno = reason;
    } else {
        done = replace_file(path, NULL, text, length);
    }
    return done ? SBP_OK : refuse_write(path, diag);
}

/* Whether a file can be made beside a path, which is how files are replaced. */
static bool is_folder_writable(const char *path)
{
    struct sbp_text folder = {0};
    add_folder(&folder, path);
    const bool writable = !folder.failed && access(folder.bytes, W_OK | X_OK) == 0;
    const int reason = folder.failed ? ENOMEM : errno;
    sbp_text_free(&folder);
    errno = reason;
    return writable;
}

enum sbp_status sbp_file_check_writable(const char *path, struct sbp_diag *diag)
{
    struct stat old;
    bool writable = false;
    if (stat(path, &old) != 0) {
        writable = is_folder_writable(path);
    } else if (S_ISDIR(old.st_mode)) {
        errno = EISDIR;
    } else if (!S_ISREG(old.st_mode)) {
        writable = access(path, W_OK) == 0;
    } else {
        char *target = realpath(path, NULL);
        writable = target != NULL && is_folder_writable(target);
        const int reason = errno;
        free(target);
        errno = reason;
    }
    return writable ? SBP_OK : refuse_write(path, diag);
}

bool sbp_file_program_folder(char *folder, size_t size)
{
    const ssize_t length = readlink("/proc/self/exe", folder, size);
    if (length <= 0 || (size_t)length >= size)
        return false;
    folder[length] = '\0';
    char *slash = strrchr(folder, '/');
    if (slash == NULL)
        return false;
    *slash = '\0';
    return true;
}
