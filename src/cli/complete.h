/* Completion: the words that can follow where the user pressed Tab. They come from the tables of
 * commands and options and from the usage of each command ("fence check FILE NAME TOKEN"), so there
 * is no second list to maintain. */
#ifndef CLI_COMPLETE_H
#define CLI_COMPLETE_H

#include "cli/cli.h"

/* Prints the completions of the last of `words`, of which the first is the name of this program.
 * Each is a line with the word, a tab and a description. A line ":file" asks the shell to complete
 * file names, ":command" a command, and ":arguments" whatever that command takes. */
void complete_print(struct cli *cli, int count, char **words);

#endif
