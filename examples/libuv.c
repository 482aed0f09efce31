/* holdfast in a libuv program: three jobs queue for one lock. When a job is granted the lock, a
 * callback on the loop's thread starts its work (a timer); when that ends, the lock is released,
 * again without blocking, and the next job's callback runs. holdfast_uv.h is all that connects the
 * two. */
#include "holdfast_uv.h"

#include <stdio.h>

enum { JOBS = 3, WORK_MS = 10 };

struct job {
    uv_timer_t timer;
    int number;
    hf_hold *hold;
};

static uv_poll_t holdfast;
static int working, finished, failures;

static void released(hf_call *call, void *arg) {
    struct job *job = arg;
    failures += hf_call_status(call) != HF_OK;
    hf_call_free(call);
    job->hold = hf_hold_free(job->hold);
    printf("job %d is finished\n", job->number);
    if (++finished == JOBS)
        hf_uv_stop(&holdfast, NULL); /* nothing is left to do: uv_run returns */
}

static void work_is_done(uv_timer_t *timer) {
    struct job *job = timer->data;
    hf_call *call;
    working--;
    uv_close((uv_handle_t *)timer, NULL);
    if (hf_release_start(job->hold, &call) < 0 || hf_call_notify(call, released, job) < 0)
        failures++;
}

static void acquired(hf_call *call, void *arg) {
    struct job *job = arg;
    job->hold = hf_call_take_hold(call);
    if (!job->hold) {
        fprintf(stderr, "job %d: %s\n", job->number, hf_call_error(call));
        failures++;
        uv_stop(uv_default_loop());
    } else {
        printf("job %d works with token %llu\n", job->number,
               (unsigned long long)hf_hold_token(job->hold));
        failures += ++working != 1;
        uv_timer_start(&job->timer, work_is_done, WORK_MS, 0);
    }
    hf_call_free(call);
}

int main(int argc, char **argv) {
    uv_loop_t *loop = uv_default_loop();
    struct job jobs[JOBS];
    hf_client *client;
    if (hf_client_open(argc > 1 ? argv[1] : "memory:", NULL, &client) < 0 ||
        hf_uv_start(loop, &holdfast, client) < 0) {
        fprintf(stderr, "%s\n", hf_last_error());
        return 1;
    }
    for (int i = 0; i < JOBS; i++) {
        hf_call *call;
        jobs[i] = (struct job){.number = i + 1};
        uv_timer_init(loop, &jobs[i].timer);
        jobs[i].timer.data = &jobs[i];
        if (hf_acquire_start(client, "report", NULL, &call) < 0 ||
            hf_call_notify(call, acquired, &jobs[i]) < 0)
            return 1;
    }
    uv_run(loop, UV_RUN_DEFAULT);
    hf_client_close(client);
    printf("%d of %d jobs have worked, one at a time\n", finished, JOBS);
    return finished == JOBS && failures == 0 && uv_loop_close(loop) == 0 ? 0 : 1;
}
