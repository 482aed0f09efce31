/* Commands as bytes, and the keys of a lock: each in the slot of its K, and none that is
 * another's. */
#include "store/redis/command.h"

#include "base/map.h"
#include "check.h"
#include "support/fake_redis.h"

#include <stdbool.h>

#define ALL_KEYS "KSQWHIA"
enum { KEYS = 7, NAME_MAX_BYTES = 255 };

/* ---- A second implementation of the Redis Cluster specification ---- */

/* CRC16 as its appendix has it: XMODEM, polynomial 1021, most significant bit first, from 0; by a
 * table. */
static uint16_t reference_crc(const unsigned char *bytes, size_t size) {
    static uint16_t table[256];
    if (!table[1])
        for (int i = 0; i < 256; i++) {
            uint16_t crc = (uint16_t)(i << 8);
            for (int bit = 0; bit < 8; bit++)
                crc = (uint16_t)(crc & 0x8000 ? crc * 2 ^ 0x1021 : crc * 2);
            table[i] = crc;
        }
    uint16_t crc = 0;
    for (size_t i = 0; i < size; i++)
        crc = (uint16_t)(crc << 8 ^ table[crc >> 8 ^ bytes[i]]);
    return crc;
}

/* "If the key contains a { character, and there is a } character to the right of it, and there are
 * one or more characters between the first occurrence of { and the first occurrence of } behind it:
 * only what is between is hashed." */
static unsigned reference_slot(const char *key, size_t size) {
    size_t open = 0, close;
    while (open < size && key[open] != '{')
        open++;
    for (close = open + 1; close < size && key[close] != '}';)
        close++;
    if (open < size && close < size && close > open + 1)
        return reference_crc((const unsigned char *)key + open + 1, close - open - 1) % 16384;
    return reference_crc((const unsigned char *)key, size) % 16384;
}

TEST(the_reference_itself_gives_the_check_value_of_the_specification) {
    CHECK_EQ_INT(reference_crc((const unsigned char *)"123456789", 9), 0x31C3);
    CHECK_EQ_INT(reference_slot("foo", 3), 12182); /* CLUSTER KEYSLOT says so */
    CHECK_EQ_INT(reference_slot("{foo}bar", 8), 12182);
    CHECK_EQ_INT(reference_slot("x{foo}{bar}", 11), 12182);
}

TEST(the_slot_of_a_key_is_that_of_the_specification) {
    static const char *const keys[] = {
        "123456789",     "foo", "{foo}bar", "foo{}{bar}", "foo{{bar}}zap",
        "foo{bar}{zap}", "{",   "}",        "{}",         "}{",
        "a}b{c}",        "a{b", "",         "{}}",        "{{}"};
    CHECK_EQ_INT(command_slot("123456789", 9), 0x31C3);
    for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++)
        CHECK_EQ_INT(command_slot(keys[i], strlen(keys[i])),
                     reference_slot(keys[i], strlen(keys[i])));
}

/* ---- Keys ---- */

static uint64_t random_state = 1;

static unsigned random_below(unsigned limit) {
    return (unsigned)(map_hash_number(random_state++) >> 33) % limit;
}

/* The keys of a name, one after the other in the command, each with its header. */
static struct command *keys_of(const char *prefix, const char *name) {
    static struct command command;
    command_start(&command);
    command_add_keys(&command, prefix, name, ALL_KEYS);
    CHECK(!command.failed);
    CHECK_EQ_INT(command.count, KEYS);
    return &command;
}

static const char *key_at(const struct command *command, size_t i, size_t *ret_size) {
    const char *header = command->bytes;
    for (;; i--) {
        char *end;
        *ret_size = strtoul(header + 1, &end, 10);
        if (!i)
            return end + 2;
        header = end + 2 + *ret_size + 2;
    }
}

static void check_slots(const char *prefix, const char *name) {
    const struct command *command = keys_of(prefix, name);
    size_t k_size, size;
    const char *k = key_at(command, 0, &k_size);
    CHECK_EQ_INT(k_size, strlen(prefix) + strlen(name));
    CHECK(memcmp(k, prefix, strlen(prefix)) == 0);
    CHECK(memcmp(k + strlen(prefix), name, strlen(name)) == 0);
    CHECK_EQ_INT(command_slot(k, k_size), reference_slot(k, k_size));
    for (size_t i = 1; i < KEYS; i++) {
        const char *key = key_at(command, i, &size);
        if (reference_slot(key, size) != reference_slot(k, k_size))
            test_fail(__FILE__, __LINE__, "%.*s is not in the slot of %.*s", (int)size, key,
                      (int)k_size, k);
    }
}

static const char *const prefixes[] = {
    "holdfast:", "",       "a",  "{app}:", "{app}", "app{x}:", "x{",
    "{",         "}",      "{}", "{}:",    "}{",    "a}b",     "{a}{b}:",
    "a{b}c{d}e", "{{a}}:", ".",  "{n}.",   "0",     "{0}",     "\x01\xff:",
};
static const char *const names[] = {
    "jobs",    "a",        "{tag}",     "{tag}rest", "x{tag}",  "{}",    "{}x",    "x{}",
    "{",       "}",        "x{y",       "x}y",       "}{",      "}x{y}", "{a}{b}", "{}{b}",
    "{{a}}",   "{{",       "}}",        "{a",        "a}",      "}.s",   ".s",     "{x}.s",
    "{x}.s.x", "a.s",      "{a}.s.{a}", "0}.s.",     "}.s.{a}", "{}}",   " ",      "\r\n",
    "*",       "\xff\xfe", "\x01",      "{\xff}",    "@",       "=rw",   "{0}",    "12",
};
enum {
    PREFIXES = sizeof(prefixes) / sizeof(prefixes[0]),
    NAMES = sizeof(names) / sizeof(names[0]),
};

TEST(companions_are_in_the_slot_of_their_lock_whatever_braces_it_has) {
    for (int p = 0; p < PREFIXES; p++)
        for (int n = 0; n < NAMES; n++)
            check_slots(prefixes[p], names[n]);
}

/* Every companion has a form that names must not have, and an S leads back to its name. */
TEST(with_an_empty_prefix_no_name_that_is_not_refused_is_a_companion) {
    for (int n = 0; n < NAMES; n++) {
        size_t size;
        char found[COMMAND_NAME_SIZE], key[1024];
        for (size_t i = 1; i < strlen(ALL_KEYS); i++) {
            const char *bytes = key_at(keys_of("", names[n]), i, &size);
            memcpy(key, bytes, size);
            key[size] = 0;
            CHECK(command_is_companion(key));
            bool is_state = ALL_KEYS[i] == 'S';
            if (command_name_of_state(key, found) != is_state ||
                (is_state && strcmp(found, names[n]) != 0))
                test_fail(__FILE__, __LINE__, "%s of %s", key, names[n]);
        }
    }
    CHECK(command_is_companion("{x}.s") && command_is_companion("{}.set"));
    CHECK(!command_is_companion("x{y}.s") && !command_is_companion("{x}") &&
          !command_is_companion("orders"));
    char found[COMMAND_NAME_SIZE];
    CHECK(!command_name_of_state("{x}.set", found) && !command_name_of_state("{}.s", found));
}

static void random_name(char *name, size_t size, const char *alphabet) {
    for (size_t i = 0; i < size; i++)
        name[i] = alphabet ? alphabet[random_below((unsigned)strlen(alphabet))]
                           : (char)(1 + random_below(255));
    name[size] = 0;
}

TEST(companions_of_the_longest_names_of_hostile_bytes_are_in_their_slot) {
    static const char *const alphabets[] = {NULL, "{}", "{}.",       "{}.sqwhi0123456789",
                                            "}",  "{",  "\xff{}\r\n"};
    char name[NAME_MAX_BYTES + 1], prefix[51];
    for (int i = 0; i < 350; i++) {
        random_name(name, NAME_MAX_BYTES, alphabets[i % 7]);
        random_name(prefix, 50, alphabets[random_below(7)]);
        check_slots(prefix, name);
    }
}

/* There is a number for every slot. */
TEST(a_name_with_a_stray_brace_has_companions_whatever_its_slot) {
    static bool seen[16384];
    char name[32];
    size_t missing = 16384;
    for (unsigned i = 0; missing; i++) {
        snprintf(name, sizeof(name), "}%u", i);
        unsigned slot = reference_slot(name, strlen(name));
        if (seen[slot])
            continue;
        seen[slot] = true;
        missing--;
        if (slot % 64 == 0) /* the others take too long here */
            check_slots("", name);
    }
}

TEST(keys_are_given_in_the_order_in_which_they_are_asked_for) {
    struct command command = {0};
    command_start(&command);
    command_add_keys(&command, "p:", "x", "IHWQSK");
    CHECK_EQ_INT(command.count, 6);
    static const char *const keys[] = {"{p:x}.i", "{p:x}.h", "{p:x}.w",
                                       "{p:x}.q", "{p:x}.s", "p:x"};
    for (size_t i = 0; i < 6; i++) {
        size_t size;
        const char *key = key_at(&command, i, &size);
        CHECK_EQ_INT(size, strlen(keys[i]));
        CHECK(memcmp(key, keys[i], size) == 0);
    }
    command_free(&command);
}

/* ---- No key is two locks' ---- */

/* All keys of many names: each with its name and which one it is. */
struct known {
    struct map_node node;
    size_t size;
    unsigned name, which;
    char bytes[600];
};

static void remember(struct map *map, const char *prefix, const char *name, unsigned number) {
    const struct command *command = keys_of(prefix, name);
    for (unsigned i = 0; i < KEYS; i++) {
        size_t size;
        const char *key = key_at(command, i, &size);
        uint64_t hash = map_hash(key, size, 1);
        CHECK(size < sizeof(((struct known *)NULL)->bytes));
        for (struct map_node *node = map_find(map, hash); node; node = map_find_next(node)) {
            const struct known *other = (const struct known *)node; /* its first field */
            if (other->size == size && memcmp(other->bytes, key, size) == 0 &&
                other->name != number)
                test_fail(
                    __FILE__, __LINE__,
                    "with the prefix \"%s\", key %c of the name \"%s\" is key %c of another: %.*s",
                    prefix, ALL_KEYS[i], name, ALL_KEYS[other->which], (int)size, key);
        }
        struct known *known = malloc(sizeof(*known));
        CHECK(known);
        known->size = size;
        known->name = number;
        known->which = i;
        memcpy(known->bytes, key, size);
        map_add(map, &known->node, hash);
    }
}

static void forget(struct map *map) {
    struct map_node *node = map_first(map);
    while (node) {
        struct map_node *next = map_after(map, node);
        map_remove(map, node);
        free(node);
        node = next;
    }
    map_free(map);
}

/* Checks different names, of which many are made to look like another's companion. */
static void check_apart(const char *prefix, unsigned count) {
    static const char *const alphabets[] = {"{}.s", "{}a", "{}.sqwhi0a:", "}.sx{"};
    static char all[3000][40];
    struct map map;
    map_init(&map);
    CHECK(count <= 3000);
    for (unsigned i = 0; i < count; i++) {
        char name[NAME_MAX_BYTES + 1];
        if (i < NAMES)
            strcpy(name, names[i]);
        else
            random_name(name, 1 + random_below(12), alphabets[random_below(4)]);
        /* What would be a companion of an earlier name, without the prefix. */
        if (i > NAMES && random_below(3) == 0) {
            size_t size, prefix_size = strlen(prefix);
            const struct command *command = keys_of(prefix, all[random_below(i)]);
            const char *key = key_at(command, 1 + random_below(KEYS - 1), &size);
            if (size > prefix_size && size - prefix_size < sizeof(all[0]) &&
                memcmp(key, prefix, prefix_size) == 0) {
                memcpy(name, key + prefix_size, size - prefix_size);
                name[size - prefix_size] = 0;
            }
        }
        strcpy(all[i], name);
        unsigned number = i;
        for (unsigned j = 0; j < i && number == i; j++)
            if (strcmp(all[j], name) == 0)
                number = j;
        bool is_refused = !prefix[0] && command_is_companion(name);
        if (number == i && !is_refused)
            remember(&map, prefix, name, i);
    }
    forget(&map);
}

TEST(no_lock_is_taken_for_another_s_companion) {
    check_apart("holdfast:", 3000);
}

TEST(no_lock_is_taken_for_another_s_companion_with_a_tag_in_the_prefix) {
    check_apart("{app}:", 1500);
    check_apart("app{x}", 1500);
    check_apart("a}b", 1500);
    check_apart("x{", 1500);
}

/* Either the store refuses the prefix, or it is sound. */
static void check_refused_or_apart(const char *prefix, const char *escaped) {
    struct rig rig;
    char url[128], *text;
    snprintf(url, sizeof(url), "redis://localhost?prefix=%s", escaped);
    int r = rig_open_url(&rig, url, &text);
    if (r == HF_OK)
        check_apart(prefix, 1500);
    else
        CHECK_EQ_INT(r, HF_BAD_URL);
    free(text);
    rig_close(&rig);
}

TEST(a_prefix_that_ends_with_a_tag_keeps_locks_and_companions_apart) {
    check_refused_or_apart("{app}", "%7Bapp%7D");
}

TEST(a_prefix_that_opens_a_tag_keeps_locks_and_companions_apart) {
    check_refused_or_apart("{", "%7B");
    check_refused_or_apart("{a", "%7Ba");
    check_refused_or_apart("{{}", "%7B%7B%7D");
}

TEST(an_empty_prefix_keeps_locks_and_companions_apart) {
    check_refused_or_apart("", "");
}

/* ---- Bytes ---- */

static void check_bytes(struct command *command, const char *expected, size_t expected_size) {
    size_t size;
    char *bytes = command_bytes(command, &size);
    CHECK(bytes);
    CHECK_EQ_INT(size, expected_size);
    CHECK(memcmp(bytes, expected, size) == 0);
    free(bytes);
}

TEST(arguments_become_a_request) {
    struct command command = {0};
    static const char expected[] = "*5\r\n$3\r\nSET\r\n$0\r\n\r\n$3\r\na\0b\r\n$2\r\n\r\n\r\n"
                                   "$20\r\n18446744073709551615\r\n";
    command_start(&command);
    command_add_text(&command, "SET");
    command_add_text(&command, "");
    command_add(&command, "a\0b", 3);
    command_add_text(&command, "\r\n");
    command_add_number(&command, UINT64_MAX);
    check_bytes(&command, expected, sizeof(expected) - 1);
    check_bytes(&command, expected, sizeof(expected) - 1);
    command_start(&command); /* and nothing is left of it */
    command_add_text(&command, "PI");
    command_append(&command, "", 0);
    command_append(&command, "NG", 2);
    check_bytes(&command, "*1\r\n$4\r\nPING\r\n", 14);
    command_free(&command);
}

TEST(an_argument_made_of_pieces_is_one_made_at_once) {
    enum { LONGEST = 1100 }; /* its size gets a second, third and fourth digit on the way */
    struct command pieces = {0}, whole = {0};
    char text[LONGEST];
    for (size_t i = 0; i < LONGEST; i++)
        text[i] = (char)('a' + i % 26);
    command_start(&pieces);
    command_add_text(&pieces, "first");
    command_add_text(&pieces, "");
    for (size_t size = 1; size <= LONGEST; size++) {
        command_append(&pieces, text + size - 1, 1);
        command_start(&whole);
        command_add_text(&whole, "first");
        command_add(&whole, text, size);
        size_t expected_size;
        char *expected = command_bytes(&whole, &expected_size);
        CHECK(expected);
        check_bytes(&pieces, expected, expected_size);
        free(expected);
    }
    command_free(&pieces);
    command_free(&whole);
}

TEST(many_and_long_arguments_become_a_request) {
    struct command command = {0};
    char *text = malloc(100000);
    CHECK(text);
    memset(text, 'x', 100000);
    command_start(&command);
    for (size_t i = 0; i < 500; i++)
        command_add(&command, text, i * 200);
    size_t size;
    char *bytes = command_bytes(&command, &size);
    CHECK(bytes && memcmp(bytes, "*500\r\n$0\r\n\r\n$200\r\nxxx", 20) == 0);
    CHECK(size > 200 * 499 * 250 && memcmp(bytes + size - 3, "x\r\n", 3) == 0);
    free(bytes);
    free(text);
    command_free(&command);
}

/* Builds an EVAL directly, not from an EVALSHA. */
static void start_eval(struct command *command, enum redis_script_id script, size_t keys) {
    command_start(command);
    command_add_text(command, "EVAL");
    command_add(command, redis_scripts[script].text, redis_scripts[script].size);
    command_add_number(command, keys);
}

static void add_the_rest(struct command *command, const char *name, size_t more) {
    command_add_keys(command, "holdfast:", name, ALL_KEYS);
    for (size_t i = 0; i < more; i++)
        command_add(command, "EVALSHA\r\n$40\r\n\0", 15);
}

TEST(a_request_becomes_exactly_what_eval_would_be) {
    for (int script = 0; script < REDIS_SCRIPTS; script++) {
        CHECK_EQ_INT(strlen(redis_scripts[script].sha1), 40);
        for (size_t more = 0; more < 200; more += 33) {
            struct command command = {0};
            size_t size, eval_size, expected_size;
            command_start_script(&command, script, KEYS);
            add_the_rest(&command, "{x}\r\n", more);
            char *bytes = command_bytes(&command, &size);
            start_eval(&command, script, KEYS);
            add_the_rest(&command, "{x}\r\n", more);
            char *expected = command_bytes(&command, &expected_size);
            CHECK(bytes && expected);
            char *eval = command_as_eval(bytes, size, script, &eval_size);
            CHECK(eval);
            CHECK_EQ_INT(eval_size, expected_size);
            CHECK(memcmp(eval, expected, eval_size) == 0);
            free(eval);
            free(expected);
            free(bytes);
            command_free(&command);
        }
    }
}
