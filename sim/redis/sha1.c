#include "sim/redis/sha1.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>

enum { BLOCK = 64 };

static uint32_t rotate(uint32_t x, int bits) {
    return x << bits | x >> (32 - bits);
}

/* FIPS 180-4, 6.1.2. */
static void add_block(uint32_t hash[5], const unsigned char *block) {
    static const uint32_t constants[] = {0x5a827999, 0x6ed9eba1, 0x8f1bbcdc, 0xca62c1d6};
    uint32_t w[80];
    for (size_t t = 0; t < 16; t++)
        w[t] = (uint32_t)block[4 * t] << 24 | (uint32_t)block[4 * t + 1] << 16 |
               (uint32_t)block[4 * t + 2] << 8 | block[4 * t + 3];
    for (size_t t = 16; t < 80; t++)
        w[t] = rotate(w[t - 3] ^ w[t - 8] ^ w[t - 14] ^ w[t - 16], 1);
    uint32_t a = hash[0], b = hash[1], c = hash[2], d = hash[3], e = hash[4];
    for (size_t t = 0; t < 80; t++) {
        uint32_t f = t < 20              ? (b & c) | (~b & d)
                     : t >= 40 && t < 60 ? (b & c) | (b & d) | (c & d)
                                         : b ^ c ^ d;
        uint32_t next = rotate(a, 5) + f + e + constants[t / 20] + w[t];
        e = d;
        d = c;
        c = rotate(b, 30);
        b = a;
        a = next;
    }
    hash[0] += a;
    hash[1] += b;
    hash[2] += c;
    hash[3] += d;
    hash[4] += e;
}

void sha1_hex(const void *bytes, size_t size, char ret_digest[SHA1_SIZE + 1]) {
    uint32_t hash[5] = {0x67452301, 0xefcdab89, 0x98badcfe, 0x10325476, 0xc3d2e1f0};
    const unsigned char *at = bytes;
    size_t left = size;
    for (; left >= BLOCK; at += BLOCK, left -= BLOCK)
        add_block(hash, at);
    /* The last one or two blocks: the rest of the bytes, a bit, zeros, and the length in bits. */
    unsigned char last[2 * BLOCK] = {0};
    if (left)
        memcpy(last, at, left);
    last[left] = 0x80;
    size_t end = left + 9 > BLOCK ? 2 * BLOCK : BLOCK;
    for (size_t i = 0; i < 8; i++)
        last[end - 1 - i] = (unsigned char)((uint64_t)size * 8 >> (8 * i));
    for (at = last; at < last + end; at += BLOCK)
        add_block(hash, at);
    for (size_t i = 0; i < 5; i++)
        snprintf(ret_digest + 8 * i, 9, "%08x", hash[i]);
}
