"""The report: one HTML file that explains, to somebody new to the subject, why each protocol was replaced by the next.

It has the matrix, the story (for each protocol what it is, what it mends, what still goes wrong, with a picture), and every
cell that ran, with its timeline. It needs no script, and nothing from elsewhere. What the pictures are like is in
picture.py; the sentences about each cell are literature.py's.
"""
import collections
import re
import string
import time
from html import escape
from pathlib import Path
from types import SimpleNamespace

from lab import literature, picture

# ---- The signs ----

# For each verdict: what it means, and a sign, so that nobody needs to tell colours apart. 16 by 16.
VERDICTS = {
    "holds": ("Never two inside at once, and the lock was there for the next client.",
              '<path d="M3 8.5l3.5 3.5L13 4.5"/>'),
    "fenced": ("Two were inside at once, but the resource refused every stale write by its token: no harm was done.",
               '<path d="M8 1.8l5 1.7v4.2c0 3-2 5.2-5 6.5c-3-1.3-5-3.5-5-6.5V3.5z"/>'),
    "breaks": ("Two were inside at once, or a stale write was accepted.", '<path d="M4 4l8 8M12 4l-8 8"/>'),
    "stalls": ("Nobody was inside, and still nobody could get the lock; or waiting cost more with each waiter.",
               '<path d="M4 2.5h8M4 13.5h8M5 2.5c0 4 6 7 6 11M11 2.5c0 4-6 7-6 11"/>'),
    "n/a": ("The scenario means nothing for this protocol.", '<path d="M5 8h6"/>'),
    "gap": ("Not played: something is not installed.",
            '<path d="M5.5 6a2.5 2.5 0 1 1 3.6 2.2c-.8.4-1.1.9-1.1 1.8M8 12.6v.2"/>'),
    "error": ("The scenario could not be played to its end.", '<path d="M8 3v6.5M8 12.8v.2"/>'),
}
VERBS = {"holds": "hold", "fenced": "are fenced", "breaks": "break", "stalls": "stall", "n/a": "do not apply",
         "gap": "were not played", "error": "failed"}
BAD = ("breaks", "stalls")


def sign(verdict):
    return f'<svg class="sign" viewBox="0 0 16 16" aria-hidden="true">{VERDICTS[verdict][1]}</svg>'


def badge(verdict):
    return f'<span class="badge {css_class(verdict)}">{sign(verdict)}{verdict}</span>'


def css_class(verdict):
    return verdict.replace("/", "")


# ---- The cells ----


class Cell:
    """What was seen of a scenario with a row: one history, or several if it was repeated."""

    def __init__(self, row, scenario, histories):
        self.row, self.scenario, self.histories = row, scenario, histories
        counts = collections.Counter(history["verdict"] for history in histories)
        self.verdict, self.count = counts.most_common(1)[0]
        self.history = next(history for history in histories if history["verdict"] == self.verdict)
        self.id = re.sub(r"[^a-z0-9-]", "-", f"{row.name}-{scenario.name}")
        self.expected = literature.expected(row.protocol, scenario.name, row.place)

    @property
    def ran(self):
        return bool(self.history.get("events"))

    @property
    def sentence(self):
        text = self.history["sentence"]
        return text[:1].upper() + text[1:].rstrip(".") + "."

    @property
    def often(self):
        return f"{self.count} of {len(self.histories)} times" if len(self.histories) > 1 else ""

    def figure(self, unique):
        history = self.history
        notes = "".join(f"<li>{escape(text)}</li>" for text in picture.notes(history))
        cost = history.get("requests_per_handoff")
        caption = [f"{badge(self.verdict)} {escape(' '.join(filter(None, (self.often, self.sentence))))}"]
        if cost is not None:
            caption.append(f"{cost:.1f} requests for each hand-off.")
        return (f'<figure id="{unique}"><div class="plot">{picture.inline(history, unique + "-p")}</div>'
                f'{f"<ul class=notes>{notes}</ul>" if notes else ""}'
                f"<figcaption>{' '.join(caption)}</figcaption></figure>")

    def why(self):
        if not self.expected:
            return ""
        differs = ("" if self.expected.verdict == self.verdict else
                   f" <em>The literature leads one to expect “{self.expected.verdict}”.</em>")
        return f"<p>{code(self.expected.why)}{differs}</p>"


def code(text):
    """Plain text, in which `this` is code."""
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", escape(text, quote=False))


class Results:
    """All cells, by the names of their rows and scenarios. What happens to most protocols comes first."""

    def __init__(self, contents, histories):
        self.rows = [SimpleNamespace(**row) for row in contents["rows"]]
        self.scenarios = [SimpleNamespace(**scenario) for scenario in contents["scenarios"]]
        found = collections.defaultdict(list)
        for history in histories:
            found[history["row"], history["scenario"]].append(history)
        self.cells = {(row.name, scenario.name): Cell(row, scenario, found[row.name, scenario.name])
                      for row in self.rows for scenario in self.scenarios if found[row.name, scenario.name]}
        played = collections.Counter(cell.scenario.name for cell in self.cells.values() if cell.ran)
        self.scenarios.sort(key=lambda scenario: -played[scenario.name])
        self.protocols = {}  # those of which there are cells, with their rows
        for row in self.rows:
            if self.of_row(row):
                self.protocols.setdefault(row.protocol, []).append(row)

    def of_row(self, row):
        return [self.cells[row.name, scenario.name] for scenario in self.scenarios
                if (row.name, scenario.name) in self.cells]

    def in_chapter(self, places):
        """The protocols of a chapter, with their rows. Those that are no part of a chain are last."""
        names = [name for name, rows in self.protocols.items() if is_in(places, rows[0])]
        followed = {row.follows for row in self.rows}
        names.sort(key=lambda name: name not in followed and not self.protocols[name][0].follows)
        return {name: self.protocols[name] for name in names}

    def cell_of(self, protocol, scenario):
        """What a protocol does in a scenario, wherever it runs: where it fails, if it does anywhere."""
        cells = [self.cells.get((row.name, scenario.name)) for row in self.protocols.get(protocol, ())]
        cells = [cell for cell in cells if cell and cell.ran]
        return min(cells, key=lambda cell: cell.verdict not in BAD, default=None)


# ---- The page ----


def page(contents, histories):
    """contents: the rows and scenarios, as `lab list --json` prints them."""
    results = Results(contents, histories)
    template = string.Template((Path(__file__).parent / "report.html").read_text(encoding="utf-8"))
    return template.substitute(light=variables(picture.LIGHT), dark=variables(picture.DARK), font=picture.FONT,
                               pictures=picture.css(), counts=counts(results), legend=legend(), key=key(),
                               matrix=matrix(results), story=story(results), cells=every_cell(results))


def variables(colours):
    return "; ".join(f"--{css_class(name)}: {colour}" for name, colour in colours.items() if isinstance(colour, str))


def counts(results):
    every = collections.Counter(cell.verdict for cell in results.cells.values())
    words = ", ".join(f"{every[verdict]} {verb}" for verdict, verb in VERBS.items() if every[verdict])
    return f"Played on {time.strftime('%-d %B %Y')}. Of {every.total()} cells, {words}."


def legend():
    return "".join(f"<dt>{badge(verdict)}</dt><dd>{meaning}</dd>" for verdict, (meaning, _) in VERDICTS.items())


def key():
    return "".join(f"<dt>{sample}</dt><dd>{meaning}</dd>" for sample, meaning in picture.samples())


def matrix(results):
    head = "".join(f'<th scope="col"><span>{escape(scenario.title)}</span></th>' for scenario in results.scenarios)
    body = []
    for title, places, _ in CHAPTERS:
        rows = [matrix_row(results, row) for rows in results.in_chapter(places).values() for row in rows]
        if rows:
            width = len(results.scenarios)
            body.append(f'<tbody><tr><th scope="rowgroup">{escape(title)}</th><td colspan="{width}"></td></tr>'
                        f'{"".join(rows)}</tbody>')
    return f'<table><thead><tr><td></td>{head}</tr></thead>{"".join(body)}</table>'


def matrix_row(results, row):
    cells = "".join(matrix_cell(results.cells.get((row.name, scenario.name))) for scenario in results.scenarios)
    return f'<tr><th scope="row"><a href="#{anchor(row.protocol)}">{escape(row.title)}</a></th>{cells}</tr>'


def matrix_cell(cell):
    if not cell:
        return "<td></td>"
    title = escape(f"{cell.row.title}. {cell.scenario.title}: {cell.verdict}. {cell.sentence}")
    inner = f'{sign(cell.verdict)}<span class="hidden">{cell.verdict}</span>'
    if cell.ran:
        inner = f'<a href="#{cell.id}" title="{title}">{inner}</a>'
    else:
        inner = f'<span title="{title}">{inner}</span>'
    return f'<td class="{css_class(cell.verdict)}">{inner}</td>'


def anchor(protocol):
    return f"about-{protocol}"


# ---- The story ----

# A title, the places whose protocols are in it (those of holdfast are in the last, whatever their
# place), and how it begins.
CHAPTERS = (
    ("One Redis server", ("redis",),
     "Redis is fast and often there already, and its commands are atomic. The first locks were made of single commands, and "
     "each of them learnt something from the accidents of the one before."),
    ("Several Redis servers", ("replicated", "redlock"),
     "One server is one thing that can fail. A second copy of the lock helps only if the two agree on who has it."),
    ("A database", ("postgres", "mariadb"),
     "A database that holds the data can hold the lock as well. It is durable, and it has had locks of its own for decades."),
    ("ZooKeeper and etcd", ("zookeeper", "ensemble", "etcd", "etcd_cluster"),
     "These services agree on every change by majority vote. A lock belongs to a session or a lease, which ends when its "
     "client is no longer heard of."),
    ("holdfast", None,
     "The same lock on every store: an owner in each grant, a lease that is renewed in the background, a queue, steps that can "
     "be repeated after a lost reply, and a token with every grant. What no lease can prevent, the token makes harmless."),
)

def story(results):
    chapters = []
    for title, places, text in CHAPTERS:
        steps = "".join(step(results, name, rows) for name, rows in results.in_chapter(places).items())
        if steps:
            chapters.append(f"<section><h3>{escape(title)}</h3><p>{code(text)}</p>{steps}</section>")
    return "".join(chapters)


def is_in(places, row):
    """Whether a row belongs to the chapter of these places."""
    return row.protocol == "holdfast" if places is None else row.protocol != "holdfast" and row.place in places


def step(results, name, rows):
    """One protocol: what it is, what it mended, and what is wrong with it, shown by the flaw that its successor mends."""
    first = rows[0]
    before = results.protocols.get(first.follows)
    after = [other for other, (row, *_) in results.protocols.items() if row.follows == name]
    parts = [f'<article id="{anchor(name)}"><h4>{escape(first.title)} <code>{escape(name)}</code></h4>',
             *(f"<p>{code(paragraph)}</p>" for paragraph in first.summary.split("\n\n"))]
    if first.mends:
        instead = f"It replaces {link(before[0])}. " if before else ""
        parts.append(f"<p><strong>What it mends.</strong> {instead}{code(first.mends)}</p>")
    if before:
        mended = [cell for cell in flaws(results, first.follows) if is_mended(results, cell, name)]
        parts.append(listed("Now withstands", [results.cell_of(name, cell.scenario) for cell in mended]))
    wrong = flaws(results, name)
    telling = next((cell for cell in wrong for other in after if is_mended(results, cell, other)), (wrong or [None])[0])
    if telling:
        parts += [told("What goes wrong.", telling), listed("Also fails", [cell for cell in wrong if cell is not telling])]
    elif saved := cells_of(results, name, "fenced"):
        parts += ["<p>Nothing went wrong with it in this run.</p>", told("What the token is for.", saved[0])]
    elif cells_of(results, name, "holds"):
        parts.append("<p>Nothing went wrong with it in this run.</p>")
    if after:
        links = " and ".join(link(results.protocols[other][0]) for other in after)
        parts.append(f'<p class="next">Replaced by {links}.</p>')
    return "".join(parts) + "</article>"


def told(title, cell):
    """A cell as a part of the story."""
    why = cell.expected.why if cell.expected else cell.scenario.summary
    return (f"<p><strong>{title}</strong> {escape(cell.scenario.title)}: {code(why)}</p>" + cell.figure(f"story-{cell.id}"))


def link(row):
    return f'<a href="#{anchor(row.protocol)}">{escape(row.title)}</a>'


def cells_of(results, name, *verdicts):
    """The cells of a protocol with one of these verdicts, one for each scenario."""
    cells = [results.cell_of(name, scenario) for scenario in results.scenarios]
    return [cell for cell in cells if cell and cell.verdict in verdicts]


def flaws(results, name):
    return cells_of(results, name, *BAD)


def is_mended(results, cell, name):
    other = results.cell_of(name, cell.scenario)
    return bool(other) and other.verdict in ("holds", "fenced")


def listed(title, cells):
    if not cells:
        return ""
    links = ", ".join(f'<a class="{css_class(cell.verdict)}" href="#{cell.id}">{sign(cell.verdict)}'
                      f"{escape(cell.scenario.title)}</a>" for cell in cells)
    return f'<p class="listed">{title}: {links}.</p>'


# ---- Every cell ----


def every_cell(results):
    parts = []
    for row in [row for _, places, _ in CHAPTERS for rows in results.in_chapter(places).values() for row in rows]:
        cells = results.of_row(row)
        ran = [cell for cell in cells if cell.ran]
        left_out = [f"{escape(cell.scenario.title)} ({escape(cell.history['sentence'])})" for cell in cells if not cell.ran]
        parts.append(f"<section><h3>{escape(row.title)}</h3>")
        parts += [details(cell) for cell in ran]
        if left_out:
            parts.append(f'<p class="left-out">Not played: {"; ".join(left_out)}.</p>')
        parts.append("</section>")
    return "".join(parts)


def details(cell):
    """Closed at first; a link to the figure in it opens it."""
    summary = f"<summary>{badge(cell.verdict)} {escape(cell.scenario.title)}</summary>"
    return (f'<details>{summary}<p class="scenario">{code(cell.scenario.summary)}</p>{cell.figure(cell.id)}{cell.why()}'
            "</details>")
