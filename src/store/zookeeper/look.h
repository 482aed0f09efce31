/* The data of nodes about locks, and operations that read it. A node's data is lines of text, each
 * with a word and a value; in values, bytes that are not printable are %XX. */
#ifndef ZOOKEEPER_LOOK_H
#define ZOOKEEPER_LOOK_H

#include "store/zookeeper/codec.h"

struct store_host;
struct store_op;

/* The data of a claim: its owner, and what its token is counted from. To be freed; NULL: no
 * memory. */
char *look_format_party(const struct store_host *host, const struct store_op *op, uint64_t base);
uint64_t look_base(struct codec_text data);

/* A decimal number that is the whole text; 0: none. */
uint64_t look_number(struct codec_text text);

#endif
