/* The password of the store. It is read from where the user keeps it and put into the URL for the
 * library. After that, neither the environment nor an open descriptor has it, so the command that
 * `run` starts cannot find it. */
#ifndef CLI_PASSWORD_H
#define CLI_PASSWORD_H

#include "cli/cli.h"

/* Reads the password from cli->password_file, password_env or password_fd, of which one may be set,
 * or from where the options of cli->url say, and puts it into cli->url. Does the same for the
 * password of sentinels. Returns 0, or the exit code after printing an error. */
int password_add(struct cli *cli);

/* Wipes and frees cli->url_composed. */
void password_forget(struct cli *cli);

/* Removes the password from HOLDFAST_URL in the environment, which /proc shows. ret_url is the URL
 * as it was, NULL if it had no password. Returns 0 or the exit code. */
int password_hide_url(char **ret_url);

#endif
