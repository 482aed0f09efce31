"""holdfast lab: the command line. src/cli/lab.c starts this, and has the help text."""
import argparse
import collections
import itertools
import json
import math
import os
import sys
import time
from pathlib import Path

sys.dont_write_bytecode = True
sys.path[0] = str(Path(__file__).resolve().parents[1])
from lab import paths  # noqa: F401,E402 # pylint: disable=unused-import # it finds the other packages
from lab import catalogue, literature, matrix, timeline  # noqa: E402

EXIT_USAGE, EXIT_INTERNAL, EXIT_NOT_INSTALLED, EXIT_BROKEN_PIPE = 64, 70, 78, 141
SIGNS = {"breaks": "BREAKS", "stalls": "STALLS", "fenced": "fenced", "holds": "holds", "n/a": "·", "gap": "?",
         "error": "ERROR"}


def fail(text, code=EXIT_USAGE):
    print(f"holdfast: {text}", file=sys.stderr)
    sys.exit(code)


def choose(kind, known, names):
    """The items with these names, in the order of the list; all of them if there are no names."""
    for name in names:
        if name not in known:
            fail(f"there is no {kind} \"{name}\"; try: holdfast lab list")
    return [thing for name, thing in known.items() if not names or name in names]


# ---- Commands ----


def list_all(options):
    if options.json:
        print(json.dumps(catalogue.contents()))
        return
    print("Scenarios:")
    for scenario in catalogue.scenarios().values():
        print(f"  {scenario.name:24}{scenario.title}")
    print("\nProtocols:")
    for row in catalogue.rows().values():
        missing = row.missing()
        print(f"  {row.name:24}{row.title}" + (f" (not installed: {' '.join(missing)})" if missing else ""))


def run(options):
    (scenario,) = choose("scenario", catalogue.scenarios(), [options.scenario])
    (row,) = choose("protocol", catalogue.rows(), [options.protocol])
    code = 0
    for result in matrix.play([matrix.Task(scenario, row, number) for number in range(options.repeat)], options.jobs or 1):
        if options.json:
            print(json.dumps(result), flush=True)
        else:
            print("\n".join(timeline.draw(result)), flush=True)
        code = max(code, {"error": EXIT_INTERNAL, "gap": EXIT_NOT_INSTALLED}.get(result["verdict"], 0))
    return code


def run_matrix(options):
    rows = choose("protocol", catalogue.rows(), options.protocol)
    scenarios = choose("scenario", catalogue.scenarios(), options.scenario)
    tasks = [matrix.Task(scenario, row, number) for row in rows for scenario in scenarios for number in range(options.repeat)]
    # Cells that need their own servers start early, so that the end is not spent waiting for them.
    tasks.sort(key=lambda task: (task.number, not task.scenario.harms))
    results, begun = [], time.monotonic()
    for result in matrix.play(tasks, options.jobs or 3 * os.cpu_count()):
        results.append(result)
        if options.json:
            print(json.dumps(result), flush=True)
        show_progress(len(results), len(tasks), begun, result)
    if not options.json:
        print("\n".join(table(rows, scenarios, results)))
    if options.html:
        from lab import report
        Path(options.html).write_text(report.page(catalogue.contents(), results), encoding="utf-8")
        print(f"the report is in {options.html}", file=sys.stderr)
    errors = [result for result in results if result["verdict"] == "error"]
    for result in errors:
        print(f"holdfast: {result['scenario']}, {result['row']}: {result['sentence']}", file=sys.stderr)
    if errors:
        return EXIT_INTERNAL
    return check(rows, scenarios, results) if options.check else 0


def check(rows, scenarios, results):
    """Compares with the literature. holdfast must do as well as expected, or better, each time; a flaw must show in
    nine plays out of ten."""
    cells, played, bad = by_cell(results), 0, []
    for row, scenario in itertools.product(rows, scenarios):
        verdicts = [result["verdict"] for result in cells[row.name, scenario.name]]
        if verdicts[0] in ("n/a", "gap"):
            continue
        played += 1
        expected = literature.expected(row.protocol.name, scenario.name, row.place.name)
        is_ours = row.protocol.name == "holdfast"
        least = len(verdicts) if is_ours else math.ceil(0.9 * len(verdicts))
        if not expected:
            bad.append(f"{scenario.name}, {row.name}: nothing is known of it; seen: {summary(cells[row.name, scenario.name])}")
        elif sum(verdict == expected.verdict or is_ours and verdict == "holds" for verdict in verdicts) < least:
            bad.append(f"{scenario.name}, {row.name}: expected {expected.verdict}; seen: {' '.join(verdicts)}")
    for line in bad:
        print(f"holdfast: {line}", file=sys.stderr)
    print(f"{played - len(bad)} of {played} cells are as expected", file=sys.stderr)
    return 1 if bad else 0


def show_progress(done, total, begun, result):
    if result["verdict"] == "n/a":
        return
    line = f"{done} of {total} cells, {time.monotonic() - begun:.0f} s: {result['scenario']}, {result['row']}: {result['verdict']}"
    if sys.stderr.isatty():
        print(f"\r\x1b[K{line[:79]}", end="" if done < total else "\r\x1b[K", file=sys.stderr, flush=True)
    else:
        print(line, file=sys.stderr, flush=True)


def by_cell(results):
    cells = collections.defaultdict(list)
    for result in results:
        cells[result["row"], result["scenario"]].append(result)
    return cells


def summary(results):
    """The verdicts of one cell, "BREAKS" or, if it was played several times, "BREAKS 9/10"."""
    counts = collections.Counter(result["verdict"] for result in results)
    verdict, count = counts.most_common(1)[0]
    return SIGNS[verdict] + (f" {count}/{len(results)}" if len(results) > 1 and verdict != "n/a" else "")


def table(rows, scenarios, results):
    """A row for each protocol, a column for each scenario that it names below."""
    cells = by_cell(results)
    name_width = max(len(row.name) for row in rows)
    widths = [max(2, *(len(summary(cells[row.name, scenario.name])) for row in rows)) for scenario in scenarios]
    yield f"{'':{name_width}}  " + "  ".join(f"{number:<{width}}" for number, width in enumerate(widths, 1))
    for row in rows:
        yield f"{row.name:{name_width}}  " + "  ".join(
            f"{summary(cells[row.name, scenario.name]):{width}}" for scenario, width in zip(scenarios, widths)).rstrip()
    yield ""
    for number, scenario in enumerate(scenarios, 1):
        yield f"{number:>4}  {scenario.name:22}{scenario.title}"


def main():
    parser = argparse.ArgumentParser(prog="holdfast lab", add_help=False)
    commands = parser.add_subparsers(dest="command", required=True)
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument("--json", action="store_true")
    playing = argparse.ArgumentParser(add_help=False, parents=[common])
    playing.add_argument("--repeat", type=int, default=1)
    playing.add_argument("--jobs", type=int)
    commands.add_parser("list", parents=[common], add_help=False).set_defaults(run=list_all)
    one = commands.add_parser("run", parents=[playing], add_help=False)
    one.add_argument("scenario")
    one.add_argument("protocol")
    one.set_defaults(run=run)
    many = commands.add_parser("matrix", parents=[playing], add_help=False)
    many.add_argument("--protocol", action="append", default=[])
    many.add_argument("--scenario", action="append", default=[])
    many.add_argument("--html")
    many.add_argument("--check", action="store_true")
    many.set_defaults(run=run_matrix)
    options = parser.parse_args()
    matrix.end_on_signals()
    try:
        code = options.run(options)
        sys.stdout.flush()
    except BrokenPipeError:  # as in "lab list | head"
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = EXIT_BROKEN_PIPE
    sys.exit(code)


if __name__ == "__main__":
    main()
