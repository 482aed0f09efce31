/* holdfast lab: plays the published lock protocols against real faults on real servers. The lab
 * itself is a program in Python (lab/). This command finds it, tells it where the library is, and
 * becomes it. */
#include "cli/cli.h"
#include "cli/options.h"
#include "cli/text.h"
#include "places.h"

#include <dlfcn.h>
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { WORDS = 3, ARGUMENTS_MOST = 300, NUMBER_SIZE = 24 };

struct settings {
    int64_t repeat, jobs;
    const char *html;
    bool check;
    struct option_list scenarios, protocols;
};

static const struct option options[] = {
    {0, OPTION_NUMBER, "repeat", offsetof(struct settings, repeat), "N",
     "play each cell N times (default: 1)"},
    {0, OPTION_NUMBER, "jobs", offsetof(struct settings, jobs), "N", "play N cells at a time"},
    {0, OPTION_TEXT, "html", offsetof(struct settings, html), "FILE",
     "matrix: write a report with a picture of each cell"},
    {0, OPTION_FLAG, "check", offsetof(struct settings, check), NULL,
     "matrix: compare with what is known about each cell"},
    {0, OPTION_LIST, "scenario", offsetof(struct settings, scenarios), "SCENARIO",
     "matrix: only this one; may be repeated"},
    {0, OPTION_LIST, "protocol", offsetof(struct settings, protocols), "PROTOCOL",
     "matrix: only this one; may be repeated"},
    {0},
};

/* ---- Where it is ---- */

/* In the clone that this program was built in, in the installation that it is part of, which may
 * have been moved, or where the build was to be installed. */
static bool find_lab(char ret[PATH_MAX]) {
    static const char *const places[] = {"../lab", "../share/holdfast/lab/lab"};
    char self[PATH_MAX] = "", path[2 * PATH_MAX];
    ssize_t length = readlink("/proc/self/exe", self, sizeof(self) - 1);
    if (length < 0)
        length = 0;
    self[length] = 0;
    char *name = strrchr(self, '/');
    for (size_t i = 0; name && i < sizeof(places) / sizeof(places[0]); i++) {
        snprintf(path, sizeof(path), "%.*s/%s/__main__.py", (int)(name - self), self, places[i]);
        if (realpath(path, ret))
            return true;
    }
    return realpath(HOLDFAST_LAB_DIR "/lab/__main__.py", ret);
}

/* Tells the lab which library this is, for the clients that use holdfast. */
static int name_library(void) {
    Dl_info info;
    char path[PATH_MAX];
    if (!dladdr((void *)(uintptr_t)hf_version, &info) || !realpath(info.dli_fname, path))
        return -1;
    return setenv("HOLDFAST_LIBRARY", path, 1);
}

/* Debian's own, if it exists: only that one has Debian's packages. */
static const char *python(void) {
    return access("/usr/bin/python3", X_OK) == 0 ? "/usr/bin/python3" : "python3";
}

/* ---- Its arguments ---- */

struct arguments {
    const char *words[ARGUMENTS_MOST];
    size_t count;
    char numbers[2][NUMBER_SIZE];
};

static void add(struct arguments *arguments, const char *option, const char *value) {
    if (option)
        arguments->words[arguments->count++] = option;
    if (value)
        arguments->words[arguments->count++] = value;
}

static void add_number(struct arguments *arguments, const char *option, int64_t value, int slot) {
    if (!value)
        return;
    snprintf(arguments->numbers[slot], NUMBER_SIZE, "%" PRId64, value);
    add(arguments, option, arguments->numbers[slot]);
}

static void add_list(struct arguments *arguments, const char *option,
                     const struct option_list *list) {
    for (size_t i = 0; i < list->count; i++)
        add(arguments, option, list->items[i]);
}

static int become(const struct cli *cli, const struct settings *s, const char **words) {
    char lab[PATH_MAX];
    if (!find_lab(lab)) {
        fail_say("the lab is not installed (it is neither in %s nor beside this program); \"make "
                 "install\" of this build puts it there",
                 HOLDFAST_LAB_DIR);
        return EXIT_CONFIG;
    }
    struct arguments arguments = {0};
    add(&arguments, python(), lab);
    add(&arguments, words[0], NULL);
    if (cli->json)
        add(&arguments, "--json", NULL);
    add_number(&arguments, "--repeat", s->repeat, 0);
    add_number(&arguments, "--jobs", s->jobs, 1);
    if (s->html)
        add(&arguments, "--html", s->html);
    if (s->check)
        add(&arguments, "--check", NULL);
    add_list(&arguments, "--scenario", &s->scenarios);
    add_list(&arguments, "--protocol", &s->protocols);
    if (words[1])
        add(&arguments, "--", words[1]);
    add(&arguments, words[1] ? words[2] : NULL, NULL);
    if (name_library() == 0)
        execvp(arguments.words[0], (char **)arguments.words);
    fail_say("cannot start the lab (%s: %s); it needs Python 3: install Debian's package python3",
             arguments.words[0], strerror(errno));
    return EXIT_CONFIG;
}

/* ---- The command ---- */

/* The words and options must fit together: the lab itself checks only the names. */
static int check(const struct settings *s, const char **words) {
    char safe[80];
    bool is_run = strcmp(words[0], "run") == 0, is_matrix = strcmp(words[0], "matrix") == 0;
    bool is_list = strcmp(words[0], "list") == 0;
    if (!is_run && !is_matrix && !is_list)
        return fail_usage("lab %s is not a command; it can be list, run or matrix; try: holdfast "
                          "lab --help",
                          text_safe(safe, sizeof(safe), words[0]));
    if (is_run != (words[WORDS - 1] != NULL) || (!is_run && words[1]))
        return fail_usage("usage: holdfast lab list | lab run SCENARIO PROTOCOL | lab matrix; try: "
                          "holdfast lab --help");
    if (!is_matrix && (s->html || s->check || s->scenarios.count || s->protocols.count))
        return fail_usage("--html, --check, --scenario and --protocol are for lab matrix");
    if (is_list && (s->repeat || s->jobs))
        return fail_usage("--repeat and --jobs are for lab run and lab matrix");
    return 0;
}

static int run(struct cli *cli, int argc, char **argv) {
    struct settings s = {0};
    const char *words[WORDS] = {0};
    int r = options_parse_words(cli, &lab_command, &s, argc, argv, 1, WORDS, words);
    if (r < 0)
        return options_exit_code(r);
    r = check(&s, words);
    return r ? r : become(cli, &s, words);
}

const struct command lab_command = {
    .name = "lab",
    .summary = "watch published lock protocols break, and see what holds",
    .usage = "lab list [--json] | lab run SCENARIO PROTOCOL [options] | lab matrix [options]",
    .options = options,
    .without_settings = true,
    .prints_json = true,
    .run = run,
    .details =
        "Plays lock protocols as they were published, and holdfast on each of its stores, against\n"
        "real faults: crashes, pauses, lost replies, fail-overs, clocks that jump. The lab starts\n"
        "its own servers on free ports of this host and stops them; it touches nothing else.\n"
        "A referee judges what happened by the same rules for all:\n"
        "\n"
        "  holds    never two at once, and the lock was free for the next\n"
        "  fenced   two at once, but the resource refused every stale write by its token\n"
        "  BREAKS   two at once, or a stale write was accepted\n"
        "  STALLS   nobody had the lock, but nobody could get it\n"
        "\n"
        "'list' shows the scenarios and protocols. 'run' plays one and draws who held the lock "
        "when.\n"
        "'matrix' plays every protocol in every scenario, which takes a few minutes. Where a "
        "server\n"
        "or a driver is not installed, it says so ('?') and goes on.\n"
        "\n"
        "--json: a line for each cell, with everything that happened. Later versions may add "
        "keys.\n"
        "\n"
        "Exit code: 0 played, whatever the verdict; 1 --check found a difference; 78 not "
        "installed;\n"
        "70 something failed.\n"
        "\n"
        "Examples:\n"
        "  holdfast lab run pause set-lua\n"
        "  holdfast lab matrix --html report.html\n"
        "  holdfast lab matrix --protocol setnx --protocol holdfast@redis --repeat 10\n",
};
