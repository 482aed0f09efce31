/* The file of tokens, and the file that it guards: what is refused, what a crash leaves, and who
 * waits for whom.
 *
 * The linker sends the calls that change something on the disk through the wrappers below. They
 * end a process at any of its steps, as kill -9 or a power failure does. After a power failure, a
 * rename that no fsync of the folder followed may be undone, and content that was not synced may be
 * missing. */
#include "base/fence_file.h"
#include "check.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { RENAMES = 8, WRITERS = 4, WRITES = 25 };
enum cut { CUT_KILL, CUT_RENAMES_LOST, CUT_CONTENT_LOST };

/* ---- A disk that forgets ---- */

static struct {
    long step, last; /* the process ends before step `last`; -1: never */
    enum cut how;    /* ... in which way */
    ino_t unsynced;  /* a file whose content is not on the disk yet */
    char renamed[RENAMES][64];
    size_t renames; /* that the folder may still forget */
    void (*on_renamed)(const char *name);
} disk = {.last = -1};

int __real_openat64(int folder, const char *name, int flags, ...);
int __real_renameat(int from, const char *old, int to, const char *name);
int __real_unlinkat(int folder, const char *name, int flags);
int __real_fsync(int fd);
ssize_t __real_write(int fd, const void *data, size_t size);
int __wrap_openat64(int folder, const char *name, int flags, ...);
int __wrap_renameat(int from, const char *old, int to, const char *name);
int __wrap_unlinkat(int folder, const char *name, int flags);
int __wrap_fsync(int fd);
ssize_t __wrap_write(int fd, const void *data, size_t size);

static void undo_name(char *ret, size_t at) {
    sprintf(ret, "undo%zu", at);
}

static void lose_renames(void) {
    char undo[32];
    while (disk.renames) {
        undo_name(undo, --disk.renames);
        if (rename(undo, disk.renamed[disk.renames]) < 0)
            unlink(disk.renamed[disk.renames]);
    }
}

static void lose_content(void) {
    struct stat status;
    for (size_t i = 0; i < disk.renames; i++) {
        if (stat(disk.renamed[i], &status) == 0 && status.st_ino == disk.unsynced)
            CHECK(truncate(disk.renamed[i], 0) == 0);
    }
}

static void step(void) {
    if (disk.step++ != disk.last)
        return;
    if (disk.how == CUT_RENAMES_LOST)
        lose_renames();
    if (disk.how == CUT_CONTENT_LOST)
        lose_content();
    _exit(0);
}

int __wrap_openat64(int folder, const char *name, int flags, ...) {
    va_list args;
    struct stat status;
    va_start(args, flags);
    int mode = va_arg(args, int);
    va_end(args);
    step();
    int fd = __real_openat64(folder, name, flags, mode);
    if (fd >= 0 && flags & O_EXCL && fstat(fd, &status) == 0)
        disk.unsynced = status.st_ino;
    return fd;
}

ssize_t __wrap_write(int fd, const void *data, size_t size) {
    step();
    return __real_write(fd, data, size);
}

int __wrap_fsync(int fd) {
    struct stat status;
    char undo[32];
    step();
    int r = __real_fsync(fd);
    CHECK(fstat(fd, &status) == 0);
    if (status.st_ino == disk.unsynced)
        disk.unsynced = 0;
    while (S_ISDIR(status.st_mode) && disk.renames) {
        undo_name(undo, --disk.renames);
        unlink(undo);
    }
    return r;
}

int __wrap_renameat(int from, const char *old, int to, const char *name) {
    char undo[32];
    step();
    CHECK(disk.renames < RENAMES);
    undo_name(undo, disk.renames);
    unlink(undo);
    CHECK(link(name, undo) == 0 || errno == ENOENT);
    strcpy(disk.renamed[disk.renames++], name);
    int r = __real_renameat(from, old, to, name);
    if (disk.on_renamed)
        disk.on_renamed(name);
    return r;
}

int __wrap_unlinkat(int folder, const char *name, int flags) {
    step();
    return __real_unlinkat(folder, name, flags);
}

/* ---- What tests do ---- */

static char home[64];

static void make_folder(void) {
    strcpy(home, "/tmp/holdfast-fence-XXXXXX");
    CHECK(mkdtemp(home) && chdir(home) == 0);
}

static void remove_folder(void) {
    char command[100];
    snprintf(command, sizeof(command), "rm -r %s", home);
    CHECK(system(command) == 0);
}

static int enter(struct fence_file *file, uint64_t token) {
    struct fence_token mine = {"x", token};
    return fence_file_enter(file, "data", ".fence", &mine, 1);
}

static int check_only(uint64_t token) {
    struct fence_file file;
    int r = enter(&file, token);
    if (r == HF_OK)
        fence_file_leave(&file);
    return r;
}

static int replace(uint64_t token, const char *data) {
    struct fence_file file;
    int r = enter(&file, token);
    if (r == HF_OK) {
        r = fence_file_replace(&file, "data", data, strlen(data));
        fence_file_leave(&file);
    }
    return r;
}

static const char *content(const char *name) {
    static char text[4096];
    int fd = open(name, O_RDONLY);
    ssize_t size = fd < 0 ? 0 : read(fd, text, sizeof(text) - 1);
    CHECK(size >= 0);
    text[size] = 0;
    if (fd >= 0)
        close(fd);
    return fd < 0 ? "(none)" : text;
}

static void put(const char *name, const char *text) {
    FILE *file = fopen(name, "w");
    CHECK(file && fputs(text, file) >= 0 && fclose(file) == 0);
}

TEST(a_smaller_token_is_refused_and_an_equal_one_is_not) {
    struct fence_file file;
    make_folder();
    CHECK_EQ_INT(replace(7, "seven"), HF_OK);
    CHECK_EQ_INT(replace(7, "again"), HF_OK);
    CHECK_EQ_INT(replace(6, "stale"), HF_LOST);
    CHECK_EQ_INT(enter(&file, 6), HF_LOST);
    CHECK_EQ_INT(file.refused.token, 6);
    CHECK_EQ_INT(file.seen, 7);
    CHECK_EQ_STR(content("data"), "again");
    CHECK_EQ_INT(check_only(8), HF_OK);
    CHECK_EQ_INT(replace(7, "stale"), HF_LOST);
    CHECK_EQ_STR(content("data.fence"), "8 x\n");
    remove_folder();
}

TEST(each_name_has_its_own_token_whatever_its_bytes) {
    static const char *const names[] = {"a",      "a b", "ab",   "\n7 a", "a\n",
                                        "\\x0a7", "\\",  "\x7f", "\xff",  "\xc3\xbc"};
    struct fence_file file;
    size_t count = sizeof(names) / sizeof(names[0]);
    make_folder();
    for (size_t i = 0; i < count; i++) {
        struct fence_token token = {names[i], 10 + i};
        CHECK_EQ_INT(fence_file_enter(&file, "f", "", &token, 1), HF_OK);
        fence_file_leave(&file);
    }
    for (size_t i = 0; i < count; i++) {
        struct fence_token stale = {names[i], 9 + i};
        CHECK_EQ_INT(fence_file_enter(&file, "f", "", &stale, 1), HF_LOST);
        CHECK_EQ_INT(file.seen, 10 + i);
    }
    remove_folder();
}

TEST(of_several_tokens_none_is_remembered_if_one_is_refused) {
    struct fence_token first[] = {{"a", 5}, {"b", 5}}, mixed[] = {{"a", 6}, {"b", 4}};
    struct fence_file file;
    make_folder();
    CHECK_EQ_INT(fence_file_enter(&file, "f", "", first, 2), HF_OK);
    fence_file_leave(&file);
    CHECK_EQ_INT(fence_file_enter(&file, "f", "", mixed, 2), HF_LOST);
    CHECK_EQ_STR(file.refused.name, "b");
    CHECK_EQ_STR(content("f"), "5 a\n5 b\n");
    remove_folder();
}

TEST(permissions_stay) {
    struct stat status;
    mode_t mask = umask(0077);
    make_folder();
    put("data", "old");
    put("data.fence", "1 x\n");
    CHECK(chmod("data", 0640) == 0 && chmod("data.fence", 0660) == 0);
    CHECK_EQ_INT(replace(7, "new"), HF_OK);
    CHECK(stat("data", &status) == 0);
    CHECK_EQ_INT(status.st_mode & 07777, 0640);
    CHECK(stat("data.fence", &status) == 0);
    CHECK_EQ_INT(status.st_mode & 07777, 0660);
    umask(mask);
    remove_folder();
}

TEST(links_and_what_is_not_ours_are_left_alone) {
    make_folder();
    put("victim", "precious");
    CHECK(symlink("victim", "data.fence.new") == 0 && symlink("victim", "data.fence.data") == 0);
    CHECK_EQ_INT(replace(7, "new"), HF_OK); /* which removes the links */
    CHECK_EQ_STR(content("victim"), "precious");
    CHECK(unlink("data") == 0 && symlink("victim", "data") == 0);
    CHECK_EQ_INT(replace(7, "newer"), HF_SYSTEM);
    CHECK(unlink("data.fence") == 0 && symlink("victim", "data.fence") == 0);
    CHECK_EQ_INT(replace(7, "newer"), HF_SYSTEM);
    CHECK_EQ_STR(content("victim"), "precious");
    static const char *const strange[] = {"hello\n", "7 x", "7\n", " 7 x\n", "-1 x\n"};
    for (size_t i = 0; i < sizeof(strange) / sizeof(strange[0]); i++) {
        unlink("data.fence");
        put("data.fence", strange[i]);
        CHECK_EQ_INT(replace(7, "newer"), HF_BAD_STORE);
        CHECK_EQ_STR(content("data.fence"), strange[i]);
    }
    remove_folder();
}

TEST(a_folder_that_is_not_there_and_a_name_that_is_too_long_are_errors) {
    struct fence_token token = {"x", 7};
    struct fence_file file;
    char name[260];
    memset(name, 'n', sizeof(name));
    name[250] = 0;
    make_folder();
    CHECK_EQ_INT(fence_file_enter(&file, "none/data", "", &token, 1), HF_SYSTEM);
    CHECK(strstr(file.why, "none/data") && strstr(file.why, "No such file"));
    CHECK_EQ_INT(fence_file_enter(&file, name, ".fence", &token, 1), HF_SYSTEM);
    CHECK_EQ_INT(fence_file_enter(&file, "folder/", "", &token, 1), HF_SYSTEM);
    remove_folder();
}

/* ---- Crashes ---- */

static void write_and_report(long last, enum cut how, int report) {
    struct fence_file file;
    disk.step = 0;
    disk.last = last;
    disk.how = how;
    if (enter(&file, 7) != HF_OK)
        _exit(1);
    __real_write(report, "e", 1);
    if (fence_file_replace(&file, "data", "new", 3) != HF_OK)
        _exit(1);
    __real_write(report, "w", 1);
    fence_file_leave(&file);
    step();
    _exit(2); /* it finished */
}

/* A process that has token 7 writes, and ends before its step number `last`. Returns false if it
 * finished before that. */
static bool crash_at(long last, enum cut how) {
    char said[3] = "";
    int report[2], status;
    make_folder();
    CHECK_EQ_INT(replace(5, "old"), HF_OK);
    CHECK(pipe(report) == 0);
    pid_t child = fork();
    if (child == 0)
        write_and_report(last, how, report[1]);
    close(report[1]);
    CHECK(read(report[0], said, 1) >= 0 && read(report[0], said + strlen(said), 1) >= 0);
    close(report[0]);
    CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) != 1);

    bool is_new = strcmp(content("data"), "new") == 0;
    CHECK(is_new || strcmp(content("data"), "old") == 0);
    CHECK(is_new || !strchr(said, 'w'));
    if (is_new || strchr(said, 'e'))
        CHECK_EQ_INT(replace(6, "stale"), HF_LOST);
    else
        CHECK_EQ_INT(check_only(4), HF_LOST);
    CHECK_EQ_INT(replace(8, "next"), HF_OK);
    CHECK_EQ_STR(content("data"), "next");
    remove_folder();
    return WEXITSTATUS(status) == 0;
}

static void crash_everywhere(enum cut how) {
    long steps = 0;
    while (crash_at(steps, how))
        steps++;
    printf("# %ld steps\n", steps);
    CHECK(steps > 10);
}

TEST(after_kill_9_at_any_step_the_file_is_whole_and_no_token_is_forgotten) {
    crash_everywhere(CUT_KILL);
}

TEST(so_it_is_after_a_power_failure_that_undoes_renames) {
    crash_everywhere(CUT_RENAMES_LOST);
}

TEST(so_it_is_after_a_power_failure_that_loses_content) {
    crash_everywhere(CUT_CONTENT_LOST);
}

/* The process that renamed the file of tokens may have died before the rename was durable. */
TEST(a_token_that_stays_the_same_is_made_durable_too) {
    make_folder();
    CHECK_EQ_INT(check_only(5), HF_OK);
    CHECK(rename("data.fence", "kept") == 0);
    CHECK_EQ_INT(renameat(AT_FDCWD, "kept", AT_FDCWD, "data.fence"), 0);
    CHECK_EQ_INT(disk.renames, 1);
    CHECK_EQ_INT(check_only(5), HF_OK);
    CHECK_EQ_INT(disk.renames, 0);
    remove_folder();
}

/* ---- Others at the same time ---- */

static void check_locked(const char *name) {
    int fd = open(name, O_RDONLY);
    CHECK(fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) < 0 && errno == EWOULDBLOCK);
    close(fd);
}

TEST(nobody_can_enter_while_the_file_of_tokens_is_replaced) {
    struct fence_file file;
    make_folder();
    CHECK_EQ_INT(check_only(1), HF_OK);
    disk.on_renamed = check_locked;
    CHECK_EQ_INT(enter(&file, 7), HF_OK);
    check_locked("data.fence");
    CHECK_EQ_INT(fence_file_replace(&file, "data", "new", 3), HF_OK);
    check_locked("data.fence");
    fence_file_leave(&file);
    disk.on_renamed = NULL;
    CHECK_EQ_INT(check_only(8), HF_OK);
    remove_folder();
}

static void write_side_by_side(unsigned writer) {
    for (unsigned i = 0; i < WRITES; i++) {
        char text[20];
        sprintf(text, "%u", i * WRITERS + writer + 1);
        int r = replace(i * WRITERS + writer + 1, text);
        if (r != HF_OK && r != HF_LOST)
            _exit(1);
    }
    _exit(0);
}

TEST(the_last_writer_of_many_is_the_one_with_the_largest_token) {
    pid_t writers[WRITERS];
    char expected[20];
    make_folder();
    for (unsigned i = 0; i < WRITERS; i++) {
        writers[i] = fork();
        if (writers[i] == 0)
            write_side_by_side(i);
    }
    for (unsigned i = 0; i < WRITERS; i++) {
        int status;
        CHECK(waitpid(writers[i], &status, 0) == writers[i] && status == 0);
    }
    sprintf(expected, "%d", WRITERS * WRITES);
    CHECK_EQ_STR(content("data"), expected);
    remove_folder();
}
