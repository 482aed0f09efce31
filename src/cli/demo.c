/* holdfast demo: shows in a few seconds what a lock does, with the real command on the embedded
 * store and without a network. It is a shell script that prints each command before it runs it, so
 * that the reader can repeat them. */
#include "cli/cli.h"
#include "cli/options.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char script[] =
    "set -e\n"
    "trap 'cd /; rm -rf \"$folder\"' EXIT\n"
    "trap 'exit 130' INT TERM\n"
    "try() { printf '  $ %s\\n' \"$1\"; eval \"$1\"; }\n"
    "chapter() { printf '\\n%s\\n' \"$1\"; }\n"
    "cd \"$folder\"\n"
    "unset HOLDFAST_PROFILE; export XDG_CONFIG_HOME=\"$folder\"\n"
    "\n"
    "chapter 'The locks are in a file on this host. No server, no network.'\n"
    "try \"export HOLDFAST_URL=sqlite:$folder/locks.db\"\n"
    "\n"
    "chapter '1. Three contenders for one lock: one at a time, in the order in which they came.'\n"
    "for who in anna ben carla; do\n"
    "    try \"holdfast run deploy -c 'echo $who works; sleep 1; echo \\$HOLDFAST_TOKEN > $who' "
    "&\"\n"
    "    sleep 0.1\n"
    "done\n"
    "wait\n"
    "\n"
    "chapter '2. The holder is killed in the middle. The next one takes over at once.'\n"
    "try \"holdfast run deploy -c 'echo dora works; sleep 1000' &\"\n"
    "sleep 0.1\n"
    "try \"holdfast run deploy -c 'echo emil works; echo \\$HOLDFAST_TOKEN > emil' &\"\n"
    "sleep 1.5\n"
    "holder=$(holdfast inspect --json deploy | grep -o '\"pid\": *[0-9]*' | head -n 1)\n"
    "try \"kill -KILL ${holder##*[: ]}\"\n"
    "wait 2>/dev/null\n"
    "\n"
    "chapter '3. A holder that was paused and writes too late is refused: each grant has a\n"
    "   larger token, and the resource remembers the largest that it has seen.'\n"
    "try 'cat anna emil'\n"
    "try 'holdfast fence check seen deploy $(cat emil) && echo emil may write'\n"
    "try 'holdfast fence check seen deploy $(cat anna) || echo anna may not'\n"
    "\n"
    "chapter '4. A command that holds the lock for too long is ended, with everything it "
    "started.'\n"
    "try \"holdfast run deploy --max-hold 1s -c 'sleep 1000 & sleep 1000' || echo exit code "
    "\\$?\"\n"
    "\n"
    "chapter 'More: holdfast help run'\n";

/* Runs the script with its output through cat: on a terminal, several waiting lines would overwrite
 * each other. The exit code is that of the script. */
static const char through_cat[] =
    "exec 3>&1\n"
    "code=$({ { sh -c \"$script\" 2>&1; echo $? >&4; } | cat >&3; } 4>&1)\n"
    "exit \"${code:-70}\"\n";

/* Lets the script find this program in PATH as "holdfast". */
static int set_path(void) {
    char self[4096], path[8192];
    ssize_t length = readlink("/proc/self/exe", self, sizeof(self) - 1);
    if (length < 0)
        return -1;
    self[length] = 0;
    *strrchr(self, '/') = 0;
    const char *before = getenv("PATH");
    snprintf(path, sizeof(path), "%s:%s", self, before ? before : "/usr/bin:/bin");
    return setenv("PATH", path, 1);
}

static int run(struct cli *cli, int argc, char **argv) {
    int r = options_parse_words(cli, &demo_command, NULL, argc, argv, 0, 0, NULL);
    if (r < 0)
        return options_exit_code(r);
    const char *temporary = getenv("TMPDIR");
    char folder[4096];
    snprintf(folder, sizeof(folder), "%s/holdfast-demo.XXXXXX", temporary ? temporary : "/tmp");
    if (mkdtemp(folder) && setenv("folder", folder, 1) == 0 && setenv("script", script, 1) == 0 &&
        set_path() == 0)
        execl("/bin/sh", "sh", "-c", through_cat, (char *)NULL);
    fail_say("cannot run the demo (%s)", strerror(errno));
    return EXIT_INTERNAL;
}

const struct command demo_command = {
    .name = "demo",
    .summary = "show in a few seconds what a lock does; no network",
    .usage = "demo",
    .without_settings = true,
    .details =
        "Runs the real command on an embedded store in a temporary folder: three contenders, a\n"
        "holder that is killed, a stale writer that is refused. Prints the commands that it runs.\n"
        "\n"
        "Examples:\n"
        "  holdfast demo\n",
    .run = run,
};
