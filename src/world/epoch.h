/* Distinguishes a forked child from its parent without touching anything that the parent's threads
 * may have left locked. Every process has an epoch, a number that none of its ancestors has. An
 * object records the epoch it was made in and can be used only there. */
#ifndef WORLD_EPOCH_H
#define WORLD_EPOCH_H

#include <stdint.h>

/* The epoch of this process; 0 if it has none yet, or if there was no memory for the page. */
uint64_t world_epoch(void);

/* The same, but starts one if there is none. 0: the page cannot be made (errno). */
uint64_t world_epoch_start(void);

#endif
