/* The user and the password with which a client logs in to a server. The password is in the URL, or
 * where an option says: password_file=, password_env= or password_fd= (base/password.h). */
#ifndef NET_LOGIN_H
#define NET_LOGIN_H

#include "base/url.h"

struct net_login {
    char *user, *password; /* NULL: none */
};

/* Reads the user and the password of the URL, or with a `prefix` those of the options PREFIXuser
 * and PREFIXpassword. HF_OK, HF_NO_MEMORY, or HF_BAD_URL with malloc'd particulars: the password is
 * not where the URL says, or a user has none. Call net_login_clear in any case. */
int net_login_read(struct net_login *login, const struct url *url, const char *prefix,
                   char **ret_text);

/* Wipes and frees both. Accepts a zeroed login. */
void net_login_clear(struct net_login *login);

#endif
