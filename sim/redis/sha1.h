/* SHA-1, by which Redis names scripts. */
#ifndef MODEL_SHA1_H
#define MODEL_SHA1_H

#include <stddef.h>

enum { SHA1_SIZE = 40 }; /* as hexadecimal digits */

void sha1_hex(const void *bytes, size_t size, char ret_digest[SHA1_SIZE + 1]);

#endif
