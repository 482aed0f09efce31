/* holdfast config: which settings are in force and where each came from; where the files are. */
#include "base/url.h"
#include "cli/json.h"
#include "cli/settings.h"
#include "cli/text.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct settings {
    bool origin;
};

static const struct option options[] = {
    {0, OPTION_FLAG, "origin", offsetof(struct settings, origin), NULL,
     "show: where each setting came from"},
    {0},
};

/* ---- Values ---- */

/* The value of a global option that was given on this command line. */
static void get_given(const struct cli *cli, const struct option *option, char *ret, size_t size) {
    const void *target = (const char *)cli + option->offset;
    switch (option->type) {
    case OPTION_FLAG:
        snprintf(ret, size, "yes");
        break;
    case OPTION_NUMBER:
        snprintf(ret, size, "%" PRId64, *(const int64_t *)target);
        break;
    default:
        snprintf(ret, size, "%s", *(const char *const *)target);
    }
}

/* The value as it may be shown; the caller frees it. */
static char *value_of(const struct cli *cli, const struct setting *setting) {
    char given[4200];
    const char *value = setting->value ? setting->value : setting->option->setting;
    if (setting->from == FROM_OPTION) {
        get_given(cli, setting->option, given, sizeof(given));
        value = given;
    }
    char *ret = setting->option->type == OPTION_URL ? url_redacted(value) : strdup(value);
    if (!ret)
        abort();
    return ret;
}

/* Finds a setting. Returns false for a password that is not used because it does not go with the
 * URL. */
static bool find(const struct cli *cli, const struct option *option, struct setting *ret) {
    struct setting password;
    settings_find(cli, option, ret);
    if (!settings_is_password(option) || ret->from == FROM_BUILT_IN)
        return true;
    settings_find_password(cli, &password);
    if (password.option == option)
        *ret = password;
    return password.option == option;
}

/* ---- show ---- */

static void get_origin(const struct setting *setting, char *ret, size_t size) {
    static const char *const words[] = {
        [FROM_BUILT_IN] = "built in", [FROM_OPTION] = "option", [FROM_ENVIRONMENT] = "environment"};
    char path[600];
    if (setting->from == FROM_ENVIRONMENT)
        snprintf(ret, size, "$%s", setting->variable);
    else if (setting->from != FROM_FILE)
        snprintf(ret, size, "%s", words[setting->from]);
    else
        snprintf(ret, size, "%s:%zu%s%s%s", text_safe(path, sizeof(path), setting->file->path),
                 setting->entry->line, setting->entry->profile ? " [profile " : "",
                 setting->entry->profile ? setting->entry->profile : "",
                 setting->entry->profile ? "]" : "");
}

static void show_row(const struct cli *cli, const struct option *option, bool with_origin) {
    struct setting setting;
    bool used = find(cli, option, &setting);
    char *value = value_of(cli, &setting), safe[4300], origin[800] = "";
    text_safe(safe, sizeof(safe), value);
    get_origin(&setting, origin, sizeof(origin));
    if (with_origin)
        printf("%-14s %-30s %s%s\n", option->name, safe, origin,
               used ? "" : " (not used: the URL comes from elsewhere)");
    else
        printf("%-14s %s%s\n", option->name, safe, used ? "" : " (not used)");
    free(value);
}

static void show_table(const struct cli *cli, bool with_origin) {
    const struct option *option;
    if (with_origin)
        printf("%-14s %-30s %s\n", "SETTING", "VALUE", "FROM");
    else
        printf("%-14s %s\n", "SETTING", "VALUE");
    for (size_t i = 0; (option = settings_at(i)); i++)
        show_row(cli, option, with_origin);
}

static void show_object(const struct cli *cli, const struct option *option, struct json *json) {
    static const char *const words[] = {[FROM_BUILT_IN] = "built-in",
                                        [FROM_OPTION] = "option",
                                        [FROM_ENVIRONMENT] = "environment",
                                        [FROM_FILE] = "file"};
    struct setting setting;
    bool used = find(cli, option, &setting);
    char *value = value_of(cli, &setting);
    json_object(json, NULL);
    json_string(json, "name", option->name);
    json_string(json, "value", value);
    json_bool(json, "used", used);
    json_string(json, "from", words[setting.from]);
    if (setting.variable)
        json_string(json, "variable", setting.variable);
    if (setting.file) {
        json_string(json, "path", setting.file->path);
        json_number(json, "line", (int64_t)setting.entry->line);
        json_string(json, "profile", setting.entry->profile);
    }
    json_object_end(json);
    free(value);
}

static void show_json(const struct cli *cli) {
    const struct option *option;
    struct json json = {.file = stdout};
    json_object(&json, NULL);
    json_string(&json, "profile", cli->profile);
    json_array(&json, "settings");
    for (size_t i = 0; (option = settings_at(i)); i++)
        show_object(cli, option, &json);
    json_array_end(&json);
    json_object_end(&json);
    json_end(&json);
}

static int show(struct cli *cli, const struct settings *s) {
    int r = settings_load(cli);
    if (r)
        return r;
    if (cli->json)
        show_json(cli);
    else
        show_table(cli, s->origin);
    return EXIT_SUCCESS;
}

/* ---- path ---- */

static void path_json(const struct settings_file *files) {
    struct json json = {.file = stdout};
    json_array(&json, NULL);
    for (size_t i = 0; i < SETTINGS_FILES; i++) {
        json_object(&json, NULL);
        json_string(&json, "whose", files[i].whose);
        json_string(&json, "path", files[i].path[0] ? files[i].path : NULL);
        json_bool(&json, "exists", files[i].path[0] && access(files[i].path, F_OK) == 0);
        json_object_end(&json);
    }
    json_array_end(&json);
    json_end(&json);
}

static int print_paths(const struct cli *cli) {
    const struct settings_file *files = settings_files();
    if (cli->json) {
        path_json(files);
        return EXIT_SUCCESS;
    }
    for (size_t i = 0; i < SETTINGS_FILES; i++) {
        char safe[PATH_MAX];
        if (files[i].path[0])
            printf("%s\n", text_safe(safe, sizeof(safe), files[i].path));
    }
    return EXIT_SUCCESS;
}

static int run(struct cli *cli, int argc, char **argv) {
    struct settings s = {0};
    const char *verb;
    char safe[80];
    int r = options_parse_words(cli, &config_command, &s, argc, argv, 1, 1, &verb);
    if (r < 0)
        return options_exit_code(r);
    if (strcmp(verb, "show") == 0)
        return show(cli, &s);
    if (strcmp(verb, "path") == 0)
        return print_paths(cli);
    return fail_usage(
        "config %s is not a command; did you mean config %s? try: holdfast config --help",
        text_safe(safe, sizeof(safe), verb),
        text_distance(verb, "path") < text_distance(verb, "show") ? "path" : "show");
}

const struct command config_command = {
    .name = "config",
    .summary = "show the current settings, and where each came from",
    .usage = "config show|path [--origin] [--json]",
    .prints_json = true,
    .without_settings = true,
    .options = options,
    .run = run,
    .details =
        "show prints the settings, without passwords. path prints the files that are read: the\n"
        "user's, then the system's. A file is read only if nobody but you and root can write\n"
        "to it.\n"
        "\n"
        "A file has lines KEY = VALUE. The keys are those of config show, and have the same\n"
        "meaning as the options. Settings in [profile NAME] apply with --profile NAME or\n"
        "HOLDFAST_PROFILE=NAME. A setting is taken from the first of: its option; the profile\n"
        "of --profile; HOLDFAST_URL; the profile of HOLDFAST_PROFILE; settings outside of\n"
        "profiles; the built-in default. The user's file comes before the system's.\n"
        "\n"
        "    url = sqlite:/var/lib/jobs/locks.db\n"
        "    wait = 5m\n"
        "\n"
        "    [profile prod]\n"
        "    url = rediss://app@db.example/0\n"
        "    password-file = ~/.redis-password\n"
        "\n"
        "password-file, password-env and password-fd are used only with the url of their own\n"
        "section.\n"
        "\n"
        "Exit code: 78 if a file is invalid; the message gives its name and line.\n"
        "\n"
        "Examples:\n"
        "  holdfast config show --origin\n"
        "  holdfast --profile prod config show\n"
        "  holdfast config path\n",
};
