#include "planner/cli/outputs.h"

#include <string.h>

#include "base/file.h"

void sbp_outputs_name(const char *output, int64_t rank, struct sbp_text *name)
{
    const char *last = sbp_file_name(output);
    const char *dot = strrchr(last, '.');
    const size_t stem = dot == NULL || dot == last ? strlen(output) : (size_t)(dot - output);
    if (rank == 1)
        sbp_text_add(name, "%s", output);
    else
        sbp_text_add(name, "%.*s-%lld%s", (int)stem, output, (long long)rank, output + stem);
}

/* An output by its place: 0 is that of --problem, the others are ranks of -o. */
static int64_t count_outputs(const struct sbp_arguments *arguments)
{
    return arguments->output == NULL ? 1 : arguments->top > 1 ? arguments->top + 1 : 2;
}

/* Sets the name of an output; "" where --problem is not given. */
static enum sbp_status name_output(const struct sbp_arguments *arguments, int64_t place,
                                   struct sbp_text *name, struct sbp_diag *diag)
{
    name->length = 0;
    if (place > 0)
        sbp_outputs_name(arguments->output, place, name);
    else
        sbp_text_add(name, "%s", arguments->problem == NULL ? "" : arguments->problem);
    return name->failed ? sbp_fail(diag, SBP_E_MEMORY, "out of memory") : SBP_OK;
}

/* Refuses outputs from place `first` on that are the file of `path`. */
static enum sbp_status check_others(const struct sbp_arguments *arguments, int64_t first,
                                    const char *path, const char *what, struct sbp_diag *diag)
{
    struct sbp_text name = {0};
    enum sbp_status status = SBP_OK;
    for (int64_t place = first; place < count_outputs(arguments) && status == SBP_OK; place++) {
        status = name_output(arguments, place, &name, diag);
        if (status == SBP_OK && name.length > 0 && sbp_file_is_same(name.bytes, path))
            status = sbp_fail(diag, SBP_E_USAGE, "sbplan %s: %s %s would overwrite %s %s",
                              arguments->command->name, place == 0 ? "--problem" : "-o", name.bytes,
                              what, path);
    }
    sbp_text_free(&name);
    return status;
}

enum sbp_status sbp_outputs_check(const struct sbp_arguments *arguments, struct sbp_diag *diag)
{
    struct sbp_text name = {0};
    enum sbp_status status = SBP_OK;
    for (int64_t place = 0; place < count_outputs(arguments) && status == SBP_OK; place++) {
        status = name_output(arguments, place, &name, diag);
        if (status == SBP_OK && place > 1) /* the others were checked as values of their options */
            status = sbp_file_check_writable(name.bytes, diag);
        if (status == SBP_OK && name.length > 0)
            status = check_others(arguments, place + 1, name.bytes, "another output,", diag);
    }
    sbp_text_free(&name);
    return status;
}

enum sbp_status sbp_outputs_check_input(const struct sbp_arguments *arguments, const char *path,
                                        struct sbp_diag *diag)
{
    return check_others(arguments, 0, path, "what is read from", diag);
}
