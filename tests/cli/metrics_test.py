"""holdfast run --metrics-file: counters that continue across runs, in Prometheus' text format."""
import os
import re
import subprocess
import time

import harness
from harness import break_lock, contains, equal, finish, main, read_line, run, start, test

NAME = r"[a-zA-Z_:][a-zA-Z0-9_:]*"
SAMPLE = re.compile(rf'({NAME})(?:\{{name="((?:[^"\\\n]|\\["\\n])*)"\}})? ([0-9]+(?:\.[0-9]+)?)')
COUNTERS = ("acquired", "not_acquired", "skipped", "failed", "renewals", "lost", "max_hold", "warn_after")


def path():
    return f"{harness.folder}/holdfast.prom"


def parse(text):
    """A strict reader of the format: {(sample, label or None): value}. Every family has one HELP and one
    TYPE before its samples, which are grouped together; no sample occurs twice; the last line has a
    newline."""
    samples, types, families, helped = {}, {}, [], set()
    assert text.endswith("\n") and "\r" not in text, text
    text.encode().decode("utf-8")
    for line in text[:-1].split("\n"):
        if found := re.fullmatch(rf"# HELP ({NAME}) ([^\n]+)", line):
            assert found[1] not in helped, line
            helped.add(found[1])
            families.append(found[1])
        elif found := re.fullmatch(rf"# TYPE ({NAME}) (counter|gauge|summary)", line):
            assert found[1] == families[-1] and found[1] not in types, line
            types[found[1]] = found[2]
        else:
            found = SAMPLE.fullmatch(line)
            assert found, f"not a line of the format: {line!r}"
            family = families[-1]
            expected = [family] if types[family] != "summary" else [family + "_sum", family + "_count"]
            assert found[1] in expected, f"{line!r} is not of {family}"
            assert types[family] != "counter" or found[1].endswith("_total"), line
            assert (found[1], found[2]) not in samples, f"twice: {line!r}"
            samples[found[1], found[2]] = float(found[3])
    return samples


def metrics():
    with open(path(), encoding="utf-8", newline="") as file:
        return parse(file.read())


def value(name, label=None):
    return metrics().get((f"holdfast_run_{name}", label))


def run_counted(*words):
    return run("run", "--metrics-file", path(), *words)


@test
def a_run_is_counted():
    before = time.time()
    equal(run_counted("x", "sleep", "0.2")[0], 0)
    equal([value(f"{name}_total") for name in COUNTERS], [1, 0, 0, 0, 0, 0, 0, 0])
    equal((value("wait_seconds_count"), value("held_seconds_count")), (1, 1))
    assert 0.2 <= value("held_seconds_sum") < 60 and value("wait_seconds_sum") < 60
    equal(value("last_exit_code"), 0)
    assert before - 1 < value("last_end_timestamp_seconds") < time.time() + 1
    equal(value("last_success_timestamp_seconds"), value("last_end_timestamp_seconds"))
    assert 10 < value("least_margin_seconds") < 30
    equal(sorted(os.listdir(harness.folder))[:2], ["holdfast.prom", "holdfast.prom.lock"])


@test
def counters_go_on_over_runs():
    equal(run_counted("x", "true")[0], 0)
    success = value("last_success_timestamp_seconds")
    equal(run_counted("x", "sh", "-c", "exit 7")[0], 7)
    equal(run_counted("x", "/no/such/command")[0], 127)
    equal(value("acquired_total"), 3)
    equal(value("held_seconds_count"), 3)
    equal(value("last_exit_code"), 127)
    equal(value("last_success_timestamp_seconds"), success)


@test
def renewals_and_the_margin_are_counted():
    equal(run_counted("x", "--ttl", "6s", "sleep", "7")[0], 0)
    assert value("renewals_total") >= 2, metrics()
    assert 0 < value("least_margin_seconds") < 4.5, metrics()


@test
def what_was_not_acquired_is_counted_with_its_wait():
    holder = start("run", "x", "sh", "-c", "echo; exec sleep 100")
    read_line(holder.stdout)
    equal(run_counted("-q", "-n", "x", "true")[0], 75)
    equal(run_counted("-q", "-w", "3s", "x", "true")[0], 75)
    equal(run_counted("-q", "--skip-ok", "-n", "x", "true")[0], 0)
    equal([value(f"{name}_total") for name in COUNTERS[:3]], [0, 2, 1])
    equal((value("wait_seconds_count"), value("held_seconds_count")), (3, 0))
    assert 3 <= value("wait_seconds_sum") < 60
    equal(value("least_margin_seconds"), None)
    equal(value("last_success_timestamp_seconds"), None)  # nothing was run
    equal(run("run", "--url", "sqlite:/no/such/folder/db", "--metrics-file", path(), "x", "true")[0], 69)
    equal((value("failed_total"), value("wait_seconds_count"), value("last_exit_code")), (1, 3, 69))


@test
def a_skipped_run_does_not_hide_the_failed_one():
    equal(run_counted("--max-hold", "300ms", "x", "sleep", "100")[0], 124)
    ended = value("last_end_timestamp_seconds")
    equal((value("last_exit_code"), value("max_hold_total")), (124, 1))
    holder = start("run", "x", "sh", "-c", "echo; exec sleep 100")
    read_line(holder.stdout)
    equal(run_counted("-n", "--skip-ok", "x", "true")[0], 0)
    equal(run_counted("-q", "-n", "-E", "0", "x", "true")[0], 0)
    equal((value("last_exit_code"), value("last_end_timestamp_seconds")), (124, ended))
    equal([value(f"{name}_total") for name in COUNTERS], [1, 0, 2, 0, 0, 0, 1, 0])
    equal(run_counted("-q", "-n", "x", "true")[0], 75)  # not a success, which it reports
    equal((value("last_exit_code"), value("not_acquired_total")), (75, 1))
    assert value("last_end_timestamp_seconds") > ended


@test
def a_run_that_takes_long_is_reported_and_counted_and_not_killed():
    process = start("run", "--metrics-file", path(), "--report", "report", "--warn-after", "200ms", "x", "-c",
                    "read line; echo done", stdin=subprocess.PIPE)
    contains(read_line(process.stderr), "holdfast: x has been held for 200ms (--warn-after); the command goes on")
    equal(finish(process), (0, "done\n", ""))
    equal((value("warn_after_total"), value("max_hold_total"), value("last_exit_code")), (1, 0, 0))
    contains(open(f"{harness.folder}/report", encoding="utf-8").read(), '"warned":true')
    equal(run_counted("-q", "--warn-after", "0", "x", "sleep", "2"), (0, "", ""))
    equal(value("warn_after_total"), 2)
    equal(run_counted("--warn-after", "1h", "x", "true"), (0, "", ""))
    equal(value("warn_after_total"), 2)


@test
def different_names_have_different_labels():
    names = ["a\x01", "a\x02", "a\x7f", b"a\xff", b"a\xfe", "a\\x01", "a\u202e", "a\ufffd", "a\n", "a\\n"]
    for name in names:
        equal(run_counted("--metrics-names", name, "true")[0], 0)
    labels = {label: count for (sample, label), count in metrics().items() if sample == "holdfast_run_acquired_total"}
    equal((len(labels), set(labels.values())), (len(names), {1}))


@test
def a_loss_is_counted():
    process = start("run", "--metrics-file", path(), "x", "sh", "-c",
                    "echo $HOLDFAST_TOKEN; exec sleep 100")
    break_lock("x", read_line(process.stdout))
    equal(finish(process)[0], 79)
    equal((value("acquired_total"), value("lost_total"), value("last_exit_code")), (1, 1, 79))


@test
def names_are_labels_only_when_asked():
    odd = 'a "b"\\n\n{}<b>\x1b[1m, ü'
    equal(run_counted(odd, "true")[0], 0)
    equal({label for _, label in metrics()}, {None})
    equal(run_counted("--metrics-names", odd, "true")[0], 0)
    equal(run_counted("--metrics-names", odd, "--also", "y", "true")[0], 0)
    equal(run_counted("--metrics-names", "plain", "false")[0], 1)
    escaped = 'a \\"b\\"\\\\\\\\n\\\\x0a{}<b>\\\\x1b[1m, ü'
    equal({label for _, label in metrics()}, {None, escaped, "plain"})
    equal([value("acquired_total", label) for label in (None, escaped, "plain")], [1, 2, 1])
    equal([value("last_exit_code", label) for label in (None, escaped, "plain")], [0, 0, 1])


@test
def the_longest_and_strangest_names_fit():
    for name in ("x" * 255, "\n" * 255, b"\xff" * 255, "🔒" * 63):
        equal(run_counted("--metrics-names", name, "true")[0], 0)
        equal(run_counted("--metrics-names", name, "true")[0], 0)
    equal(sorted(value for (name, _), value in metrics().items()
                 if name == "holdfast_run_acquired_total"), [2, 2, 2, 2])


@test
def runs_that_end_at_once_lose_no_counts():
    runs = [start("run", "--metrics-file", path(), f"x{i}", "true") for i in range(24)]
    for process in runs:
        equal(finish(process)[0], 0)
    equal((value("acquired_total"), value("held_seconds_count")), (24, 24))


@test
def a_reader_sees_a_whole_file_at_all_times():
    equal(run_counted("x", "true")[0], 0)
    writers = [start("run", "--metrics-file", path(), "--metrics-names", f"x{i}", "true")
               for i in range(12)]
    seen = set()
    while any(process.poll() is None for process in writers):
        seen.add(len(metrics()))
    equal(value("acquired_total"), 1)
    equal(len({label for _, label in metrics()}), 13)
    assert seen


@test
def what_is_garbage_in_it_is_dropped():
    equal(run_counted("x", "true")[0], 0)
    with open(path(), "r+", encoding="utf-8") as file:
        text = file.read()
        file.seek(0)
        file.write("garbage\nholdfast_run_lost_total nan\nholdfast_run_lost_total -5\n"
                   'holdfast_run_lost_total{name="x} 7\nholdfast_run_lost_total{job="x"} 7\n'
                   "holdfast_run_lost_total 1e300\nholdfast_run_renewals_total 3 4\n"
                   "holdfast_run_other_total 9\n\0\0" + text + "holdfast_run_acqui")
    equal(run_counted("x", "true")[0], 0)
    equal((value("acquired_total"), value("lost_total"), value("renewals_total")), (2, 0, 0))
    equal({label for _, label in metrics()}, {None})
    with open(path(), "w", encoding="utf-8"):
        pass  # empty, as after a power failure: it starts again
    equal(run_counted("x", "true")[0], 0)
    equal(value("acquired_total"), 1)


@test
def another_programs_file_is_left_alone():
    with open(path(), "w", encoding="utf-8") as file:
        file.write("node_other_total 5\n")
    code, out, err = run_counted("x", "echo", "ran")
    equal((code, out), (64, ""))
    contains(err, "cannot keep metrics in", "not a metrics file of holdfast")
    equal(os.listdir(harness.folder), ["holdfast.prom"])


@test
def a_file_that_cannot_be_kept_is_said_before_anything_is_done():
    for place in ("/no/such/folder/x.prom", harness.folder):
        code, out, err = run("run", "--metrics-file", place, "x", "echo", "ran")
        equal((code, out), (64, ""))
        contains(err, "holdfast: cannot keep metrics in " + place)


@test
def names_without_end_are_bounded():
    lines = "".join(f'holdfast_run_acquired_total{{name="n{i}"}} 1\n' for i in range(1500))
    with open(path(), "w", encoding="utf-8") as file:
        file.write(lines)
    equal(run_counted("--metrics-names", "one more", "true")[0], 0)
    labels = {label for _, label in metrics()}
    assert len(labels) <= 1001 and "one more" not in labels and None in labels, len(labels)
    assert value("acquired_total") >= 1


main()
