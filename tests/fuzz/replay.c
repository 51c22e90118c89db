/* Feeds a fuzz target the files it is given and those in the folders it is given, whole and cut off
 * after every tenth: what libFuzzer found once stays found, with any compiler. */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/fuzz/fuzz.h"

static int replay(const char *path)
{
    static uint8_t bytes[1 << 22];
    FILE *file = fopen(path, "rb");
    if (file == NULL)
        return 0;
    const size_t size = fread(bytes, 1, sizeof bytes, file);
    const int failed = ferror(file);
    (void)fclose(file);
    if (failed)
        return 0;
    for (size_t tenth = 0; tenth <= 10; tenth++)
        (void)LLVMFuzzerTestOneInput(bytes, size / 10 * tenth + (tenth == 10 ? size % 10 : 0));
    return 1;
}

static int replay_all(const char *folder)
{
    DIR *entries = opendir(folder);
    int count = 0;
    if (entries == NULL)
        return replay(folder);
    for (const struct dirent *entry = readdir(entries); entry != NULL; entry = readdir(entries)) {
        char path[4096];
        if (entry->d_name[0] == '.')
            continue;
        (void)snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
        count += replay(path);
    }
    (void)closedir(entries);
    return count;
}

int main(int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        const int count = replay_all(argv[i]);
        printf("%s: %d files\n", argv[i], count);
        if (count == 0)
            return EXIT_FAILURE;
    }
    return EXIT_SUCCESS;
}
