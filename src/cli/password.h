/* The password of the store: read from where the user keeps it, and put into the URL that the library gets.
 * It is nowhere else: not in argv, not in the environment of what we start, not in anything printed. */
#ifndef CLI_PASSWORD_H
#define CLI_PASSWORD_H

#include "cli/cli.h"

/* Reads the password from cli->password_file, password_env or password_fd, of which one is set, into
 * cli->url. The variable is removed and the descriptor closed: what we start finds neither. 0, or the
 * exit code, and it was said why. */
int password_add(struct cli *cli);

#endif
