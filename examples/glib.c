/* holdfast in a GLib program, and how it is notified of a lost lock. The program works under a lock
 * until an operator breaks it (here the program does that itself after a while, as `holdfast break`
 * would). Its on_lost runs in the main loop and stops the work. GLib needs no adapter:
 * g_unix_fd_add watches the client's descriptor. */
#include <glib-unix.h>
#include <glib.h>
#include <holdfast/holdfast.h>
#include <stdio.h>

enum { STEP_MS = 5, STEPS_UNTIL_BROKEN = 3 };

struct program {
    GMainLoop *loop;
    hf_client *client;
    hf_hold *hold;
    guint step_timer;
    int steps, told_lost, failures;
};

static gboolean holdfast_ready(gint fd, GIOCondition condition, gpointer client) {
    (void)fd;
    (void)condition;
    hf_process(client);
    return G_SOURCE_CONTINUE;
}

static void lost(hf_hold *hold, void *arg) {
    struct program *program = arg;
    printf("the lock \"%s\" is lost: no more steps\n", hf_hold_name(hold));
    program->told_lost++;
    program->failures += hf_check(hold, 0) != HF_LOST;
    g_source_remove(program->step_timer);
    g_main_loop_quit(program->loop);
}

static void broken(hf_call *call, void *arg) {
    struct program *program = arg;
    program->failures += hf_call_status(call) != HF_OK;
    hf_call_free(call);
}

static gboolean step(gpointer arg) {
    struct program *program = arg;
    if (hf_check(program->hold, STEP_MS) < 0)
        return G_SOURCE_CONTINUE; /* not safe to go on; `lost` is called if it is lost */
    printf("step %d\n", ++program->steps);
    if (program->steps == STEPS_UNTIL_BROKEN) {
        hf_call *call;
        if (hf_break_start(program->client, "import", hf_hold_token(program->hold), "an example",
                           &call) < 0 ||
            hf_call_notify(call, broken, program) < 0)
            program->failures++;
    }
    return G_SOURCE_CONTINUE;
}

static void acquired(hf_call *call, void *arg) {
    struct program *program = arg;
    program->hold = hf_call_take_hold(call);
    if (program->hold) {
        printf("acquired\n");
        program->step_timer = g_timeout_add(STEP_MS, step, program);
    } else {
        fprintf(stderr, "%s\n", hf_call_error(call));
        g_main_loop_quit(program->loop);
    }
    hf_call_free(call);
}

int main(int argc, char **argv) {
    struct program program = {.loop = g_main_loop_new(NULL, FALSE)};
    if (hf_client_open(argc > 1 ? argv[1] : "memory:", NULL, &program.client) < 0) {
        fprintf(stderr, "%s\n", hf_last_error());
        return 1;
    }
    guint watch = g_unix_fd_add(hf_fd(program.client), G_IO_IN, holdfast_ready, program.client);

    hf_acquire_options options = HF_ACQUIRE_OPTIONS_INIT;
    options.on_lost = lost;
    options.on_lost_arg = &program;
    hf_call *call;
    if (hf_acquire_start(program.client, "import", &options, &call) < 0 ||
        hf_call_notify(call, acquired, &program) < 0)
        return 1;
    g_main_loop_run(program.loop);

    g_source_remove(watch);
    g_main_loop_unref(program.loop);
    hf_hold_free(program.hold);
    hf_client_close(program.client);
    int right = program.told_lost == 1 && program.steps == STEPS_UNTIL_BROKEN && !program.failures;
    return right ? 0 : 1;
}
