/* Design notes.
 *
 * The lock belongs to an inode, and a rename puts another inode at the path. So a new file of
 * tokens is locked before it gets the path, and a process that has waited for the lock of the old
 * one checks whether that is still the file at the path.
 *
 * Every process that enters makes the folder durable, even if the tokens stay the same: the process
 * that wrote them may have died between its rename and its fsync. A token is durable before the
 * data that it was accepted for, never after.
 *
 * Leftovers of a process that was killed are removed by the next one, under the lock. They are
 * created with O_EXCL, so that a symbolic link with that name leads nowhere. */
#include "base/fence_file.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

/* For a name whose 255 bytes are all escaped; for a token and the space after it. */
enum { NAME_SIZE = 255 * 4 + 1, TOKEN_SIZE = 21 };

/* A macro, so that checkers see which code it is. */
#define fail(file, ...) (note_failure((file), __VA_ARGS__), HF_SYSTEM)

__attribute__((format(printf, 2, 3))) static void note_failure(struct fence_file *file,
                                                               const char *format, ...) {
    int error = errno;
    va_list args;
    va_start(args, format);
    int length = vsnprintf(file->why, sizeof(file->why), format, args);
    va_end(args);
    if (error && length >= 0 && (size_t)length < sizeof(file->why))
        snprintf(file->why + length, sizeof(file->why) - (size_t)length, " (%s)", strerror(error));
}

const char *fence_file_base(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

/* ---- Replacing a file ---- */

static bool write_all(int fd, const char *data, size_t size) {
    while (size) {
        ssize_t written = write(fd, data, size);
        if (written < 0 && errno != EINTR)
            return false;
        data += written > 0 ? written : 0;
        size -= written > 0 ? (size_t)written : 0;
    }
    return true;
}

static int lock(int fd) {
    int r;
    do
        r = flock(fd, LOCK_EX);
    while (r < 0 && errno == EINTR);
    return r;
}

/* Gives the new file the permissions of the one that it replaces. If we may not set the owner, the
 * file is ours. The group must be the same: another one could give access to other people. */
static bool keep_permissions(int folder, const char *name, int fd) {
    struct stat old;
    if (fstatat(folder, name, &old, AT_SYMLINK_NOFOLLOW) < 0)
        return errno == ENOENT;
    if (!S_ISREG(old.st_mode)) {
        errno = EINVAL; /* a symbolic link, a device, …: a rename would destroy it */
        return false;
    }
    return (fchown(fd, old.st_uid, old.st_gid) == 0 || fchown(fd, (uid_t)-1, old.st_gid) == 0) &&
           fchmod(fd, old.st_mode & 0777) == 0;
}

/* Writes the new content to a file whose name is that of the file of tokens plus `suffix`, and
 * renames it. Returns a descriptor of the new file, which is locked, or a negative error. */
static int replace(struct fence_file *file, const char *name, const char *suffix, const void *data,
                   size_t size) {
    char aside[NAME_MAX + 10];
    snprintf(aside, sizeof(aside), "%s%s", file->name, suffix);
    if (unlinkat(file->folder, aside, 0) < 0 && errno != ENOENT)
        return fail(file, "cannot remove %s", aside);
    int fd =
        openat(file->folder, aside, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
    if (fd < 0)
        return fail(file, "cannot create %s", aside);
    if (!keep_permissions(file->folder, name, fd) || !write_all(fd, data, size) || fsync(fd) < 0 ||
        lock(fd) < 0 || renameat(file->folder, aside, file->folder, name) < 0) {
        int r = fail(file, "cannot replace %s", name);
        unlinkat(file->folder, aside, 0);
        close(fd);
        return r;
    }
    if (fsync(file->folder) == 0)
        return fd;
    int r = fail(file, "cannot make the new %s durable", name);
    close(fd);
    return r;
}

int fence_file_replace(struct fence_file *file, const char *name, const void *data, size_t size) {
    int fd = replace(file, name, ".data", data, size);
    if (fd < 0)
        return fd;
    close(fd);
    return HF_OK;
}

/* ---- The lock ---- */

static int open_folder(struct fence_file *file, const char *path) {
    size_t length = (size_t)(fence_file_base(path) - path);
    char *folder = length ? strndup(path, length) : strdup(".");
    errno = folder ? 0 : ENOMEM;
    file->folder = folder ? open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
    int r = file->folder < 0 ? fail(file, "cannot open the folder of %s", path) : HF_OK;
    free(folder);
    return r;
}

/* Whether the file of this descriptor is the one that has the name now. */
static bool has_name(struct fence_file *file, int fd) {
    struct stat ours, named;
    return fstat(fd, &ours) == 0 &&
           fstatat(file->folder, file->name, &named, AT_SYMLINK_NOFOLLOW) == 0 &&
           ours.st_ino == named.st_ino && ours.st_dev == named.st_dev;
}

static int open_tokens(struct fence_file *file) {
    for (;;) {
        int fd = openat(file->folder, file->name, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
        if (fd < 0)
            return fail(file, "cannot open %s", file->name);
        if (lock(fd) < 0) {
            int r = fail(file, "cannot lock %s", file->name);
            close(fd);
            return r;
        }
        if (has_name(file, fd)) {
            file->tokens = fd;
            return HF_OK;
        }
        close(fd); /* it was replaced while we waited for it */
    }
}

/* ---- The tokens ---- */

static int not_ours(struct fence_file *file) {
    errno = 0;
    note_failure(file, "%s was not written by holdfast", file->name);
    return HF_BAD_STORE;
}

/* The content of the file of tokens; the caller frees it. */
static int read_tokens(struct fence_file *file, char **ret_text) {
    struct stat status;
    errno = 0;
    if (fstat(file->tokens, &status) < 0)
        return fail(file, "cannot read %s", file->name);
    size_t size = (size_t)status.st_size, used = 0;
    char *text = calloc(1, size + 1);
    ssize_t got = text ? 1 : -1;
    while (text && used < size && (got > 0 || (got < 0 && errno == EINTR))) {
        got = pread(file->tokens, text + used, size - used, (off_t)used);
        used += got > 0 ? (size_t)got : 0;
    }
    int r = HF_OK;
    if (!text || used < size)
        r = fail(file, "cannot read %s", file->name);
    else if (strlen(text) < size)
        r = not_ours(file);
    if (r)
        free(text);
    else
        *ret_text = text;
    return r;
}

/* Writes a name in the form that it has in the file. */
static void put_name(char *to, const char *name) {
    for (; *name; name++) {
        unsigned char c = (unsigned char)*name;
        if (c == '\\')
            to += sprintf(to, "\\\\");
        else if (c < ' ' || c == 0x7f)
            to += sprintf(to, "\\x%02x", c);
        else
            *to++ = *name;
    }
    *to = 0;
}

/* Copies all lines but that of the name, and finds its token (0: none). Returns where the copy
 * ends, or NULL if these are not lines of ours. */
static char *copy_others(char *to, const char *from, const char *name, uint64_t *ret_token) {
    size_t length = strlen(name);
    *ret_token = 0;
    while (*from) {
        char *space;
        uint64_t token = strtoull(from, &space, 10);
        size_t line = strcspn(from, "\n") + 1;
        if (*from < '0' || *from > '9' || *space != ' ' || from[line - 1] != '\n')
            return NULL;
        bool is_other =
            space + 1 + length + 1 != from + line || strncmp(space + 1, name, length) != 0;
        if (is_other)
            to = (char *)memcpy(to, from, line) + line;
        else if (token > *ret_token)
            *ret_token = token;
        from += line;
    }
    return to;
}

/* Checks one token and puts it into the text. Sets `changed` if it is a new one. */
static int add_token(struct fence_file *file, char **text, const struct fence_token *token,
                     bool *changed) {
    char name[NAME_SIZE];
    uint64_t seen;
    put_name(name, token->name);
    char *made = malloc(strlen(*text) + TOKEN_SIZE + strlen(name) + sizeof("\n"));
    if (!made)
        return fail(file, "cannot read %s", file->name);
    char *end = copy_others(made, *text, name, &seen);
    if (end && token->token >= seen) {
        sprintf(end, "%" PRIu64 " %s\n", token->token, name);
        free(*text);
        *text = made;
        *changed |= token->token > seen;
        return HF_OK;
    }
    free(made);
    if (!end)
        return not_ours(file);
    file->refused = *token;
    file->seen = seen;
    return HF_LOST;
}

static int remember(struct fence_file *file, const char *text, bool changed) {
    if (!changed)
        return fsync(file->folder) == 0 ? HF_OK : fail(file, "cannot make %s durable", file->name);
    int fd = replace(file, file->name, ".new", text, strlen(text));
    if (fd < 0)
        return fd;
    close(file->tokens); /* the new one is also locked */
    file->tokens = fd;
    return HF_OK;
}

static int check(struct fence_file *file, const struct fence_token *tokens, size_t count) {
    bool changed = false;
    char *text;
    int r = read_tokens(file, &text);
    if (r)
        return r;
    for (size_t i = 0; !r && i < count; i++)
        r = add_token(file, &text, &tokens[i], &changed);
    if (!r)
        r = remember(file, text, changed);
    free(text);
    return r;
}

/* ---- Both ---- */

int fence_file_enter(struct fence_file *file, const char *path, const char *suffix,
                     const struct fence_token *tokens, size_t count) {
    const char *base = fence_file_base(path);
    *file = (struct fence_file){.folder = -1, .tokens = -1};
    errno = *base ? ENAMETOOLONG : EISDIR;
    if (!*base || strlen(base) + strlen(suffix) + strlen(".data") > NAME_MAX)
        return fail(file, "cannot keep tokens in %s%s", path, suffix);
    snprintf(file->name, sizeof(file->name), "%s%s", base, suffix);
    int r = open_folder(file, path);
    if (!r)
        r = open_tokens(file);
    if (!r)
        r = check(file, tokens, count);
    if (r)
        fence_file_leave(file);
    return r;
}

void fence_file_leave(struct fence_file *file) {
    if (file->tokens >= 0)
        close(file->tokens);
    if (file->folder >= 0)
        close(file->folder);
}
