/* --report of `holdfast run`: what happened, as one JSON object. */
#include "cli/json.h"
#include "cli/run.h"
#include "cli/text.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static const char *const ends[] = {
    [RUN_EXITED] = "exited",
    [RUN_NOT_ACQUIRED] = "not-acquired",
    [RUN_FAILED] = "failed",
    [RUN_INTERRUPTED] = "interrupted",
    [RUN_CANNOT_START] = "cannot-start",
    [RUN_LOST] = "lost",
    [RUN_MAX_HOLD] = "max-hold",
    [RUN_KEEPER_GONE] = "keeper-gone",
    [RUN_FRONT_GONE] = "front-gone",
};

int report_open(const char *path) {
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (fd < 0) {
        char safe[300];
        fail_say("cannot write %s (%s); --report needs a writable file",
                 text_safe(safe, sizeof(safe), path), strerror(errno));
    }
    return fd;
}

static const char *release_word(int released) {
    return released == HF_OK        ? "released"
           : released == HF_PENDING ? "none"
           : released == HF_LOST    ? "lost"
                                    : "unknown";
}

static void put_names(struct json *json, const struct run_settings *s) {
    json_array(json, "names");
    json_string(json, NULL, s->name);
    for (size_t i = 0; i < s->also.count; i++)
        json_string(json, NULL, s->also.items[i]);
    json_array_end(json);
}

static void put_child(struct json *json, int status) {
    json_object(json, "command");
    json_bool(json, "started", status != -1);
    if (status != -1 && WIFEXITED(status))
        json_number(json, "exit_code", WEXITSTATUS(status));
    if (status != -1 && WIFSIGNALED(status))
        json_number(json, "signal", WTERMSIG(status));
    json_object_end(json);
}

void report_write(int fd, const struct run *run, int exit_code) {
    const struct run_shared *shared = run->shared;
    struct json json = {.file = fdopen(fd, "w")};
    int end = shared->ended;
    if (!json.file)
        return;
    json_object(&json, NULL);
    json_string(&json, "outcome", ends[end ? end : RUN_FAILED]);
    json_number(&json, "exit_code", exit_code);
    put_names(&json, run->settings);
    json_token(&json, "token", shared->tokens[0]);
    json_bool(&json, "exclusive", shared->exclusive);
    put_child(&json, shared->child_status);
    json_number(&json, "waited_ms", shared->waited_ms);
    json_number(&json, "held_ms", shared->held_ms);
    json_bool(&json, "lost", shared->lost);
    json_string(&json, "cause", *shared->cause ? shared->cause : NULL);
    json_string(&json, "cause_text", *shared->cause ? shared->cause_text : NULL);
    json_bool(&json, "warned", shared->warned);
    json_string(&json, "release", release_word(shared->released));
    json_string(&json, "message", *shared->text ? shared->text : NULL);
    json_object_end(&json);
    json_end(&json);
    fclose(json.file);
}
