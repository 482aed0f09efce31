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

enum { LEASE_MS = 300, EXIT_REFUSED = 3 };

static bool stops;

/* The library calls this one. */
int flock(int fd, int operation);
int flock(int fd, int operation) {
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

/* Takes the lock, again if a slow machine got it too late or lost it before the token was
 * registered. */
static hf_hold *acquire(const char *url, const char *name, const char *path) {
    hf_client *client;
    hf_hold *hold;
    hf_acquire_options options = HF_ACQUIRE_OPTIONS_INIT;
    int r;
    options.lease_ms = LEASE_MS;
    must(hf_client_open(url, NULL, &client) == HF_OK, hf_last_error());
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

int main(int argc, char **argv) {
    char text[20];
    must(argc == 5, "usage: writer LOCKS FILE NAME fenced|blind|quick");
    hf_hold *hold = acquire(argv[1], argv[3], argv[2]);
    snprintf(text, sizeof(text), "%d", read_number(argv[2]) + 1);
    if (strcmp(argv[4], "blind") == 0) {
        write_blindly(argv[2], text);
        _Exit(EXIT_SUCCESS);
    }
    stops = strcmp(argv[4], "fenced") == 0;
    int r = hf_fence_write(hold, argv[2], text, strlen(text));
    bool refused = r == HF_LOST && strstr(hf_last_error(), "is refused");
    must(r == HF_OK || refused, hf_last_error());
    _Exit(refused ? EXIT_REFUSED : EXIT_SUCCESS);
}
