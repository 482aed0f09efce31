/* How far away an address is: on this host, in a private network, or anywhere. */
#include "world/world.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>

static enum world_reach reach_of_four(uint32_t a) {
    bool is_private = a >> 24 == 10 || a >> 20 == (172 << 4 | 1) || a >> 16 == (192 << 8 | 168) ||
                      a >> 16 == (169 << 8 | 254);
    return a >> 24 == 127 ? WORLD_THIS_HOST : is_private ? WORLD_PRIVATE : WORLD_PUBLIC;
}

static enum world_reach reach_of_six(const struct in6_addr *a) {
    uint32_t four;
    memcpy(&four, a->s6_addr + 12, sizeof(four));
    if (IN6_IS_ADDR_V4MAPPED(a))
        return reach_of_four(ntohl(four));
    bool is_private = IN6_IS_ADDR_LINKLOCAL(a) || (a->s6_addr[0] & 0xfe) == 0xfc;
    return IN6_IS_ADDR_LOOPBACK(a) ? WORLD_THIS_HOST : is_private ? WORLD_PRIVATE : WORLD_PUBLIC;
}

enum world_reach world_reach_of(const struct sockaddr *address) {
    switch (address->sa_family) {
    case AF_UNIX:
        return WORLD_THIS_HOST;
    case AF_INET:
        return reach_of_four(
            ntohl(((const struct sockaddr_in *)(const void *)address)->sin_addr.s_addr));
    case AF_INET6:
        return reach_of_six(&((const struct sockaddr_in6 *)(const void *)address)->sin6_addr);
    default:
        return WORLD_PUBLIC;
    }
}

bool world_reach_of_text(const char *host, enum world_reach *ret_reach) {
    char bare[INET6_ADDRSTRLEN];
    struct in_addr four;
    struct in6_addr six;
    size_t size = strcspn(host, "%"); /* the interface of a link local address */
    if (size >= sizeof(bare))
        return false;
    memcpy(bare, host, size);
    bare[size] = 0;
    bool is_four = inet_pton(AF_INET, host, &four) == 1;
    if (!is_four && inet_pton(AF_INET6, bare, &six) != 1)
        return false;
    *ret_reach = is_four ? reach_of_four(ntohl(four.s_addr)) : reach_of_six(&six);
    return true;
}
