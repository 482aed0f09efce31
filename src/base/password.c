/* Passwords from files, variables and descriptors. */
#include "base/password.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/vfs.h>
#include <unistd.h>

static int cannot(char ret_why[PASSWORD_WHY_SIZE], const char *why) {
    snprintf(ret_why, PASSWORD_WHY_SIZE, "%s", why);
    return -1;
}

/* ---- Files ---- */

static bool is_mounted_secret(int fd, const struct stat *stat) {
    struct statfs system;
    return stat->st_uid == 0 && fstatfs(fd, &system) == 0 && system.f_type == TMPFS_MAGIC &&
           (system.f_flags & ST_RDONLY);
}

enum file_secrecy file_secrecy(int fd, char ret_why[PASSWORD_WHY_SIZE]) {
    static const char *const why[] = {
        [FILE_IS_SECRET] = "",
        [FILE_OF_ANOTHER] = "it belongs to another user; try: chown",
        [FILE_WRITABLE_BY_OTHERS] = "others can write to it; try: chmod go-w",
        [FILE_READABLE_BY_ALL] = "every user of this host can read it; try: chmod o-r",
    };
    struct stat stat;
    enum file_secrecy secrecy = FILE_IS_SECRET;
    if (fstat(fd, &stat) < 0 || (stat.st_uid != 0 && stat.st_uid != geteuid()))
        secrecy = FILE_OF_ANOTHER;
    else if (stat.st_mode & (S_IWGRP | S_IWOTH))
        secrecy = FILE_WRITABLE_BY_OTHERS;
    else if ((stat.st_mode & S_IROTH) && !is_mounted_secret(fd, &stat))
        secrecy = FILE_READABLE_BY_ALL;
    if (ret_why)
        cannot(ret_why, why[secrecy]);
    return secrecy;
}

/* ---- Reading ---- */

/* Removes the end of the line and checks the rest. */
static int check(struct password *password, size_t size, char ret_why[PASSWORD_WHY_SIZE]) {
    char *text = password->text;
    if (size && text[size - 1] == '\n') {
        size--;
        size -= size && text[size - 1] == '\r';
    }
    if (size == 0)
        return cannot(ret_why, "the password is empty");
    if (size > PASSWORD_MAX)
        return cannot(ret_why, "it is longer than 1024 bytes");
    if (memchr(text, '\n', size) || memchr(text, 0, size))
        return cannot(ret_why, "there is more than one line");
    text[size] = 0;
    return 0;
}

int password_read_descriptor(int fd, struct password *ret, char ret_why[PASSWORD_WHY_SIZE]) {
    size_t size = 0;
    while (size < sizeof(ret->text)) {
        ssize_t count = read(fd, ret->text + size, sizeof(ret->text) - size);
        if (count < 0 && errno != EINTR)
            return cannot(ret_why, strerror(errno));
        if (count == 0)
            break;
        size += count > 0 ? (size_t)count : 0;
    }
    return check(ret, size, ret_why);
}

int password_read_file(const char *path, struct password *ret, char ret_why[PASSWORD_WHY_SIZE]) {
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
    if (fd < 0)
        return cannot(ret_why, strerror(errno));
    int r = password_read_descriptor(fd, ret, ret_why);
    if (!r && file_secrecy(fd, ret_why) != FILE_IS_SECRET)
        r = -1;
    close(fd);
    return r;
}

int password_read_variable(const char *name, struct password *ret,
                           char ret_why[PASSWORD_WHY_SIZE]) {
    const char *value = getenv(name);
    if (!value)
        return cannot(ret_why, "it is not set");
    size_t size = strnlen(value, sizeof(ret->text));
    memcpy(ret->text, value, size);
    return check(ret, size, ret_why);
}

/* ---- The options of a URL ---- */

static int read_numbered(const char *number, struct password *ret,
                         char ret_why[PASSWORD_WHY_SIZE]) {
    char *end = NULL;
    errno = 0;
    long fd = isdigit((unsigned char)*number) ? strtol(number, &end, 10) : 0;
    if (!end || *end || errno || fd > INT32_MAX)
        return cannot(ret_why, "it is not the number of a descriptor");
    return password_read_descriptor((int)fd, ret, ret_why);
}

int password_read_named(const struct url *url, const char *what, struct password *ret,
                        char ret_why[PASSWORD_WHY_SIZE]) {
    static const struct {
        const char *ending, *kind;
        int (*read)(const char *, struct password *, char[PASSWORD_WHY_SIZE]);
    } places[] = {{"_file", "", password_read_file},
                  {"_env", "the variable ", password_read_variable},
                  {"_fd", "descriptor ", read_numbered}};
    ret->text[0] = 0;
    for (size_t i = 0; i < sizeof(places) / sizeof(*places); i++) {
        char key[40], why[PASSWORD_WHY_SIZE];
        snprintf(key, sizeof(key), "%s%s", what, places[i].ending);
        const char *value = url_option(url, key);
        if (!value)
            continue;
        if (places[i].read(value, ret, why) == 0)
            return 1;
        explicit_bzero(ret, sizeof(*ret));
        snprintf(ret_why, PASSWORD_WHY_SIZE, "cannot read the password from %s%.250s (%.100s)",
                 places[i].kind, value, why);
        return -1;
    }
    return 0;
}
