/* The folder of the holders, and how `renew` and `release` find a holder there and talk to it. */
#include "cli/holder.h"
#include "cli/text.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

enum { PATH_SIZE = 4096, PATIENCE_S = 10 };

const char *holder_id(const char *word) {
    const char *id = word ? word : getenv("HOLDFAST_HOLD");
    char safe[80];
    if (!id || !*id) {
        fail_say("missing hold (HOLDFAST_HOLD is not set); give the id that holdfast acquire "
                 "printed");
        return NULL;
    }
    if (strlen(id) != HOLDER_ID_SIZE - 1 || strspn(id, "0123456789abcdef") != HOLDER_ID_SIZE - 1) {
        fail_say(
            "%s is not the id of a hold (16 digits, as in HOLDFAST_HOLD); it is not the name of "
            "the lock",
            text_safe(safe, sizeof(safe), id));
        return NULL;
    }
    return id;
}

int holder_check_for(int64_t for_ms) {
    enum { FOR_LEAST_MS = 1000 };
    if (for_ms < 0 || for_ms >= FOR_LEAST_MS)
        return 0;
    return fail_usage("--for must be at least 1s (the lock is released when that time has passed)");
}

/* Creates the folder and those above it if they are missing. */
static int make_folders(char *path) {
    for (char *slash = strchr(path + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = 0;
        int r = mkdir(path, 0700);
        *slash = '/';
        if (r < 0 && errno != EEXIST)
            return -1;
    }
    return mkdir(path, 0700) < 0 && errno != EEXIST ? -1 : 0;
}

static int choose_folder(char *ret, size_t size) {
    const char *runtime = getenv("XDG_RUNTIME_DIR"), *home = getenv("HOME");
    if (runtime && *runtime == '/')
        snprintf(ret, size, "%s/holdfast", runtime);
    else if (geteuid() == 0)
        snprintf(ret, size, "/run/holdfast");
    else if (home && *home == '/')
        snprintf(ret, size, "%s/.local/state/holdfast/run", home);
    else {
        errno = ENOENT;
        return -1;
    }
    return 0;
}

/* Opens the folder. It must be ours and closed to everybody else. */
static int open_folder(bool create) {
    char path[PATH_SIZE];
    struct stat info;
    if (choose_folder(path, sizeof(path)) < 0 || (create && make_folders(path) < 0))
        return -1;
    int fd = open(path, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd >= 0 && fstat(fd, &info) == 0 && info.st_uid == geteuid() && !(info.st_mode & 0077))
        return fd;
    if (fd >= 0) {
        close(fd);
        errno = EPERM;
    }
    return -1;
}

/* Goes through /proc, because the path of a socket must be short and that of the folder may be
 * long. */
static void address_of(struct sockaddr_un *ret, int folder_fd, const char *id) {
    *ret = (struct sockaddr_un){.sun_family = AF_UNIX};
    snprintf(ret->sun_path, sizeof(ret->sun_path), "/proc/self/fd/%d/%s", folder_fd, id);
}

int holder_listen(const char *id) {
    int folder_fd = open_folder(true);
    if (folder_fd < 0)
        return -1;
    struct sockaddr_un address;
    address_of(&address, folder_fd, id);
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd >= 0 &&
        (bind(fd, (struct sockaddr *)&address, sizeof(address)) < 0 || listen(fd, 16) < 0)) {
        int error = errno;
        close(fd);
        errno = error;
        fd = -1;
    }
    close(folder_fd);
    return fd;
}

static void name_fifo(char *ret, size_t size, const char *id) {
    snprintf(ret, size, "%s" HOLDER_FIFO_END, id);
}

int holder_make_fifo(const char *id) {
    char name[40];
    int folder_fd = open_folder(true), fd = -1;
    if (folder_fd < 0)
        return -1;
    name_fifo(name, sizeof(name), id);
    if (mkfifoat(folder_fd, name, 0600) == 0)
        fd = openat(folder_fd, name, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    close(folder_fd);
    return fd;
}

static void unlink_in(int folder_fd, const char *id) {
    char name[40];
    name_fifo(name, sizeof(name), id);
    unlinkat(folder_fd, id, 0);
    unlinkat(folder_fd, name, 0);
}

void holder_unlink(const char *id) {
    int folder_fd = open_folder(false);
    if (folder_fd < 0)
        return;
    unlink_in(folder_fd, id);
    close(folder_fd);
}

static int converse(int fd, const struct holder_request *request, struct holder_reply *ret_reply) {
    struct timeval patience = {PATIENCE_S, 0};
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
    if (send(fd, request, sizeof(*request), MSG_NOSIGNAL) < 0)
        return HF_NOT_YOURS;
    ssize_t count = recv(fd, ret_reply, sizeof(*ret_reply), 0);
    if (count == 0)
        return HF_NOT_YOURS;
    return count == sizeof(*ret_reply) ? HF_OK : HF_SYSTEM;
}

int holder_ask(const char *id, const struct holder_request *request,
               struct holder_reply *ret_reply) {
    int folder_fd = open_folder(false);
    if (folder_fd < 0 && errno == ENOENT)
        return HF_NOT_YOURS;
    if (folder_fd < 0)
        return errno == EPERM || errno == EACCES ? HF_DENIED : HF_SYSTEM;
    struct sockaddr_un address;
    address_of(&address, folder_fd, id);
    int r = HF_SYSTEM, fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    if (fd >= 0 && connect(fd, (struct sockaddr *)&address, sizeof(address)) == 0)
        r = converse(fd, request, ret_reply);
    else if (errno == ENOENT || errno == ECONNREFUSED)
        r = HF_NOT_YOURS;
    if (r == HF_NOT_YOURS)
        unlink_in(folder_fd, id); /* the holder was killed */
    if (fd >= 0)
        close(fd);
    close(folder_fd);
    return r;
}

int holder_failed(const struct cli *cli, int error) {
    char text[600];
    const char *why = error == HF_SYSTEM || error == HF_DENIED ? strerror(errno)
                      : error == HF_NOT_YOURS                  ? "the hold no longer exists"
                                                               : hf_error_string(error);
    fail_text(text, sizeof(text), cli, error, why, "the lock is not held");
    fail_say("%s", text);
    return fail_exit_code(error);
}
