/* See place.h. */
#include "place.h"

#include "result.h"

#include <errno.h>
#include <sched.h>
#include <string.h>

static void place(int process, const cpu_set_t *cores) {
    if (sched_setaffinity(process, sizeof(*cores), cores) < 0)
        result_die("sched_setaffinity", strerror(errno));
}

void place_both(int server, void (*measure)(void)) {
    cpu_set_t own, of_server, one;
    if (sched_getaffinity(0, sizeof(own), &own) < 0 ||
        sched_getaffinity(server, sizeof(of_server), &of_server) < 0)
        result_die("the server's process", "it is not on this host");
    CPU_ZERO(&one);
    for (int core = 0; core < CPU_SETSIZE && !CPU_COUNT(&one); core++)
        if (CPU_ISSET(core, &own))
            CPU_SET(core, &one);
    result_place("pinned");
    place(0, &one);
    place(server, &one);
    measure();
    result_place("default");
    place(0, &own);
    place(server, &of_server);
    measure();
}
