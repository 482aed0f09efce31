/* Building commands.
 *
 * The companions of K must be in the same slot of a Cluster as K, and no K may be the companion of
 * another. The first {tag} of a key determines its slot, or the whole key if it has no tag. So if K
 * has a tag, a companion is "{tag}.s.K". If not, it is "{K}.s", where the braces make K itself the
 * tag. If K has a '}', which would end that tag early, it is "{n}.s.K" with the smallest number n
 * in the right slot. None of these can be the K of a lock, since a prefix must not have "}." in it
 * (redis.c). With an empty prefix, names that look like a companion are refused. */
#include "store/redis/command.h"

#include "store/store.h"

#include <assert.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- Arguments ---- */

enum { HEADER_MOST = 23 }; /* "$", the 20 digits of the largest number, "\r\n" */

void command_start(struct command *c) {
    c->size = c->count = c->key = 0;
    c->failed = false;
}

void command_free(struct command *c) {
    free(c->bytes);
}

/* (A request has dozens of numbers, and printf is slow.) */
static char *put_number(char *at, uint64_t number) {
    char *end = at + 1;
    for (uint64_t rest = number; rest >= 10; rest /= 10)
        end++;
    for (char *digit = end; digit > at; number /= 10)
        *--digit = (char)('0' + number % 10);
    return end;
}

/* "*12\r\n" before all arguments, "$7\r\n" before each, and most have two digits. */
static char *put_header(char *at, char kind, size_t number) {
    *at++ = kind;
    if (number >= 10 && number < 100) {
        *at++ = (char)('0' + number / 10);
        *at++ = (char)('0' + number % 10);
    } else {
        at = put_number(at, number);
    }
    return mempcpy(at, "\r\n", 2);
}

/* Makes room for `size` more bytes of an argument, and for its header. */
static bool make_room(struct command *c, size_t size) {
    size_t needed = c->size + HEADER_MOST + size + 2;
    if (needed <= c->room)
        return true;
    char *bytes = realloc(c->bytes, 2 * needed);
    c->failed |= !bytes;
    if (!bytes)
        return false;
    c->bytes = bytes;
    c->room = 2 * needed;
    return true;
}

/* Adds the last part of an argument, which then has `size` bytes in all. */
static void put_end(struct command *c, char *at, const void *bytes, size_t bytes_size,
                    size_t size) {
    char *end = mempcpy(mempcpy(at, bytes, bytes_size), "\r\n", 2);
    c->last_size = size;
    c->size = (size_t)(end - c->bytes);
}

void command_add(struct command *c, const void *bytes, size_t size) {
    if (c->failed || !make_room(c, size))
        return;
    c->last = c->size;
    c->count++;
    put_end(c, put_header(c->bytes + c->size, '$', size), bytes, size, size);
}

void command_append(struct command *c, const void *bytes, size_t size) {
    if (c->failed || !make_room(c, size))
        return;
    char header[HEADER_MOST], *last = c->bytes + c->last;
    size_t before = c->last_size;
    size_t header_size = (size_t)(put_header(header, '$', before + size) - header);
    char *text = last + header_size; /* moves if the header gets longer */
    memmove(text, c->bytes + c->size - 2 - before, before);
    memcpy(last, header, header_size);
    put_end(c, text + before, bytes, size, before + size);
}

void command_add_text(struct command *c, const char *text) {
    command_add(c, text, strlen(text));
}

void command_add_number(struct command *c, uint64_t number) {
    char text[20];
    command_add(c, text, (size_t)(put_number(text, number) - text));
}

/* ---- Keys ---- */

/* CRC16 of XMODEM, which Redis uses for its slots. */
static unsigned crc16(const char *bytes, size_t size) {
    unsigned crc = 0;
    for (size_t i = 0; i < size; i++) {
        crc ^= (unsigned)(unsigned char)bytes[i] << 8;
        for (int bit = 0; bit < 8; bit++)
            crc = crc & 0x8000 ? crc << 1 ^ 0x1021 : crc << 1;
    }
    return crc & 0xffff;
}

/* The part of a key that determines its slot: the tag, or the whole key. */
static const char *tag_of(const char *key, size_t size, size_t *ret_size) {
    const char *open = memchr(key, '{', size);
    const char *close = open ? memchr(open, '}', size - (size_t)(open - key)) : NULL;
    if (!close || close == open + 1) {
        *ret_size = size;
        return key;
    }
    *ret_size = (size_t)(close - open - 1);
    return open + 1;
}

unsigned command_slot(const char *key, size_t size) {
    size_t tag_size;
    const char *tag = tag_of(key, size, &tag_size);
    return crc16(tag, tag_size) & 16383;
}

int command_first_slot(const struct command *c) {
    if (!c->key || c->failed)
        return -1;
    return (int)command_slot(c->bytes + c->key, c->key_size);
}

/* The smallest number in each slot. */
static uint32_t numbers[16384];

static void fill_numbers(void) {
    for (uint32_t n = 1, found = 0; found < 16384; n++) {
        char text[16] = "";
        int size = snprintf(text, sizeof(text), "%" PRIu32, n);
        unsigned slot = crc16(text, (size_t)size) & 16383;
        if (!numbers[slot]) {
            numbers[slot] = n;
            found++;
        }
    }
}

static void number_of_slot(unsigned slot, char ret_text[24]) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, fill_numbers);
    snprintf(ret_text, 24, "%" PRIu32, numbers[slot]);
}

void command_add_keys(struct command *c, const char *prefix, const char *name, const char *which) {
    char key[512], number[24], companion[2 * sizeof(key) + 8];
    size_t size = strlen(prefix) + strlen(name);
    assert(size < sizeof(key));
    strcpy(stpcpy(key, prefix), name);
    size_t tag_size;
    const char *tag = tag_of(key, size, &tag_size);
    bool is_whole = tag_size == size;
    if (is_whole && memchr(key, '}', size)) {
        number_of_slot(crc16(key, size) & 16383, number);
        tag = number;
        tag_size = strlen(number);
        is_whole = false;
    }
    companion[0] = '{';
    char *letter = stpcpy(mempcpy(companion + 1, tag, tag_size), "}.");
    char *end = mempcpy(stpcpy(letter, "?."), key, size);
    for (; *which; which++) {
        bool is_short = is_whole && *which != 'A';
        *letter = (char)(*which | 0x20);
        if (*which == 'K')
            command_add(c, key, size);
        else
            command_add(c, companion, (size_t)((is_short ? letter + 1 : end) - companion));
        if (!c->key) {
            c->key = c->size - 2 - c->last_size;
            c->key_size = c->last_size;
        }
    }
}

/* A tag has no '}' in it, and neither has a K that becomes one. */
bool command_is_companion(const char *key) {
    const char *close = strchr(key, '}');
    return key[0] == '{' && close && close[1] == '.';
}

bool command_name_of_state(const char *key, char ret_name[COMMAND_NAME_SIZE]) {
    const char *close = strchr(key, '}'), *name = close ? close + strlen("}.s.") : NULL;
    if (!command_is_companion(key) || !close || close[2] != 's' || (close[3] && close[3] != '.'))
        return false;
    size_t size = close[3] ? strlen(name) : (size_t)(close - key - 1);
    if (!size || size >= COMMAND_NAME_SIZE)
        return false;
    memcpy(ret_name, close[3] ? name : key + 1, size);
    ret_name[size] = 0;
    return true;
}

/* ---- Scripts, and bytes ---- */

static const char evalsha[] = "$7\r\nEVALSHA\r\n$40\r\n";
enum { EVALSHA_SIZE = sizeof(evalsha) - 1, SHA1_SIZE = 40 };

void command_start_script(struct command *c, enum redis_script_id script, size_t keys) {
    command_start(c);
    if (!make_room(c, EVALSHA_SIZE + SHA1_SIZE))
        return;
    char *text = mempcpy(c->bytes, evalsha, EVALSHA_SIZE);
    put_end(c, text, redis_scripts[script].sha1, SHA1_SIZE, SHA1_SIZE);
    c->count = 2;
    command_add_number(c, keys);
}

char *command_bytes(struct command *c, size_t *ret_size) {
    char header[HEADER_MOST];
    size_t header_size = (size_t)(put_header(header, '*', c->count) - header);
    char *bytes = c->failed ? NULL : malloc(header_size + c->size);
    if (!bytes)
        return NULL;
    memcpy(mempcpy(bytes, header, header_size), c->bytes, c->size);
    *ret_size = header_size + c->size;
    return bytes;
}

char *command_as_eval(const char *bytes, size_t size, enum redis_script_id id, size_t *ret_size) {
    const struct redis_script *script = &redis_scripts[id];
    size_t count_size = (size_t)((const char *)memchr(bytes, '\n', size) + 1 - bytes);
    size_t skipped = count_size + EVALSHA_SIZE + SHA1_SIZE + 2;
    char head[64];
    size_t head_size = (size_t)snprintf(head, sizeof(head), "$4\r\nEVAL\r\n$%zu\r\n", script->size);
    assert(memcmp(bytes + count_size, evalsha, EVALSHA_SIZE) == 0);
    size_t total = count_size + head_size + script->size + 2 + (size - skipped);
    char *eval = malloc(total);
    if (!eval)
        return NULL;
    char *end = mempcpy(eval, bytes, count_size);
    end = mempcpy(end, head, head_size);
    end = mempcpy(end, script->text, script->size);
    end = mempcpy(end, "\r\n", 2);
    memcpy(end, bytes + skipped, size - skipped);
    *ret_size = total;
    return eval;
}
