/* holdfast watch: a live table on a terminal (watch_screen.c), events elsewhere (watch_events.c).
 * The table is polled; events are pushed by stores that can. */
#ifndef CLI_WATCH_H
#define CLI_WATCH_H

#include "cli/cli.h"

struct watch {
    struct cli *cli;
    hf_client *client;
    const char *prefix; /* NULL: all */
    int64_t every_ms;
};

/* Both return the exit code. */
int watch_screen(struct watch *watch);
int watch_events(struct watch *watch);

#endif
