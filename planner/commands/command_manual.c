/* The manual page, made of the tables of commands and options. */
#include <string.h>

#include "planner/commands/commands.h"

/* Prints a text of which nothing is a command of the formatter: '.' and '\'' begin one in a line.
 */
static void print_text(const char *text)
{
    for (; *text != '\0'; text++)
        if (*text == '\\')
            (void)printf("\\e");
        else if (*text == '-')
            (void)printf("\\-");
        else
            (void)printf("%s%c", *text == '\'' || *text == '.' ? "\\&" : "", *text);
}

static void print_paragraph(const char *text)
{
    print_text(text);
    (void)putchar('\n');
}

static void print_option(const struct sbp_option *option)
{
    (void)printf(".TP\n.BI \"");
    print_text(option->name);
    if (option->argument != NULL) {
        (void)printf(" \" \"");
        print_text(option->argument);
    }
    (void)printf("\"");
    (void)printf("\n");
    print_text(option->help);
    struct sbp_text names = {0};
    sbp_option_add_names(option, &names);
    if (!names.failed && names.length > 0) {
        (void)printf(": ");
        print_text(names.bytes);
    }
    sbp_text_free(&names);
    (void)printf("\n");
}

static void print_command(const struct sbp_command *command)
{
    const struct sbp_option *option = NULL;
    (void)printf(".SH SBPLAN ");
    for (const char *at = command->name; *at != '\0'; at++)
        (void)putchar(*at >= 'a' && *at <= 'z' ? *at - 'a' + 'A' : *at);
    (void)printf("\n.B sbplan %s\n", command->name);
    print_paragraph(command->operands);
    (void)printf(".RI [ options ]\n.PP\n");
    print_paragraph(command->summary);
    while ((option = sbp_command_option(command, option)) != NULL)
        print_option(option);
    if (command->notes != NULL) {
        (void)printf(".PP\n");
        print_paragraph(command->notes);
    }
}

enum sbp_status sbp_command_manual(const struct sbp_arguments *arguments, struct sbp_diag *diag)
{
    (void)arguments, (void)diag;
    (void)printf(".TH SBPLAN 1 \"\" \"sbplan " SBP_VERSION "\" \"User commands\"\n.nh\n"
                 ".SH NAME\n"
                 "sbplan \\- plan how to split the training of a model over the devices of a "
                 "cluster\n"
                 ".SH SYNOPSIS\n.B sbplan\n.I command\n.RI [ arguments ]\n"
                 ".SH COMMANDS\n");
    for (const struct sbp_command *command = sbp_commands; command->name != NULL; command++) {
        (void)printf(".TP\n.B %s\n", command->name);
        print_paragraph(command->summary);
    }
    for (const struct sbp_command *command = sbp_commands; command->name != NULL; command++)
        print_command(command);
    (void)printf(".SH NUMBERS\n");
    print_paragraph(SBP_SCALED_HELP);
    (void)printf(".SH ENVIRONMENT\n"
                 ".TP\n.B SBPLAN_CONFIGS\n"
                 "Folder of models/, clusters/, devices/ and runtimes/, whose files have names.\n"
                 ".TP\n.B COLUMNS\n"
                 "Characters of a line that tables may take, 80 at least (default: the "
                 "terminal\\(aqs; in pipes and files no limit).\n");
    return SBP_OK;
}
