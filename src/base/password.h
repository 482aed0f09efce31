/* Where a password is kept: a file, an environment variable, or behind a descriptor. Of a server's URL these are
 * the options password_file=, password_env= and password_fd=. A password is one line, without its end.
 *
 * A file is read only if it is as private as a secret should be: file_secrecy has the rule, which is that of the
 * command's configuration and of a TLS key, too. */
#ifndef BASE_PASSWORD_H
#define BASE_PASSWORD_H

#include "base/url.h"

#include <stddef.h>

enum { PASSWORD_MAX = 1024, PASSWORD_WHY_SIZE = 400 };

struct password {
    char text[PASSWORD_MAX + 3]; /* with room for the end of its line, and for one byte too many */
};

/* Each reads a password. 0, or -1 with the reason in ret_why, which never has a word of the password. */
int password_read_file(const char *path, struct password *ret, char ret_why[PASSWORD_WHY_SIZE]);
int password_read_variable(const char *name, struct password *ret, char ret_why[PASSWORD_WHY_SIZE]);
int password_read_descriptor(int fd, struct password *ret, char ret_why[PASSWORD_WHY_SIZE]);

/* Reads the password that the URL's options name as "password", or as `what`, which ends in that. 1: it is in
 * ret->text; 0: none is named, and that is empty; -1: it cannot be had, and ret_why says from where and why. */
int password_read_named(const struct url *url, const char *what, struct password *ret,
                        char ret_why[PASSWORD_WHY_SIZE]);

/* ---- Files ---- */

enum file_secrecy {
    FILE_IS_SECRET,
    FILE_OF_ANOTHER,         /* it belongs neither to the user nor to root */
    FILE_WRITABLE_BY_OTHERS, /* by its group, or by all */
    FILE_READABLE_BY_ALL,
};

/* Whether an open file may have secrets in it. It belongs to root or to the user, nobody else writes to it, and it
 * is not readable by all; its group may read it. A file of root's on a read-only tmpfs may be readable by all: that
 * is how Kubernetes and Docker mount secrets into a container, where "all" are the container's own processes.
 * ret_why (may be NULL) is what to say of one that is not secret. */
enum file_secrecy file_secrecy(int fd, char ret_why[PASSWORD_WHY_SIZE]);

#endif
