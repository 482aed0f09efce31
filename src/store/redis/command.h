/* Building commands: arguments are added one by one, with the keys of a lock, as the bytes that the
 * protocol has for them. One builder serves a store; it keeps its memory. */
#ifndef REDIS_COMMAND_H
#define REDIS_COMMAND_H

#include "store/redis/scripts.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct command {
    char *bytes; /* the arguments, each as "$7\r\nEVALSHA\r\n" */
    size_t size, room, count;
    size_t last, last_size; /* where the last argument begins, with its header, and its own size */
    size_t key, key_size;   /* the first key, without its header; key 0: none was added */
    bool failed;            /* no memory: there will be no bytes */
};

void command_start(struct command *command);
void command_free(struct command *command);

void command_add(struct command *command, const void *bytes, size_t size);
void command_add_text(struct command *command, const char *text);
void command_add_number(struct command *command, uint64_t number);
/* Adds to the argument that was added last. */
void command_append(struct command *command, const void *bytes, size_t size);

/* Starts an EVALSHA of a script with that many keys; command_as_eval turns its bytes into an
 * EVAL. */
void command_start_script(struct command *command, enum redis_script_id script, size_t keys);

/* Whether a key has the form of a companion. A lock's own key must not. (With a prefix it
 * cannot.) */
bool command_is_companion(const char *key);

/* The name of the lock whose S this key is, if the prefix is empty; false: it is not an S. */
enum { COMMAND_NAME_SIZE = 256 };
bool command_name_of_state(const char *key, char ret_name[COMMAND_NAME_SIZE]);

/* Adds keys of a lock: `which` are some of "KSQWHI" (scripts/state.lua says what they are). K is
 * the prefix and the name. All are in the slot of K, whatever braces it has. A counter also has a
 * K, and an A (scripts/count.lua) for each client, whose id the caller appends. */
void command_add_keys(struct command *command, const char *prefix, const char *name,
                      const char *which);

/* The bytes to send, malloc'd; NULL: no memory. */
char *command_bytes(struct command *command, size_t *ret_size);
char *command_as_eval(const char *bytes, size_t size, enum redis_script_id script,
                      size_t *ret_size);

/* The slot of a key in a Cluster. */
unsigned command_slot(const char *key, size_t size);
/* The slot of the first key of the command that is being built; -1: it has no key. */
int command_first_slot(const struct command *command);

#endif
