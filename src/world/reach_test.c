/* How far away addresses are. */
#include "check.h"
#include "world/world.h"

#include <netdb.h>

static const struct {
    const char *host;
    enum world_reach reach;
} hosts[] = {
    {"127.0.0.1", WORLD_THIS_HOST},
    {"127.255.255.255", WORLD_THIS_HOST},
    {"::1", WORLD_THIS_HOST},
    {"::ffff:127.0.0.1", WORLD_THIS_HOST},
    {"10.0.0.0", WORLD_PRIVATE},
    {"10.255.255.255", WORLD_PRIVATE},
    {"172.16.0.0", WORLD_PRIVATE},
    {"172.31.255.255", WORLD_PRIVATE},
    {"192.168.0.1", WORLD_PRIVATE},
    {"169.254.1.2", WORLD_PRIVATE},
    {"fc00::1", WORLD_PRIVATE},
    {"fdff:ffff::1", WORLD_PRIVATE},
    {"fe80::1", WORLD_PRIVATE},
    {"febf::1", WORLD_PRIVATE},
    {"::ffff:192.168.0.1", WORLD_PRIVATE},
    {"0.0.0.0", WORLD_PUBLIC},
    {"9.255.255.255", WORLD_PUBLIC},
    {"11.0.0.0", WORLD_PUBLIC},
    {"128.0.0.1", WORLD_PUBLIC},
    {"172.15.255.255", WORLD_PUBLIC},
    {"172.32.0.0", WORLD_PUBLIC},
    {"192.167.255.255", WORLD_PUBLIC},
    {"192.169.0.0", WORLD_PUBLIC},
    {"169.253.0.1", WORLD_PUBLIC},
    {"100.64.0.1", WORLD_PUBLIC},
    {"203.0.113.5", WORLD_PUBLIC},
    {"::", WORLD_PUBLIC},
    {"::2", WORLD_PUBLIC},
    {"::127.0.0.1", WORLD_PUBLIC},
    {"::ffff:203.0.113.5", WORLD_PUBLIC},
    {"64:ff9b::10.0.0.1", WORLD_PUBLIC},
    {"2001:db8::1", WORLD_PUBLIC},
    {"fbff::1", WORLD_PUBLIC},
    {"fec0::1", WORLD_PUBLIC},
};

TEST(addresses_are_of_this_host_private_or_public) {
    for (size_t i = 0; i < sizeof(hosts) / sizeof(hosts[0]); i++) {
        struct addrinfo hints = {.ai_flags = AI_NUMERICHOST}, *found;
        enum world_reach reach = -1;
        CHECK(getaddrinfo(hosts[i].host, NULL, &hints, &found) == 0);
        enum world_reach of_address = world_reach_of(found->ai_addr);
        freeaddrinfo(found);
        bool ok = world_reach_of_text(hosts[i].host, &reach) && reach == hosts[i].reach &&
                  of_address == hosts[i].reach;
        if (!ok)
            test_fail(__FILE__, __LINE__, "%s: %d and %d, not %d", hosts[i].host, (int)reach,
                      (int)of_address, (int)hosts[i].reach);
    }
}

TEST(a_link_local_address_may_name_its_interface) {
    enum world_reach reach;
    CHECK(world_reach_of_text("fe80::1%eth0", &reach) && reach == WORLD_PRIVATE);
}

TEST(a_name_is_not_taken_for_an_address) {
    static const char *const names[] = {
        "localhost", "db.example", "", "127.1", "10", "%eth0", "127.0.0.1.example", "127.0.0.1%lo"};
    enum world_reach reach;
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        CHECK(!world_reach_of_text(names[i], &reach));
}
