"""The configuration files, holdfast config, and where passwords come from."""
import json
import os

import harness
from harness import (BREAK, HOLDFAST, contains, environment, equal, finish, main, matches, run, shell,
                     start, start_program, test)
from support.tap import need_rights_for

PASSWORD = "p@ss/w:rd %#?"  # the one that tests/support/password_module.c expects
ESCAPED = "p%40ss%2Fw%3Ard%20%25%23%3F"


def config_path():
    return f"{harness.folder}/config/holdfast/config"


def configure(text, mode=0o600, path=None):
    path = path or config_path()
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as file:
        file.write(text if isinstance(text, bytes) else text.encode())
    os.chmod(path, mode)
    return path


def without_url(**changes):
    env = environment(HOLDFAST_MODULE_PATH=os.path.dirname(BREAK))
    del env["HOLDFAST_URL"]
    return env | changes


def settings(*words, env=None):
    """What config show --json prints: {name: setting}."""
    code, out, err = run(*words, "config", "show", "--json", env=env or without_url())
    equal((code, err), (0, ""))
    return {setting["name"]: setting for setting in json.loads(out)["settings"]}


def refused(*expected, words=("run", "x", "true"), env=None, code=78):
    actual, out, err = run(*words, env=env or without_url())
    equal((actual, out), (code, f"(exit {code})\n" if "acquire" in words else ""))
    equal(err.count("\n"), 1)
    contains(err, "holdfast: ", *expected)
    return err


# ---- Settings ----


@test
def a_setting_comes_from_the_first_place_that_has_it():
    configure("url = sqlite:/default\nttl = 20s\nwait = 1m\n"
              "[profile a]\nurl = sqlite:/a\nttl = 10s\n[profile b]\nurl = sqlite:/b\n")
    by_variable = without_url(HOLDFAST_PROFILE="a")
    both = by_variable | {"HOLDFAST_URL": "sqlite:/variable"}
    for words, env, value, origin in (
            (("--url", "sqlite:/option", "--profile", "a"), both, "sqlite:/option", "option"),
            (("--profile", "b"), both, "sqlite:/b", "file"),
            ((), both, "sqlite:/variable", "environment"),
            ((), by_variable, "sqlite:/a", "file"),
            ((), without_url(), "sqlite:/default", "file")):
        found = settings(*words, env=env)["url"]
        equal((found["value"], found["from"], found["used"]), (value, origin, True))
    found = settings(env=by_variable)
    equal((found["ttl"]["value"], found["ttl"]["line"], found["ttl"]["profile"]), ("10s", 6, "a"))
    equal((found["wait"]["value"], found["wait"]["line"], found["wait"]["profile"]), ("1m", 3, None))
    equal(found["wait"]["path"], config_path())
    equal((found["on-lost"]["value"], found["on-lost"]["from"]), ("term", "built-in"))


@test
def without_a_file_all_is_built_in():
    found = settings()
    equal({setting["from"] for setting in found.values()}, {"built-in"})
    for name in ("url", "ttl", "wait", "grace", "on-lost", "quiet", "verbose", "password-file",
                 "password-env", "password-fd", "max-lease"):
        assert name in found, name


def with_system_file(text, *words, env):
    """Runs holdfast where /etc is a folder of ours."""
    need_rights_for("unshare", "-rm", "mount", "--bind", harness.folder, "/mnt")  # not /tmp: others may mount something there
    configure(text, path=f"{harness.folder}/etc/holdfast/config")
    script = f'mount --bind "{harness.folder}/etc" /etc && exec "$@"'
    return finish(start_program("unshare", "-rm", "sh", "-c", script, "sh", HOLDFAST, *words, env=env))


@test
def an_unreachable_store_is_to_be_examined_with_the_same_profile():
    configure("[profile p]\nurl = sqlite:/no/such/folder/db\n")
    refused("try: holdfast doctor --profile 'p'\n", words=("ls", "--profile", "p"), code=69)


@test
def the_users_file_comes_before_the_systems_and_a_profile_before_both():
    configure("url = sqlite:/user\n[profile p]\nttl = 5s\n")
    system = "url = sqlite:/system\nwait = 2m\n[profile p]\nurl = sqlite:/p\nttl = 6s\n"
    for words, expected in (((), {"url": "sqlite:/user", "wait": "2m", "ttl": "30s"}),
                            (("--profile", "p"), {"url": "sqlite:/p", "wait": "2m", "ttl": "5s"})):
        code, out, err = with_system_file(system, *words, "config", "show", "--json",
                                          env=without_url())
        equal((code, err), (0, ""))
        found = {s["name"]: s for s in json.loads(out)["settings"]}
        equal({name: found[name]["value"] for name in expected}, expected)
        equal((found["wait"]["path"], found["wait"]["line"]), ("/etc/holdfast/config", 2))
    code, _, err = with_system_file("urk = x\n", "run", "x", "true", env=without_url())
    equal(code, 78)
    contains(err, "holdfast: /etc/holdfast/config:1: urk is not a setting; did you mean url?")


@test
def a_user_may_add_a_password_to_the_systems_url_but_not_the_other_way_round():
    system = "[profile p]\nurl = testpassword://app@h\npassword-env = SYSTEMS\n"
    configure("[profile p]\npassword-env = MINE\n")
    env = without_url(MINE=PASSWORD, SYSTEMS="wrong")
    code, _, err = with_system_file(system, "run", "--profile", "p", "x", "true", env=env)
    equal((code, err), (0, ""))
    configure("[profile p]\nurl = testpassword://app@mine\n")
    env = without_url(SYSTEMS=PASSWORD)
    equal(with_system_file(system, "run", "--profile", "p", "x", "true", env=env)[0], 77)


@test
def settings_are_in_force():
    configure("ttl = 5s\nwait = 0\non-lost = kill\n[profile patient]\nwait = 30s\n")
    code, out, _ = run("run", "x", "--", "sh", "-c", "echo $HOLDFAST_DEADLINE_MS")
    assert code == 0 and 0 < int(out) <= 5000, out
    equal(run("run", "x", "--", HOLDFAST, "run", "x", "true")[0], 75)
    equal(run("run", "x", "-w", "3s", "--", HOLDFAST, "run", "-q", "x", "-E", "4", "true")[0], 4)
    # -n and the wait of the configuration do not exclude each other
    equal(run("run", "x", "--", HOLDFAST, "run", "-n", "--profile", "patient", "x", "true")[0], 75)
    equal(run("run", "-n", "--ttl", "2s", "--grace", "1s", "x", "true")[0], 0)


@test
def what_is_a_lease_to_run_is_no_time_for_acquire():
    configure("ttl = 5s\n")
    code, _, err = run("acquire", "x")
    equal(code, 64)
    contains(err, "missing --for-pid")


@test
def quiet_is_overridden_by_v():
    configure("quiet = yes\nwait = 0\n")
    inner = [HOLDFAST, "run", "x", "true"]
    equal(run("run", "x", "--", *inner)[2], "")
    contains(run("run", "x", "--", *inner[:2], "-v", *inner[2:])[2], "did not acquire x")


@test
def quotes_spaces_comments_and_line_ends_are_understood():
    configure(b"\xef\xbb\xbf# comment\r\n ; another\r\n\r\n  url =  \"sqlite:/a b.db\"  \r\nwait=3m\r\n"
              b"[ profile  p.1-x_ ]\r\nwait\t=\t4m\r\n[default]\r\nttl = 9s")
    found = settings("--profile", "p.1-x_")
    equal([found[name]["value"] for name in ("url", "wait", "ttl")], ["sqlite:/a b.db", "4m", "9s"])


# ---- What is wrong ----


@test
def an_error_names_the_file_and_the_line():
    for text, line, expected in (
            ("urll = sqlite:/x\n", 1, "urll is not a setting; did you mean url?"),
            ("# x\n\nmax-hodl = 5s\n", 3, "did you mean max-hold?"),
            ("password = hunter2\n", 1, "password is not a setting; did you mean password-file?"),
            ("json = yes\n", 1, "json is not a setting"),
            ("profile = p\n", 1, "profile is not a setting"),
            ("zzzzzzzz = 1\n", 1, "holdfast config show"),
            ("ttl = soon\n", 1, "ttl cannot be 'soon' (it must be a time such as 500ms, 90s, 5m or 1h30m; "
             "a number without a unit is seconds)"),
            ("quiet = maybe\n", 1, "quiet cannot be 'maybe' (it must be yes or no)"),
            ("on-lost = pray\n", 1, "it must be term, kill or ignore"),
            ("password-fd = three\n", 1, "it must be a whole number"),
            ("[profile p]\nttl = soon\n", 2, "ttl cannot be"),
            ("[profil p]\n", 1, "a section is [default] or [profile NAME]"),
            ("[profile]\n", 1, "a section is"), ("[profile p\n", 1, "']'"),
            ("[profile a b]\n", 1, "the name of a profile"),
            ("[profile a]\n[profile a]\n", 2, "already"), ("ttl = 1s\nttl = 2s\n", 2, "already"),
            ("ttl 5s\n", 1, "KEY = VALUE"), ("ttl =\n", 1, "the value after"), ("url = \"x\n", 1, "missing"),
            ("= x\n", 1, "not the name"), ("url = \x1b[2J\n", 1, "control character"),
            ("url = sqlite:locks.db\n", 1, "the path must begin with /"),
            ("password-file = pw\n", 1, "the path must begin with / or ~/"),
            ("password-file = /a\npassword-env = B\n", 2, "exclude each other"),
            ("".join(f"[profile p{i}]\n" for i in range(1025)), 1025, "more than 1024")):
        configure(text)
        refused(f"{config_path()}:{line}: ", expected)
        equal(run("config", "show", env=without_url())[0], 78)
    for text, expected in ((b"url = a\0b\n", "it is not text"), (b"#" * 70000, "it is longer than 64 KiB")):
        configure(text)
        refused(f"{config_path()}: {expected}")


@test
def a_value_that_cannot_be_used_is_78_with_its_line_and_64_as_an_option():
    for text, line, option, expected in (
            ("\nttl = 10h\n", 2, ("--ttl", "10h"), "ttl must be at most 1m00s"),
            ("ttl = 5ms\n", 1, ("--ttl", "5ms"), "ttl must be at least 1s"),
            ("[profile p]\nttl = 10h\n", 2, ("--ttl", "10h"), "ttl must be at most"),
            ("grace = 20s\n", 1, ("--grace", "20s"), "grace must be at most half"),
            ("max-lease = 1ms\n", 1, ("--max-lease", "1ms"), "max-lease must be at least 1s")):
        configure(text)
        profile = ("--profile", "p") if "profile" in text else ()
        refused(f"{config_path()}:{line}: {expected}", words=("run", *profile, "x", "true"))
        if "grace" not in text:
            refused(f"{config_path()}:{line}: {expected}", words=("acquire", *profile, "x", "--for", "1m"))
        os.unlink(config_path())
        refused(f"holdfast: --{expected}", words=("run", *option, "x", "true"), code=64)
    configure("max-lease = 5s\n")
    code, out, _ = run("run", "x", "-c", "echo $HOLDFAST_DEADLINE_MS", env=without_url(XDG_STATE_HOME=harness.folder))
    assert code == 0 and 0 < int(out) <= 5000, (code, out)


@test
def a_password_that_goes_with_another_url_is_mentioned():
    configure("url = testpassword://app@h\n\npassword-env = MINE\n")
    env = without_url(MINE=PASSWORD)
    equal(run("run", "x", "true", env=env)[0], 0)
    for words in (("run", "x", "true"), ("ls",), ("acquire", "x", "--for", "1m")):
        refused(f"{config_path()}:3 has a password-env, but it is used only with the url in its section",
                words=("--url", "testpassword://app@other", *words), env=env, code=77)
    out = run("--url", "testpassword://app@other", "doctor", env=env)[1]
    contains(out.replace("\n", " "), ":3 has a password-env")
    wrong = password_file("wrong")
    err = refused("check the URL, the user", words=("--url", "testpassword://app@other", "--password-file", wrong,
                                            "run", "x", "true"), env=env, code=77)
    assert "password-env" not in err, err


@test
def the_url_is_shown_as_it_was_given():
    words = ("--password-file", password_file("hunter2"))
    for url in ("testpassword://h", "testpassword://me@h"):
        contains(run("--url", url, *words, "doctor", env=without_url())[1], f"{url}: cannot be used")
        equal(json.loads(run("--url", url, *words, "doctor", "--json", env=without_url())[1])["url"], url)
        contains(run("--url", url, *words, "ls", env=without_url())[2], f"cannot open {url} (")
    stars = f"sqlite:{harness.folder}/***.db"
    equal(json.loads(run("--url", stars, "doctor", "--json")[1])["url"], stars)
    for given, shown, bare in (("testpassword://:hunter2@h", "testpassword://:***@h", "testpassword://h"),
                               ("testpassword://me:hunter2@h", "testpassword://me:***@h", "testpassword://me@h")):
        env = without_url(HOLDFAST_URL=given)
        contains(run("doctor", env=env)[1], f"{shown}: cannot be used")
        equal(json.loads(run("doctor", "--json", env=env)[1])["url"], bare)
        contains(run("ls", env=env)[2], f"cannot open {shown} (")


@test
def no_word_of_a_line_that_is_wrong_is_reported():
    for text in ("url: redis://app:hunter2@db\n", "hunter2\n", "[hunter2]\n", "url = \"hunter2\n",
                 "url = redis://app:hunter2@db\n" * 2):
        configure(text)
        assert "hunter2" not in refused(config_path())


@test
def an_unknown_profile_names_the_nearest():
    configure("[profile prod]\n")
    refused("there is no profile prdo; did you mean prod?", words=("run", "--profile", "prdo", "x", "true"))
    refused("there is no profile else", f"add [profile else] to {config_path()}",
            env=without_url(HOLDFAST_PROFILE="else"))
    os.unlink(config_path())
    refused("there is no profile prod", words=("--profile", "prod", "run", "x", "true"))
    assert "\x1b" not in refused("there is no profile", words=("--profile", "\x1b[2J", "run", "x", "true"))


@test
def a_file_that_others_can_write_is_refused():
    for mode in (0o620, 0o602, 0o666):
        configure("ttl = 5s\n", mode)
        refused(f"{config_path()}: refused (others can write to it", f"chmod go-w {config_path()}")
    configure("ttl = 5s\n", 0o644)
    equal(settings()["ttl"]["value"], "5s")


if os.geteuid() == 0:
    @test
    def a_file_of_somebody_else_is_refused():
        configure("ttl = 5s\n")
        os.chown(config_path(), 65534, 65534)
        refused("refused (it belongs to user 65534", "XDG_CONFIG_HOME")
else:
    @test
    def a_file_that_cannot_be_read_is_not_passed_over():
        configure("ttl = 5s\n", 0)
        refused(f"{config_path()}: cannot be read (Permission denied)")


@test
def what_is_no_file_is_refused_and_not_waited_for():
    os.makedirs(config_path())
    refused(f"{config_path()}: this is not a file")
    os.rmdir(config_path())
    os.mkfifo(config_path(), 0o600)
    refused(f"{config_path()}: this is not a file")


@test
def a_wrong_file_does_not_stop_what_needs_none():
    out = run("acquire", "x", "--for", "1m")[1]
    configure("nonsense\n")
    for words in (("help",), ("version",), ("stores",), ("config", "path"), ("completion", "bash")):
        equal(run(*words)[0], 0)
    equal(shell(out + "holdfast release")[0], 0)


@test
def path_says_where_the_files_are():
    equal(run("config", "path")[:2], (0, f"{config_path()}\n/etc/holdfast/config\n"))
    configure("")
    first = json.loads(run("config", "path", "--json")[1])[0]
    equal(first, {"whose": "user", "path": config_path(), "exists": True})
    for config, home, expected in (("", "/h", "/h/.config/holdfast/config\n"),
                                   ("relative", "/h", "/h/.config/holdfast/config\n"),
                                   ("/c", "/h", "/c/holdfast/config\n"), ("", "", "")):
        env = environment(XDG_CONFIG_HOME=config, HOME=home)
        equal(run("config", "path", env=env)[1], expected + "/etc/holdfast/config\n")


@test
def show_is_for_people_too():
    configure("[profile p]\nwait = 1m\n")
    out = run("--profile", "p", "-v", "config", "show", "--origin")[1]
    matches(out, rf"(?m)^wait +1m +{config_path()}:2 \[profile p\]$")
    matches(out, r"(?m)^url +sqlite:\S+ +\$HOLDFAST_URL$")
    matches(out, r"(?m)^verbose +yes +option$")
    matches(out, r"(?m)^ttl +30s +built in$")
    assert "built in" not in run("config", "show")[1]
    equal(run("config", "shwo")[0], 64)
    contains(run("config", "shwo")[2], "did you mean config show?")


# ---- Passwords ----


@test
def a_password_in_the_arguments_is_refused():
    for url in ("redis://app:hunter2@db", "redis://:hunter2@db", "redis://db?password=hunter2",
                "redis://db?redis_password=hunter2", "redis://app:hun/ter2@db", "redis://app:***hunter2@db",
                "redis://app:hunter2"):
        code, out, err = run("run", "--url", url, "x", "true")
        equal((url, code, out), (url, 64, ""))
        contains(err, "a password in --url is refused", "--password-file")
        assert "hunter2" not in err and "ter2" not in err
    refused("no store", "holdfast-redis.so", words=("run", "--url", "redis://db?password_file=/x", "x", "true"))


@test
def a_password_in_a_file_that_all_can_read_is_refused():
    text = "[profile p]\nurl = redis://app:hunter2@db\n"
    configure(text, 0o644)
    err = refused(f"{config_path()}:2: a password is refused here", f"chmod o-r {config_path()}")
    assert "hunter2" not in err
    configure(text, 0o640)
    equal(settings("--profile", "p")["url"]["value"], "redis://app:***@db")


def password_file(text=PASSWORD + "\n", mode=0o600):
    return configure(text, mode, f"{harness.folder}/pw")


def sources():
    """Each way to give a password: (words, environment, descriptors to pass)."""
    path = password_file()
    descriptor = os.open(path, os.O_RDONLY)
    yield ("--password-file", path), {}, ()
    yield ("--password-env", "PW"), {"PW": PASSWORD}, ()
    yield ("--password-fd", str(descriptor)), {}, (descriptor,)
    os.close(descriptor)


@test
def a_password_reaches_the_store_and_nobody_else():
    look = "env; ls -l /proc/self/fd; cat /proc/$PPID/environ /proc/$PPID/cmdline"
    for words, env, fds in sources():
        for url in (("--url", "testpassword://app@h"), ()):
            env |= {} if url else {"HOLDFAST_URL": "testpassword://app@h/path?option=1"}
            for fd in fds:
                os.lseek(fd, 0, os.SEEK_SET)
            code, out, err = finish(start("run", *url, *words, "x", "--", "sh", "-c", look,
                                          env=without_url(**env), pass_fds=fds))
            equal((words[0], code, err), (words[0], 0, ""))
            for secret in (PASSWORD, ESCAPED, "\nPW=", f"-> {harness.folder}/pw"):
                assert secret not in out, (words, secret)


@test
def the_password_of_the_url_in_the_environment_is_not_passed_on():
    env = without_url(HOLDFAST_URL=f"testpassword://app:{ESCAPED}@h")
    code, out, err = run("run", "x", "--", "sh", "-c", "env; cat /proc/$PPID/environ", env=env)
    equal((code, err), (0, ""))
    assert ESCAPED not in out
    contains(out, "HOLDFAST_URL=testpassword://app@h\n")


@test
def a_password_file_that_is_not_secret_is_refused():
    """The same rule as for the configuration file: only its owner may write to it, and not everybody may read it."""
    words = ("run", "--url", "testpassword://app@h", "--password-file", f"{harness.folder}/pw", "x", "true")
    for mode, expected in ((0o644, "every user of this host can read it; try: chmod o-r"),
                           (0o604, "every user of this host can read it"),
                           (0o660, "others can write to it; try: chmod go-w"), (0o602, "others can write to it")):
        password_file(mode=mode)
        refused(f"cannot read the password from {harness.folder}/pw ({expected}", words=words)
    for mode in (0o600, 0o400, 0o440, 0o640):
        password_file(mode=mode)
        equal(run(*words, env=without_url())[0], 0)
    script = f'holdfast {" ".join(words[:3])} --password-file <(cat "{harness.folder}/pw") x true'
    equal(shell(script, HOLDFAST_MODULE_PATH=os.path.dirname(BREAK))[0], 0)


if os.geteuid() == 0:
    @test
    def a_password_file_of_somebody_else_is_refused():
        os.chown(password_file(), 65534, 65534)
        refused("it belongs to another user", words=(
            "run", "--url", "testpassword://app@h", "--password-file", f"{harness.folder}/pw", "x", "true"))


@test
def a_secret_that_is_mounted_into_a_container_may_be_readable_by_all():
    """Kubernetes and Docker mount secrets that way: a file of root's, 0444 or 0644, on a tmpfs that is read-only."""
    need_rights_for("unshare", "-rm", "mount", "-t", "tmpfs", "none", "/mnt")
    folder = f"{harness.folder}/secrets"
    os.mkdir(folder)
    for remount, code in (("mount -o remount,ro none", 0), ("true", 78)):
        script = (f'mount -t tmpfs none "{folder}" && printf %s "$PW" >"{folder}/pw" && chmod 444 "{folder}/pw" && '
                  f'{remount} "{folder}" && unset PW && exec "$@"')
        done = finish(start_program(
            "unshare", "-rm", "sh", "-c", script, "sh", HOLDFAST, "run", "--url", "testpassword://app@h",
            "--password-file", f"{folder}/pw", "x", "true", env=without_url(PW=PASSWORD)))
        equal((done[0], done[2]), (code, done[2]))


@test
def standard_input_can_be_the_password():
    code, out, err = run("run", "--url", "testpassword://app@h", "--password-fd", "0", "x", "--", "sh", "-c",
                         "readlink /proc/self/fd/0", env=without_url(), input=PASSWORD)
    equal((code, out, err), (0, "/dev/null\n", ""))


@test
def the_configuration_names_the_password_of_its_own_url_only():
    path = password_file(PASSWORD + "\r\n")
    configure(f"password-file = {path}\n[profile p]\nurl = testpassword://app@h\n"
              "password-file = ~/pw\n[profile q]\nurl = testpassword://app@h\n")
    env = without_url(HOME=harness.folder)
    equal(run("run", "--profile", "p", "x", "true", env=env)[0], 0)
    for words in (("--profile", "q"), ("--url", "testpassword://app@h"),
                  ("--profile", "p", "--url", "testpassword://app@evil")):
        code, _, err = run("run", *words, "x", "true", env=env)
        equal(code, 77)
        assert PASSWORD not in err and ESCAPED not in err
    found = settings("--profile", "p", env=env)["password-file"]
    equal((found["value"], found["used"], found["line"]), ("~/pw", True, 4))
    equal(settings("--profile", "q", env=env)["password-file"]["used"], False)
    contains(run("--profile", "q", "config", "show", "--origin", env=env)[1],
             "(not used: the URL comes from elsewhere)")
    # an option is used with any URL, and instead of what the configuration says
    code = run("run", "--profile", "q", "--password-env", "PW", "x", "true", env=env | {"PW": PASSWORD})[0]
    equal(code, 0)


@test
def what_is_no_password_is_reported():
    def write(text):
        return ("--password-file", password_file(text))

    url = ("--url", "testpassword://app@h")
    for text, expected in ((b"", "the password is empty"), (b"\n", "the password is empty"), (b"x" * 1025, "longer than 1024"),
                           (b"hunter2\nb\n", "more than one line"), (b"hunter2\0b", "more than one line")):
        err = refused("cannot read the password from", expected, words=("run", *url, *write(text), "x", "true"))
        assert "hunter2" not in err
    for words, expected in ((("--password-file", "/no/such"), "/no/such (No such file or directory)"),
                            (("--password-file", "/"), "Is a directory"),
                            (("--password-env", "NO_SUCH"), "NO_SUCH (it is not set"),
                            (("--password-fd", "77"), "descriptor 77 (Bad file descriptor)"),
                            (("--password-fd", "1"), "it must be 0, or 3 and above")):
        refused(expected, words=("run", *url, *words, "x", "true"))
    pw = write(b"hunter2")
    refused("exclude each other", words=("run", *url, *pw, "--password-env", "A", "x", "true"), code=64)
    refused("the embedded store takes no password", words=("run", *pw, "x", "true"))
    refused("sqlite:/x takes no password", words=("run", "--url", "sqlite:/x", *pw, "x", "true"))
    refused("two passwords", words=("run", *pw, "x", "true"),
            env=without_url(HOLDFAST_URL="testpassword://app:hunter2@h"))


@test
def a_store_that_is_not_there_is_reported_without_the_password():
    configure("url = redis://app:hunter2@db/0\n")
    for words in ((), ("--url", "redis://app@db/0", "--password-file", password_file("hunter2"))):
        err = refused("holdfast-redis.so", words=("run", *words, "x", "true"))
        assert "hunter2" not in err
    equal(settings()["url"]["value"], "redis://app:***@db/0")
    out = run("--url", "redis://app@db", "--password-file", "/some/file", "config", "show", "--origin")[1]
    matches(out, r"(?m)^password-file +/some/file +option$")


main()
