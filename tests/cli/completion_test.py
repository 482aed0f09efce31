"""Completion in bash, zsh and fish, help, and messages about wrong words: for every command and every
option that help prints."""
import os
import pty
import re
import select
import shutil
import time

import harness
from harness import (boot_ms, contains, equal, finish, main, read_line, run, shell, start_program, test, wait_until,
                     with_path)

harness.LIMIT_S = 600  # some tests start a thousand commands
AGAIN_S = 3  # between two Tabs


def command_names():
    return re.findall(r"(?m)^  (\w+) ", run("help")[1].split("Commands:")[1].split("\n\n")[0])


def options_of(command):
    """[(name, argument or None)] from the command's help, its own and the global ones."""
    found = re.findall(r"(?m)^  (?:-\w, |    )--([a-z-]+)(?: (\S+))?  ", run("help", command)[1])
    assert len(found) >= 9, found
    return [(name, argument or None) for name, argument in found]


def different_options():
    """(command, name, argument or None): each option, in the first command that has it in this form; every command has most
    of them."""
    tried = set()
    for command in command_names():
        for option in options_of(command):
            if option not in tried:
                tried.add(option)
                yield command, *option


def words(*line):
    """The completions of the last word of the line."""
    code, out, err = run("completion", "words", "--", "holdfast", *line)
    equal((code, err), (0, ""))
    return [word.split("\t")[0] for word in out.splitlines()]


# ---- Words ----


@test
def every_command_and_every_option_is_offered():
    names = command_names()
    contains(names, "run", "config", "completion", "help")
    equal(words(""), names)
    equal(words("help", ""), names)
    for name in names:
        equal((name, sorted(words(name, "--"))), (name, sorted("--" + option for option, _ in options_of(name))))
    for name, option, argument in different_options():
        contains(words(name, "--" + option), "--" + option)
        if argument and "|" in argument:
            equal(words(name, "--" + option, ""), argument.split("|"))
            equal(words(name, f"--{option}=" + argument[:1]), [f"--{option}=" + argument.split("|")[0]])
        if argument == "FILE":
            equal(words(name, "--" + option, ""), [":file"])


@test
def words_come_from_the_usage_of_a_command():
    for line, expected in ((("config", ""), ["show", "path"]), (("completion", "z"), ["zsh"]),
                           (("count", ""), ["get", "add", "cas", "swap", "rm"]), (("count", "add", ""), []),
                           (("fence", ""), ["check", "write", "redis", "sql"]), (("fence", "write", ""), [":file"]),
                           (("fence", "sql", ""), ["postgres", "mysql", "sqlite"]), (("fence", "redis", ""), []),
                           (("fence", "nonsense", ""), []),
                           (("run", "x", ""), [":command"]), (("run", "x", "ls", "--w"), [":arguments"]),
                           (("run", "x", "--", "--w"), [":command"]), (("run", "-n", "x", ""), [":command"]),
                           (("run", "-w", "5s", "--ttl", "1m", "x", "-q", ""), [":command"]),
                           (("nonsense", ""), []), (("run", "--ttl", ""), []),
                           (("--url", "sq"), ["sqlite:"]), (("--url=sq",), ["--url=sqlite:"]),
                           (("renew", ""), []), (("version", ""), [])):
        equal((line, words(*line)), (line, expected))


def hold(*names):
    for name in names:
        equal(run("acquire", name, "--for", "10m")[0], 0)


def offers(names, *line):
    """Asks for names again: on a busy machine, the store may not answer in its time."""
    wait_until(lambda: words(*line) == names, f"{line} is completed to {names}")


@test
def locks_are_offered_from_the_store_that_the_line_names():
    other = f"sqlite:{harness.folder}/other.db"
    hold("data:one", "data:two", "it's", "new\nline")
    equal(run("--url", other, "acquire", "elsewhere", "--for", "1m")[0], 0)
    offers(["data:one", "data:two"], "run", "data:")
    for before in (("fence", "check", "f"), ("fence", "sql", "postgres"), ("fence", "redis", "key")):
        offers(["data:one", "data:two", "it's"], *before, "")
    offers(["data:two"], "run", "--also", "data:t")
    offers(["elsewhere"], "--url", other, "run", "")
    offers(["elsewhere"], "run", "--url=" + other, "")


@test
def profiles_are_offered():
    os.makedirs(f"{harness.folder}/config/holdfast")
    with open(f"{harness.folder}/config/holdfast/config", "w", opener=lambda path, flags: os.open(
            path, flags, 0o600)) as file:
        file.write(f"[profile prod]\nurl = sqlite:{harness.folder}/prod.db\n[profile test]\n")
    equal(words("run", "--profile", ""), ["prod", "test"])
    equal(run("--profile", "prod", "acquire", "x", "--for", "1m")[0], 0)
    offers(["x"], "--profile", "prod", "run", "")
    equal(words("run", ""), [])


@test
def a_store_that_fails_offers_nothing():
    code, out, _ = run("completion", "words", "--", "holdfast", "--url", "nosuch:", "run", "")
    equal((code, out), (0, ""))


# ---- Shells ----


def script(name):
    path = f"{harness.folder}/completion.{name}"
    with open(path, "w") as file:
        file.write(run("completion", name)[1])
    return path


@test
def the_scripts_are_good_in_their_shells():
    for name in ("bash", "zsh", "fish"):
        assert shutil.which(name), f"{name} is not there (tools/setup test)"
        code, _, err = finish(start_program(name, "-n", script(name)))
        equal((name, code, err), (name, 0, ""))
    equal(run("completion", "csh")[0], 64)
    equal(run("completion")[0], 64)


def tab_again(typed):
    """What to type again if a name is to be completed: see offers()."""
    return "\t" if "data:" in typed else ""


def type_in(shell_words, text, wanted, again="", seconds=harness.PATIENCE_S, **variables):
    """Types into a shell on a terminal until what it shows matches; `again` from time to time until it does."""
    pid, fd = pty.fork()
    if pid == 0:
        os.chdir(harness.folder)
        os.execvpe(shell_words[0], shell_words, with_path(TERM="dumb", **variables))
    shown, until = "", time.monotonic() + seconds
    try:
        for part, expected in (*text, ("", wanted)):
            os.write(fd, part.encode())
            while not re.search(expected, shown):
                left = until - time.monotonic()
                assert left > 0, f"{expected!r} not in {shown!r}"
                if select.select([fd], [], [], min(left, AGAIN_S))[0]:
                    shown += os.read(fd, 4096).decode(errors="replace")
                elif expected == wanted:
                    os.write(fd, again.encode())
    finally:
        os.close(fd)
        os.kill(pid, 9)
        os.waitpid(pid, 0)


@test
def bash_completes_commands_options_values_and_locks():
    hold("data:one")
    for typed, wanted in (("holdfast comple\t", "completion "), ("holdfast run --max-h\t", "--max-hold "),
                          ("holdfast run --on-lost k\t", "--on-lost kill "),
                          ("holdfast run --on-lost=k\t", "--on-lost=kill "),
                          ("holdfast run data:o\t", "data:one "), ("holdfast --url sq\t", "sqlite:"),
                          ("holdfast run x --report compl\t", "--report completion.bash "),
                          ("holdfast run x -- mkfif\t", "mkfifo "),
                          ("holdfast run x -- ls compl\t", "ls completion.bash ")):
        setup = f'source "{script("bash")}"; PS1="rea""dy> "\n'
        type_in(["bash", "--norc"], ((setup, "ready> $"), (typed, "")), "ready> .*" + re.escape(wanted), tab_again(typed))


@test
def bash_gets_every_option_through_comp_words():
    source = f'source "{script("bash")}"; compopt() {{ :; }}\n'
    for name in command_names():
        code, out, err = shell(source + f"COMP_WORDS=(holdfast {name} --); COMP_CWORD=2\n"
                               f"COMP_LINE='holdfast {name} --'; COMP_POINT=${{#COMP_LINE}}\n"
                               "_holdfast holdfast -- x; printf '%s\\n' \"${COMPREPLY[@]}\"")
        equal((code, err), (0, ""))
        equal(sorted(out.split()), sorted("--" + option for option, _ in options_of(name)))


@test
def zsh_completes():
    hold("data:one")
    for typed, wanted in (("holdfast comple\t", "completion"), ("holdfast run --max-h\t", "--max-hold"),
                          ("holdfast run data:o\t", "data:one"),
                          ("holdfast run --on-lost k\t", "--on-lost kill")):
        setup = f'autoload -U compinit; compinit -u -D; source "{script("zsh")}"; PS1="rea""dy> "\n'
        type_in(["zsh", "-f"], ((setup, "ready> "), (typed, "")),
                "ready> (?s:.*)" + re.escape(wanted), tab_again(typed), ZDOTDIR=harness.folder)


def fish_offers(line):
    code, out, err = finish(start_program("fish", "--no-config", "-c", f'source "{script("fish")}"\n'
                                          f"complete -C '{line}'", env=with_path(HOME=harness.folder)))
    equal((code, err), (0, ""))
    return [found.split("\t")[0] for found in out.splitlines()]


@test
def fish_completes():
    hold("data:one")
    for line, wanted in (("holdfast comple", "completion"), ("holdfast run --max-h", "--max-hold"),
                         ("holdfast run --on-lost k", "kill"),
                         ("holdfast run x --report compl", "completion.fish"),
                         ("holdfast run x -- mkfif", "mkfifo")):
        contains(fish_offers(line), wanted)
    wait_until(lambda: "data:one" in fish_offers("holdfast run data:o"), "the name is completed")


# ---- Help ----


@test
def every_command_has_help_with_examples():
    for name in command_names():
        code, out, err = run("help", name)
        equal((code, err), (0, ""))
        contains(out, f"Usage: holdfast {name}", "Options of every command:", "Examples:\n", f"holdfast {name}")
        equal(run(name, "--help"), (0, out, ""))
        assert max(len(line) for line in out.splitlines()) <= 110, name
    for name in ("run", "acquire", "renew", "release", "fence", "config"):
        contains(run("help", name)[1].lower(), "exit code")
    contains(run("help", "runn")[2], "did you mean run?")


@test
def a_wrong_option_names_the_nearest_in_every_command():
    for name in command_names():
        for option, _ in options_of(name):
            wrong = option[:2] + option[1] + option[2:]
            code, _, err = run(name, "--" + wrong)
            equal((name, code), (name, 64))
            contains(err, f"--{wrong} is not an option here; did you mean --{option}?",
                     f"try: holdfast {name} --help")
        takes_json = "json" in (option for option, _ in options_of(name))
        equal((name, "did you mean --json?" in run(name, "-json")[2]), (name, takes_json))
        equal(run(name, "--zzzzzzzz")[0], 64)


@test
def a_wrong_value_names_its_option():
    wrong = {"DUR": ("soon", "-5s", "5x", "", "1h-3m"), "N": ("x", "-1", "+1", "", "1x"), "PID": ("x",),
             "CODE": ("x",), "K/N": ("3", "a/b")}
    for name, option, argument in different_options():
        if not argument:
            contains(run(name, f"--{option}=1")[2], f"--{option} takes no value")
            continue
        code, _, err = run(name, "--" + option)
        equal(code, 64)
        contains(err, f"--{option} needs a value: --{option} {argument}")
        for value in ("pray",) if "|" in argument else wrong.get(argument, ()):
            code, _, err = run(name, "--" + option, value)
            equal((name, option, value, code), (name, option, value, 64))
            contains(err, f"--{option} cannot be '{value}' (it must be ")


@test
def times_are_written_as_people_do():
    count = 0
    for name, option, argument in different_options():
        for value in ("90s", "5m", "1h30m", "500ms", "1.5h", "2d", "7") if argument == "DUR" else ():
            equal((name, value, run(name, "--" + option, value, "--help")[0]), (name, value, 0))
            count += 1
    assert count >= 7 * 6, count


@test
def a_number_alone_is_seconds_and_stands_alone():
    holder = start_program("holdfast", "run", "x", "sh", "-c", "echo; exec sleep 1000", env=with_path())
    read_line(holder.stdout)
    before = boot_ms()
    equal(run("run", "-q", "-w", "2.5", "x", "true")[0], 75)
    assert 2490 < boot_ms() - before
    for value in ("1h30", "5 ", "5 s", "s", ".", "1.2.3", "-1", "1e3", "5S", "9" * 40):
        code, _, err = run("run", "-w", value, "x", "true")
        equal((value, code), (value, 64))
        contains(err, f"--wait cannot be '{value}'", "a number without a unit is seconds")


main()
