/* Scripts that complete command lines, made of the tables of commands and options. */
#include <string.h>

#include "planner/commands/commands.h"

/* Kinds of values that an option takes. */
enum values { NAMES, RUNTIMES, FILES, OTHERS, NONE };

static enum values values_of(const struct sbp_option *option)
{
    if (option->argument == NULL)
        return NONE;
    if (sbp_option_name_at(option, 0) != NULL)
        return NAMES;
    if (strcmp(option->name, "--runtime") == 0)
        return RUNTIMES;
    return strncmp(option->argument, "FILE", 4) == 0 || strcmp(option->argument, "LOG...") == 0
               ? FILES
               : OTHERS;
}

static void print_names(const struct sbp_option *option)
{
    for (int i = 0; sbp_option_name_at(option, i) != NULL; i++)
        (void)printf("%s%s", i == 0 ? "" : " ", sbp_option_name_at(option, i));
}

static void print_commands(void)
{
    for (const struct sbp_command *command = sbp_commands; command->name != NULL; command++)
        (void)printf("%s ", command->name);
    (void)printf("help --help --version");
}

/* Words of which an operand is one: "models|clusters", "hf CONFIG.json". */
static void print_operand_words(const struct sbp_command *command)
{
    if (strchr(command->operands, '|') != NULL && command->operands[0] != '[')
        for (const char *at = command->operands; *at != '\0'; at++)
            (void)putchar(*at == '|' ? ' ' : *at);
    else if (strncmp(command->operands, "hf ", 3) == 0)
        (void)printf("hf");
}

static bool takes_model(const struct sbp_command *command)
{
    return strncmp(command->operands, "MODEL CLUSTER", 13) == 0;
}

/* Operands in capitals may be files. */
static bool takes_files(const struct sbp_command *command)
{
    return strpbrk(command->operands, "ABCDEFGHIJKLMNOPQRSTUVWXYZ") != NULL;
}

/* Prints a text up to where its details begin, in single quotes; `quote` stands for one in it. */
static void print_brief(const char *text, const char *quote)
{
    (void)putchar('\'');
    for (; *text != '\0' && *text != ';' && *text != ':' && strncmp(text, " (", 2) != 0; text++)
        if (*text == '\'')
            (void)printf("%s", quote);
        else
            (void)putchar(*text);
    (void)putchar('\'');
}

/* Prints the pattern of a case: the options of such values, "-o | --problem". */
static void print_options_of(enum values values)
{
    bool is_first = true;
    for (const struct sbp_option *option = sbp_options_next(NULL, NULL); option != NULL;
         option = sbp_options_next(NULL, option))
        if (values_of(option) == values) {
            (void)printf("%s%s", is_first ? "" : " | ", option->name);
            is_first = false;
        }
}

/* Prints a case for each option whose value is one of names: `before` and `behind` them. */
static void print_named_values(const char *before, const char *behind)
{
    for (const struct sbp_option *option = sbp_options_next(NULL, NULL); option != NULL;
         option = sbp_options_next(NULL, option))
        if (values_of(option) == NAMES) {
            (void)printf("    %s)%s", option->name, before);
            print_names(option);
            (void)printf("%s", behind);
        }
}

/* Prints the cases of what values are: names, runtimes, files, others. */
static void print_values(const char *before_names, const char *behind_names, const char *runtimes,
                         const char *files, const char *others)
{
    const char *const does[] = {[RUNTIMES] = runtimes, [FILES] = files, [OTHERS] = others};
    print_named_values(before_names, behind_names);
    for (enum values values = RUNTIMES; values <= OTHERS; values++) {
        (void)printf("    ");
        print_options_of(values);
        (void)printf(")%s", does[values]);
    }
}

/* --- bash --- */

static void print_bash_command(const struct sbp_command *command)
{
    const struct sbp_option *option = NULL;
    (void)printf("        %s)\n            options='", command->name);
    while ((option = sbp_options_next(command, option)) != NULL)
        (void)printf("%s ", option->name);
    (void)printf("'\n            files=%s words=", takes_files(command) ? "1" : "");
    if (takes_model(command)) {
        (void)printf("$(_sbplan_names models; _sbplan_names clusters) ;;\n");
    } else {
        (void)printf("'");
        print_operand_words(command);
        (void)printf("' ;;\n");
    }
}

static void print_bash(void)
{
    (void)printf("# Completes sbplan in bash: source <(sbplan completion bash)\n"
                 "_sbplan_names() { sbplan list \"$1\" 2>/dev/null | awk 'NR > 2 { print $1 }'; }\n"
                 "_sbplan() {\n"
                 "    local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD - 1]}\n"
                 "    local command=${COMP_WORDS[1]} words= options= files=\n"
                 "    if [ \"$word\" = = ]; then\n"
                 "        word=\n"
                 "    elif [ \"$before\" = = ]; then\n"
                 "        before=${COMP_WORDS[COMP_CWORD - 2]}\n"
                 "    fi\n"
                 "    if [ \"$COMP_CWORD\" -eq 1 ]; then\n"
                 "        mapfile -t COMPREPLY < <(compgen -W '");
    print_commands();
    (void)printf("' -- \"$word\")\n"
                 "        return\n"
                 "    fi\n"
                 "    case $before in\n");
    print_values(" words='", "' ;;\n", " words=$(_sbplan_names runtimes) ;;\n", " files=1 ;;\n",
                 " return ;;\n");
    (void)printf("    *)\n"
                 "        files=1\n"
                 "        case $command in\n");
    for (const struct sbp_command *command = sbp_commands; command->name != NULL; command++)
        print_bash_command(command);
    (void)printf("        help)\n            words='");
    print_commands();
    (void)printf("'\n            ;;\n"
                 "        esac ;;\n"
                 "    esac\n"
                 "    case $word in -*) words=$options files= ;; esac\n"
                 "    mapfile -t COMPREPLY < <(compgen -W \"$words\" -- \"$word\"\n"
                 "                             [ -z \"$files\" ] || compgen -f -- \"$word\")\n"
                 "    [ -z \"$files\" ] || compopt -o filenames 2>/dev/null\n"
                 "}\n"
                 "complete -F _sbplan sbplan\n");
}

/* --- zsh --- */

/* 'name:what it does' */
static void print_zsh_item(const char *name, const char *help)
{
    (void)printf("            '%s:'", name);
    print_brief(help, "'\\''");
    (void)printf("\n");
}

static void print_zsh_command(const struct sbp_command *command)
{
    const struct sbp_option *option = NULL;
    (void)printf("    %s)\n        words_of=(", command->name);
    print_operand_words(command);
    if (takes_model(command))
        (void)printf("${(f)\"$(_sbplan_names models; _sbplan_names clusters)\"}");
    (void)printf(")\n        files=%s options=(\n", takes_files(command) ? "1" : "");
    while ((option = sbp_options_next(command, option)) != NULL)
        print_zsh_item(option->name, option->help);
    (void)printf("        ) ;;\n");
}

static void print_zsh(void)
{
    (void)printf("#compdef sbplan\n"
                 "# Completes sbplan in zsh: source <(sbplan completion zsh)\n"
                 "_sbplan_names() { sbplan list $1 2>/dev/null | awk 'NR > 2 { print $1 }' }\n"
                 "_sbplan() {\n"
                 "    local before=$words[CURRENT-1] command=$words[2]\n"
                 "    local -a options words_of\n"
                 "    local files=\n"
                 "    if (( CURRENT == 2 )) || [[ $before == help ]]; then\n"
                 "        options=(\n");
    for (const struct sbp_command *command = sbp_commands; command->name != NULL; command++)
        print_zsh_item(command->name, command->summary);
    (void)printf("        )\n"
                 "        _describe command options\n"
                 "        return\n"
                 "    fi\n"
                 "    if [[ $PREFIX == --*=* ]]; then\n"
                 "        before=${PREFIX%%%%=*}\n"
                 "        compset -P '*='\n"
                 "    fi\n"
                 "    case $before in\n");
    print_values(" compadd -- ", "; return ;;\n",
                 " compadd -- ${(f)\"$(_sbplan_names runtimes)\"}; return ;;\n",
                 " _files; return ;;\n", " return ;;\n");
    (void)printf("    esac\n"
                 "    case $command in\n");
    for (const struct sbp_command *command = sbp_commands; command->name != NULL; command++)
        print_zsh_command(command);
    (void)printf("    esac\n"
                 "    if [[ $PREFIX == -* ]]; then\n"
                 "        _describe -o option options\n"
                 "    else\n"
                 "        compadd -a words_of\n"
                 "        [[ -n $files ]] && _files\n"
                 "    fi\n"
                 "}\n"
                 "if [[ $funcstack[1] == _sbplan ]]; then _sbplan \"$@\"; else compdef _sbplan "
                 "sbplan; fi\n");
}

/* --- fish --- */

static void print_fish_option(const struct sbp_command *command, const struct sbp_option *option)
{
    const bool is_short = option->name[1] != '-';
    (void)printf("complete -c sbplan -n '__fish_seen_subcommand_from %s' -%c %s", command->name,
                 is_short ? 's' : 'l', option->name + (is_short ? 1 : 2));
    if (values_of(option) == NAMES) {
        (void)printf(" -x -a '");
        print_names(option);
        (void)printf("'");
    } else {
        static const char *const takes[] = {[RUNTIMES] = " -x -a '(__sbplan_names runtimes)'",
                                            [FILES] = " -r -F",
                                            [OTHERS] = " -x",
                                            [NONE] = ""};
        (void)printf("%s", takes[values_of(option)]);
    }
    (void)printf(" -d ");
    print_brief(option->help, "\\'");
    (void)printf("\n");
}

static void print_fish_command(const struct sbp_command *command)
{
    const struct sbp_option *option = NULL;
    (void)printf("complete -c sbplan -n __fish_use_subcommand -f -a %s -d ", command->name);
    print_brief(command->summary, "\\'");
    (void)printf("\ncomplete -c sbplan -n '__fish_seen_subcommand_from %s' -a '", command->name);
    if (takes_model(command))
        (void)printf("(__sbplan_names models) (__sbplan_names clusters)");
    else
        print_operand_words(command);
    (void)printf("'%s\n", takes_files(command) ? "" : " -f");
    while ((option = sbp_options_next(command, option)) != NULL)
        print_fish_option(command, option);
}

static void print_fish(void)
{
    (void)printf("# Completes sbplan in fish: sbplan completion fish | source\n"
                 "function __sbplan_names\n"
                 "    sbplan list $argv[1] 2>/dev/null | awk 'NR > 2 { print $1 }'\n"
                 "end\n");
    for (const struct sbp_command *command = sbp_commands; command->name != NULL; command++)
        print_fish_command(command);
}

enum sbp_status sbp_command_completion(const struct sbp_arguments *arguments, struct sbp_diag *diag)
{
    static const struct {
        const char *name;
        void (*print)(void);
    } shells[] = {{"bash", print_bash}, {"zsh", print_zsh}, {"fish", print_fish}};
    const char *asked = arguments->operands.word[0];
    for (size_t i = 0; i < sizeof shells / sizeof *shells; i++)
        if (strcmp(asked, shells[i].name) == 0) {
            shells[i].print();
            return SBP_OK;
        }
    return sbp_fail(diag, SBP_E_USAGE,
                    "sbplan completion: unknown shell \"%.60s\", legal is bash, zsh, fish", asked);
}
