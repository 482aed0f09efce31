#include "store/redis/greeting.h"

#include "base/error.h"
#include "store/redis/redis.h"

#include <stdlib.h>
#include <string.h>

/* Sends what is in redis->command. */
static bool greet(struct redis_link *link) {
    size_t size;
    char *bytes = command_bytes(&link->redis->command, &size);
    return bytes && link_greet(link, bytes, size);
}

static bool greet_with_word(struct redis_link *link, const char *word) {
    command_start(&link->redis->command);
    command_add_text(&link->redis->command, word);
    return greet(link);
}

static bool greet_with_login(struct redis_link *link) {
    struct command *command = &link->redis->command;
    const struct net_login *login = link->setup->login;
    command_start(command);
    command_add_text(command, "AUTH");
    if (login->user)
        command_add_text(command, login->user);
    command_add_text(command, login->password);
    return greet(link);
}

static bool greet_with_database(struct redis_link *link) {
    struct command *command = &link->redis->command;
    command_start(command);
    command_add_text(command, "SELECT");
    command_add_number(command, link->setup->database);
    return greet(link);
}

static bool greet_with_boot(struct redis_link *link) {
    struct command *command = &link->redis->command;
    command_start(command);
    command_add_text(command, "EVAL");
    command_add(command, redis_scripts[REDIS_BOOT].text, redis_scripts[REDIS_BOOT].size);
    command_add_number(command, 1);
    redis_add_set_key(link->redis);
    command_add_text(command, link->redis->set->durable ? "1" : "0");
    return greet(link);
}

static bool has_guide_that_refuses(const struct redis_link *link) {
    return link->guide && link->guide->refuses;
}

bool redis_greet(struct redis_link *link) {
    const struct link_setup *setup = link->setup;
    bool ok = true;
    if (setup->login->password)
        ok = greet_with_login(link);
    if (ok && setup->database)
        ok = greet_with_database(link);
    if (ok && has_guide_that_refuses(link))
        ok = greet_with_word(link, "ROLE");
    if (ok && link->redis->votes && link == &link->redis->commands)
        ok = greet_with_boot(link);
    if (ok && (setup->security->tls || link->doubted) && list_empty(&link->sent))
        ok = greet_with_word(link, "PING");
    return ok;
}

int redis_greeted(struct redis_link *link, const struct reply *reply, char **ret_text) {
    if (reply->type == REPLY_ERROR) {
        int reason;
        const char *password = link->setup->login->password;
        redis_explain(NULL, reply, NULL, &reason, ret_text);
        if (*ret_text && password && strstr(*ret_text, password)) {
            free(*ret_text);
            *ret_text = error_format("the server refuses the login");
        }
        return reason;
    }
    const char *why = has_guide_that_refuses(link) ? link->guide->refuses(link, reply) : NULL;
    *ret_text = why ? error_format("%s", why) : NULL;
    return why ? HF_UNREACHABLE : HF_OK;
}

void redis_begin_to_vote(struct redis *redis) {
    struct redis_link *link = &redis->commands;
    redis->votes = true;
    if (link_is_connected(link) && !greet_with_boot(link))
        link_break(link, HF_NO_MEMORY, NULL);
}
