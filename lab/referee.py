"""Judges a history. The rules are the same for every protocol, and verdicts are made only here.

A client is inside from the moment at which lock() returned to it until it calls unlock(), notices that it lost the lock,
or is dead. A stopped client is inside: it will continue where it was. Clients note these times within the true ones, so
two clients that are seen inside together really were.

    breaks   two were inside at once, or a stale write was accepted, and no token kept it out
    stalls   nobody was inside, and yet a client waited for the lock in vain; or clients that had asked later got it
             again and again; or a hand-off costs more the more clients wait
    fenced   two were inside at once, but the resource refused every stale write by its token
    holds    none of this
    error    nobody ever had the lock: nothing was shown
"""
import collections
import itertools

OVERTAKEN = 8  # if a waiter is overtaken this often in a row by one client, its turn may never come
HERD_SHARE = 0.3  # of the waiters: if a hand-off costs more requests than this, its cost grows with their number


def judge(history):
    """Adds spans, violations, verdict and sentence to the history, and returns it."""
    spans = find_spans(history)
    violations = [*two_at_once(history, spans), *stale_writes(history, spans), *refused_holders(history, spans),
                  *never_freed(history, spans), *starved(spans), *herd(history, spans)]
    history["spans"] = spans
    history["violations"] = sorted(violations, key=lambda violation: violation["from"])
    history["verdict"], history["sentence"] = verdict(history, history["violations"])
    return history


def find_spans(history):
    """When each client waited, was inside, and was stopped."""
    end = history["events"][-1]["at"] if history["events"] else 0
    spans, open_spans = [], {}

    def begin(who, kind, at, **more):
        open_spans[who, kind] = {"who": who, "kind": kind, "from": at, "to": end, **more}
        spans.append(open_spans[who, kind])

    def close(who, at, *kinds):
        for kind in kinds:
            if span := open_spans.pop((who, kind), None):
                span["to"] = at

    for event in history["events"]:
        who, at, what = event["who"], event["at"], event["what"]
        if what == "asked":
            begin(who, "waits", at)
        elif what == "locked":
            asked = open_spans[who, "waits"]["from"] if (who, "waits") in open_spans else at
            close(who, at, "waits")
            begin(who, "inside", at, asked=asked, token=event.get("token"))
        elif what in ("unlocking", "lost"):
            close(who, at, "inside")
        elif what == "failed":
            close(who, at, "waits")
        elif what == "stopped":
            begin(who, "paused", at)
        elif what == "continued":
            close(who, at, "paused")
        elif what == "died":
            close(who, at, "waits", "inside", "paused")
    return spans


def inside(spans):
    return [span for span in spans if span["kind"] == "inside"]


def two_at_once(history, spans):
    if not history["is_exclusive"]:
        return
    for one, two in itertools.combinations(sorted(inside(spans), key=lambda span: span["from"]), 2):
        until = min(one["to"], two["to"])
        if one["who"] != two["who"] and two["from"] < until:
            yield {"kind": "two at once", "from": two["from"], "to": until, "who": [one["who"], two["who"]],
                   "text": f"{two['who']} got the lock at {two['from']:.2f} s while {one['who']} was still inside (since "
                           f"{one['from']:.2f} s): both for {until - two['from']:.2f} s"}


def entry(spans, event):
    """The span in which the client wrote, or the last one before that."""
    before = [span for span in inside(spans) if span["who"] == event["who"] and span["from"] <= event["at"]]
    return before[-1] if before else None


def stale_writes(history, spans):
    """Writes of a client after another came in: the first of a series, which lasts until its last."""
    found = {}
    for event in history["events"]:
        mine = entry(spans, event) if event["what"] == "write" else None
        if not mine or not history["is_exclusive"]:
            continue
        later = [span for span in inside(spans) if span["who"] != mine["who"] and mine["from"] < span["from"] < event["at"]]
        if later:
            last = later[-1]
            series = mine["who"], mine["from"], last["from"], event["accepted"]
            if series in found:
                found[series]["to"] = event["at"]
                continue
            by_token = f": token {event['token']}, and {last['token']} was seen" if event["token"] else ""
            found[series] = {
                "kind": "stale write" if event["accepted"] else "stale write refused", "from": event["at"],
                "to": event["at"], "who": [mine["who"], last["who"]],
                "text": f"{mine['who']} wrote at {event['at']:.2f} s, though {last['who']} had got the lock since "
                        f"({last['from']:.2f} s); the write was {'accepted' if event['accepted'] else 'refused'}{by_token}"}
    return found.values()


def refused_holders(history, spans):
    """A token that does not rise locks the rightful holder out."""
    for event in history["events"]:
        if event["what"] == "write" and not event["accepted"]:
            mine = entry(spans, event)
            if mine and not any(mine["from"] < span["from"] < event["at"] for span in inside(spans)):
                yield {"kind": "holder refused", "from": event["at"], "to": event["at"], "who": [mine["who"]],
                       "text": f"{mine['who']} had the lock, and its write was refused: its token {mine['token']} is not "
                               f"larger than an earlier one"}


def never_freed(history, spans):
    """A client waits, nobody is inside, and the lease is over three times."""
    for event in history["events"]:
        if event["what"] != "waiting":
            continue
        at = event["at"]
        waits = [span for span in spans if span["kind"] == "waits" and span["who"] == event["who"] and span["from"] <= at]
        others = [span for span in inside(spans) if span["from"] < at]
        since = max([waits[-1]["from"], *(min(span["to"], at) for span in others)]) if waits else at
        if at - since >= 2 * history["lease_s"]:
            yield {"kind": "never freed", "from": since, "to": at, "who": [event["who"]],
                   "text": f"nobody was inside since {since:.2f} s, and {event['who']} still waited at {at:.2f} s"}


def starved(spans):
    """A client waits, and one that asked later repeatedly gets the lock."""
    for waits in (span for span in spans if span["kind"] == "waits"):
        later = collections.Counter(span["who"] for span in inside(spans) if span["who"] != waits["who"]
                                    and waits["from"] < span["asked"] and span["from"] < waits["to"])
        for who, count in later.most_common(1):
            if count >= OVERTAKEN:
                yield {"kind": "starved", "from": waits["from"], "to": waits["to"], "who": [waits["who"], who],
                       "text": f"{waits['who']} waited from {waits['from']:.2f} s to {waits['to']:.2f} s; meanwhile {who}, "
                               f"which always asked later, got the lock {count} times"}


def herd(history, spans):
    """A hand-off costs requests from most of the waiters, not only from the one whose turn it is."""
    requests, waits = history["requests_per_handoff"], [span for span in spans if span["kind"] == "waits"]
    crowd = {span["who"] for span in waits}
    if requests is not None and requests > len(crowd) * HERD_SHARE:
        yield {"kind": "herd", "from": min(span["from"] for span in waits), "to": max(span["to"] for span in waits),
               "who": sorted(crowd), "text": f"a hand-off cost {requests:.0f} requests while {len(crowd)} clients waited: "
                                             f"the more wait, the more it costs"}


def verdict(history, violations):
    def first(*kinds):
        return next((violation["text"] for violation in violations if violation["kind"] in kinds), None)

    if sentence := first("stale write", "holder refused"):
        return "breaks", sentence
    both = first("two at once")
    if both and not history["has_token"]:
        return "breaks", both
    if sentence := first("never freed", "starved", "herd"):
        return "stalls", sentence
    if both or first("stale write refused"):
        return "fenced", "; ".join(filter(None, (both, first("stale write refused"))))
    if not inside(history["spans"]):
        return "error", "; ".join(["nobody ever had the lock", *(event["text"] for event in history["events"]
                                                                if event["what"] == "failed")])
    return "holds", "never two at once, and the lock was free for the next"
