#include "tests/bench/report.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/machine.h"

bool report_read_arguments(int argc, char **argv, struct report_arguments *arguments)
{
    bool good = argc >= 2;
    *arguments = (struct report_arguments){.program = argv[1]};
    int at = 2;
    for (; good && at < argc && argv[at][0] == '-'; at += 2) {
        const bool folder = strcmp(argv[at], "-o") == 0;
        good = at + 1 < argc && (folder || strcmp(argv[at], "--time-limit") == 0);
        if (good)
            *(folder ? &arguments->folder : &arguments->time_limit) = argv[at + 1];
    }
    if (!good) {
        (void)fprintf(stderr, "usage: %s SBPLAN [-o FOLDER] [--time-limit S] [NAME...]\n", argv[0]);
        return false;
    }
    arguments->names = argv + at;
    arguments->name_count = argc - at;
    return true;
}

bool report_wants(const struct report_arguments *arguments, const char *name)
{
    bool wanted = arguments->name_count == 0;
    for (int i = 0; i < arguments->name_count; i++)
        wanted |= strncmp(name, arguments->names[i], strlen(arguments->names[i])) == 0;
    return wanted;
}

/* The processor's name as Linux has it; "" when it has none. */
static void find_processor(char *name, size_t size)
{
    char line[256];
    FILE *file = fopen("/proc/cpuinfo", "r");
    name[0] = '\0';
    while (file != NULL && name[0] == '\0' && fgets(line, sizeof line, file) != NULL) {
        const char *colon = strchr(line, ':');
        if (strncmp(line, "model name", 10) == 0 && colon != NULL)
            (void)snprintf(name, size, ", %.*s", (int)strcspn(colon + 2, "\n"), colon + 2);
    }
    if (file != NULL)
        (void)fclose(file);
}

void report_add_machine(struct sbp_text *text)
{
    char processor[200];
    struct sbp_machine machine;
    find_processor(processor, sizeof processor);
    sbp_machine_find(SBP_CONTROL_GROUP, &machine);
    sbp_text_add(text, "version " SBP_VERSION " (%s %.20s%s, %d cores)",
#if defined(__clang__)
                 "clang", __clang_version__,
#else
                 "gcc", __VERSION__,
#endif
                 processor, machine.cores);
}

bool report_write(const struct report_arguments *arguments, const char *name,
                  const struct sbp_text *text)
{
    struct sbp_diag diag = {{0}};
    char path[1024];
    if (text->failed || text->bytes == NULL) {
        (void)fprintf(stderr, "%s: out of memory\n", name);
        return false;
    }
    if (arguments->folder == NULL)
        return fputs(text->bytes, stdout) >= 0;
    (void)snprintf(path, sizeof path, "%s/%s", arguments->folder, name);
    if (sbp_file_write(path, text->bytes, text->length, &diag) != SBP_OK) {
        (void)fprintf(stderr, "%s\n", diag.text);
        return false;
    }
    return printf("wrote %s\n", path) >= 0;
}
