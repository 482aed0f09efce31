/* The stores that the simulator knows, in place of src/store/registry.c: the redis store is linked in. */
#include "store/schemes.h"

#include <string.h>

extern const struct store_driver holdfast_store_driver;

int store_find(const char *scheme, const struct store_driver **ret_driver, char **ret_text) {
    (void)ret_text;
    if (strncmp(scheme, "quorum+", 7) == 0) {
        *ret_driver = &store_quorum;
        return HF_OK;
    }
    if (strcmp(scheme, "redis") != 0)
        return HF_NO_STORE;
    *ret_driver = &holdfast_store_driver;
    return HF_OK;
}

const hf_store_info *hf_store_at(size_t index) {
    static const hf_store_info redis = {sizeof(redis), "redis", "", "timed", 1, "", 1, 1, 1};
    return index ? NULL : &redis;
}
