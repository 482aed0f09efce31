"""Made-up histories to test the report with. Each is a list of (seconds, who, what), as a stage records them, and is
judged by the referee."""
from lab.referee import judge

LEASE_S = 1.0


def history(row, scenario, actors, steps, *, place="redis", has_token=False, notes=(), requests=None):
    events = [{"at": at, "who": who, **thing(what)} for at, who, what in steps]
    events += [{"at": at, "who": None, "what": "note", "text": text} for at, text in notes]
    return judge({"scenario": scenario, "row": row, "protocol": row.partition("@")[0], "place": place, "lease_s": LEASE_S,
                  "actors": list(actors), "events": sorted(events, key=lambda event: event["at"]),
                  "has_token": has_token, "is_exclusive": True, "requests_per_handoff": requests})


def thing(what):
    """"locked 7", "write 7", "write 7 refused" and plain words."""
    word, *rest = what.split()
    if word == "locked":
        return {"what": word, "token": rest[0] if rest else None}
    if word == "write":
        return {"what": word, "token": rest[0] if rest else None, "accepted": "refused" not in rest}
    return {"what": word}


def not_played(row, scenario, verdict, sentence):
    return {"row": row, "scenario": scenario, "protocol": row.partition("@")[0], "place": "redis", "verdict": verdict,
            "sentence": sentence}


def crash(row, is_freed):
    steps = [(0.01, "A", "asked"), (0.02, "A", "locked"), (0.1, "A", "write"), (0.3, "A", "died"), (0.31, "B", "asked")]
    steps += [(1.04, "B", "locked"), (1.1, "B", "write"), (1.2, "B", "unlocking")] if is_freed else [(6.3, "B", "waiting")]
    return history(row, "crash-holding", "AB", steps, notes=[(0.3, "A is killed while it holds the lock")])


def pause(row, has_token):
    token = has_token * " 1763300000000001", has_token * " 1763300000000002"
    return history(row, "pause", "AB", [
        (0.01, "A", "asked"), (0.02, "A", "locked" + token[0]), (0.1, "A", "stopped"), (0.12, "B", "asked"),
        (1.05, "B", "locked" + token[1]), (1.2, "B", "write" + token[1]), (2.1, "A", "continued"),
        (2.11, "A", "write" + token[0] + has_token * " refused"), (2.3, "A", "unlocking"), (2.5, "B", "unlocking")],
        has_token=has_token, notes=[(0.1, "A is stopped between its check and its write"), (2.1, "A goes on")])


def herd(row, requests):
    """A crowd of a hundred, one after the other. requests: for each hand-off."""
    actors = [str(number) for number in range(1, 101)]
    steps = []
    for number, who in enumerate(actors):
        steps += [(0.1 + number * 0.001, who, "asked"), (0.3 + 0.02 * number, who, "locked"),
                  (0.315 + 0.02 * number, who, "unlocking")]
    return history(row, "herd", actors, steps, requests=requests)


def several():
    """A bit of everything, wider than a phone, with a title and a sentence that HTML must escape."""
    contents = {
        "scenarios": [scenario("crash-holding", "The holder crashes"), scenario("pause", "A pause in the middle"),
                      scenario("herd", "A herd of a hundred"), scenario("eviction", "Eviction & <other> accidents"),
                      *(scenario(f"more-{number}", f"One of many more, {number}") for number in range(16))],
        "rows": [row("setnx", "SETNX + DEL", None, None),
                 row("setnx-expire", "SETNX + EXPIRE", "setnx", "The key gets an expiry, so a dead holder's lock ends."),
                 row("holdfast@redis", "holdfast, one Redis", None, None)]}
    return contents, [
        crash("setnx", False), not_played("setnx", "pause", "n/a", "the lock has no lease that could end"), herd("setnx", 101.5),
        not_played("setnx", "eviction", "gap", "not installed: redis-server"),
        crash("setnx-expire", True), pause("setnx-expire", False),
        not_played("setnx-expire", "eviction", "error", "Traceback: 1 < 2 & so on"),
        *(not_played("setnx-expire", f"more-{number}", "n/a", "no reason") for number in range(16)),
        crash("holdfast@redis", True), pause("holdfast@redis", True), herd("holdfast@redis", 3.0)]


def scenario(name, title):
    return {"name": name, "title": title, "summary": f"What happens in {name}: the holder is stopped, and `A < B`."}


def row(name, title, follows, mends):
    return {"name": name, "title": title, "protocol": name.partition("@")[0], "protocol_title": title, "place": "redis",
            "follows": follows, "mends": mends, "mends_in": follows and "crash-holding", "summary": f"What {title} is.", "missing": []}
