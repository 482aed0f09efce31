"""A history as a picture: who waits, is inside and is paused, and where the violation is. Time runs to the right.

All x coordinates are percentages of the width, and heights are in pixels: a picture is as wide as its page, and its
text stays legible on a phone. `inline` is for an HTML page, which has `css()` among its styles; `standalone` is a file
for <img>, with a title, the notes and the verdict's sentence as lines of text.
"""
import textwrap
from html import escape

# Two palettes, with the same names. Text of every colour here has a contrast of at least 4.5 on `page` and `soft`.
LIGHT = {"page": "#fdfcfa", "soft": "#f4f2ed", "rule": "#d9d5cc", "ink": "#22252b", "faint": "#5d6066",
         "link": "#27548a",
         "holds": "#1d6b3c", "fenced": "#1f5f86", "breaks": "#b3261e", "stalls": "#835200", "n/a": "#686b70",
         "who": ("#a9c7e8", "#cfbbe8", "#a8d5cb", "#ecd0a4"), "edge": ("#2f6bab", "#7a4fb5", "#2b8474", "#a5701a"),
         "band": "#f2b8b0"}
DARK = {"page": "#16181c", "soft": "#1f2227", "rule": "#3a3e45", "ink": "#e8e6e1", "faint": "#a2a5ab",
        "link": "#8fb8ea",
        "holds": "#6cc08b", "fenced": "#76b7de", "breaks": "#ff8a7d", "stalls": "#e3ae52", "n/a": "#969aa1",
        "who": ("#234a75", "#493069", "#1e564c", "#604515"), "edge": ("#6aa3df", "#ad88e0", "#5cb8a7", "#d29b45"),
        "band": "#7a2a25"}
# A sign for each verdict, 16 by 16, so that nobody needs to tell colours apart.
SIGNS = {"holds": '<path d="M3 8.5l3.5 3.5L13 4.5"/>',
         "fenced": '<path d="M8 1.8l5 1.7v4.2c0 3-2 5.2-5 6.5c-3-1.3-5-3.5-5-6.5V3.5z"/>',
         "breaks": '<path d="M4 4l8 8M12 4l-8 8"/>',
         "stalls": '<path d="M4 2.5h8M4 13.5h8M5 2.5c0 4 6 7 6 11M11 2.5c0 4-6 7-6 11"/>',
         "n/a": '<path d="M5 8h6"/>',
         "gap": '<path d="M5.5 6a2.5 2.5 0 1 1 3.6 2.2c-.8.4-1.1.9-1.1 1.8M8 12.6v.2"/>',
         "error": '<path d="M8 3v6.5M8 12.8v.2"/>'}
FONT = "system-ui,-apple-system,'Segoe UI',Helvetica,Arial,sans-serif"

NAMES_PX = 34  # the column of the names, left of the part that the percentages refer to
LABELS_PX = 20  # a row of labels
AXIS_PX = 26
LANES_PX = ((4, 34), (8, 26), (20, 14), (1000, 3))  # up to this many actors: the height of each one's lane
NARROWEST_PX = 320  # of the part with the times, on a phone: labels must not overlap at this width
STANDALONE_PX, LINE_PX, TEXT_CHARACTERS = 760, 20, 100  # a picture as a file: its width, and its lines of text


def css():
    """The styles of all pictures, in both palettes."""
    return f"{rules(LIGHT)}\n@media(prefers-color-scheme:dark){{\n{rules(DARK)}\n}}"


def rules(colours):
    lines = [f".tl text{{font:12px {FONT};fill:{colours['ink']}}}",
             f".tl .faint{{fill:{colours['faint']}}} .tl .name{{font-weight:600}}",
             f".tl .axis{{stroke:{colours['rule']}}} .tl .lease{{stroke:{colours['faint']};stroke-width:2}}",
             f".tl .event{{stroke:{colours['faint']};stroke-dasharray:2 3}}",
             f".tl .number{{fill:{colours['page']};stroke:{colours['faint']}}}",
             f".tl .band{{fill:{colours['band']};fill-opacity:.55}} .tl .edge{{stroke:{colours['breaks']};stroke-width:1.5}}",
             f".tl text.bad{{fill:{colours['breaks']};font-weight:600;paint-order:stroke;stroke:{colours['page']};"
             "stroke-width:4px;stroke-linejoin:round}",
             f".tl .wait{{stroke:{colours['faint']};stroke-width:2;stroke-dasharray:.1 5;stroke-linecap:round}}",
             f".tl .crowd{{stroke:{colours['faint']};stroke-opacity:.4}}",
             f".tl .hatch{{stroke:{colours['ink']};stroke-opacity:.55;stroke-width:1.5}}",
             f".tl .wrote{{fill:{colours['ink']};stroke:{colours['page']};stroke-width:1.5}}",
             f".tl .stale{{fill:{colours['breaks']};stroke:{colours['page']};stroke-width:1.5}}",
             f".tl .refused,.tl .died{{stroke:{colours['breaks']};stroke-width:2.5;fill:none;stroke-linecap:round}}",
             f".tl .died{{stroke:{colours['ink']}}}"]
    for index, (fill, edge) in enumerate(zip(colours["who"], colours["edge"])):
        lines.append(f".tl .who{index}{{fill:{fill};stroke:{edge}}}")
    return "\n".join(lines)


def standalone(history, title, subtitle):
    """An SVG file."""
    picture = Picture(history, "hatch")
    verdict = history["verdict"]
    rest = textwrap.wrap(f"{verdict.upper()}: {history['sentence']}", TEXT_CHARACTERS)
    rest += [line for text in notes(history) for line in textwrap.wrap(text, TEXT_CHARACTERS, subsequent_indent="  ")]
    top = 62
    below = top + picture.height + 24
    height = below + LINE_PX * len(rest) - 4

    def frame(colours):
        return (f".page{{fill:{colours['page']};stroke:{colours['rule']}}} .tl .title{{font:600 16px {FONT}}} "
                f".tl .line{{font-size:13px}} .tl .verdict{{font-weight:600;fill:{colours.get(verdict, colours['n/a'])}}}")

    text = "\n".join(f'<text x="20" y="{below + LINE_PX * index}" class="line">{escape(line, quote=False)}</text>'
                     for index, line in enumerate(rest))
    text = text.replace(f"{verdict.upper()}:", f'<tspan class="verdict">{verdict.upper()}</tspan>:', 1)
    return (f'<svg xmlns="http://www.w3.org/2000/svg" class="tl" viewBox="0 0 {STANDALONE_PX} {height}" '
            f'width="{STANDALONE_PX}" height="{height}" role="img" aria-label="{escape(history["sentence"])}">\n'
            f'<style>\n{css()}\n{frame(LIGHT)}\n@media(prefers-color-scheme:dark){{{frame(DARK)}}}\n</style>\n'
            f'<rect x=".5" y=".5" width="{STANDALONE_PX - 1}" height="{height - 1}" rx="8" class="page"/>\n'
            f'<text x="20" y="29" class="title">{escape(title, quote=False)}</text>\n'
            f'<text x="20" y="48" class="line faint">{escape(subtitle, quote=False)}</text>\n'
            f'<svg x="{12 + NAMES_PX}" y="{top}" width="{STANDALONE_PX - NAMES_PX - 44}" height="{picture.height}" '
            f'overflow="visible">\n{picture.body()}\n</svg>\n{text}\n</svg>\n')


def inline(history, unique):
    """An <svg> for an HTML page; no other picture on the page has this `unique`."""
    picture = Picture(history, unique)
    return (f'<svg class="tl" width="100%" height="{picture.height}" role="img" '
            f'aria-label="{escape(history["sentence"])}" '
            f'style="overflow:visible;box-sizing:border-box;padding:0 12px 0 {NAMES_PX}px">\n{picture.body()}\n</svg>')


def samples():
    """Each kind of thing in a picture, drawn, with what it means."""
    bar = '<rect x="1" y="3" width="54" height="16" rx="3" class="who0"/>'
    hatch = '<pattern id="key-p" width="7" height="7" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">' \
            '<path d="M0 0V7" class="hatch"/></pattern>'

    def sample(body):
        return f'<svg class="tl" width="56" height="22" aria-hidden="true">{body}</svg>'

    def middle(shape):
        return f'<svg x="28" y="11" overflow="visible">{shape}</svg>'

    yield sample('<line x1="4" x2="54" y1="11" y2="11" class="wait"/>'), "asks for the lock and waits"
    yield sample(bar), "is inside: lock() has returned, and unlock() has not been called"
    yield (sample(f'<defs>{hatch}</defs>{bar}<rect x="1" y="3" width="54" height="16" rx="3" fill="url(#key-p)"/>'),
           "is paused: stopped where it is, and does not know it")
    yield sample(bar + middle(WRITE)), "writes to the resource"
    yield sample(bar + middle(STALE)), "a stale write that the resource accepts: somebody else has the lock by now"
    yield sample(bar + middle(REFUSED)), "a write that the resource refuses, because its token is too small"
    yield sample(middle(DIED)), "dies, as by kill -9"
    yield (sample('<rect x="10" y="1" width="36" height="20" class="band"/><path d="M10 0V22M46 0V22" class="edge"/>'),
           "the violation")


def notes(history):
    """The notes in words, with their numbers in the picture."""
    return [f"{number} at {event['at']:.2f} s: {event['text']}"
            for number, event in enumerate(noted(history), 1)]


def noted(history):
    return [event for event in history["events"] if event["what"] == "note"]


class Picture:
    """From top to bottom: a row of labels for each kind of violation, one for the notes, the lanes, the axis."""

    def __init__(self, history, unique):
        self.history = history
        self.unique = unique
        times = [event["at"] for event in history["events"]] + [span["to"] for span in history["spans"]]
        self.last = max(times, default=0) or 1
        self.lane_px = next(px for most, px in LANES_PX if len(history["actors"]) <= most)
        self.lanes_px = self.lane_px * len(history["actors"])
        self.kinds = list(dict.fromkeys(violation["kind"] for violation in history["violations"]))
        self.top = LABELS_PX * (len(self.kinds) + bool(noted(history))) + 4
        self.height = round(self.top + self.lanes_px + AXIS_PX)

    def body(self):
        return "\n".join([*self.pattern(), *self.bands(), *self.axis(), *self.numbers(), *self.lanes(), *self.marks()])

    # -- Where things are --

    def x(self, at):
        return f"{self.percent(at):.2f}%"

    def percent(self, at):
        return 100 * at / self.last

    def width(self, start, end):
        return f"{max(self.percent(end) - self.percent(start), .4):.2f}%"

    def y(self, who):
        return self.top + self.lane_px * self.history["actors"].index(who)

    def text(self, at, y, words, kind):
        """Text beside a time, on the side where there is room."""
        anchor = "start" if self.percent(at) < 50 else "end"
        return f'<text x="{self.x(at)}" y="{y:.0f}" text-anchor="{anchor}" class="{kind}">{escape(words)}</text>'

    # -- The parts --

    def pattern(self):
        if any(span["kind"] == "paused" for span in self.history["spans"]):
            yield (f'<defs><pattern id="{self.unique}" width="7" height="7" patternUnits="userSpaceOnUse" '
                   'patternTransform="rotate(45)"><path d="M0 0V7" class="hatch"/></pattern></defs>')

    def bands(self):
        """The violations, behind the lanes of the clients concerned, below a bracket; each kind is named once."""
        for violation in self.history["violations"]:
            rows = [self.y(who) for who in violation["who"]] or [self.top]
            top, bottom = min(rows), max(rows) + self.lane_px
            start, end = violation["from"], violation["to"]
            label_y = LABELS_PX * self.kinds.index(violation["kind"]) + 16
            yield (f'<rect x="{self.x(start)}" y="{top:.0f}" width="{self.width(start, end)}" height="{bottom - top:.0f}" '
                   f'class="band"><title>{escape(violation["text"])}</title></rect>')
            yield f'<line x1="{self.x(start)}" x2="{self.x(end)}" y1="{label_y}" y2="{label_y}" class="edge"/>'
            for at in sorted({start, end}):
                yield f'<line x1="{self.x(at)}" x2="{self.x(at)}" y1="{label_y}" y2="{bottom:.0f}" class="edge"/>'
        for number, kind in enumerate(self.kinds):
            first = next(violation for violation in self.history["violations"] if violation["kind"] == kind)
            is_early = self.percent(first["from"]) < 50
            yield self.text(first["from" if is_early else "to"], LABELS_PX * number + 12, kind, "bad")

    def axis(self):
        bottom = self.top + self.lanes_px + 4
        yield f'<line x1="0" x2="100%" y1="{bottom}" y2="{bottom}" class="axis"/>'
        step = step_of(self.last)
        for number in range(int(self.last / step) + 1):
            at = number * step
            yield f'<line x1="{self.x(at)}" x2="{self.x(at)}" y1="{bottom}" y2="{bottom + 4}" class="axis"/>'
            yield f'<text x="{self.x(at)}" y="{bottom + 18}" text-anchor="middle" class="faint">{at:g} s</text>'

    def numbers(self):
        """A line for each note; those that would overlap on a phone share one number: "2–4"."""
        groups = []
        for number, event in enumerate(noted(self.history), 1):
            room = 100 * 30 / NARROWEST_PX
            if groups and self.percent(event["at"]) - self.percent(groups[-1][0]["at"]) < room:
                groups[-1][2] = number
            else:
                groups.append([event, number, number])
        y = self.top - LABELS_PX
        for event, low, high in groups:
            words = f"{low}" if low == high else f"{low}–{high}"
            half = 9 if low == high else 15
            yield (f'<line x1="{self.x(event["at"])}" x2="{self.x(event["at"])}" y1="{y + 16}" '
                   f'y2="{self.top + self.lanes_px}" class="event"/>')
            yield (f'<svg x="{self.x(event["at"])}" y="{y}" overflow="visible"><rect x="-{half}" y="0" width="{2 * half}" '
                   f'height="16" rx="8" class="number"/><text y="12" text-anchor="middle">{words}</text></svg>')

    @property
    def is_crowd(self):
        """There is no room for names and marks, and there are too many for colours."""
        return self.lane_px <= 12

    def lanes(self):
        gap = 0.5 if self.is_crowd else 5
        height = self.lane_px - 2 * gap
        for index, who in enumerate(self.history["actors"]):
            colour = 0 if self.is_crowd else index % len(LIGHT["who"])
            y = self.y(who) + gap
            if not self.is_crowd:
                yield f'<text x="{8 - NAMES_PX}" y="{y + height / 2 + 4:.0f}" class="name">{escape(who)}</text>'
            mine = [span for span in self.history["spans"] if span["who"] == who]
            for span in sorted(mine, key=lambda span: ("waits", "inside", "paused").index(span["kind"])):
                yield self.span(span, y, height, colour)

    def span(self, span, y, height, colour):
        start, end = span["from"], span["to"]
        if span["kind"] == "waits":
            kind = "crowd" if self.is_crowd else "wait"
            return (f'<line x1="{self.x(start)}" x2="{self.x(end)}" y1="{y + height / 2:g}" y2="{y + height / 2:g}" '
                    f'class="{kind}"/>')
        looks = f'class="who{colour}"' if span["kind"] == "inside" else f'fill="url(#{self.unique})"'
        return (f'<rect x="{self.x(start)}" width="{self.width(start, end)}" y="{y:g}" height="{height:g}" '
                f'rx="{min(3, height / 2):g}" {looks}/>')

    def marks(self):
        """Writes, those that were refused, and deaths. Of writes that would cover each other, the first is shown."""
        last = {}
        for event in self.history["events"] if not self.is_crowd else ():
            shape, who, x = mark(event, self.is_stale(event)), event["who"], self.percent(event["at"])
            before, before_x = last.get(who, (None, 0))
            if not shape or (shape == before and x - before_x < 100 * 2 * WRITE_PX / NARROWEST_PX):
                continue
            last[who] = shape, x
            yield f'<svg x="{x:.2f}%" y="{self.y(who) + self.lane_px / 2:.0f}" overflow="visible">{shape}</svg>'

    def is_stale(self, event):
        return any(violation["kind"] == "stale write" and violation["who"][0] == event["who"]
                   and violation["from"] <= event["at"] <= violation["to"] for violation in self.history["violations"])


WRITE_PX = 4
WRITE, STALE = (f'<circle r="{WRITE_PX}" class="{kind}"/>' for kind in ("wrote", "stale"))
REFUSED, DIED = (f'<path d="M-5-5L5 5M5-5L-5 5" class="{kind}"/>' for kind in ("refused", "died"))


def mark(event, is_stale):
    if event["what"] == "write":
        return REFUSED if not event["accepted"] else STALE if is_stale else WRITE
    return DIED if event["what"] == "died" else None


def step_of(seconds):
    """The step between two times on the axis: large enough that they do not overlap on a phone."""
    return next(step for step in (.1, .2, .5, 1, 2, 5, 10, 20, 50, 100, 1000) if seconds / step <= 7)


# ---- The matrix ----

HEAD_PX, ROWS_PX, CELL_PX, MARGIN_PX = 150, 176, 26, 16


def matrix(results):
    """An SVG file: a sign for each cell, with the names that the command line knows."""
    parts, y = [], MARGIN_PX + HEAD_PX
    for column, scenario in enumerate(results.scenarios):
        x = MARGIN_PX + ROWS_PX + CELL_PX * column + CELL_PX / 2 + 4
        parts.append(f'<text transform="translate({x:g} {y - 6}) rotate(-90)">{escape(scenario.name)}</text>')
    for _, _, protocols in results.chapters():
        for row in (row for rows in protocols.values() for row in rows):
            parts.append(f'<text x="{MARGIN_PX}" y="{y + 17}">{escape(row.name)}</text>')
            for column, scenario in enumerate(results.scenarios):
                if cell := results.cells.get((row.name, scenario.name)):
                    x = MARGIN_PX + ROWS_PX + CELL_PX * column
                    back = f'<rect x="-4" y="-4" width="{CELL_PX - 2}" height="{CELL_PX - 2}" rx="3"/>'
                    parts.append(f'<g transform="translate({x + 5} {y + 5})" class="{cell.verdict.replace("/", "")}">'
                                 f'{back if cell.was_played else ""}{SIGNS[cell.verdict]}</g>')
            y += CELL_PX
        y += 10
    width = 2 * MARGIN_PX + ROWS_PX + CELL_PX * len(results.scenarios)
    verdicts = ("holds", "fenced", "breaks", "stalls")
    for index, verdict in enumerate(verdicts):
        parts.append(f'<g transform="translate({MARGIN_PX + ROWS_PX + 90 * index} {y})" class="{verdict}"><g '
                     f'transform="translate(5 5)">{SIGNS[verdict]}</g><text x="28" y="17">{verdict}</text></g>')
    height = y + CELL_PX + MARGIN_PX

    def colours_of(colours):
        lines = [f".page{{fill:{colours['page']};stroke:{colours['rule']}}} text{{font:12px {FONT};fill:{colours['ink']}}}"]
        lines += [f".{name} path{{stroke:{colours[name]}}} .{name} rect{{fill:{colours[name]}}}" for name in verdicts]
        lines.append(f".na path,.gap path,.error path{{stroke:{colours['n/a']}}}")
        return "\n".join(lines)

    return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
            'role="img" aria-label="The matrix: which protocol holds in which scenario">\n<style>\n'
            'path{fill:none;stroke-width:2;stroke-linecap:round;stroke-linejoin:round} g rect{fill-opacity:.14}\n'
            f'{colours_of(LIGHT)}\n@media(prefers-color-scheme:dark){{\n{colours_of(DARK)}\n}}\n'
            f'</style>\n<rect x=".5" y=".5" width="{width - 1}" height="{height - 1}" rx="8" class="page"/>\n'
            + "\n".join(parts) + "\n</svg>\n")
