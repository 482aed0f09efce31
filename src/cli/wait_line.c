/* The line shown while waiting. */
#include "cli/wait_line.h"

#include "cli/clock.h"
#include "cli/look.h"
#include "cli/text.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

enum {
    FIRST_MS = 300, /* shorter waits need no line */
    REDRAW_MS = 1000,
    RARELY_MS = 60000,
    RAREST_MS = 600000,
};

static const char *ordinal_ending(size_t n) {
    if (n % 100 >= 11 && n % 100 <= 13)
        return "th";
    return n % 10 == 1 ? "st" : n % 10 == 2 ? "nd" : n % 10 == 3 ? "rd" : "th";
}

static size_t find_self(const hf_lock_info *info) {
    char host[256] = "";
    gethostname(host, sizeof(host) - 1);
    for (size_t i = 0; i < info->waiter_count; i++) {
        const hf_party *party = info->waiters[i];
        if (party->pid == getpid() && strcmp(party->host, host) == 0)
            return i + 1;
    }
    return 0;
}

__attribute__((format(printf, 3, 4))) static void append(char *ret, size_t size, const char *format,
                                                         ...) {
    size_t used = strlen(ret);
    va_list args;
    va_start(args, format);
    vsnprintf(ret + used, size - used, format, args);
    va_end(args);
}

static void describe_holder(char *ret, size_t size, const hf_party *holder, size_t count) {
    char who[120], words[80], time[32];
    const char *what = *holder->label ? holder->label : holder->command;
    append(ret, size, "held by %s", look_process(who, sizeof(who), holder));
    if (*what && !look_is_foreign(holder))
        append(ret, size, " (%s)", text_safe(words, sizeof(words), what));
    if (count > 1)
        append(ret, size, " and %zu more", count - 1);
    if (holder->since_ms)
        append(ret, size, " for %s",
               text_duration(time, sizeof(time), look_wall_ms() - holder->since_ms));
}

void wait_line_describe(char *ret, size_t size, const hf_lock_info *info) {
    char time[32];
    *ret = 0;
    if (info->holder_count)
        describe_holder(ret, size, info->holders[0], info->holder_count);
    size_t self = find_self(info);
    if (self)
        append(ret, size, "%s%zu%s of %zu", *ret ? " · " : "", self, ordinal_ending(self),
               info->waiter_count);
    if (info->holder_count)
        append(ret, size, " · lease %s", text_left(time, sizeof(time), info->holders[0]->left_ms));
}

/* ---- Drawing ---- */

/* Cut to the terminal's width, so that the line can be drawn over. */
static void cut_to_width(char *text) {
    struct winsize size = {0};
    if (ioctl(STDERR_FILENO, TIOCGWINSZ, &size) < 0 || size.ws_col < 2)
        size.ws_col = 80;
    text_cut(text, size.ws_col - 1U);
}

/* A stopped or background job does not draw over the terminal of another. */
static bool may_draw(const struct wait_line *line) {
    return tcgetpgrp(STDERR_FILENO) == line->group;
}

static void draw(struct wait_line *line, char *text) {
    if (!line->terminal) {
        say(SAY_INFO, "%s", text);
    } else if (may_draw(line)) {
        cut_to_width(text);
        dprintf(STDERR_FILENO, "\r%s\x1b[K", text);
        line->drawn = true;
    }
}

/* What the look found that we wait for: the holder of the lock, or a store that is unavailable. */
static void describe_look(char *ret, size_t size, hf_call *look) {
    *ret = 0;
    if (hf_call_status(look) < 0) {
        text_safe(ret, size, hf_call_error(look));
        return;
    }
    hf_locks *locks = hf_call_take_locks(look);
    if (hf_locks_count(locks))
        wait_line_describe(ret, size, hf_locks_at(locks, 0));
    hf_locks_free(locks);
}

static void show(struct wait_line *line) {
    char text[600], time[32], who[400], name[200];
    describe_look(who, sizeof(who), line->look);
    text_duration(time, sizeof(time), clock_now_ms() - line->since_ms);
    text_safe(name, sizeof(name), line->name);
    if (line->terminal)
        snprintf(text, sizeof(text), "waiting %s%s%s", time, *who ? " · " : "", who);
    else
        snprintf(text, sizeof(text), "waiting for %s %s%s%s", name, time, *who ? " · " : "", who);
    draw(line, text);
}

/* ---- When ---- */

void wait_line_start(struct wait_line *line, const struct cli *cli, const char *name, pid_t group,
                     hf_client *client) {
    *line = (struct wait_line){.name = name, .group = group, .client = client};
    line->since_ms = clock_now_ms();
    line->terminal = isatty(STDERR_FILENO) && !say_is_json();
    line->pause_ms = line->terminal ? REDRAW_MS : RARELY_MS;
    line->next_ms = cli->quiet ? CLOCK_NEVER : line->since_ms + FIRST_MS;
}

void wait_line_step(struct wait_line *line) {
    if (line->look && hf_call_status(line->look) != HF_PENDING) {
        show(line);
        line->look = hf_call_free(line->look);
    }
    int64_t now_ms = clock_now_ms();
    if (now_ms < line->next_ms)
        return;
    if (!line->look && hf_inspect_start(line->client, line->name, &line->look) < 0)
        line->look = NULL;
    line->next_ms = now_ms + line->pause_ms;
    if (!line->terminal)
        line->pause_ms = line->pause_ms < RAREST_MS / 2 ? 2 * line->pause_ms : RAREST_MS;
    if (line->look && hf_call_status(line->look) != HF_PENDING)
        wait_line_step(line);
}

void wait_line_end(struct wait_line *line) {
    line->look = hf_call_free(line->look);
    if (line->drawn && may_draw(line))
        dprintf(STDERR_FILENO, "\r\x1b[K");
    line->next_ms = CLOCK_NEVER;
}
