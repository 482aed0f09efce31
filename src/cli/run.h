/* What the two processes of `holdfast run` have in common. run.c explains why there are two. */
#ifndef CLI_RUN_H
#define CLI_RUN_H

#include "cli/ask.h"
#include "cli/cgroup.h"
#include "cli/cli.h"
#include "cli/clock.h"

#include <signal.h>
#include <stdatomic.h>
#include <sys/types.h>

enum { RUN_NAMES_MAX = 65 };

/* The tree is killed this long before the deadline, by whichever of the two is first. */
#define RUN_MARGIN_MS 200

enum run_on_lost { ON_LOST_TERM = 1, ON_LOST_KILL, ON_LOST_IGNORE };

struct run_settings {
    const struct cli *cli;
    struct ask ask;
    enum run_on_lost on_lost;
    const char *on_lost_word;
    int64_t grace_ms, max_hold_ms, warn_after_ms, min_left_ms; /* -1: not given */
    struct option_list also;
    const char *name, *shell_command, *report, *metrics_file;
    bool metrics_names;
    bool again;     /* there may be another run after this one: `elect` */
    bool reached;   /* an earlier run has reached the store, so it is waited for without a limit */
    char **command; /* what to run, NULL at its end */
};

/* How it ended. */
enum run_end {
    RUN_EXITED = 1,   /* the command ended by itself */
    RUN_NOT_ACQUIRED, /* not in time */
    RUN_FAILED,       /* the store, or this host, failed before the command was started */
    RUN_INTERRUPTED,  /* by a signal, while waiting */
    RUN_CANNOT_START, /* the command cannot be executed */
    RUN_LOST,
    RUN_MAX_HOLD,
    RUN_KEEPER_GONE, /* the keeper was killed or stopped */
    RUN_FRONT_GONE,
};

/* A page of shared memory. The keeper writes and the front reads; it reads what is below `ended`
 * only once that is set. */
struct run_shared {
    _Atomic int64_t deadline_ms; /* D on CLOCK_BOOTTIME; CLOCK_NEVER: the lock is not held */
    _Atomic int start_errno;     /* why the command could not be executed; written by its process */
    _Atomic uint64_t tokens[RUN_NAMES_MAX]; /* of the name and of --also; 0: it is not held */
    _Atomic pid_t child;
    char cgroup[CGROUP_PATH_SIZE]; /* of the command; "": it has none of its own */
    _Atomic bool front_stopped;    /* written by the front */
    _Atomic bool asked_to_end;     /* the same: TERM, INT or QUIT came from outside */
    _Atomic int ended;             /* enum run_end; 0: not yet */
    int exit_code;
    int child_status; /* as waitpid returned it; -1: there was no child */
    int released;     /* the result of hf_release; HF_PENDING: nothing was to be released */
    bool exclusive, lost, warned;
    int64_t waited_ms, held_ms;
    uint64_t renewals;       /* of all names */
    int64_t least_margin_ms; /* at a renewal or the release; -1: not known */
    char cause[16];          /* of the loss: see hf_event; "": none */
    char cause_text[400];    /* the same for people; or how the last renewal failed */
    char text[1024];         /* for stderr; "": nothing to say */
};

struct run {
    const struct run_settings *settings;
    struct run_shared *shared;
    int socket; /* to the other process: see enum run_byte */
    pid_t front, keeper, group;
    sigset_t mask_before;          /* the signal mask at our start, which the command gets */
    struct sigaction child_before; /* the same of SIGCHLD, which we need */
};

/* The bytes that the two send each other: numbers of signals, with a flag. */
enum run_byte {
    RUN_TYPED = 0x80,   /* from the front: typed at the terminal, so the command has it already */
    RUN_STOPPED = 0x80, /* from the keeper: the command has been stopped by this signal */
    RUN_BELL = 1,       /* from the keeper: there is a deadline to watch, or it has ended */
};

#define RUN_SETTINGS_INIT(of_cli) \
    { .cli = (of_cli), .ask = ASK_INIT, .grace_ms = -1, .max_hold_ms = -1, .warn_after_ms = -1 }

/* Parses "[options] NAME [options]" for `command`, whose settings begin with `s`. Returns the index
 * of the word after them, or a negative number for options_exit_code. */
int run_parse(const struct command *command, struct cli *cli, struct run_settings *s, int argc,
              char **argv);

/* Checks the settings and the words of the command to run. Returns 0, or the exit code after
 * printing an error. */
int run_check(const struct command *command, struct run_settings *s, char **words);

/* Does all the rest. Returns the exit code. `ret_again`: the lock was lost and nobody asked the
 * command to end, so it may be acquired again; may be NULL. */
int run_start(const struct run_settings *s, bool *ret_again);

/* The signals that are passed on to the command, except those that were ignored when we started. */
void run_forwarded_signals(sigset_t *ret);

/* Closes our standard input and output. They belong to the command, and readers must see it close
 * them. */
void run_close_stdio(void);

/* The two processes. Each returns the exit code. */
int front_main(struct run *run);
int keeper_main(struct run *run);

/* Opens and writes the report. */
int report_open(const char *path); /* a descriptor, or negative after printing an error */
void report_write(int fd, const struct run *run, int exit_code);

#endif
