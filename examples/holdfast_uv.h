/* Drives a holdfast client from a libuv loop: copy this file into your program. Callbacks of the
 * client (hf_call_notify, on_lost) then run on the loop's thread. Call hf_uv_start before any of
 * them is set, and hf_uv_stop before the client is closed. */
#ifndef HOLDFAST_UV_H
#define HOLDFAST_UV_H

#include <holdfast/holdfast.h>
#include <uv.h>

static inline void hf_uv_ready(uv_poll_t *poll, int status, int events) {
    (void)status;
    (void)events;
    hf_process((hf_client *)poll->data);
}

/* 0, or libuv's error. `poll` is yours, and in use until its close callback has run. */
static inline int hf_uv_start(uv_loop_t *loop, uv_poll_t *poll, hf_client *client) {
    int r = uv_poll_init(loop, poll, hf_fd(client));
    poll->data = client;
    return r < 0 ? r : uv_poll_start(poll, UV_READABLE, hf_uv_ready);
}

static inline void hf_uv_stop(uv_poll_t *poll, uv_close_cb closed) {
    uv_poll_stop(poll);
    uv_close((uv_handle_t *)poll, closed);
}

#endif
