/* The settings: options that may also come from the environment and from two configuration files,
 * $XDG_CONFIG_HOME/holdfast/config (else ~/.config/holdfast/config) and /etc/holdfast/config. Each
 * is taken from the first of these that has it:
 *
 *     the option; [profile NAME] if --profile asked for it; the environment (HOLDFAST_URL);
 *     [profile NAME] if HOLDFAST_PROFILE did; settings outside of profiles; the built-in default
 *
 * Within a section the user's file comes before the system's. The tables of options say which
 * options are settings: there is no other list.
 *
 * Anybody who can write to such a file can have passwords sent to a store of their own, and locks
 * taken where nobody else takes them. So a file is refused if it belongs to anybody but us or root,
 * or if its group or others can write to it; if every user can read it, it must not have a password
 * in a URL. The password-* settings of a file are used only with the URL of the same section, in
 * the same file or one that comes after it: no other URL gets the password. */
#ifndef CLI_SETTINGS_H
#define CLI_SETTINGS_H

#include "cli/config.h"
#include "cli/options.h"

#include <limits.h>

enum { SETTINGS_FILES = 2 };

struct settings_file {
    const char *whose;   /* "user", "system" */
    char path[PATH_MAX]; /* "": there is no such place */
    bool exists;
    struct config config;
};

enum setting_from { FROM_BUILT_IN = 1, FROM_OPTION, FROM_ENVIRONMENT, FROM_FILE };

struct setting {
    const struct option *option;
    enum setting_from from;
    const char *value;    /* NULL: built in, or in the settings of the command as an option */
    const char *variable; /* FROM_ENVIRONMENT */
    const struct settings_file *file; /* FROM_FILE */
    const struct config_entry *entry; /* FROM_FILE */
};

/* Fills in the settings that were not given to `command`, and puts the password into cli->url.
 * Returns 0, or the exit code after printing an error. */
int settings_apply(struct cli *cli, const struct command *command, void *settings);

/* Reads the files (once) and chooses the profile, without applying anything. */
int settings_load(struct cli *cli);

/* The files, the user's first; their paths are known before settings_load. */
const struct settings_file *settings_files(void);

/* The settings, each once, by number; NULL after the last. */
const struct option *settings_at(size_t number);

/* Finds where a setting comes from. Call settings_load first. */
void settings_find(const struct cli *cli, const struct option *option, struct setting *ret);

/* The same for the source of the password that is used; `option` is NULL if there is none. */
void settings_find_password(const struct cli *cli, struct setting *ret);
bool settings_is_password(const struct option *option);

/* Prints why the value of a setting cannot be used, and returns the exit code: "--ttl must be at
 * least 1s" and EXIT_USAGE, or "FILE:LINE: ttl must be at least 1s" and EXIT_CONFIG. `format`
 * follows the setting's name. */
int settings_refuse(const struct cli *cli, const char *name, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* If a store denies access: explains that the configuration has a password that is not used,
 * because it belongs to another URL. "" if it has none. */
void settings_explain_denial(const struct cli *cli, char *ret, size_t size);

#endif
