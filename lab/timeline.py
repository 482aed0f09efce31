"""A history in the terminal: a line for each client, and what happened in words.

    A  ···████████░░░░░░░░░░░░░░░░░░░░██
    B         ···············██████
                             ^^^^^^       two at once
"""
import itertools

WIDTH = 72
SIGNS = {"waits": "·", "inside": "█", "paused": "░"}
WORDS = {"asked": "asks for the lock", "locked": "has the lock", "unlocking": "unlocks", "unlocked": "has unlocked",
         "lost": "notices that it lost the lock", "stopped": "is stopped", "continued": "goes on", "died": "is dead",
         "waiting": "still waits", "failed": "is told an error:"}
PLAIN = {"breaks": "BREAKS", "stalls": "STALLS", "fenced": "fenced", "holds": "holds", "n/a": "not applicable",
         "gap": "not played", "error": "error"}
MOST_ACTORS, MOST_EVENTS = 8, 60


def in_words(event):
    text = event.get("text", "")
    if event["what"] == "note":
        return text
    if event["what"] == "write":
        token = f" with token {event['token']}" if event["token"] else ""
        return f"{event['who']} writes{token}: {'accepted' if event['accepted'] else 'refused'}"
    token = f" (token {event['token']})" if event.get("token") else ""
    return f"{event['who']} {WORDS[event['what']]}{token}" + (f" {text}" if text else "")


def chart(history):
    end = max((event["at"] for event in history["events"]), default=0) or 1

    def column(at):
        return min(WIDTH - 1, int(at / end * WIDTH))

    def paint(line, span, sign):
        for place in range(column(span["from"]), max(column(span["to"]), column(span["from"]) + 1)):
            line[place] = sign

    name_width = max(map(len, history["actors"]), default=0)
    for actor in history["actors"][:MOST_ACTORS]:
        line = [" "] * WIDTH
        for kind, sign in SIGNS.items():
            for span in history["spans"]:
                if span["who"] == actor and span["kind"] == kind:
                    paint(line, span, sign)
        for event in history["events"]:
            if event["who"] == actor and event["what"] == "died":
                line[column(event["at"])] = "✕"
        yield f"  {actor:{name_width}}  {''.join(line).rstrip()}"
    if len(history["actors"]) > MOST_ACTORS:
        yield f"  and {len(history['actors']) - MOST_ACTORS} more"
    for kind in dict.fromkeys(violation["kind"] for violation in history["violations"]):
        line = [" "] * WIDTH
        for violation in history["violations"]:
            if violation["kind"] == kind:
                paint(line, violation, "^")
        yield f"  {'':{name_width}}  {''.join(line).rstrip()} {kind}"
    yield f"  {'':{name_width}}  0 s{f'{end:.1f} s':>{WIDTH - 3}}"
    yield f"  {'':{name_width}}  · waits   █ inside   ░ stopped   ✕ dead"


def story(history):
    """Repeated lines are shown once."""
    groups = [(text, list(events)) for text, events in itertools.groupby(history["events"], in_words)]
    if len(groups) > MOST_EVENTS:
        return
    for text, events in groups:
        often = f" ({len(events)} times, until {events[-1]['at']:.3f} s)" if len(events) > 1 else ""
        yield f"  {events[0]['at']:7.3f} s  {text}{often}"
    for violation in history["violations"]:
        yield f"! {violation['from']:7.3f} s  {violation['text']}"


def draw(history):
    """Lines of text."""
    if "events" in history:
        yield from chart(history)
        yield ""
        yield from story(history)
        yield ""
    yield f"{history['scenario']}, {history['row']}: {PLAIN[history['verdict']]}. {history['sentence']}"
