/* Where a password is kept: in a file, in an environment variable, or behind a descriptor. In a
 * server's URL these are the options password_file=, password_env= and password_fd=. A password is
 * one line, without the line's end.
 *
 * A file is read only if it is private enough: file_secrecy has the rule, which also applies to the
 * command's configuration and to TLS keys. */
#ifndef BASE_PASSWORD_H
#define BASE_PASSWORD_H

#include "base/url.h"

#include <stddef.h>

enum { PASSWORD_MAX = 1024, PASSWORD_WHY_SIZE = 400 };

struct password {
    char text[PASSWORD_MAX + 3]; /* with room for the end of its line, and for one byte too many */
};

/* Each reads a password. 0, or -1 with the reason in ret_why, which never contains any of the
 * password. */
int password_read_file(const char *path, struct password *ret, char ret_why[PASSWORD_WHY_SIZE]);
int password_read_variable(const char *name, struct password *ret, char ret_why[PASSWORD_WHY_SIZE]);
int password_read_descriptor(int fd, struct password *ret, char ret_why[PASSWORD_WHY_SIZE]);

/* Reads the password that the URL's options name. `what` is "password", or a word that ends in it.
 * 1: it is in ret->text; 0: the URL names none, and ret->text is empty; -1: it could not be read,
 * and ret_why says from where and why. */
int password_read_named(const struct url *url, const char *what, struct password *ret,
                        char ret_why[PASSWORD_WHY_SIZE]);

/* ---- Files ---- */

enum file_secrecy {
    FILE_IS_SECRET,
    FILE_OF_ANOTHER,         /* owned neither by the user nor by root */
    FILE_WRITABLE_BY_OTHERS, /* by its group, or by all */
    FILE_READABLE_BY_ALL,
};

/* Whether an open file is private enough for secrets: it belongs to root or to the user, nobody
 * else can write to it, and not everybody can read it; its group may. One exception: a file of root
 * on a read-only tmpfs may be readable by everybody. That is how Kubernetes and Docker mount
 * secrets into a container, where "everybody" means the container's own processes. ret_why (may be
 * NULL) says what is wrong with the file. */
enum file_secrecy file_secrecy(int fd, char ret_why[PASSWORD_WHY_SIZE]);

#endif
