/* A world that a test drives: no threads, no descriptors, and a clock that stands still while code
 * runs and jumps to the next timer when somebody waits. An hour of waiting takes no time, and the
 * same test does the same thing each time.
 *
 * There is one time for all worlds of a test. When a client blocks, the others go on: what is due
 * for them meanwhile is done at its time, as if each were a separate process. A paused client does
 * nothing, like a process after SIGSTOP. Waiting for something that can never happen fails the
 * test. The three clocks of world.h run together until the test makes them differ. */
#ifndef TESTS_SUPPORT_VIRTUAL_WORLD_H
#define TESTS_SUPPORT_VIRTUAL_WORLD_H

#include "world/world.h"

#include <holdfast/holdfast.h>

/* Opens a client in a new virtual world; NULL on failure, with hf_last_error set. Close it with
 * hf_client_close. */
hf_client *virtual_client(const char *url, const hf_client_options *options);

/* A world without a client, for tests of the layers below. Close it with world_close. */
struct world *virtual_world(void);

/* The time since the test began. */
int64_t virtual_now_us(void);

/* Lets time pass. Everything that becomes due is done at its time. */
void virtual_pass_us(int64_t us);

/* No client runs for this long, and then all do: all clocks jump. */
void virtual_suspend_us(int64_t us);

/* Moves only this clock, forwards or back. */
void virtual_step_host_us(int64_t us);
void virtual_step_wall_us(int64_t us);

/* Makes a clock run faster (or slower, below 0) than `now`, in millionths. */
void virtual_set_host_rate_ppm(int64_t ppm);
void virtual_set_wall_rate_ppm(int64_t ppm);

/* Stops a client until it is resumed. (Calls into it from the test still work.) */
void virtual_pause(hf_client *client);
void virtual_resume(hf_client *client);

#endif
