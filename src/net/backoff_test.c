/* Times to wait. The virtual world's randomness is the same each time, so many are drawn. */
#include "net/backoff.h"

#include "check.h"
#include "support/virtual_world.h"

enum { MS = 1000, DRAWS = 1000 };

TEST(each_failure_doubles_the_time_up_to_a_second) {
    static const int64_t most_ms[] = {20, 40, 80, 160, 320, 640, 1000, 1000, 1000};
    struct world *world = virtual_world();
    int64_t least_us[9], largest_us[9] = {0};
    memset(least_us, 0x7f, sizeof(least_us));
    for (int draw = 0; draw < DRAWS; draw++) {
        struct net_backoff backoff = {0};
        for (int i = 0; i < 9; i++) {
            int64_t us = net_backoff_us(&backoff, world);
            least_us[i] = us < least_us[i] ? us : least_us[i];
            largest_us[i] = us > largest_us[i] ? us : largest_us[i];
        }
        CHECK_EQ_INT(backoff.failures, 9);
    }
    for (int i = 0; i < 9; i++) {
        CHECK(least_us[i] >= most_ms[i] * MS / 2 && largest_us[i] < most_ms[i] * MS);
        CHECK(largest_us[i] - least_us[i] > most_ms[i] * MS / 4); /* clients do not act in step */
    }
    world_close(world);
}

TEST(many_failures_still_wait_for_a_second_at_most) {
    struct world *world = virtual_world();
    struct net_backoff backoff = {.failures = UINT32_MAX - 10};
    for (int i = 0; i < 10; i++) {
        int64_t us = net_backoff_us(&backoff, world);
        CHECK(us >= 500 * MS && us < 1000 * MS);
    }
    world_close(world);
}

TEST(after_a_success_the_first_time_is_short_again) {
    struct world *world = virtual_world();
    struct net_backoff backoff = {.failures = 10};
    backoff.failures = 0;
    CHECK(net_backoff_us(&backoff, world) < 20 * MS);
    world_close(world);
}

TEST(a_jittered_time_is_from_a_half_to_one_and_a_half) {
    struct world *world = virtual_world();
    int64_t least_us = INT64_MAX, largest_us = 0;
    for (int draw = 0; draw < DRAWS; draw++) {
        int64_t us = net_jitter_us(world, 100 * MS);
        least_us = us < least_us ? us : least_us;
        largest_us = us > largest_us ? us : largest_us;
    }
    CHECK(least_us >= 50 * MS && least_us < 60 * MS);
    CHECK(largest_us <= 150 * MS && largest_us > 140 * MS);
    world_close(world);
}
