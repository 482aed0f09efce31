/* The live table of holdfast watch.
 *
 * It uses the terminal's alternate screen, so the previous contents come back afterwards. Signal
 * handlers do nothing but restore the terminal, so Ctrl-C and Ctrl-Z work even while the store does
 * not answer. */
#include "cli/lock_table.h"
#include "cli/look.h"
#include "cli/text.h"
#include "cli/watch.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <termios.h>
#include <unistd.h>

enum { LINES_AROUND = 3 }; /* the status line, the titles, and the line that says there is more */

#define ENTER "\x1b[?1049h\x1b[?25l"
#define LEAVE "\x1b[?25h\x1b[?1049l"
#define LINE_END "\x1b[K\n"

/* ---- The terminal ---- */

static struct termios usual;
static bool has_keys; /* the terminal is set to deliver single keys */

static void put(const char *text, size_t size) {
    while (size > 0) {
        ssize_t n = write(STDOUT_FILENO, text, size);
        if (n < 0 && errno != EINTR && errno != EAGAIN)
            return;
        text += n > 0 ? n : 0;
        size -= n > 0 ? (size_t)n : 0;
    }
}

static void enter(void) {
    if (has_keys) {
        struct termios keys = usual;
        keys.c_lflag &= ~(tcflag_t)(ICANON | ECHO);
        keys.c_cc[VMIN] = 1;
        keys.c_cc[VTIME] = 0;
        tcsetattr(STDIN_FILENO, TCSADRAIN, &keys);
    }
    put(ENTER, sizeof(ENTER) - 1);
}

static void leave(void) {
    put(LEAVE, sizeof(LEAVE) - 1);
    if (has_keys)
        tcsetattr(STDIN_FILENO, TCSADRAIN, &usual);
}

static void on_end(int signal_number) {
    leave();
    if (signal_number == SIGINT)
        _exit(EXIT_SUCCESS);
    struct sigaction normal = {.sa_handler = SIG_DFL};
    sigaction(signal_number, &normal, NULL);
    raise(signal_number); /* it is delivered when this handler returns */
}

static void on_stop(int signal_number) {
    (void)signal_number;
    int error = errno;
    leave();
    raise(SIGSTOP);
    enter();
    errno = error;
}

static void on_resize(int signal_number) {
    (void)signal_number; /* it ends the pause */
}

static void take_terminal(void) {
    static const struct {
        int number;
        void (*handler)(int);
    } signals[] = {{SIGINT, on_end},  {SIGTERM, on_end},  {SIGHUP, on_end},
                   {SIGQUIT, on_end}, {SIGTSTP, on_stop}, {SIGWINCH, on_resize}};
    has_keys = tcgetattr(STDIN_FILENO, &usual) == 0;
    for (size_t i = 0; i < sizeof(signals) / sizeof(*signals); i++) {
        struct sigaction action = {.sa_handler = signals[i].handler, .sa_flags = SA_RESTART};
        sigfillset(&action.sa_mask);
        sigaction(signals[i].number, &action, NULL);
    }
    enter();
}

/* ---- Drawing ---- */

struct screen {
    struct watch *watch;
    struct table table;
    size_t room; /* for rows */
    bool more, no_memory;
};

static bool add_lock(void *arg, const hf_lock_info *info) {
    struct screen *screen = arg;
    screen->more = screen->table.row_count == screen->room;
    if (!screen->more)
        screen->no_memory = !lock_table_add(&screen->table, info);
    return !screen->more && !screen->no_memory;
}

static void print_line(struct screen *screen, char *text) {
    text_cut(text, screen->table.width);
    fprintf(screen->table.file, "%s%s", text, LINE_END);
}

static void print_status(struct screen *screen, const char *trouble) {
    char text[1400], time[32], every[32], prefix[400] = "";
    const struct watch *watch = screen->watch;
    if (watch->prefix)
        text_safe(prefix, sizeof(prefix), watch->prefix);
    look_time(time, sizeof(time), look_wall_ms());
    text_duration(every, sizeof(every), watch->every_ms);
    if (*trouble)
        snprintf(text, sizeof(text), "%s · %s", time, trouble);
    else
        snprintf(text, sizeof(text), "%s · locks%s%s · every %s · q quits", time,
                 *prefix ? " " : "", prefix, every);
    print_line(screen, text);
}

static void print_rows(struct screen *screen) {
    char none[] = "no lock is held or waited for";
    char more[] = "… and more that do not fit here: give a PREFIX";
    if (screen->table.row_count)
        table_flush(&screen->table);
    else
        print_line(screen, none);
    if (screen->more)
        print_line(screen, more);
}

/* Draws everything in one write, so that nobody sees half of it. */
static void draw(struct screen *screen, const char *trouble) {
    char *text = NULL;
    size_t size = 0;
    FILE *file = open_memstream(&text, &size);
    if (!file)
        return;
    screen->table.file = file;
    fputs("\x1b[H", file);
    print_status(screen, trouble);
    if (!*trouble)
        print_rows(screen);
    fputs("\x1b[J", file);
    if (fclose(file) == 0) /* without the end of the last line the screen never scrolls */
        put(text, size);
    free(text);
}

/* Polls the store and, unless this is only a trial, draws. Returns the result of the poll. */
static int show(struct watch *watch, bool only_try) {
    struct screen screen = {.watch = watch};
    size_t rows = 0;
    char trouble[1100] = "";
    screen.table =
        (struct table){.columns = lock_columns, .column_count = LOCK_COLUMNS, .line_end = LINE_END};
    screen.table.width = table_terminal_size(STDOUT_FILENO, &rows);
    screen.table.color = table_wants_color();
    screen.room = rows > LINES_AROUND + 1 ? rows - LINES_AROUND - 1 : 1;
    int r = look_each(watch->client, watch->prefix, add_lock, &screen);
    if (r == HF_OK && screen.no_memory)
        r = HF_NO_MEMORY;
    if (r < 0)
        fail_text(trouble, sizeof(trouble), watch->cli, r, hf_last_error(),
                  "cannot list the locks");
    if (!only_try)
        draw(&screen, trouble);
    table_free(&screen.table);
    return r;
}

/* Waits until the next poll. False: the user wants to quit. */
static bool pause_for(int64_t ms) {
    struct pollfd keys = {.fd = has_keys ? STDIN_FILENO : -1, .events = POLLIN};
    int r = poll(&keys, 1, ms > INT32_MAX ? INT32_MAX : (int)ms);
    if (r <= 0)
        return true;
    char key;
    ssize_t n = read(STDIN_FILENO, &key, 1);
    return n > 0 ? key != 'q' && key != 'Q' : n < 0 && (errno == EINTR || errno == EAGAIN);
}

int watch_screen(struct watch *watch) {
    int r = show(watch, true);
    if (r < 0)
        return fail_error(watch->cli, r, "cannot list the locks");
    take_terminal();
    do
        show(watch, false);
    while (pause_for(watch->every_ms));
    leave();
    return EXIT_SUCCESS;
}
