#include "net/security.h"

#include "base/error.h"
#include "base/module.h"
#include "net/options.h"
#include "world/world.h"

#include <stdio.h>
#include <string.h>

static int open_tls(struct net_security *security, const struct url *url,
                    const char *const *protocols, char **ret_text) {
    struct net_tls_settings settings = {
        .name = url_option(url, "server_name"),
        .ca = url_option(url, "ca"),
        .cert = url_option(url, "cert"),
        .key = url_option(url, "key"),
        .protocols = protocols,
    };
    if (!settings.cert != !settings.key) {
        *ret_text =
            error_format("cert= and key=, the client certificate's files, must both be given");
        return HF_BAD_URL;
    }
    const void *symbol;
    int r = module_load(NET_TLS_MODULE, NET_TLS_MODULE_SYMBOL, &symbol, ret_text);
    if (r < 0)
        return r;
    const struct net_tls_module *module = symbol;
    if (module->abi != NET_TLS_ABI) {
        *ret_text = error_format("the module for TLS was built for another version of holdfast");
        return HF_NO_STORE;
    }
    return module->open(&settings, &security->tls, ret_text);
}

/* A public address in the URL is refused here, before anything is connected to. */
static int check_hosts(const struct net_security *security, const struct url *url,
                       char **ret_text) {
    for (size_t i = 0; i < url->host_count && !security->exposed; i++) {
        enum world_reach reach;
        if (!world_reach_of_text(url->hosts[i].host, &reach) || reach != WORLD_PUBLIC)
            continue;
        *ret_text =
            error_format("%s:// to %.255s, which is not a private address, would let anybody on "
                         "the network path read the password and change locks: use %s://, "
                         "which is TLS, or add the option plaintext=yes if the path is safe",
                         url->scheme, url->hosts[i].host, security->tls_scheme);
        return HF_BAD_URL;
    }
    return HF_OK;
}

static int read_plaintext(struct net_security *security, const struct url *url, char **ret_text) {
    int r = net_option_yes(url, "plaintext", &security->exposed, ret_text);
    return r < 0 ? r : check_hosts(security, url, ret_text);
}

int net_security_open(struct net_security *security, const struct url *url, const char *tls_scheme,
                      const char *const *protocols, char **ret_text) {
    *security = (struct net_security){0};
    snprintf(security->tls_scheme, sizeof(security->tls_scheme), "%s", tls_scheme);
    return strcmp(url->scheme, tls_scheme) == 0 ? open_tls(security, url, protocols, ret_text)
                                                : read_plaintext(security, url, ret_text);
}

void net_security_close(struct net_security *security) {
    if (security->tls)
        security->tls->module->close(security->tls);
    security->tls = NULL;
}
