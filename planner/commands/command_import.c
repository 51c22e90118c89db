#include <stdio.h>
#include <string.h>

#include <cjson/cJSON.h>

#include "base/json/json_write.h"
#include "base/text.h"
#include "planner/cli/outputs.h"
#include "planner/commands/commands.h"
#include "planner/import/hf.h"

static enum sbp_status check_words(const struct sbp_arguments *arguments, struct sbp_diag *diag)
{
    if (strcmp(arguments->operands.word[0], "hf") != 0)
        return sbp_fail(diag, SBP_E_USAGE, "sbplan import: unknown format \"%.60s\", legal is hf",
                        arguments->operands.word[0]);
    if (arguments->global_batch == 0)
        return sbp_fail(diag, SBP_E_USAGE,
                        "sbplan import: --global-batch N is needed: the training decides it, not "
                        "the config");
    return SBP_OK;
}

static enum sbp_status write_model(const struct cJSON *model, const char *path,
                                   struct sbp_diag *diag)
{
    if (path == NULL)
        return sbp_json_print(model, stdout, diag);
    SBP_TRY(sbp_json_write(model, path, diag));
    SBP_PRINT_LINE("wrote %s\n", path);
    return SBP_OK;
}

/* Says on standard error what was left out or assumed: all notes but the first, the source. */
static void print_notes(const struct cJSON *model)
{
    const struct cJSON *notes = cJSON_GetObjectItemCaseSensitive(model, "notes");
    for (int i = 1; i < cJSON_GetArraySize(notes); i++)
        (void)sbp_text_print_line(stderr, "sbplan import: %s\n",
                                  cJSON_GetArrayItem(notes, i)->valuestring);
}

enum sbp_status sbp_command_import(const struct sbp_arguments *arguments, struct sbp_diag *diag)
{
    static const char *const PRECISIONS[] = {NULL, "mixed", "mixed", "fp16", "fp32"};
    const struct sbp_import_options options = {
        .name = arguments->name,
        .precision = PRECISIONS[arguments->precision],
        .global_batch = arguments->global_batch,
        .sequence = arguments->sequence,
        .vocab_multiple = arguments->vocab_multiple,
    };
    struct cJSON *root, *model = NULL;
    struct sbp_json at;
    SBP_TRY(check_words(arguments, diag));
    SBP_TRY(sbp_outputs_check_input(arguments, arguments->operands.word[1], diag));
    SBP_TRY(sbp_json_open(arguments->operands.word[1], &root, &at, diag));
    enum sbp_status status = sbp_import_hf(&at, &options, &model, diag);
    cJSON_Delete(root);
    if (status == SBP_OK)
        print_notes(model);
    if (status == SBP_OK)
        status = write_model(model, arguments->output, diag);
    cJSON_Delete(model);
    return status;
}
