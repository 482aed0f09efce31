/* Where the file may be. Anybody who can write to it can take any lock, so the file and its folder,
 * where SQLite keeps two more files, must belong to the user or to root, and nobody else may write
 * to them. A file that the user names may be shared with a group, by the modes of file and folder,
 * but never with everybody. Symbolic and hard links are refused: two names of one file would have
 * two logs. So are network file systems, where neither locks nor shared memory reach other
 * hosts. */
#include "base/error.h"
#include "store/sqlite/sqlite.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/vfs.h>
#include <unistd.h>

#define FILE_NAME "locks.db"
#define ROOT_FOLDER "/var/lib/holdfast"

/* A system error about `what`, with what to do about it if that is clear. */
static int explain(const char *what, int error, char **ret_text) {
    *ret_text = error_format("%s: %s", what, strerror(error));
    switch (error) {
    case EACCES:
    case EPERM:
    case EROFS:
        return HF_DENIED;
    case ENOSPC:
    case EDQUOT:
        return HF_STORE_FULL;
    case ENOENT:
    case ENOTDIR:
        return HF_UNREACHABLE;
    case ENOMEM:
        return HF_NO_MEMORY;
    default:
        return HF_SYSTEM;
    }
}

/* ---- Network file systems ---- */

static const struct {
    unsigned long magic;
    const char *name;
} remote_systems[] = {{NFS_SUPER_MAGIC, "NFS"},
                      {0xff534d42, "CIFS"},
                      {0xfe534d42, "SMB"},
                      {SMB_SUPER_MAGIC, "SMB"},
                      {NCP_SUPER_MAGIC, "NCP"},
                      {CODA_SUPER_MAGIC, "Coda"},
                      {AFS_SUPER_MAGIC, "AFS"},
                      {0x6b414653, "AFS"},
                      {0x00c36400, "Ceph"},
                      {V9FS_MAGIC, "9p"},
                      {0x0bd00bd0, "Lustre"},
                      {0x47504653, "GPFS"},
                      {OCFS2_SUPER_MAGIC, "OCFS2"},
                      {0x01161970, "GFS2"},
                      {0x19830326, "BeeGFS"},
                      {0x20030528, "OrangeFS"},
                      {0xaad7aaea, "PanFS"},
                      {0xbacbacbc, "VMware HGFS"},
                      {0x786f4256, "VirtualBox shared"}};

/* The type of the file system of a device as the mount table has it: "fuse.sshfs". */
static bool find_mount_type(dev_t device, char type[64]) {
    FILE *mounts = fopen("/proc/self/mountinfo", "re");
    char line[8192];
    bool found = false;
    while (mounts && !found && fgets(line, sizeof(line), mounts)) {
        unsigned major_number, minor_number;
        const char *rest = strstr(line, " - ");
        found = rest && sscanf(line, "%*d %*d %u:%u", &major_number, &minor_number) == 2 &&
                makedev(major_number, minor_number) == device && sscanf(rest, " - %63s", type) == 1;
    }
    if (mounts)
        fclose(mounts);
    return found;
}

/* Of the file systems in user space, these are known to be local. */
static bool is_local_fuse(const char *type) {
    static const char *const known[] = {"fuseblk", "fuse.fuse-overlayfs", "fuse.gocryptfs",
                                        "fuse.encfs", "fuse.bindfs"};
    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
        if (strcmp(type, known[i]) == 0)
            return true;
    }
    return false;
}

static int check_file_system(int folder, dev_t device, const char *path, char **ret_text) {
    struct statfs system;
    if (fstatfs(folder, &system) < 0)
        return explain(path, errno, ret_text);
    const char *remote = NULL;
    char type[64] = "fuse";
    unsigned long magic = (unsigned long)system.f_type & 0xffffffffu;
    for (size_t i = 0; i < sizeof(remote_systems) / sizeof(remote_systems[0]); i++) {
        if (remote_systems[i].magic == magic)
            remote = remote_systems[i].name;
    }
    if (magic == FUSE_SUPER_MAGIC && !(find_mount_type(device, type) && is_local_fuse(type)))
        remote = type;
    if (!remote)
        return HF_OK;
    *ret_text = error_format("%s is on a network file system (%s), where locks do not reach other "
                             "hosts; name a file on a local disk",
                             path, remote);
    return HF_UNSUPPORTED;
}

/* ---- Owners and modes ---- */

static int check_owner(const struct stat *of, bool is_default, const char *path, char **ret_text) {
    if (of->st_uid != geteuid() && of->st_uid != 0) {
        *ret_text = error_format("%s belongs to user %u, not to this user (%u) or root", path,
                                 of->st_uid, geteuid());
        return HF_DENIED;
    }
    mode_t too_much = of->st_mode & (is_default ? 022 : 002);
    if (too_much && S_ISDIR(of->st_mode) && of->st_mode & S_ISVTX) {
        /* Everybody is meant to write to it, as to /tmp. */
        *ret_text =
            error_format("everybody can write to %s; make a folder of your own in it", path);
        return HF_DENIED;
    }
    if (too_much) {
        *ret_text =
            error_format("%s can be written to by %s; try: chmod %s %s%s", path,
                         too_much & 02 ? "everybody" : "its group", too_much & 02 ? "o-w" : "g-w",
                         path, S_ISDIR(of->st_mode) ? ", or a folder of your own in it" : "");
        return HF_DENIED;
    }
    return HF_OK;
}

static int check_file(const struct stat *of, bool is_default, const char *path, char **ret_text) {
    const char *trouble = S_ISLNK(of->st_mode)    ? "a symbolic link; name the file itself"
                          : !S_ISREG(of->st_mode) ? "not a file; name another path"
                          : of->st_nlink > 1      ? "a file with several names (hard links), which "
                                                    "SQLite cannot keep consistent; remove the "
                                                    "other names"
                                                  : NULL;
    if (trouble) {
        *ret_text = error_format("%s is %s", path, trouble);
        return HF_DENIED;
    }
    return check_owner(of, is_default, path, ret_text);
}

/* ---- The folder ---- */

/* Creates the folder, and missing ones above it, for this user only. */
static int make_folders(char *path, char **ret_text) {
    for (char *slash = path;;) {
        slash = strchr(slash + 1, '/');
        if (slash)
            *slash = 0;
        if (mkdir(path, 0700) < 0 && errno != EEXIST && (errno != EROFS || !slash))
            return explain(path, errno, ret_text);
        if (!slash)
            return HF_OK;
        *slash = '/';
    }
}

static char *home_folder(void) {
    const char *home = secure_getenv("HOME");
    if (home && home[0] == '/')
        return strdup(home);
    char buffer[4096];
    struct passwd entry, *found;
    if (getpwuid_r(geteuid(), &entry, buffer, sizeof(buffer), &found) == 0 && found &&
        found->pw_dir[0] == '/')
        return strdup(found->pw_dir);
    return NULL;
}

/* malloc'd; NULL when there is no home, or no memory. */
static char *default_folder(void) {
    const char *state = secure_getenv("XDG_STATE_HOME");
    if (geteuid() == 0)
        return strdup(ROOT_FOLDER);
    if (state && state[0] == '/')
        return error_format("%s/holdfast", state);
    char *home = home_folder();
    char *folder = home ? error_format("%s/.local/state/holdfast", home) : NULL;
    free(home);
    return folder;
}

/* Splits a path into its folder and the name in it; false if there is no memory. */
static bool split(const char *path, char **ret_folder, const char **ret_name) {
    const char *slash = strrchr(path, '/');
    *ret_name = slash ? slash + 1 : path;
    if (!slash)
        *ret_folder = strdup(".");
    else
        *ret_folder = slash == path ? strdup("/") : strndup(path, (size_t)(slash - path));
    return *ret_folder != NULL;
}

static int open_folder(const char *path, bool is_default, struct file *file, char **ret_text) {
    int flags = O_RDONLY | O_DIRECTORY | O_CLOEXEC | (is_default ? O_NOFOLLOW : 0);
    file->folder = open(path, flags);
    if (file->folder < 0) {
        int error = errno;
        int r = explain(path, error, ret_text);
        if (is_default && (error == ENOTDIR || error == ELOOP)) {
            free(*ret_text);
            *ret_text = error_format("%s is a symbolic link or not a folder", path);
            r = HF_DENIED;
        }
        return r;
    }
    struct stat folder;
    if (fstat(file->folder, &folder) < 0)
        return explain(path, errno, ret_text);
    int r = check_owner(&folder, is_default, path, ret_text);
    if (!r && faccessat(file->folder, ".", W_OK | X_OK, AT_EACCESS) < 0)
        r = explain(path, errno, ret_text); /* SQLite adds two more files */
    return r < 0 ? r : check_file_system(file->folder, folder.st_dev, path, ret_text);
}

/* ---- The file ---- */

static int open_in_folder(struct file *file, const char *name, bool is_default, char **ret_text) {
    struct stat found;
    int fd = openat(file->folder, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0 && errno != EEXIST && errno != EROFS && errno != EACCES)
        return explain(file->path, errno, ret_text);
    int error = errno;
    if (fd >= 0)
        close(fd); /* a new file: this process has no locks on it that closing could drop */
    if (fstatat(file->folder, name, &found, AT_SYMLINK_NOFOLLOW) < 0)
        return explain(file->path, errno == ENOENT ? error : errno, ret_text);
    file->device = found.st_dev;
    file->inode = found.st_ino;
    file->mode = found.st_mode;
    int r = check_file(&found, is_default, file->path, ret_text);
    if (!r && faccessat(file->folder, name, R_OK | W_OK, AT_EACCESS) < 0)
        r = explain(file->path, errno, ret_text);
    return r;
}

static int find_in(const char *folder, const char *name, bool is_default, struct file *file,
                   char **ret_text) {
    int r = open_folder(folder, is_default, file, ret_text);
    if (r < 0)
        return r;
    char *real = realpath(folder, NULL);
    if (!real)
        return explain(folder, errno, ret_text);
    file->path = error_format("%s/%s", strcmp(real, "/") == 0 ? "" : real, name);
    free(real);
    return file->path ? open_in_folder(file, name, is_default, ret_text) : HF_NO_MEMORY;
}

int file_find(const char *url_path, struct file *ret, char **ret_text) {
    *ret = (struct file){.folder = -1};
    bool is_default = !*url_path;
    char *folder;
    const char *name = FILE_NAME;
    int r = HF_OK;
    if (is_default) {
        folder = default_folder();
        r = folder ? make_folders(folder, ret_text) : HF_NO_MEMORY;
    } else if (!split(url_path, &folder, &name)) {
        r = HF_NO_MEMORY;
    } else if (!*name || strcmp(name, ".") == 0 || strcmp(name, "..") == 0) {
        *ret_text = error_format("%s is a folder; name a file, for example sqlite:%s/locks.db",
                                 url_path, folder);
        r = HF_BAD_URL;
    }
    if (!r)
        r = find_in(folder, name, is_default, ret, ret_text);
    free(folder);
    if (r < 0)
        file_drop(ret);
    return r;
}

void file_drop(struct file *file) {
    if (file->folder >= 0)
        close(file->folder);
    free(file->path);
    *file = (struct file){.folder = -1};
}

bool file_is_there(const struct file *file) {
    struct stat found;
    return lstat(file->path, &found) == 0 && found.st_ino == file->inode &&
           found.st_dev == file->device;
}
