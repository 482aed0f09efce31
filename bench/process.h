/* Contenders that are other processes: commands, and clients in other languages. */
#ifndef BENCH_PROCESS_H
#define BENCH_PROCESS_H

/* A slice: runs a command several times, and returns what one run takes, in ms. `words` is a
 * NULL-terminated list. */
double process_command_slice(void *words);

/* A program (bench/peers) that reads lines
 *
 *    MEASURE WHAT COUNT MS
 *
 * has COUNT threads or tasks take and release the lock WHAT for a while, and answers each line with
 * one: a value, and then what each pair took, in us. MEASURE says what the value is, and whether
 * they share a name:
 *
 *    pairs     in a second, each on a name of its own
 *    changes   of the holder, in a second, all on one name
 *    cpu       the program's CPU time for a pair, in us, each on a name of its own */
struct peer;

/* `words`: the command, a NULL-terminated list. The program inherits the placement. */
struct peer *peer_start(const char *const *words);
void peer_end(struct peer *peer);

struct peer_slice {
    struct peer *peer;
    const char *measure, *what;
    int count, ms;
};

/* A slice, with a struct peer_slice. */
double peer_slice(void *arg);
/* The same; returns the median of the pairs, in us. */
double peer_slice_us(void *arg);

#endif
