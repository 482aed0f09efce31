/* The settings: which file, environment variable or option each comes from. */
#include "cli/settings.h"

#include "base/password.h"
#include "cli/password.h"
#include "cli/text.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MAX_LEASE_LEAST_MS = 1000 };

static struct {
    struct settings_file files[SETTINGS_FILES];
    bool named, read;
    char *url;              /* HOLDFAST_URL as it was, if it had a password */
    bool profile_is_option; /* and not from the environment */
} loaded;

/* ---- Which settings there are ---- */

static bool is_setting(const struct option *option) {
    return option->setting != NULL;
}

/* The i-th table: the global options, then those of the commands. NULL in ret if that command has
 * none. */
static bool table_at(size_t i, const struct option **ret) {
    *ret = i == 0 ? global_options : commands[i - 1] ? commands[i - 1]->options : NULL;
    return i == 0 || commands[i - 1];
}

static const struct option *find_setting(const char *key) {
    const struct option *table;
    for (size_t i = 0; table_at(i, &table); i++) {
        const struct option *option = option_find(table, key);
        if (option && is_setting(option))
            return option;
    }
    return NULL;
}

const struct option *settings_at(size_t number) {
    const struct option *table;
    for (size_t i = 0; table_at(i, &table); i++) {
        for (; table && table->name; table++) {
            bool first = is_setting(table) && find_setting(table->name) == table;
            if (first && number-- == 0)
                return table;
        }
    }
    return NULL;
}

static const char *nearest_setting(const char *key) {
    const char *nearest = NULL;
    size_t best = 4;
    const struct option *option;
    for (size_t i = 0; (option = settings_at(i)); i++) {
        const struct option alone[] = {*option, {0}};
        option_find_nearest(alone, NULL, key, &nearest, &best);
    }
    return nearest;
}

bool settings_is_password(const struct option *option) {
    return strncmp(option->name, "password-", 9) == 0;
}

/* ---- What is wrong ---- */

__attribute__((format(printf, 3, 4))) static int wrong(const struct settings_file *file,
                                                       size_t line, const char *format, ...) {
    char path[600], text[600], number[24] = "";
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    if (line)
        snprintf(number, sizeof(number), ":%zu", line);
    fail_say("%s%s: %s", text_safe(path, sizeof(path), file->path), number, text);
    return EXIT_CONFIG;
}

static int unknown_key(const struct settings_file *file, const struct config_entry *entry) {
    const char *nearest = nearest_setting(entry->key);
    if (nearest)
        return wrong(file, entry->line, "%s is not a setting; did you mean %s?", entry->key,
                     nearest);
    return wrong(file, entry->line, "%s is not a setting; to list them: holdfast config show",
                 entry->key);
}

/* Refuses a password that everybody can read, and a relative path. */
static int check_url(const struct settings_file *file, const struct config_entry *entry,
                     enum file_secrecy secrecy) {
    char path[600];
    if (secrecy == FILE_READABLE_BY_ALL && url_has_secret(entry->value))
        return wrong(file, entry->line,
                     "a password is refused here (every user of this host can read it); try: chmod "
                     "o-r %s, or put it into a file of its own and name that with password-file",
                     text_safe(path, sizeof(path), file->path));
    if (strncmp(entry->value, "sqlite:", 7) == 0 && entry->value[7] &&
        !strchr("/?", entry->value[7]))
        return wrong(file, entry->line,
                     "the path must begin with / (a relative one would name a different "
                     "store in every folder)");
    return 0;
}

static int check_password(const struct settings_file *file, const struct config_entry *entry,
                          const struct option *option) {
    for (const struct config_entry *e = file->config.entries; e < entry; e++) {
        const struct option *other = e->key ? find_setting(e->key) : NULL;
        if (other && settings_is_password(other) &&
            config_find(&file->config, entry->profile, e->key) == e)
            return wrong(file, entry->line, "%s and %s exclude each other", e->key, entry->key);
    }
    if (strcmp(option->name, "password-file") == 0 && entry->value[0] != '/' &&
        strncmp(entry->value, "~/", 2) != 0)
        return wrong(file, entry->line, "the path must begin with / or ~/");
    return 0;
}

static int check_entry(const struct settings_file *file, const struct config_entry *entry,
                       enum file_secrecy secrecy) {
    union {
        bool flag;
        const char *text;
        int64_t number;
        struct option_fraction fraction;
    } unused;
    char why[160], safe[80];
    const struct option *option = find_setting(entry->key);
    if (!option)
        return unknown_key(file, entry);
    assert(option->type != OPTION_LIST && option->type != OPTION_HELP);
    if (option_convert(option, entry->value, &unused, why, sizeof(why)) < 0)
        return wrong(file, entry->line, "%s cannot be '%s' (%s)", entry->key,
                     text_safe(safe, sizeof(safe), entry->value), why);
    if (option->type == OPTION_URL)
        return check_url(file, entry, secrecy);
    return settings_is_password(option) ? check_password(file, entry, option) : 0;
}

/* ---- Files ---- */

static void name_files(void) {
    const char *config = getenv("XDG_CONFIG_HOME"), *home = getenv("HOME");
    struct settings_file *user = &loaded.files[0], *system = &loaded.files[1];
    if (loaded.named)
        return;
    loaded.named = true;
    user->whose = "user";
    system->whose = "system";
    strcpy(system->path, "/etc/holdfast/config");
    int length = 0;
    if (config && *config == '/')
        length = snprintf(user->path, PATH_MAX, "%s/holdfast/config", config);
    else if (home && *home == '/')
        length = snprintf(user->path, PATH_MAX, "%s/.config/holdfast/config", home);
    if (length >= PATH_MAX)
        user->path[0] = 0;
}

const struct settings_file *settings_files(void) {
    name_files();
    return loaded.files;
}

static int check_file(const struct settings_file *file, const struct stat *stat,
                      enum file_secrecy secrecy) {
    char path[600];
    text_safe(path, sizeof(path), file->path);
    if (!S_ISREG(stat->st_mode))
        return wrong(file, 0, "this is not a file");
    if (secrecy == FILE_OF_ANOTHER)
        return wrong(file, 0,
                     "refused (it belongs to user %lld, who could have your passwords sent "
                     "elsewhere); make it yours, or set XDG_CONFIG_HOME to a folder of yours",
                     (long long)stat->st_uid);
    if (secrecy == FILE_WRITABLE_BY_OTHERS)
        return wrong(file, 0,
                     "refused (others can write to it, and could have your passwords sent "
                     "elsewhere); try: chmod go-w %s",
                     path);
    return 0;
}

/* Reads up to one byte more than is allowed; the parser then reports that. */
static ssize_t read_all(int fd, char *ret, size_t size) {
    size_t used = 0;
    while (used < size) {
        ssize_t count = read(fd, ret + used, size - used);
        if (count < 0 && errno != EINTR)
            return -1;
        if (count == 0)
            break;
        used += count > 0 ? (size_t)count : 0;
    }
    return (ssize_t)used;
}

static int read_config(struct settings_file *file, int fd, enum file_secrecy secrecy) {
    static char text[CONFIG_SIZE_MAX + 1];
    const char *why;
    size_t line;
    ssize_t size = read_all(fd, text, sizeof(text));
    if (size < 0)
        return wrong(file, 0, "cannot be read (%s)", strerror(errno));
    int r = config_parse(text, (size_t)size, &file->config, &why, &line);
    explicit_bzero(text, sizeof(text));
    if (r < 0)
        return wrong(file, line, "%s", why);
    for (size_t i = 0; r == 0 && i < file->config.count; i++) {
        if (file->config.entries[i].key)
            r = check_entry(file, &file->config.entries[i], secrecy);
    }
    return r;
}

static int read_file(struct settings_file *file) {
    struct stat stat;
    if (!file->path[0])
        return 0;
    int fd = open(file->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0)
        return errno == ENOENT || errno == ENOTDIR
                   ? 0
                   : wrong(file, 0, "cannot be read (%s)", strerror(errno));
    file->exists = true;
    enum file_secrecy secrecy = file_secrecy(fd, NULL);
    int r = fstat(fd, &stat) < 0 ? wrong(file, 0, "cannot be read (%s)", strerror(errno))
                                 : check_file(file, &stat, secrecy);
    if (r == 0)
        r = read_config(file, fd, secrecy);
    close(fd);
    return r;
}

/* ---- Profiles ---- */

static const char *nearest_profile(const char *profile) {
    const char *nearest = NULL;
    size_t best = 4;
    for (size_t i = 0; i < SETTINGS_FILES; i++) {
        const struct config *config = &loaded.files[i].config;
        for (size_t j = 0; j < config->count; j++) {
            const char *name = config->entries[j].profile;
            size_t distance = name ? text_distance(name, profile) : best;
            if (distance < best) {
                best = distance;
                nearest = name;
            }
        }
    }
    return nearest;
}

static int unknown_profile(const char *profile) {
    char safe[80], path[600];
    const char *nearest = nearest_profile(profile);
    text_safe(safe, sizeof(safe), profile);
    if (nearest)
        fail_say("there is no profile %s; did you mean %s?", safe, nearest);
    else
        fail_say("there is no profile %s; to create it, add [profile %s] to %s", safe, safe,
                 text_safe(path, sizeof(path), loaded.files[!loaded.files[0].path[0]].path));
    return EXIT_CONFIG;
}

static int choose_profile(struct cli *cli) {
    const char *variable = getenv("HOLDFAST_PROFILE");
    loaded.profile_is_option = cli->profile != NULL;
    if (!cli->profile && variable && *variable)
        cli->profile = variable;
    if (!cli->profile)
        return 0;
    for (size_t i = 0; i < SETTINGS_FILES; i++) {
        if (config_find(&loaded.files[i].config, cli->profile, NULL))
            return 0;
    }
    return unknown_profile(cli->profile);
}

int settings_load(struct cli *cli) {
    if (loaded.read)
        return 0;
    int r = password_hide_url(&loaded.url);
    name_files();
    for (size_t i = 0; r == 0 && i < SETTINGS_FILES; i++)
        r = read_file(&loaded.files[i]);
    loaded.read = true;
    return r ? r : choose_profile(cli);
}

/* ---- Where a setting comes from ---- */

static bool find_in_files(const char *profile, const struct option *option, struct setting *ret) {
    for (size_t i = 0; i < SETTINGS_FILES; i++) {
        const struct config_entry *entry =
            config_find(&loaded.files[i].config, profile, option->name);
        if (entry) {
            *ret = (struct setting){.option = option,
                                    .from = FROM_FILE,
                                    .value = entry->value,
                                    .file = &loaded.files[i],
                                    .entry = entry};
            return true;
        }
    }
    return false;
}

static bool find_in_environment(const struct option *option, struct setting *ret) {
    bool is_url = strcmp(option->name, "url") == 0;
    const char *value = !is_url ? NULL : loaded.url ? loaded.url : getenv("HOLDFAST_URL");
    if (!value || !*value)
        return false;
    *ret = (struct setting){
        .option = option, .from = FROM_ENVIRONMENT, .value = value, .variable = "HOLDFAST_URL"};
    return true;
}

void settings_find(const struct cli *cli, const struct option *option, struct setting *ret) {
    bool first = loaded.profile_is_option, has_profile = cli->profile != NULL;
    *ret =
        (struct setting){.option = option,
                         .from = option_was_given(cli, option->name) ? FROM_OPTION : FROM_BUILT_IN};
    if (ret->from == FROM_OPTION || (first && find_in_files(cli->profile, option, ret)) ||
        find_in_environment(option, ret) ||
        (!first && has_profile && find_in_files(cli->profile, option, ret)))
        return;
    find_in_files(NULL, option, ret);
}

/* Finds the source of the password that belongs to a URL from a file. */
static void find_password_beside(const struct setting *url, struct setting *ret) {
    for (const struct settings_file *file = loaded.files; file <= url->file; file++) {
        for (const struct option *option = global_options; option->name; option++) {
            const struct config_entry *entry =
                settings_is_password(option)
                    ? config_find(&file->config, url->entry->profile, option->name)
                    : NULL;
            if (entry) {
                *ret = (struct setting){option, FROM_FILE, entry->value, NULL, file, entry};
                return;
            }
        }
    }
}

void settings_find_password(const struct cli *cli, struct setting *ret) {
    *ret = (struct setting){0};
    for (const struct option *option = global_options; option->name; option++) {
        if (settings_is_password(option) && option_was_given(cli, option->name)) {
            *ret = (struct setting){.option = option, .from = FROM_OPTION};
            return;
        }
    }
    struct setting url;
    settings_find(cli, option_find(global_options, "url"), &url);
    if (url.from == FROM_FILE)
        find_password_beside(&url, ret);
}

/* ---- What cannot be used ---- */

int settings_refuse(const struct cli *cli, const char *name, const char *format, ...) {
    struct setting setting;
    char text[400];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    settings_find(cli, find_setting(name), &setting);
    return setting.from == FROM_FILE ? wrong(setting.file, setting.entry->line, "%s %s", name, text)
                                     : fail_usage("--%s %s", name, text);
}

void settings_explain_denial(const struct cli *cli, char *ret, size_t size) {
    struct setting used, unused;
    char path[600];
    *ret = 0;
    settings_find_password(cli, &used);
    if (used.option || (cli->url_given && url_has_secret(cli->url_given)))
        return;
    for (const struct option *option = global_options; option->name && !*ret; option++) {
        if (!settings_is_password(option))
            continue;
        settings_find(cli, option, &unused);
        if (unused.from == FROM_FILE)
            snprintf(ret, size, "%s:%zu has a %s, but it is used only with the url in its section",
                     text_safe(path, sizeof(path), unused.file->path), unused.entry->line,
                     option->name);
    }
}

/* ---- Applying ---- */

/* Whether an option that was given excludes this setting. */
static bool is_overridden(const struct cli *cli, const char *name) {
    static const char *const pairs[][2] = {
        {"wait", "no-wait"}, {"quiet", "verbose"}, {"verbose", "quiet"}};
    for (size_t i = 0; i < sizeof(pairs) / sizeof(*pairs); i++) {
        if (strcmp(pairs[i][0], name) != 0)
            continue;
        return option_was_given(cli, pairs[i][1]);
    }
    return false;
}

/* Stores a value, which has been checked, where the option's value belongs. */
static void put(const struct setting *setting, void *base) {
    char why[160];
    if (setting->value)
        option_convert(setting->option, setting->value, (char *)base + setting->option->offset, why,
                       sizeof(why));
}

static void apply_table(struct cli *cli, const struct option *table, void *base) {
    for (; table && table->name; table++) {
        struct setting setting;
        if (!is_setting(table) || settings_is_password(table) || is_overridden(cli, table->name))
            continue;
        settings_find(cli, table, &setting);
        put(&setting, base);
    }
}

int settings_apply(struct cli *cli, const struct command *command, void *settings) {
    struct setting password;
    int r = settings_load(cli);
    if (r)
        return r;
    apply_table(cli, command->options, settings);
    apply_table(cli, global_options, cli);
    cli->url_given = cli->url;
    if (cli->max_lease_ms < MAX_LEASE_LEAST_MS)
        return settings_refuse(cli, "max-lease", "must be at least 1s");
    settings_find_password(cli, &password);
    put(&password, cli);
    return password_add(cli);
}
