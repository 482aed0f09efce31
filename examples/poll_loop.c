/* A program with a poll loop of its own: five jobs want the same printer, and a single thread
 * serves all of them. Each acquire and each release is only started. When hf_fd is readable,
 * hf_call_next returns the calls that have completed, so there are no callbacks at all. A job that
 * has the lock works for a while; here the loop just waits for that time. */
#include <holdfast/holdfast.h>
#include <poll.h>
#include <stdio.h>
#include <time.h>

enum { JOBS = 5, WORK_MS = 10 };

struct job {
    int number;
    enum { ACQUIRING, WORKING, RELEASING, FINISHED } state;
    hf_hold *hold;
    long long ends_ms; /* of the work */
};

static struct job jobs[JOBS];
static int working, finished;
static uint64_t newest_token;

static long long now_ms(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000LL + now.tv_nsec / 1000000;
}

static int begin_work(struct job *job, hf_call *call) {
    job->hold = hf_call_take_hold(call);
    job->ends_ms = now_ms() + WORK_MS;
    job->state = WORKING;
    uint64_t token = hf_hold_token(job->hold);
    printf("job %d prints with token %llu\n", job->number, (unsigned long long)token);
    int alone_and_in_order = ++working == 1 && token > newest_token;
    newest_token = token;
    return alone_and_in_order ? 0 : -1;
}

/* A call of the job has completed: the state says which. */
static int completed(struct job *job, hf_call *call) {
    int r = hf_call_status(call);
    if (r < 0)
        fprintf(stderr, "job %d: %s\n", job->number, hf_call_error(call));
    else if (job->state == ACQUIRING)
        r = begin_work(job, call);
    else {
        job->hold = hf_hold_free(job->hold);
        job->state = FINISHED;
        finished++;
    }
    hf_call_free(call);
    return r;
}

/* Starts the release of jobs whose work is done; returns how long poll may wait for the next. */
static int end_work(void) {
    int wait_ms = -1;
    for (struct job *job = jobs; job < jobs + JOBS; job++) {
        long long left_ms = job->ends_ms - now_ms();
        hf_call *call;
        if (job->state != WORKING)
            continue;
        if (left_ms > 0) {
            wait_ms = (int)left_ms;
        } else if (hf_release_start(job->hold, &call) == HF_OK) {
            hf_call_queue(call, job);
            job->state = RELEASING;
            working--;
        }
    }
    return wait_ms;
}

static int loop(hf_client *client) {
    struct pollfd fds = {.fd = hf_fd(client), .events = POLLIN};
    while (finished < JOBS) {
        hf_call *call;
        if (poll(&fds, 1, end_work()) < 0 || hf_process(client) < 0)
            return -1;
        while ((call = hf_call_next(client)))
            if (completed(hf_call_data(call), call) < 0)
                return -1;
    }
    return 0;
}

int main(int argc, char **argv) {
    hf_client *client;
    int r = hf_client_open(argc > 1 ? argv[1] : "memory:", NULL, &client);
    for (int i = 0; r == HF_OK && i < JOBS; i++) {
        hf_call *call;
        jobs[i].number = i + 1;
        r = hf_acquire_start(client, "printer", NULL, &call);
        if (r == HF_OK)
            hf_call_queue(call, &jobs[i]);
    }
    if (r < 0) {
        fprintf(stderr, "%s\n", hf_last_error());
        return 1;
    }
    printf("%d acquires are in flight\n", JOBS);
    r = loop(client);
    hf_client_close(client);
    printf("%d of %d jobs have printed, one at a time\n", finished, JOBS);
    return r == 0 ? 0 : 1;
}
