#include "net/login.h"

#include "base/error.h"
#include "base/password.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { KEY_SIZE = 40 };

static bool copy(char **ret, const char *text) {
    return !text || (*ret = strdup(text));
}

/* The given password, or the one from where the options "KEY_file" and so on say. */
static int read_password(struct net_login *login, const struct url *url, const char *given,
                         const char *key, char **ret_text) {
    struct password password;
    char why[PASSWORD_WHY_SIZE];
    int r = given ? 0 : password_read_named(url, key, &password, why);
    if (r < 0) {
        *ret_text = error_format("%s", why);
        return HF_BAD_URL;
    }
    bool ok = copy(&login->password, r > 0 ? password.text : given);
    explicit_bzero(&password, sizeof(password));
    return ok ? HF_OK : HF_NO_MEMORY;
}

int net_login_read(struct net_login *login, const struct url *url, const char *prefix,
                   char **ret_text) {
    char user_key[KEY_SIZE], key[KEY_SIZE];
    *login = (struct net_login){0};
    snprintf(user_key, sizeof(user_key), "%suser", prefix);
    snprintf(key, sizeof(key), "%spassword", prefix);
    const char *user = *prefix ? url_option(url, user_key) : url->user;
    const char *given = *prefix ? url_option(url, key) : url->password;
    int r = read_password(login, url, given, key, ret_text);
    if (!r && !copy(&login->user, user))
        r = HF_NO_MEMORY;
    if (!r && user && !login->password) {
        *ret_text = error_format("the user \"%s\" has no password; it may be in a file "
                                 "(%s_file=), a variable or a descriptor",
                                 user, key);
        r = HF_BAD_URL;
    }
    return r;
}

static void wipe(char *text) {
    if (text)
        explicit_bzero(text, strlen(text));
    free(text);
}

void net_login_clear(struct net_login *login) {
    wipe(login->user);
    wipe(login->password);
    *login = (struct net_login){0};
}
