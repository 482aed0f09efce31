/* A program that adds 1 to the number in a file, under a lock, and is stopped in the middle of
 * that:
 *
 *    writer LOCKS FILE NAME fenced|blind|quick
 *
 * LOCKS is the store, NAME the lock. It stops itself (SIGSTOP) between reading and writing; a
 * fenced writer does so inside hf_fence_write, when that has seen that the lease is valid, and
 * before it checks the token. A blind writer does not check its token. A quick one is fenced and
 * does not stop. It ends with 0 if it has written, 3 if its token was refused, and 1 if anything
 * else went wrong. It releases nothing, so the lock goes to the next writer when the lease ends. */
#include <holdfast/holdfast.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { LEASE_MS = 300, LEASE_MOST_MS = 30000, EXIT_REFUSED = 3 };

static bool stops, was_entered;

/* The library calls this one. */
int flock(int fd, int operation);
int flock(int fd, int operation) {
    was_entered = true;
    if (stops)
        raise(SIGSTOP);
    stops = false;
    return (int)syscall(SYS_flock, fd, operation);
}

static void must(bool done, const char *why) {
    if (done)
        return;
    fprintf(stderr, "%s\n", why);
    _Exit(EXIT_FAILURE);
}

/* Takes the lock; tries again if a slow machine got it too late or lost it before the token was
 * registered. */
static hf_hold *acquire(hf_client *client, const char *name, const char *path, int64_t lease_ms) {
    hf_hold *hold;
    hf_acquire_options options = HF_ACQUIRE_OPTIONS_INIT;
    int r;
    options.lease_ms = lease_ms;
    do {
        r = hf_acquire(client, name, &options, &hold);
        if (r == HF_OK)
            r = hf_fence_open(hold, path);
    } while (r == HF_LOST || r == HF_SHORT);
    must(r == HF_OK, hf_last_error());
    return hold;
}

static int read_number(const char *path) {
    int number = 0;
    FILE *file = fopen(path, "r");
    if (file) {
        must(fscanf(file, "%d", &number) == 1, "there is no number");
        fclose(file);
    }
    return number;
}

static void write_blindly(const char *path, const char *text) {
    raise(SIGSTOP);
    FILE *file = fopen(path, "w");
    must(file && fputs(text, file) >= 0 && fclose(file) == 0, "cannot write");
}

/* Adds 1, and returns what hf_fence_write does. */
static int add_one(hf_hold *hold, const char *path, const char *how) {
    char text[20];
    snprintf(text, sizeof(text), "%d", read_number(path) + 1);
    if (strcmp(how, "blind") == 0) {
        write_blindly(path, text);
        return HF_OK;
    }
    stops = strcmp(how, "fenced") == 0;
    was_entered = false;
    int r = hf_fence_write(hold, path, text, strlen(text));
    stops = false;
    return r;
}

/* A slow machine gets a longer lease if its first one ends before hf_fence_write starts. */
int main(int argc, char **argv) {
    hf_client *client;
    int64_t lease_ms = LEASE_MS;
    int r;
    must(argc == 5, "usage: writer LOCKS FILE NAME fenced|blind|quick");
    must(hf_client_open(argv[1], NULL, &client) == HF_OK, hf_last_error());
    do {
        hf_hold *hold = acquire(client, argv[3], argv[2], lease_ms);
        r = add_one(hold, argv[2], argv[4]);
        lease_ms *= 3;
    } while (r == HF_LOST && !was_entered && lease_ms <= LEASE_MOST_MS);
    bool refused = r == HF_LOST && strstr(hf_last_error(), "is refused");
    must(r == HF_OK || refused, hf_last_error());
    _Exit(refused ? EXIT_REFUSED : EXIT_SUCCESS);
}
