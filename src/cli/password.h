/* The password of the store: read from where the user keeps it, and put into the URL that the library gets.
 * From then on neither the environment nor an open descriptor has it, so that no command that is run finds it. */
#ifndef CLI_PASSWORD_H
#define CLI_PASSWORD_H

#include "cli/cli.h"

/* Reads the password from cli->password_file, password_env or password_fd, of which one may be set, or from where
 * the options of cli->url say that it is, and puts it into cli->url. The same for the password of sentinels. 0, or the exit
 * code, and it was said why. */
int password_add(struct cli *cli);

/* Wipes and frees cli->url_composed. */
void password_forget(struct cli *cli);

/* Takes the password out of HOLDFAST_URL in the environment, where /proc shows it. ret_url is the URL as it was, to
 * be kept; NULL: there was none in it. 0, or the exit code. */
int password_hide_url(char **ret_url);

#endif
