/* Fencing of a file: it refuses a writer that has lost the lock without knowing it. Two workers add
 * a line to a report. The first takes the lock and pauses for longer than its lease, so the second
 * gets the lock and writes. When the first goes on, its write is refused, because the file has seen
 * a larger token.
 *
 *    fence_file LOCKS REPORT
 *
 * LOCKS is the URL of any store. REPORT is the file to write; REPORT.fence keeps its tokens. */
#include <holdfast/holdfast.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

struct worker {
    const char *name;
    const char *path;
    hf_client *client;
    hf_hold *hold;
    char report[200];
};

/* Takes the lock, registers the token, and only then reads. */
static bool start(struct worker *w, const char *locks) {
    hf_acquire_options options = HF_ACQUIRE_OPTIONS_INIT;
    options.lease_ms = 1000;
    options.flags = HF_NO_RENEW; /* as if the worker were paused from here on */
    if (hf_client_open(locks, NULL, &w->client) < 0 ||
        hf_acquire(w->client, "report", &options, &w->hold) < 0 ||
        hf_fence_open(w->hold, w->path) < 0) {
        fprintf(stderr, "%s: %s\n", w->name, hf_last_error());
        return false;
    }
    FILE *file = fopen(w->path, "r");
    if (file) {
        size_t length = fread(w->report, 1, sizeof(w->report) / 2, file);
        w->report[length] = 0;
        fclose(file);
    }
    printf("%s: has token %llu\n", w->name, (unsigned long long)hf_hold_token(w->hold));
    return true;
}

static int add_line(struct worker *w) {
    size_t length = strlen(w->report);
    snprintf(w->report + length, sizeof(w->report) - length, "%s was here\n", w->name);
    int r = hf_fence_write(w->hold, w->path, w->report, strlen(w->report));
    printf("%s: %s\n", w->name, r == HF_OK ? "has written" : hf_last_error());
    return r;
}

static void stop(struct worker *w) {
    hf_hold_free(w->hold);
    hf_client_close(w->client);
}

int main(int argc, char **argv) {
    if (argc != 3) {
        fprintf(stderr, "usage: fence_file LOCKS REPORT\n");
        return 64;
    }
    struct worker first = {.name = "first", .path = argv[2]};
    struct worker second = {.name = "second", .path = argv[2]};
    /* The second waits until the first one's lease has ended. */
    bool right = start(&first, argv[1]) && start(&second, argv[1]);
    right = right && add_line(&second) == HF_OK && add_line(&first) == HF_LOST;
    stop(&first);
    stop(&second);
    return right ? 0 : 1;
}
