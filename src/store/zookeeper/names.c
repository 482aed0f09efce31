#include "store/zookeeper/names.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char digits[] = "0123456789abcdef";

/* "." and ".." are not valid names of nodes. */
void names_encode(const char *name, char ret_node[NAMES_LOCK_SIZE]) {
    bool is_dots = strcmp(name, ".") == 0 || strcmp(name, "..") == 0;
    char *to = ret_node;
    for (const unsigned char *at = (const unsigned char *)name; *at; at++) {
        if (*at > ' ' && *at <= '~' && *at != '/' && *at != '%' && !is_dots) {
            *to++ = (char)*at;
        } else {
            *to++ = '%';
            *to++ = digits[*at >> 4];
            *to++ = digits[*at & 15];
        }
    }
    *to = 0;
}

static int digit(char c) {
    const char *at = c ? strchr(digits, c) : NULL;
    return at ? (int)(at - digits) : -1;
}

bool names_decode(struct codec_text node, char ret_name[256]) {
    size_t size = 0;
    for (size_t i = 0; i < node.size; i++) {
        unsigned char c = (unsigned char)node.bytes[i];
        if (c == '%') {
            int high = i + 2 < node.size ? digit(node.bytes[i + 1]) : -1;
            int low = i + 2 < node.size ? digit(node.bytes[i + 2]) : -1;
            if (high < 0 || low < 0 || (high == 0 && low == 0))
                return false;
            c = (unsigned char)(high << 4 | low);
            i += 2;
        }
        if (size == 255 || !c)
            return false;
        ret_name[size++] = (char)c;
    }
    ret_name[size] = 0;
    return size > 0;
}

/* ---- Claims ---- */

const struct names_layout names_layouts[] = {
    {"holdfast", {"x-", "-"}, {"s-", "-"}, false, false},
    {"curator", {"_c_", "-lock-"}, {0}, true, false},
    {"curator-rw", {"_c_", "-__WRIT__"}, {"_c_", "-__READ__"}, true, false},
    /* A kazoo client makes the lock's node once, and fails if it is gone later. */
    {"kazoo", {"", "__lock__"}, {"", "__rlock__"}, true, true},
    {0},
};

void names_format_claim(const struct names_layout *layout, const struct store_op *op,
                        const uint8_t client[16], char ret_claim[NAMES_CLAIM_SIZE]) {
    char permits[32], id[33];
    struct names_form form = op->weight == STORE_ALL ? layout->exclusive : layout->shared;
    if (op->kind == STORE_PERMITS) {
        snprintf(permits, sizeof(permits), "p%uof%u-", op->weight, op->capacity);
        form.before = permits;
    }
    for (size_t i = 0; i < 16; i++)
        snprintf(id + 2 * i, 3, "%02x", client[i]);
    snprintf(ret_claim, NAMES_CLAIM_SIZE, "%s%s-%" PRIx64 "%s", form.before, id, op->seq,
             form.after);
}

/* The rest of a text that begins with a word; NULL: it does not. */
static const char *after(const char *text, const char *word) {
    size_t size = strlen(word);
    return text && strncmp(text, word, size) == 0 ? text + size : NULL;
}

static bool parse_number(const char *text, int32_t *ret) {
    char *end;
    long number = strtol(text, &end, 10);
    *ret = (int32_t)number;
    return *end == 0 && end != text;
}

/* The attempt id; returns what follows it. NULL: there is none. */
static const char *parse_id(const char *text, struct names_claim *ret) {
    for (size_t i = 0; i < 16; i++) {
        int high = digit(text[2 * i]), low = high < 0 ? -1 : digit(text[2 * i + 1]);
        if (low < 0)
            return NULL;
        ret->client[i] = (uint8_t)(high << 4 | low);
    }
    if (text[32] != '-' || digit(text[33]) < 0)
        return NULL;
    char *end;
    ret->seq = strtoull(text + 33, &end, 16);
    return end;
}

static bool parse_ours(const char *text, const struct names_form *form, struct names_claim *ret) {
    const char *id = form->before ? after(text, form->before) : NULL;
    const char *end = id ? parse_id(id, ret) : NULL;
    const char *number = end ? after(end, form->after) : NULL;
    return number && parse_number(number, &ret->number);
}

static bool parse_permits(const char *text, struct names_claim *ret) {
    unsigned weight, capacity;
    int used = 0;
    if (sscanf(text, "p%9uof%9u-%n", &weight, &capacity, &used) != 2 || !used || !weight ||
        weight > capacity)
        return false;
    ret->kind = STORE_PERMITS;
    ret->weight = weight;
    ret->capacity = capacity;
    return parse_ours(text + used, &(struct names_form){"", "-"}, ret);
}

/* A claim of another library has that library's words before the number. */
static bool parse_theirs(const char *text, const struct names_form *form, struct names_claim *ret) {
    const char *number = NULL;
    for (const char *at = form->after ? strstr(text, form->after) : NULL; at;
         at = strstr(at + 1, form->after))
        number = at + strlen(form->after);
    return number && parse_number(number, &ret->number);
}

/* Any other node that the server has numbered. */
static bool parse_unknown(const char *text, struct names_claim *ret) {
    enum { DIGITS = 10 };
    size_t size = strlen(text);
    ret->is_unknown = size >= DIGITS && strspn(text + size - DIGITS, "0123456789") == DIGITS;
    return ret->is_unknown && parse_number(text + size - DIGITS, &ret->number);
}

/* Its number is as good as an attempt id: no other claim on the lock has it. */
static bool parse_foreign(const struct names_layout *layout, const char *text,
                          struct names_claim *ret) {
    bool is_shared = parse_theirs(text, &layout->shared, ret);
    if (!is_shared && !parse_theirs(text, &layout->exclusive, ret) && !parse_unknown(text, ret))
        return false;
    ret->is_foreign = true;
    ret->weight = is_shared ? 1 : STORE_ALL;
    memset(ret->client, 0, sizeof(ret->client));
    ret->seq = (uint32_t)ret->number;
    return true;
}

bool names_parse_claim(const struct names_layout *layout, struct codec_text node,
                       struct names_claim *ret) {
    *ret = (struct names_claim){.kind = STORE_LOCK, .capacity = STORE_ALL, .weight = STORE_ALL};
    char *text = ret->node;
    if (node.size >= sizeof(ret->node) || memchr(node.bytes, 0, node.size))
        return false;
    memcpy(text, node.bytes, node.size);
    if (parse_ours(text, &layout->exclusive, ret))
        return true;
    if (parse_ours(text, &layout->shared, ret)) {
        ret->weight = 1;
        return true;
    }
    return layout->is_foreign ? parse_foreign(layout, text, ret) : parse_permits(text, ret);
}

static int by_number(const void *a, const void *b) {
    uint32_t x = (uint32_t)((const struct names_claim *)a)->number,
             y = (uint32_t)((const struct names_claim *)b)->number;
    int32_t ahead = (int32_t)(x - y);
    return (ahead > 0) - (ahead < 0);
}

int names_read_claims(const struct names_layout *layout, struct codec_in *in,
                      struct names_claim **ret_claims, size_t *ret_count) {
    size_t children = codec_count(in), count = 0;
    struct names_claim *claims = calloc(children + 1, sizeof(*claims));
    if (!claims)
        return HF_NO_MEMORY;
    for (size_t i = 0; i < children && !in->failed; i++)
        count += names_parse_claim(layout, codec_text(in), &claims[count]);
    qsort(claims, count, sizeof(*claims), by_number);
    *ret_claims = claims;
    *ret_count = count;
    return HF_OK;
}

size_t names_holders(const struct names_claim *claims, size_t count) {
    uint64_t weight = 0;
    size_t holders = 0;
    while (holders < count && claims[holders].kind == claims[0].kind &&
           claims[holders].capacity == claims[0].capacity &&
           (weight += claims[holders].weight) <= claims[0].capacity)
        holders++;
    return holders;
}
