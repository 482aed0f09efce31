#include "store/zookeeper/names.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char digits[] = "0123456789abcdef";

/* "." and ".." are no names of nodes. */
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

void names_format_claim(const struct store_op *op, const uint8_t client[16],
                        char ret_claim[NAMES_CLAIM_SIZE]) {
    char kind[32], id[33];
    if (op->kind == STORE_PERMITS)
        snprintf(kind, sizeof(kind), "p%uof%u", op->weight, op->capacity);
    else
        snprintf(kind, sizeof(kind), "%c", op->weight == STORE_ALL ? 'x' : 's');
    for (size_t i = 0; i < 16; i++)
        snprintf(id + 2 * i, 3, "%02x", client[i]);
    snprintf(ret_claim, NAMES_CLAIM_SIZE, "%s-%s-%" PRIx64 "-", kind, id, op->seq);
}

static bool parse_kind(const char *text, struct names_claim *ret) {
    int used = 0;
    ret->kind = STORE_LOCK;
    ret->capacity = STORE_ALL;
    ret->weight = *text == 'x' ? STORE_ALL : 1;
    if ((*text == 'x' || *text == 's') && text[1] == 0)
        return true;
    ret->kind = STORE_PERMITS;
    return sscanf(text, "p%9uof%9u%n", &ret->weight, &ret->capacity, &used) == 2 && !text[used] &&
           ret->weight > 0 && ret->weight <= ret->capacity;
}

static bool parse_client(const char *text, uint8_t client[16]) {
    for (size_t i = 0; i < 16; i++) {
        int high = digit(text[2 * i]), low = high < 0 ? -1 : digit(text[2 * i + 1]);
        if (low < 0)
            return false;
        client[i] = (uint8_t)(high << 4 | low);
    }
    return text[32] == 0;
}

bool names_parse_claim(struct codec_text node, struct names_claim *ret) {
    char text[NAMES_CLAIM_SIZE];
    if (node.size >= sizeof(text))
        return false;
    memcpy(text, node.bytes, node.size);
    text[node.size] = 0;
    memcpy(ret->node, text, node.size + 1);
    char *client = strchr(text, '-'), *seq = client ? strchr(client + 1, '-') : NULL;
    char *number = seq ? strchr(seq + 1, '-') : NULL, *end;
    if (!number)
        return false;
    *client++ = *seq++ = *number++ = 0;
    ret->seq = strtoull(seq, &end, 16);
    if (*end || end == seq || !parse_kind(text, ret) || !parse_client(client, ret->client))
        return false;
    ret->number = (int32_t)strtol(number, &end, 10);
    return *end == 0 && end != number;
}

static int by_number(const void *a, const void *b) {
    uint32_t x = (uint32_t)((const struct names_claim *)a)->number,
             y = (uint32_t)((const struct names_claim *)b)->number;
    int32_t ahead = (int32_t)(x - y);
    return (ahead > 0) - (ahead < 0);
}

int names_read_claims(struct codec_in *in, struct names_claim **ret_claims, size_t *ret_count) {
    size_t children = codec_count(in), count = 0;
    struct names_claim *claims = calloc(children + 1, sizeof(*claims));
    if (!claims)
        return HF_NO_MEMORY;
    for (size_t i = 0; i < children && !in->failed; i++)
        count += names_parse_claim(codec_text(in), &claims[count]);
    qsort(claims, count, sizeof(*claims), by_number);
    *ret_claims = claims;
    *ret_count = count;
    return HF_OK;
}

size_t names_holders(const struct names_claim *claims, size_t count) {
    uint64_t weight = 0;
    size_t holders = 0;
    while (holders < count && (weight += claims[holders].weight) <= claims[0].capacity)
        holders++;
    return holders;
}
