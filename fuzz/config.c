/* Arbitrary configuration files: what is parsed keeps its promises, and what is refused says
 * why. */
#include "cli/config.h"

#include <assert.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

static void check_word(const char *word) {
    assert(*word && strlen(word) <= CONFIG_NAME_MAX && !strpbrk(word, " \t\r\n=[]#;\""));
}

static void check_value(const char *value) {
    assert(*value);
    for (; *value; value++)
        assert((unsigned char)*value >= ' ' || *value == '\t');
}

static size_t count_lines(const char *data, size_t size) {
    size_t lines = 1;
    for (size_t i = 0; i < size; i++)
        lines += data[i] == '\n';
    return lines;
}

static void check_entry(const struct config *config, size_t i) {
    const struct config_entry *entry = &config->entries[i];
    assert(!i || entry->line > entry[-1].line);
    assert(config_find(config, entry->profile, entry->key) == entry); /* each is there once */
    assert(!entry->key == !entry->value);
    if (entry->profile) {
        check_word(entry->profile);
        assert(config_find(config, entry->profile, NULL)->line <= entry->line);
    }
    if (entry->key) {
        check_word(entry->key);
        check_value(entry->value);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct config config = {0};
    const char *why = NULL;
    size_t line = 0, lines = count_lines((const char *)data, size);
    if (config_parse((const char *)data, size, &config, &why, &line) < 0) {
        assert(why && line <= lines);
        return 0;
    }
    assert(config.count <= CONFIG_ENTRIES_MAX && size <= CONFIG_SIZE_MAX);
    for (size_t i = 0; i < config.count; i++) {
        check_entry(&config, i);
        assert(config.entries[i].line <= lines);
    }
    config_free(&config);
    return 0;
}
