/* A set of names that may err on one side: it may have a name that was never added, but never lacks
 * one that was. Links use it to find names that several requests are about. */
#ifndef SQL_NAMES_H
#define SQL_NAMES_H

#include <stdbool.h>
#include <stdint.h>

/* A Bloom filter with two bits for each name; all zero: empty. With 100 names in it, some one in
 * 7,000 others seems to be there. */
enum { SQL_NAMES_WORDS = 256 };
struct sql_names {
    uint64_t words[SQL_NAMES_WORDS];
};

/* False: it may have been there before. */
bool sql_names_add(struct sql_names *names, const char *name);
bool sql_names_has(const struct sql_names *names, const char *name);

#endif
