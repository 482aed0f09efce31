/* The parser of configuration files. It works in place, on one copy of the text. */
#include "cli/config.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define SPACES " \t\r"
#define NAME_LETTERS "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._"

struct parser {
    struct config config;
    const char *profile; /* of the current section */
    size_t line;
    const char *why;
};

static int bad(struct parser *parser, const char *why) {
    parser->why = why;
    return -1;
}

static char *skip_spaces(char *text) {
    return text + strspn(text, SPACES);
}

/* Removes the spaces at the end of `text`. */
static void cut_spaces(char *text) {
    size_t length = strlen(text);
    while (length && strchr(SPACES, text[length - 1]))
        length--;
    text[length] = 0;
}

static bool is_name(const char *word) {
    size_t length = strspn(word, NAME_LETTERS);
    return length && length <= CONFIG_NAME_MAX && !word[length];
}

static int add(struct parser *parser, const char *key, const char *value) {
    struct config *config = &parser->config;
    if (config->count == CONFIG_ENTRIES_MAX)
        return bad(parser, "there are more than 1024 settings");
    config->entries[config->count++] =
        (struct config_entry){parser->profile, key, value, parser->line};
    return 0;
}

static int parse_section(struct parser *parser, char *text) {
    size_t length = strlen(text);
    if (text[length - 1] != ']')
        return bad(parser, "the ']' of the section is missing");
    text[length - 1] = 0;
    char *word = skip_spaces(text + 1);
    cut_spaces(word);
    if (strcmp(word, "default") == 0) {
        parser->profile = NULL;
        return 0;
    }
    if (strncmp(word, "profile", 7) != 0 || !strchr(SPACES, word[7]) || !word[7])
        return bad(parser, "a section is [default] or [profile NAME]");
    word = skip_spaces(word + 7);
    if (!is_name(word))
        return bad(parser, "the name of a profile is 1 to 64 letters, digits, '-', '.' and '_'");
    if (config_find(&parser->config, word, NULL))
        return bad(parser, "this profile already has a section");
    parser->profile = word;
    return add(parser, NULL, NULL);
}

static int unquote(struct parser *parser, char **value) {
    size_t length = strlen(*value);
    if (**value != '"')
        return 0;
    if (length < 2 || (*value)[length - 1] != '"')
        return bad(parser, "the second '\"' is missing");
    (*value)[length - 1] = 0;
    ++*value;
    return 0;
}

static int parse_setting(struct parser *parser, char *text) {
    char *equals = strchr(text, '=');
    if (!equals)
        return bad(parser, "not a setting; a setting is KEY = VALUE");
    *equals = 0;
    char *value = skip_spaces(equals + 1);
    cut_spaces(text);
    if (!is_name(text))
        return bad(parser, "the text before the '=' is not the name of a setting");
    if (unquote(parser, &value) < 0)
        return -1;
    if (!*value)
        return bad(parser, "the value after the '=' is missing");
    if (config_find(&parser->config, parser->profile, text))
        return bad(parser, "already set in the same section");
    return add(parser, text, value);
}

static bool has_control_character(const char *text) {
    for (; *text; text++) {
        unsigned char c = (unsigned char)*text;
        if ((c < ' ' && c != '\t') || c == 0x7f)
            return true;
    }
    return false;
}

static int parse_line(struct parser *parser, char *text) {
    text = skip_spaces(text);
    cut_spaces(text);
    if (has_control_character(text))
        return bad(parser, "it has a control character");
    if (!*text || *text == '#' || *text == ';')
        return 0;
    return *text == '[' ? parse_section(parser, text) : parse_setting(parser, text);
}

static int parse(struct parser *parser) {
    static const char byte_order_mark[] = "\xef\xbb\xbf";
    char *text = parser->config.text;
    if (strncmp(text, byte_order_mark, 3) == 0)
        text += 3;
    while (text) {
        char *end = strchr(text, '\n');
        if (end)
            *end++ = 0;
        parser->line++;
        if (parse_line(parser, text) < 0)
            return -1;
        text = end;
    }
    return 0;
}

int config_parse(const char *text, size_t size, struct config *ret, const char **ret_why,
                 size_t *ret_line) {
    struct parser parser = {0};
    int r = -1;
    if (size > CONFIG_SIZE_MAX)
        parser.why = "it is longer than 64 KiB";
    else if (memchr(text, 0, size))
        parser.why = "it is not text (it has a NUL byte)";
    else {
        parser.config.text = strndup(text, size);
        parser.config.entries = calloc(CONFIG_ENTRIES_MAX, sizeof(*parser.config.entries));
        parser.why = "out of memory";
        if (parser.config.text && parser.config.entries)
            r = parse(&parser);
    }
    if (r < 0) {
        config_free(&parser.config);
        *ret_why = parser.why;
        *ret_line = parser.line;
        return -1;
    }
    *ret = parser.config;
    return 0;
}

void config_free(struct config *config) {
    free(config->entries);
    free(config->text);
    *config = (struct config){0};
}

static bool is_same(const char *a, const char *b) {
    return a && b ? strcmp(a, b) == 0 : a == b;
}

const struct config_entry *config_find(const struct config *config, const char *profile,
                                       const char *key) {
    for (size_t i = 0; i < config->count; i++) {
        const struct config_entry *entry = &config->entries[i];
        if (is_same(entry->profile, profile) && is_same(entry->key, key))
            return entry;
    }
    return NULL;
}
