/* Where a program and its server run. It matters: a sleeping core takes long to wake. */
#ifndef BENCH_PLACE_H
#define BENCH_PLACE_H

/* Calls `measure` twice: pinned, with this process and the server on one core, and by default,
 * where the scheduler puts them. Threads and processes that `measure` starts inherit that. */
void place_both(int server, void (*measure)(void));

#endif
