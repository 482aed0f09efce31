/* Requesting a lock: what `run` and `acquire` have in common. */
#ifndef CLI_ASK_H
#define CLI_ASK_H

#include "cli/options.h"

struct ask {
    bool no_wait, shared, skip_ok;
    int64_t wait_ms, store_wait_ms, exit_code; /* -1: not given */
    int64_t ttl_ms; /* the lease; -1: not given, and ask_check chooses it */
    struct option_fraction permits;
    const char *label;
};

#define ASK_INIT \
    { .wait_ms = -1, .store_wait_ms = -1, .exit_code = -1, .ttl_ms = -1 }

/* The options of a command whose settings are `settings` and have a `struct ask ask`. */
#define ASK_OPTIONS(settings)                                                            \
    {'n', OPTION_FLAG, "no-wait", offsetof(settings, ask.no_wait), NULL, "do not wait"}, \
        {'w',       OPTION_DURATION,                                                     \
         "wait",    offsetof(settings, ask.wait_ms),                                     \
         "DUR",     "wait at most this long (default: no limit)",                        \
         "no limit"},                                                                    \
        {0,                                                                              \
         OPTION_DURATION,                                                                \
         "store-wait",                                                                   \
         offsetof(settings, ask.store_wait_ms),                                          \
         "DUR",                                                                          \
         "without -w: wait this long for an unavailable store (10s)",                    \
         "10s"},                                                                         \
        {'E',         OPTION_NUMBER,                                                     \
         "exit-code", offsetof(settings, ask.exit_code),                                 \
         "CODE",      "exit code if not acquired (75)"},                                 \
        {'s',      OPTION_FLAG,                                                          \
         "shared", offsetof(settings, ask.shared),                                       \
         NULL,     "share it with others that use -s"},                                  \
        {'p',   OPTION_FRACTION,          "permits", offsetof(settings, ask.permits),    \
         "K/N", "take K out of N permits"},                                              \
        {0,     OPTION_DURATION,                                                         \
         "ttl", offsetof(settings, ask.ttl_ms),                                          \
         "DUR", "the lease, which is renewed (30s)",                                     \
         "30s"},                                                                         \
    {                                                                                    \
        0, OPTION_TEXT, "label", offsetof(settings, ask.label), "TEXT",                  \
            "what others see beside the lock"                                            \
    }

/* Checks that the options fit together and fills in defaults. Returns 0, or the exit code after
 * printing an error. */
int ask_check(const struct cli *cli, struct ask *ask);

/* The default time from TERM to KILL when the lock is about to be lost. */
int64_t ask_grace_ms(const struct ask *ask);

/* Fill in the library's options. */
void ask_fill_client(const struct ask *ask, hf_client_options *options);
void ask_fill(const struct ask *ask, hf_acquire_options *options);

/* Returns the exit code for a lock that was not acquired, and the message ("" for none). */
int ask_refused(const struct cli *cli, const struct ask *ask, hf_client *client, const char *name,
                int error, const char *why, char *ret_text, size_t size);

/* Whether the error means that the lock was not acquired, as opposed to a failure. */
bool ask_is_refusal(int error);

#endif
