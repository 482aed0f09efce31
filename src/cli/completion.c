/* holdfast completion: the scripts for the shells. They are small and the same for all versions,
 * since they pass what was typed to the command itself (complete.h). */
#include "cli/complete.h"
#include "cli/options.h"
#include "cli/text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Bash also splits words at ':' and '='. The script joins them again, and cuts what comes before
 * the last of these letters from the answers. */
static const char bash[] =
    "# bash completion for holdfast: holdfast completion bash\n"
    "_holdfast() {\n"
    "    local line=${COMP_LINE:0:COMP_POINT} words=() word reply i\n"
    "    for ((i = 0; i <= COMP_CWORD; i++)); do\n"
    "        word=${COMP_WORDS[i]}\n"
    "        if ((i == 0)) || [[ $line == [[:space:]]* ]]; then\n"
    "            words+=(\"$word\")\n"
    "        else\n"
    "            words[${#words[@]}-1]+=$word\n"
    "        fi\n"
    "        line=${line#\"${line%%[![:space:]]*}\"}\n"
    "        line=${line#\"$word\"}\n"
    "    done\n"
    "    local current=${words[${#words[@]}-1]}\n"
    "    local before=${current%\"${current##*[:=]}\"}\n"
    "    COMPREPLY=()\n"
    "    while IFS=$'\\t' read -r word reply; do\n"
    "        case $word in\n"
    "        :file) compopt -o filenames; mapfile -t COMPREPLY < <(compgen -f -- "
    "\"${current##*=}\") ;;\n"
    "        :command) mapfile -t COMPREPLY < <(compgen -c -- \"$current\") ;;\n"
    "        :arguments) compopt -o default ;;\n"
    "        *) printf -v word %q \"${word#\"$before\"}\"; COMPREPLY+=(\"$word\")\n"
    "           [[ $word == *= || $word == *: ]] && compopt -o nospace ;;\n"
    "        esac\n"
    "    done < <(\"$1\" completion words -- \"${words[@]}\" 2>/dev/null)\n"
    "}\n"
    "complete -F _holdfast holdfast\n";

static const char zsh[] =
    "#compdef holdfast\n"
    "# zsh completion for holdfast: holdfast completion zsh\n"
    "_holdfast() {\n"
    "    local word reply\n"
    "    local -a found\n"
    "    while IFS=$'\\t' read -r word reply; do\n"
    "        case $word in\n"
    "        :file) _files; return ;;\n"
    "        :command) _command_names -e; return ;;\n"
    "        :arguments) _files; return ;;\n"
    "        *) found+=(\"${word//:/\\\\:}:$reply\") ;;\n"
    "        esac\n"
    "    done < <($words[1] completion words -- \"${(@)words[1,CURRENT]}\" 2>/dev/null)\n"
    "    _describe holdfast found\n"
    "}\n"
    "if [[ $funcstack[1] == _holdfast ]]; then\n"
    "    _holdfast \"$@\"\n"
    "else\n"
    "    compdef _holdfast holdfast\n"
    "fi\n";

static const char fish[] = "# fish completion for holdfast: holdfast completion fish\n"
                           "function __holdfast_complete\n"
                           "    set -l words (commandline -opc) (commandline -ct)\n"
                           "    for line in ($words[1] completion words -- $words 2>/dev/null)\n"
                           "        switch $line\n"
                           "            case :file :arguments\n"
                           "                __fish_complete_path (commandline -ct)\n"
                           "            case :command\n"
                           "                __fish_complete_command\n"
                           "            case '*'\n"
                           "                echo $line\n"
                           "        end\n"
                           "    end\n"
                           "end\n"
                           "complete -c holdfast -f -a '(__holdfast_complete)'\n";

static const struct {
    const char *name, *script;
} shells[] = {{"bash", bash}, {"zsh", zsh}, {"fish", fish}};

static int run(struct cli *cli, int argc, char **argv) {
    char safe[80];
    int at = 1, used = options_parse(cli, &completion_command, NULL, argc - at, argv + at);
    if (used < 0)
        return options_exit_code(used);
    at += used;
    if (at + 2 < argc && strcmp(argv[at], "words") == 0 && strcmp(argv[at + 1], "--") == 0) {
        complete_print(cli, argc - at - 2, argv + at + 2);
        return EXIT_SUCCESS;
    }
    if (at + 1 != argc)
        return fail_usage("missing shell; usage: holdfast %s", completion_command.usage);
    for (size_t i = 0; i < sizeof(shells) / sizeof(*shells); i++) {
        if (strcmp(argv[at], shells[i].name) == 0) {
            fputs(shells[i].script, stdout);
            return EXIT_SUCCESS;
        }
    }
    return fail_usage("%s is not a known shell; usage: holdfast %s",
                      text_safe(safe, sizeof(safe), argv[at]), completion_command.usage);
}

const struct command completion_command = {
    .name = "completion",
    .summary = "print a script that completes commands, options and locks",
    .usage = "completion bash|zsh|fish",
    .without_settings = true,
    .run = run,
    .details =
        "Prints a script for the shell. It asks this command for the words, so it works with\n"
        "every version. Names of locks come from the store that the command line names.\n"
        "`make install` puts the scripts where these shells find them.\n"
        "\n"
        "Examples:\n"
        "  source <(holdfast completion bash)          in ~/.bashrc\n"
        "  holdfast completion zsh > ~/.zfunc/_holdfast   where fpath has ~/.zfunc\n"
        "  holdfast completion fish > ~/.config/fish/completions/holdfast.fish\n",
};
