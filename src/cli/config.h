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
 * that profile is selected. A value extends to the end of its line; the spaces around it and one
 * pair of double quotes are removed, and there are no escapes. The keys and the meaning of their
 * values are not known here: see settings.h. */
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
        const char *profile; /* NULL: always applies */
        const char *key;     /* NULL: the head of its section, which may be empty */
        const char *value;   /* as in the file: not safe to print */
        size_t line;         /* from 1 */
    } * entries;             /* in the order of the file */
    size_t count;
    char *text; /* holds all of the strings */
};

/* Parses `size` bytes. Free the result with config_free. Returns 0, or -1 with the reason and the
 * line (0: the whole file). The reason is static and quotes nothing from the file, which might be a
 * password. */
int config_parse(const char *text, size_t size, struct config *ret, const char **ret_why,
                 size_t *ret_line);

/* Frees the result of config_parse; accepts a zeroed config. */
void config_free(struct config *config);

/* Finds the entry of a key in the section of a profile (NULL: the settings that always apply). If
 * `key` is NULL, finds the section's head. Returns NULL if there is none. */
const struct config_entry *config_find(const struct config *config, const char *profile,
                                       const char *key);

#endif
