/* holdfast doctor: how the store's configuration and this host affect your locks.
 *
 * The store reports on itself (hf_examine). This file adds what no store can know: the lease that
 * will be used, the clocks of this host, and whose store the default one is. */
#include "cli/cli.h"
#include "cli/json.h"
#include "cli/settings.h"
#include "cli/table.h"
#include "cli/text.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/timex.h>
#include <time.h>
#include <unistd.h>

enum {
    EXIT_WARNINGS = 1,
    EXIT_PROBLEMS = 2,
    PATIENCE_MS = 10000,
    CLOCKS_MS = 50,
    RATE_ODD_PPM = 1000,   /* more than NTP usually slews a clock by */
    RATE_MOST_PPM = 10000, /* drift_ppm of the library, by default */
    SHORT_LEASE_MS = 2000,
    OWN_MOST = 8,
};

struct settings {
    int64_t ttl_ms;
};

static const struct option options[] = {
    {0, OPTION_DURATION, "ttl", offsetof(struct settings, ttl_ms), "DUR",
     "the lease that you intend to use (30s)", "30s"},
    {0},
};

struct own_finding {
    hf_finding finding;
    char found[1100];
};

struct doctor {
    const struct cli *cli;
    int64_t ttl_ms;
    const char *tier; /* NULL: not known */
    int64_t write_us, slowest_us;
    hf_examination *examination; /* NULL: there is none */
    struct own_finding own[OWN_MOST];
    size_t own_count;
    bool is_open; /* so if there is an error, the examination failed */
    int error;    /* why there is no examination */
};

__attribute__((format(printf, 6, 7))) static void add(struct doctor *d, hf_severity severity,
                                                      const char *id, const char *means,
                                                      const char *fix, const char *found, ...) {
    struct own_finding *own = &d->own[d->own_count++];
    va_list values;
    va_start(values, found);
    vsnprintf(own->found, sizeof(own->found), found, values);
    va_end(values);
    own->finding = (hf_finding){sizeof(hf_finding), severity, id, own->found, means, fix};
}

/* The index-th finding: the store's, then our own. NULL after the last. */
static const hf_finding *finding_at(const struct doctor *d, size_t index) {
    size_t of_store = d->examination ? d->examination->count : 0;
    if (index < of_store)
        return d->examination->findings[index];
    return index - of_store < d->own_count ? &d->own[index - of_store].finding : NULL;
}

static hf_severity worst_of(const struct doctor *d) {
    hf_severity worst = HF_FINE;
    const hf_finding *finding;
    for (size_t i = 0; (finding = finding_at(d, i)); i++)
        worst = finding->severity > worst ? finding->severity : worst;
    return worst;
}

/* ---- The store ---- */

static const char *tier_of(const char *url) {
    const hf_store_info *store;
    for (size_t i = 0; (store = hf_store_at(i)); i++) {
        size_t length = strlen(store->scheme);
        if (strncmp(url, store->scheme, length) == 0 && url[length] == ':')
            return store->tier;
    }
    return NULL;
}

static int examine(struct doctor *d) {
    hf_client *client;
    hf_call *call;
    int r = store_open_silently(d->cli, NULL, &client);
    if (r < 0)
        return r;
    d->is_open = true;
    r = hf_examine_start(client, &call);
    if (!r) {
        r = hf_call_wait(call, PATIENCE_MS);
        d->examination = hf_call_take_examination(call);
        hf_call_free(call);
    }
    hf_client_close(client);
    return r == HF_PENDING ? HF_UNKNOWN : r;
}

static void ask_store(struct doctor *d) {
    int r = examine(d);
    const char *tier = d->cli->url ? tier_of(d->cli->url) : NULL;
    d->write_us = d->slowest_us = -1;
    if (!r) {
        d->tier = d->examination->tier;
        d->write_us = d->examination->write_us;
        d->slowest_us = d->examination->slowest_us;
    } else if (r == HF_UNSUPPORTED && d->is_open && tier) {
        d->tier = tier;
        add(d, HF_NOTE, "store", "its configuration is not known", "",
            "this store reports nothing but its tier");
    } else {
        const char *why = hf_last_error(), *fix = fail_advice(d->cli, r, why);
        bool is_file = !d->cli->url || !url_authority(d->cli->url);
        const char *own_fix = is_file ? strstr(why, "; ") : NULL; /* elsewhere it separates nodes */
        d->error = r;
        add(d, HF_PROBLEM, "store", "no lock can be acquired there",
            *fix || !own_fix ? fix : own_fix + strlen("; "), "%s", why);
    }
}

/* ---- The lease ---- */

static void judge_lease(struct doctor *d) {
    char lease[32];
    text_duration(lease, sizeof(lease), d->ttl_ms);
    double typical = (double)d->write_us / 1000, slowest = (double)d->slowest_us / 1000;
    int64_t slowest_ms = d->slowest_us / 1000;
    if (d->write_us < 0)
        return;
    if (slowest_ms >= d->ttl_ms / 10)
        add(d, slowest_ms >= d->ttl_ms / 3 ? HF_PROBLEM : HF_WARNING, "round-trip",
            "a renewal, which is due after a third of the lease, may come too late; the lock is "
            "then lost while it is in use",
            "use a longer --ttl or a faster store",
            "a write took %.2f ms, and up to %.2f ms, which is long for a lease of %s", typical,
            slowest, lease);
    else
        add(d, HF_FINE, "round-trip", "renewals have enough time", "",
            "a write took %.2f ms, and up to %.2f ms; the lease is %s", typical, slowest, lease);
    if (d->ttl_ms < SHORT_LEASE_MS)
        add(d, HF_NOTE, "lease",
            "a holder that is stopped for longer than that (swapping, a paused machine) loses its "
            "lock",
            "use a longer lease: locks are renewed while they are held, so it makes others wait "
            "longer only after a crash",
            "the lease is %s", lease);
}

/* ---- This host ---- */

static int64_t clock_ns(clockid_t clock) {
    struct timespec now;
    clock_gettime(clock, &now);
    return now.tv_sec * INT64_C(1000000000) + now.tv_nsec;
}

/* How much faster CLOCK_BOOTTIME runs than the hardware's own clock. */
static int64_t measure_rate_ppm(void) {
    int64_t raw_ns = clock_ns(CLOCK_MONOTONIC_RAW), boot_ns = clock_ns(CLOCK_BOOTTIME);
    nanosleep(&(struct timespec){.tv_nsec = CLOCKS_MS * 1000000}, NULL);
    raw_ns = clock_ns(CLOCK_MONOTONIC_RAW) - raw_ns;
    boot_ns = clock_ns(CLOCK_BOOTTIME) - boot_ns;
    return (boot_ns - raw_ns) * 1000000 / raw_ns;
}

static int64_t median_rate_ppm(void) {
    int64_t a = measure_rate_ppm(), b = measure_rate_ppm(), c = measure_rate_ppm();
    int64_t low = a < b ? a : b, high = a < b ? b : a;
    return c < low ? low : c > high ? high : c;
}

static void judge_clocks(struct doctor *d) {
    int64_t ppm = median_rate_ppm(), size = ppm < 0 ? -ppm : ppm;
    struct timex state = {.modes = 0};
    if (size > RATE_ODD_PPM)
        add(d, size > RATE_MOST_PPM ? HF_PROBLEM : HF_WARNING, "clock-rate",
            "leases allow for clocks whose rates differ by 1 %",
            "wait until the clock has been slewed, or step it before starting programs that lock",
            "the rate of the clock differs from the hardware's by %lld ppm", (long long)ppm);
    else
        add(d, HF_FINE, "clock-rate", "that is within the 1 % that leases allow for", "",
            "the clock runs as fast as the hardware's, within %lld ppm", (long long)size);
    if (adjtimex(&state) >= 0 && state.status & STA_UNSYNC)
        add(d, HF_NOTE, "clock-sync",
            "displayed times are affected, and so are tokens if the store has lost its counters; "
            "leases are not",
            "run chrony or systemd-timesyncd",
            "the wall clock of this host is not synchronised (NTP)");
}

static void judge_default_store(struct doctor *d) {
    if (d->cli->url && strcmp(d->cli->url, "sqlite:") != 0)
        return;
    add(d, HF_NOTE, "default-store",
        "when holdfast runs as another user (sudo, cron, a service) it uses another store; locks "
        "in the two stores do not exclude each other",
        "to share locks among users, set url = sqlite:FILE in /etc/holdfast/config, in a folder "
        "that their group can write to",
        geteuid() == 0 ? "this is the default store of root"
                       : "this is the default store of user %u",
        geteuid());
}

/* ---- Printing ---- */

static const char *const words[] = {
    [HF_FINE] = "ok", [HF_NOTE] = "note", [HF_WARNING] = "warning", [HF_PROBLEM] = "problem"};

static size_t line_width(void) {
    size_t rows, width = table_terminal_size(STDOUT_FILENO, &rows);
    return width < 40 ? 100 : width > 120 ? 120 : width;
}

/* Prints a text in lines that are all indented like the first. */
static void print_wrapped(size_t indent, const char *text) {
    char safe[1600];
    size_t width = line_width(), column = indent;
    text_safe(safe, sizeof(safe), text);
    for (const char *word = safe; *word;) {
        size_t length = strcspn(word, " ");
        if (column > indent && column + 1 + length > width) {
            printf("\n%*s", (int)indent, "");
            column = indent;
        }
        if (column > indent)
            column += (size_t)printf(" ");
        column += (size_t)printf("%.*s", (int)length, word);
        word += length + (word[length] == ' ');
    }
    printf("\n");
}

static void print_finding(const hf_finding *finding, bool all) {
    enum { INDENT = 9 };
    printf("%-*s", INDENT, words[finding->severity]);
    print_wrapped(INDENT, finding->found);
    if (finding->severity == HF_FINE && !all)
        return;
    printf("%*s", INDENT, "");
    print_wrapped(INDENT, finding->means);
    if (*finding->fix) {
        printf("%*sfix: ", INDENT, "");
        print_wrapped(INDENT + 5, finding->fix);
    }
}

static void print_text(const struct doctor *d) {
    const struct cli *cli = d->cli;
    char shown[300];
    if (!cli->quiet)
        printf("%s: %s\n", store_shown(cli, shown, sizeof(shown)),
               d->tier ? d->tier : "cannot be used");
    for (int severity = HF_PROBLEM; severity >= (cli->quiet ? HF_WARNING : HF_FINE); severity--) {
        const hf_finding *finding;
        for (size_t i = 0; (finding = finding_at(d, i)); i++) {
            if ((int)finding->severity == severity)
                print_finding(finding, cli->verbose);
        }
    }
}

static void print_json(const struct doctor *d) {
    char *url = d->cli->url_given ? url_without_secrets(d->cli->url_given) : NULL;
    struct json json = {.file = stdout};
    const hf_finding *finding;
    json_object(&json, NULL);
    json_string(&json, "url", url);
    json_string(&json, "tier", d->tier);
    json_string(&json, "worst", words[worst_of(d)]);
    json_string(&json, "error", d->error ? hf_error_name(d->error) : NULL);
    json_number(&json, "ttl_ms", d->ttl_ms);
    json_number(&json, "write_us", d->write_us);
    json_number(&json, "slowest_write_us", d->slowest_us);
    json_array(&json, "findings");
    for (size_t i = 0; (finding = finding_at(d, i)); i++) {
        json_object(&json, NULL);
        json_string(&json, "severity", words[finding->severity]);
        json_string(&json, "id", finding->id);
        json_string(&json, "found", finding->found);
        json_string(&json, "means", finding->means);
        json_string(&json, "fix", finding->fix);
        json_object_end(&json);
    }
    json_array_end(&json);
    json_object_end(&json);
    json_end(&json);
    free(url);
}

static int exit_code(const struct doctor *d) {
    hf_severity worst = worst_of(d);
    return d->error              ? fail_exit_code(d->error)
           : worst == HF_PROBLEM ? EXIT_PROBLEMS
           : worst == HF_WARNING ? EXIT_WARNINGS
                                 : EXIT_SUCCESS;
}

static int run(struct cli *cli, int argc, char **argv) {
    struct settings s = {.ttl_ms = HF_DEFAULT_LEASE_MS};
    int r = options_parse_words(cli, &doctor_command, &s, argc, argv, 0, 0, NULL);
    if (r < 0)
        return options_exit_code(r);
    if (s.ttl_ms < 1)
        return settings_refuse(cli, "ttl", "must be above 0");
    struct doctor d = {.cli = cli, .ttl_ms = s.ttl_ms};
    ask_store(&d);
    judge_lease(&d);
    judge_clocks(&d);
    judge_default_store(&d);
    if (cli->json)
        print_json(&d);
    else
        print_text(&d);
    int code = exit_code(&d);
    hf_examination_free(d.examination);
    return code;
}

const struct command doctor_command = {
    .name = "doctor",
    .summary = "check the store and this host",
    .usage = "doctor [--ttl DUR] [--json]",
    .prints_json = true,
    .options = options,
    .run = run,
    .details =
        "Asks the store how its configuration affects locks, and checks this host. Prints the\n"
        "tier (holdfast help stores), then the findings, the worst first: problem (locks fail or\n"
        "do not exclude), warning (locks are weaker, or will be if something else goes wrong),\n"
        "note, ok. Each has its meaning and the fix. -v also explains what is ok; -q prints\n"
        "warnings and problems only. Makes a few small writes to measure the store; they change\n"
        "nothing. The default store is created if it does not exist.\n"
        "\n"
        "Exit code: 0 fine (notes included), 1 warnings, 2 problems; if the store cannot be\n"
        "asked: 69 unreachable, 77 not permitted, 78 configuration or a place where it cannot\n"
        "work, 70 internal.\n"
        "\n"
        "--json: {\"url\" (null: the default store), \"tier\" (null: not known), \"worst\", "
        "\"error\"\n"
        "(null, or for example HF_UNREACHABLE), \"ttl_ms\", \"write_us\" and \"slowest_write_us\" "
        "(-1:\n"
        "not measured), \"findings\": [{\"severity\": ok, note, warning or problem, \"id\": a "
        "word\n"
        "that stays the same, \"found\", \"means\", \"fix\" (\"\": none)}]}. Later versions may "
        "add keys\n"
        "and ids.\n"
        "\n"
        "Examples:\n"
        "  holdfast doctor\n"
        "  holdfast doctor -q || echo 'look at the lock store'\n"
        "  holdfast doctor --url sqlite:/var/lib/app/locks.db --ttl 5s --json\n",
};
