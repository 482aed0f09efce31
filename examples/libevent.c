/* holdfast in a libevent program, and waiting with a limit: one job holds the lock, a hurried one
 * gives up after 20 ms with HF_TIMEOUT, and a patient one gets the lock as soon as the first job's
 * work is done. libevent needs no adapter: an event on the client's descriptor calls hf_process. */
#include <event2/event.h>
#include <holdfast/holdfast.h>
#include <stdio.h>

static struct event_base *base;
static hf_hold *held;
static int hurried_gave_up, patient_got_it;

static void holdfast_ready(evutil_socket_t fd, short what, void *client) {
    (void)fd;
    (void)what;
    hf_process(client);
}

static void hurried_is_told(hf_call *call, void *arg) {
    (void)arg;
    hurried_gave_up = hf_call_status(call) == HF_TIMEOUT;
    printf("the hurried job: %s\n", hf_call_error(call));
    hf_call_free(call);
    held = hf_hold_free(held); /* the first job's work is done */
}

static void patient_is_told(hf_call *call, void *arg) {
    (void)arg;
    hf_hold *hold = hf_call_take_hold(call);
    patient_got_it = hurried_gave_up && hold && hf_check(hold, 0) == HF_OK;
    printf("the patient job: %s\n", patient_got_it ? "acquired" : hf_call_error(call));
    hf_call_free(call);
    hf_hold_free(hold);
    event_base_loopbreak(base);
}

static int acquire(hf_client *client, int64_t wait_ms, void (*told)(hf_call *, void *)) {
    hf_acquire_options options = HF_ACQUIRE_OPTIONS_INIT;
    options.wait_ms = wait_ms;
    hf_call *call;
    int r = hf_acquire_start(client, "invoices", &options, &call);
    return r < 0 ? r : hf_call_notify(call, told, NULL);
}

int main(int argc, char **argv) {
    hf_client *client;
    if (hf_client_open(argc > 1 ? argv[1] : "memory:", NULL, &client) < 0) {
        fprintf(stderr, "%s\n", hf_last_error());
        return 1;
    }
    base = event_base_new();
    struct event *ready =
        event_new(base, hf_fd(client), EV_READ | EV_PERSIST, holdfast_ready, client);
    event_add(ready, NULL);

    if (hf_acquire(client, "invoices", NULL, &held) < 0 ||
        acquire(client, 20, hurried_is_told) < 0 ||
        acquire(client, HF_FOREVER, patient_is_told) < 0) {
        fprintf(stderr, "%s\n", hf_last_error());
        return 1;
    }
    event_base_dispatch(base);

    event_free(ready);
    event_base_free(base);
    hf_client_close(client);
    libevent_global_shutdown();
    return hurried_gave_up && patient_got_it ? 0 : 1;
}
