/* A stranger's program, which knows only the installed header; it is both C and C++. Its own
 * functions have names that the library uses inside: they must neither clash at the link nor be
 * called by the library. The output is TAP. */
#include <holdfast/holdfast.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int map_add(void);
int url_parse(void);
int error_set(void);
int engine_cancel(void);

int map_add(void) {
    abort();
}

int url_parse(void) {
    abort();
}

int error_set(void) {
    abort();
}

int engine_cancel(void) {
    abort();
}

static int try_to_acquire(hf_client *client, hf_hold **ret_hold) {
    hf_acquire_options options = HF_ACQUIRE_OPTIONS_INIT;
    options.wait_ms = 0;
    options.label = "a stranger";
    return hf_acquire(client, "shared-by-strangers", &options, ret_hold);
}

static int lock_and_unlock(hf_client *client) {
    hf_hold *first = NULL, *second = NULL;
    int right = try_to_acquire(client, &first) == HF_OK &&
                try_to_acquire(client, &second) == HF_BUSY && hf_release(first) == HF_OK &&
                try_to_acquire(client, &second) == HF_OK &&
                hf_hold_token(second) > hf_hold_token(first);
    hf_hold_free(first);
    hf_hold_free(second);
    return right;
}

int main(void) {
    hf_client_options options = HF_CLIENT_OPTIONS_INIT;
    hf_client *client = NULL;
    int right = strcmp(hf_version(), HF_VERSION) == 0 &&
                hf_client_open("memory:", &options, &client) == HF_OK && lock_and_unlock(client);
    if (!right)
        printf("# %s\n", hf_last_error());
    hf_client_close(client);
    printf("%sok 1 - a stranger's program locks and unlocks\n1..1\n", right ? "" : "not ");
    return right ? 0 : 1;
}
