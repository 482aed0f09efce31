"""holdfast count: one step on a counter, what it prints, and its exit codes."""
import json

from harness import contains, equal, main, run, start, test, wait_until

MOST = 2**63 - 1


def count(*words):
    """What a step that must succeed prints."""
    code, out, err = run("count", *words)
    equal((code, err), (0, ""))
    return out


@test
def a_counter_is_added_to_read_set_and_removed():
    equal(count("get", "n"), "none\n")
    equal([count("add", "n"), count("add", "n", "41"), count("add", "n", "-50")], ["1\n", "42\n", "-8\n"])
    equal(count("get", "n"), "-8\n")
    equal([count("swap", "n", "7"), count("swap", "fresh", "1")], ["-8\n", "none\n"])
    equal([count("cas", "n", "7", "-9"), count("cas", "other", "none", "5")], ["-9\n", "5\n"])
    equal([count("rm", "n"), count("rm", "n"), count("get", "n")], ["-9\n", "none\n", "none\n"])


@test
def a_counter_that_is_not_as_expected_has_its_own_exit_code():
    equal(count("add", "n", "6"), "6\n")
    code, out, err = run("count", "cas", "n", "5", "7")
    equal((code, out), (80, ""))
    equal(err, "holdfast: cannot change n (the counter is not what was expected: it is 6)\n")
    code, out, err = run("count", "cas", "n", "none", "7")
    equal((code, out), (80, ""))
    code, out, err = run("count", "cas", "no-such", "5", "7")
    equal((code, out), (80, ""))
    contains(err, "there is none")
    code, out, err = run("--json", "count", "cas", "n", "5", "7")
    equal((code, json.loads(out)["value"]), (80, "6"))
    equal(count("get", "n"), "6\n")


@test
def a_sum_that_does_not_fit_changes_nothing():
    equal(count("add", "n", str(MOST)), f"{MOST}\n")
    code, out, err = run("count", "add", "n")
    equal((code, out), (65, ""))
    contains(err, "would leave its range")
    equal(count("get", "n"), f"{MOST}\n")


@test
def an_expiry_is_set_when_the_counter_is_created():
    def left_ms(*words):
        return json.loads(run("--json", "count", *words)[1])["left_ms"]

    for words in (("add", "a", "1"), ("swap", "b", "1"), ("cas", "c", "none", "1")):
        equal(run("count", *words, "--expire", "1h")[0], 0)
        first = left_ms("get", words[1])
        assert 0 < first <= 3600000, first
        assert 0 < left_ms("add", words[1], "1", "--expire", "9h") <= first
    equal(left_ms("add", "endless"), None)
    equal(left_ms("add", "endless", "--expire", "1s"), None)
    equal(count("add", "short", "--expire", "1ms"), "1\n")
    wait_until(lambda: count("get", "short") == "none\n", "it has expired")


@test
def a_program_gets_an_object_and_the_value_as_a_string():
    equal(json.loads(run("--json", "count", "get", "n")[1]), {"name": "n", "value": None, "left_ms": None})
    equal(json.loads(run("--json", "count", "add", "n", str(MOST))[1]),
          {"name": "n", "value": str(MOST), "left_ms": None})


@test
def what_is_wrong_on_the_command_line_is_refused():
    for words, said in ((("bad", "n"), "it can be get, add, cas, swap or rm"), (("get",), "missing argument"),
                        (("get", "n", "1"), "unexpected argument"), (("swap", "n"), "missing argument"),
                        (("cas", "n", "1"), "missing argument"), (("add", "n", "1.5"), "N cannot be '1.5'"),
                        (("add", "n", str(MOST + 1)), "a whole number of 64 bits"),
                        (("cas", "n", "nothing", "1"), "EXPECTED cannot be 'nothing'"),
                        (("rm", "n", "--expire", "1s"), "--expire cannot be used with count rm"),
                        (("add", ""), "a name must have 1 to 255 bytes")):
        code, out, err = run("count", *words)
        equal((words, code, out), (words, 64, ""))
        contains(err, said)


@test
def a_store_without_counters_says_why():
    code, out, err = run("--url", "quorum+memory:a,b,c", "count", "add", "n")
    equal((code, out), (78, ""))
    contains(err, "has no counters: a majority of nodes cannot count")


@test
def commands_that_count_at_the_same_time_lose_nothing():
    started = [start("count", "add", "n") for _ in range(20)]
    printed = sorted(int(process.communicate()[0]) for process in started)
    equal(printed, list(range(1, 21)))


main()
