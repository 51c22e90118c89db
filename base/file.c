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

const char *sbp_file_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash == NULL ? path : slash + 1;
}

/* A temporary file repeats so many bytes of a name, which leaves room for its own ending. */
enum { MOST_REPEATED = 200 };

/* A name beside `target` that nobody has; the file is open for writing. -1 on failure. */
static int open_beside(const char *target, struct sbp_text *name)
{
    const int folder = (int)(sbp_file_name(target) - target);
    for (int attempt = 0; attempt < 100; attempt++) {
        name->length = 0;
        sbp_text_add(name, "%.*s.%ld.%d.tmp", folder + MOST_REPEATED, target, (long)getpid(),
                     attempt);
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

/* --- writing: first all bytes into temporary files, then the names --- */

/* A file on its way. */
struct staged {
    char *target;              /* owned; what a symbolic link leads to */
    struct sbp_text temporary; /* its name; empty once it is renamed, and where none is needed */
    bool is_direct;            /* terminals, pipes and /dev/null take the bytes as they come */
    bool exists;
    mode_t mode;
};

/* Removes what is left of a file on its way; errno stays. */
static void drop(struct staged *staged)
{
    const int reason = errno;
    if (staged->temporary.length > 0)
        (void)unlink(staged->temporary.bytes);
    sbp_text_free(&staged->temporary);
    free(staged->target);
    *staged = (struct staged){0};
    errno = reason;
}

/* Finds out what stands at `path`; errno tells why on false. A link that leads nowhere is a slip:
 * neither it nor what it names is made. */
static bool find_target(const char *path, struct staged *staged)
{
    struct stat old, link;
    *staged = (struct staged){.exists = stat(path, &old) == 0};
    const int reason = staged->exists ? EISDIR : errno;
    const bool is_new = !staged->exists && reason == ENOENT && lstat(path, &link) != 0;
    if (staged->exists ? S_ISDIR(old.st_mode) : !is_new) {
        errno = reason;
        return false;
    }
    staged->is_direct = staged->exists && !S_ISREG(old.st_mode);
    staged->mode = staged->exists ? old.st_mode & 07777 : 0;
    staged->target = staged->exists ? realpath(path, NULL) : strdup(path);
    return staged->target != NULL;
}

/* Opens the temporary file; -1 with errno. */
static int open_temporary(struct staged *staged)
{
    const int file = open_beside(staged->target, &staged->temporary);
    if (file < 0)
        staged->temporary.length = 0; /* the name is nobody's, or another's */
    return file;
}

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

/* Writes the temporary file, or what is no regular file itself; errno tells why on false. */
static bool stage(const struct sbp_file_text *file, struct staged *staged)
{
    if (!find_target(file->path, staged))
        return false;
    if (staged->is_direct)
        return write_through(file->path, file->text, file->length);
    const int out = open_temporary(staged);
    if (out < 0)
        return false;
    const bool written = write_all(out, file->text, file->length) &&
                         (!staged->exists || fchmod(out, staged->mode) == 0) && fsync(out) == 0;
    const int reason = errno;
    const bool closed = close(out) == 0;
    if (!written)
        errno = reason;
    return written && closed;
}

static bool commit(struct staged *staged)
{
    if (staged->is_direct)
        return true;
    if (rename(staged->temporary.bytes, staged->target) != 0)
        return false;
    staged->temporary.length = 0;
    sync_folder(staged->target);
    return true;
}

/* errno is the reason. */
static enum sbp_status refuse_write(const char *path, struct sbp_diag *diag)
{
    struct stat link;
    const int reason = errno;
    if (reason == ENOENT && lstat(path, &link) == 0)
        return sbp_fail(diag, SBP_E_IO, "%s: cannot be written: the symbolic link leads nowhere",
                        path);
    return sbp_fail(diag, SBP_E_IO, "%s: cannot be written: %s", path, strerror(reason));
}

enum sbp_status sbp_file_write_all(const struct sbp_file_text *files, int count,
                                   struct sbp_diag *diag)
{
    struct staged *staged = calloc((size_t)count + 1, sizeof *staged);
    if (staged == NULL)
        return sbp_fail(diag, SBP_E_MEMORY, "out of memory");
    enum sbp_status status = SBP_OK;
    sigset_t before;
    sbp_signals_hold(&before); /* no signal ends the program while temporary files are there */
    for (int i = 0; i < count && status == SBP_OK; i++)
        if (!stage(&files[i], &staged[i]))
            status = refuse_write(files[i].path, diag);
    for (int i = 0; i < count && status == SBP_OK; i++)
        if (!commit(&staged[i]))
            status = refuse_write(files[i].path, diag);
    for (int i = 0; i < count; i++)
        drop(&staged[i]);
    sbp_signals_release(&before);
    free(staged);
    return status;
}

enum sbp_status sbp_file_write(const char *path, const char *text, size_t length,
                               struct sbp_diag *diag)
{
    const struct sbp_file_text file = {path, text, length};
    return sbp_file_write_all(&file, 1, diag);
}

enum sbp_status sbp_file_check_writable(const char *path, struct sbp_diag *diag)
{
    struct staged staged;
    sigset_t before;
    sbp_signals_hold(&before);
    bool writable = find_target(path, &staged);
    if (writable && staged.is_direct) {
        writable = access(path, W_OK) == 0;
    } else if (writable) {
        const int file = open_temporary(&staged);
        writable = file >= 0 && close(file) == 0;
    }
    drop(&staged);
    sbp_signals_release(&before);
    return writable ? SBP_OK : refuse_write(path, diag);
}

/* --- names --- */

/* The folder that a path stands in. */
static bool stat_folder(const char *path, struct stat *found)
{
    struct sbp_text folder = {0};
    add_folder(&folder, path);
    const bool is_there = !folder.failed && stat(folder.bytes, found) == 0;
    sbp_text_free(&folder);
    return is_there;
}

bool sbp_file_is_same(const char *one, const char *two)
{
    struct stat a, b;
    const bool exists[2] = {stat(one, &a) == 0, stat(two, &b) == 0};
    if (exists[0] != exists[1])
        return false;
    if (exists[0])
        return a.st_dev == b.st_dev && a.st_ino == b.st_ino && S_ISREG(a.st_mode);
    return strcmp(sbp_file_name(one), sbp_file_name(two)) == 0 && stat_folder(one, &a) &&
           stat_folder(two, &b) && a.st_dev == b.st_dev && a.st_ino == b.st_ino;
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
