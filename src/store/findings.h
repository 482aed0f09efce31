/* How a store builds the hf_examination that EXAMINE returns. Strings are copied. Each call returns
 * false if there is no memory; the examination is then still valid and must be freed. */
#ifndef STORE_FINDINGS_H
#define STORE_FINDINGS_H

#include "store/store.h"

/* A new examination with a tier, which must stay valid; nothing has been found or measured yet.
 * NULL: no memory. */
hf_examination *findings_new(const char *tier);

/* `fix` may be "". `found` is a format; what follows are its values. */
bool findings_add(hf_examination *to, hf_severity severity, const char *id, const char *means,
                  const char *fix, const char *found, ...) __attribute__((format(printf, 6, 7)));

/* Sets write_us and slowest_us from the times in `us`, and sorts them. */
void findings_measured(hf_examination *to, int64_t *us, size_t count);

#endif
