#include "planner/cli/help_priv.h"

#include <string.h>

#include "base/text.h"
#include "planner/space/space_table.h"

#define HELP_COLUMNS 96

void sbp_help_wrapped(FILE *out, const char *text, int indent, int column)
{
    while (*text != '\0') {
        const int length = (int)strcspn(text, " ");
        if (column + length > HELP_COLUMNS) {
            (void)fprintf(out, "\n%*s", indent, "");
            column = indent;
        }
        (void)fprintf(out, "%.*s", length, text);
        column += length;
        text += length;
        if (*text == ' ') {
            text++;
            if (column + 1 + (int)strcspn(text, " ") <= HELP_COLUMNS) {
                (void)fputc(' ', out);
                column++;
            } else {
                column = HELP_COLUMNS + 1;
            }
        }
    }
    (void)fputc('\n', out);
}

void sbp_help_entry(FILE *out, const char *name, const char *between, const char *argument,
                    const char *help)
{
    enum { INDENT = 30 };
    int column = fprintf(out, "  %s%s%s", name, between, argument);
    if (column > INDENT - 2) {
        (void)fputc('\n', out);
        column = 0;
    }
    (void)fprintf(out, "%*s", INDENT - column, "");
    sbp_help_wrapped(out, help, INDENT, INDENT);
}

void sbp_help_spaces(FILE *out)
{
    (void)fprintf(out, "\nSpaces:\n");
    for (int i = 0; i < SBP_SPACES; i++)
        (void)fprintf(out, "  %-20s %s\n", sbp_request_space_name((enum sbp_space_kind)i),
                      sbp_space_summary((enum sbp_space_kind)i));
}

void sbp_help_algorithms(FILE *out)
{
    (void)fprintf(out, "\nAlgorithms:\n");
    for (const struct sbp_solver *solver = sbp_solvers; solver->name != NULL; solver++)
        (void)fprintf(out, "  %-20s %s\n", solver->name, solver->summary);
}

/* Help of each of sbp_parallel_keys. */
static const struct {
    const char *key, *argument, *help;
} cuts[] = {
    {"pipeline", "N", "stages (default 1): whole outer levels first, then a divisor of the next"},
    {"micro_batch", "N",
     "sequences that a stage works on at a time; divides the batch (default all of it)"},
    {"schedule", "NAME", "of the micro-batches (default 1f1b)"},
    {"stage_cut", "NAME",
     "where stages begin: between blocks evenly (default), by flops, or as the blocks of each "
     "stage say, 17,15"},
    {"chunks", "N",
     "pieces of a stage: 2 or more, with interleaved; of one stage, or as many, with cdp-v1, "
     "cdp-v2"},
    {"pyramid", "BOOL",
     "cdp-v1, cdp-v2: N (N + 1) / 2 groups of devices for N stages, a micro-batch each at a time"},
    {"pipeline_limit", "N",
     "micro-batches in flight, of schedules message-driven and zero-bubble (default 0: as many as "
     "stages)"},
    {"zero", "0..3", "ZeRO: replicas share optimizer states (1), gradients (2), weights (3)"},
    {"gather_blocks", "BOOL", "with zero=3, gather the weights of a block together"},
    {"recompute", "NAME",
     "what is formed again in the backward pass instead of kept (default none)"},
    {"recompute_every", "N", "keep the input of every so many blocks, with recompute=full"},
    {"regather", "BOOL", "keep inputs as they rested, and box them again for weight gradients"},
    {"keep_sent", "BOOL", "keep what a stage sent until its backward pass"},
    {"offload", "BOOL", "optimizer states in host memory"},
    {"bucket_parameters", "N", "that pass through the device at a time, with offload"},
    {"chunk_factor", "N", "buckets of one all-reduce beside the optimizer, with offload"},
    {"gradient_overlap", "0..1",
     "share of the gradients' synchronisation that may hide behind the backward pass (default: the "
     "cluster's); a run lets all of it, if any"},
    {"allow_delayed_gradients", "BOOL", "needed by cdp-v1 and cdp-v2: update with older gradients"},
    {"owner", "NAME", "one replica holds a weight's states and hands them out (default none)"},
};

static void add_cut_names(const char *key, struct sbp_text *help)
{
    for (int i = 0; strcmp(key, "schedule") == 0 && i < SBP_SCHEDULES; i++)
        sbp_text_add(help, "%s%s", i == 0 ? ": " : ", ",
                     sbp_timeline_schedule_name((enum sbp_schedule)i));
    for (int i = 0; strcmp(key, "recompute") == 0 && i < SBP_RECOMPUTES; i++)
        sbp_text_add(help, "%s%s", i == 0 ? ": " : ", ",
                     sbp_parallel_recompute_name((enum sbp_recompute)i));
    for (int i = 0; strcmp(key, "owner") == 0 && i < SBP_OWNERS; i++)
        sbp_text_add(help, "%s%s", i == 0 ? ": " : ", ",
                     sbp_parallel_owner_name((enum sbp_owner)i));
    for (int i = 0; strcmp(key, "stage_cut") == 0 && i < SBP_STAGE_CUTS; i++)
        sbp_text_add(help, "%s%s", i == 0 ? ": " : ", ",
                     sbp_parallel_stage_cut_name((enum sbp_stage_cut)i));
}

void sbp_help_cuts(FILE *out)
{
    (void)fprintf(out, "\nHow a step is cut (--set):\n");
    for (const char *const *key = sbp_parallel_keys(); *key != NULL; key++)
        for (size_t i = 0; i < sizeof cuts / sizeof *cuts; i++) {
            struct sbp_text help = {0};
            if (strcmp(cuts[i].key, *key) != 0)
                continue;
            sbp_text_add(&help, "%s", cuts[i].help);
            add_cut_names(*key, &help);
            sbp_help_entry(out, *key, "=", cuts[i].argument,
                           help.failed ? cuts[i].help : help.bytes);
            sbp_text_free(&help);
        }
}
