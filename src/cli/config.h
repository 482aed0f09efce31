/* The parser of configuration files:
 *
 *     # a comment: the whole line
 *     url = sqlite:/var/lib/jobs/locks.db
 *
 *     [profile prod]
 *     url = rediss://app@db.example:6379/0
 *     password-file = /etc/app/redis-password
 *
 * Settings before the first section, or in [default], always apply; those in [profile NAME] when
 * that profile is selected. A value extends to the end of its line; the spaces around it and one pair
 * of double quotes are removed, and there are no escapes. The keys and the meaning of their values are
 * not known here: see settings.h. */
#ifndef CLI_CONFIG_H
#define CLI_CONFIG_H

#include <stddef.h>

enum {
    CONFIG_SIZE_MAX = 65536,
    CONFIG_ENTRIES_MAX = 1024,
    CONFIG_NAME_MAX = 64, /* letters of a key or of a profile */
};

struct config {
    struct config_entry {
        const char *profile; /* NULL: counts always */
        const char *key;     /* NULL: the head of its section, which may be empty */
        const char *value;   /* printable in no way: it is what stands in the file */
        size_t line;         /* from 1 */
    } * entries;             /* in the order of the file */
    size_t count;
    char *text; /* in which all words are */
};

/* Takes `size` bytes apart; the result is for config_free. 0; or -1 with a sentence that says what is wrong
 * (static, and without a word of the file: that might be a password), and its line (0: the whole). */
int config_parse(const char *text, size_t size, struct config *ret, const char **ret_why,
                 size_t *ret_line);

/* Frees what config_parse made; a zeroed config too. */
void config_free(struct config *config);

/* The entry of this key in a section (`profile` NULL: what counts always); key NULL: the section's head.
 * NULL: there is none. */
const struct config_entry *config_find(const struct config *config, const char *profile,
                                       const char *key);

#endif
