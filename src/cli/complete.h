/* Which words can follow where the user pressed Tab. They come from the tables of commands and options and
 * from the usage of each command ("fence check FILE NAME TOKEN"), so there is no second list to maintain. */
#ifndef CLI_COMPLETE_H
#define CLI_COMPLETE_H

#include "cli/cli.h"

/* Prints what can stand for the last of `words`, which is what was typed of it; the first is the name of this
 * command. A line for each: the word, and behind a tab what it is. A line ":file" asks the shell for its
 * files, ":command" for a command to run, ":arguments" for whatever that command takes. */
void complete_print(struct cli *cli, int count, char **words);

#endif
