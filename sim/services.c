/* All services, and their stores, in place of src/store/registry.c. */
#include "sim/service.h"

#include "store/schemes.h"

#include <string.h>

/* SERVICES(X) comes from meson.build. */
#define X(name) extern const struct service_type service_##name;
SERVICES(X)
#undef X

const struct service_type *service_find(const char *scheme) {
    static const struct service_type *const services[] = {
#define X(name) &service_##name,
        SERVICES(X)
#undef X
    };
    for (size_t i = 0; i < sizeof(services) / sizeof(services[0]); i++) {
        if (!scheme || strcmp(scheme, services[i]->scheme) == 0)
            return services[i];
    }
    return NULL;
}

struct service *service_open(const struct service_type *type, struct service_host *host) {
    struct service *service = type->open();
    *service = (struct service){.type = type, .host = host};
    return service;
}

int store_find(const char *scheme, const struct store_driver **ret_driver, char **ret_text) {
    (void)ret_text;
    if (strncmp(scheme, "quorum+", 7) == 0) {
        *ret_driver = &store_quorum;
        return HF_OK;
    }
    const struct service_type *service = service_find(scheme);
    if (!service)
        return HF_NO_STORE;
    *ret_driver = service->driver;
    return HF_OK;
}

hf_store_info store_describe(const char *scheme, const struct store_driver *driver) {
    (void)scheme;
    return (hf_store_info){.size = sizeof(hf_store_info), .scheme = driver->scheme};
}
