"""The report: one HTML file that explains to a newcomer why each protocol was replaced by the next.

It has the matrix, the story (for each protocol what it is, what it fixes, what still goes wrong, with a picture), and
every cell that ran, with its timeline. It needs no script, and loads nothing from elsewhere. The pictures come from
picture.py; the sentences about each cell from literature.py.
"""
import collections
import re
import string
import time
from html import escape
from pathlib import Path

from lab import picture
from lab.results import BAD, Results

# ---- The verdicts ----

MEANINGS = {
    "holds": "Never two inside at once, and the lock was there for the next client.",
    "fenced": "Two were inside at once, but the resource refused every stale write by its token: no harm was done.",
    "breaks": "Two were inside at once, or a stale write was accepted.",
    "stalls": "Nobody was inside, and still nobody could get the lock; or some never had their turn; or each hand-off cost more "
              "with each client that waited.",
    "n/a": "The scenario means nothing for this protocol.",
    "gap": "Not played: something is not installed.",
    "error": "The scenario could not be played to its end.",
}
VERBS = {"holds": "hold", "fenced": "are fenced", "breaks": "break", "stalls": "stall", "n/a": "do not apply",
         "gap": "were not played", "error": "failed"}


def sign(verdict):
    return f'<svg class="sign" viewBox="0 0 16 16" aria-hidden="true">{picture.SIGNS[verdict]}</svg>'


def badge(verdict):
    return f'<span class="badge {css_class(verdict)}">{sign(verdict)}{verdict}</span>'


def css_class(verdict):
    return verdict.replace("/", "")


# ---- A cell ----


def figure(cell, unique):
    """Its picture, and what happened in words. unique: an id that nothing else on the page has."""
    history = cell.history
    notes = "".join(f"<li>{escape(text)}</li>" for text in picture.notes(history))
    often = f"{cell.count} of {len(cell.histories)} times." if len(cell.histories) > 1 else ""
    cost = history.get("requests_per_handoff")
    requests = f"A hand-off cost {cost:.1f} requests." if cost is not None and cell.verdict == "holds" else ""
    caption = " ".join(filter(None, (often, sentence(cell), requests)))
    return (f'<figure id="{unique}">{picture.inline(history, unique + "-p")}'
            f'{f"<ul class=notes>{notes}</ul>" if notes else ""}'
            f"<figcaption>{badge(cell.verdict)} {escape(caption)}</figcaption></figure>")


def sentence(cell):
    text = cell.history["sentence"]
    return text[:1].upper() + text[1:].rstrip(".") + "."


def why(cell):
    if not cell.expected:
        return ""
    differs = ("" if cell.expected.verdict == cell.verdict else
               f" <em>The literature leads one to expect “{cell.expected.verdict}”.</em>")
    return f"<p>{code(cell.expected.why)}{differs}</p>"


def code(text):
    """Plain text, in which `this` is code."""
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", escape(text, quote=False))


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
    return "".join(f"<dt>{badge(verdict)}</dt><dd>{meaning}</dd>" for verdict, meaning in MEANINGS.items())


def key():
    return "".join(f"<dt>{sample}</dt><dd>{meaning}</dd>" for sample, meaning in picture.samples())


def matrix(results):
    head = "".join(f'<th scope="col"><span>{escape(scenario.title)}</span></th>' for scenario in results.scenarios)
    body = []
    for title, _, protocols in results.chapters():
        rows = "".join(matrix_row(results, row) for rows in protocols.values() for row in rows)
        body.append(f'<tbody><tr><th scope="rowgroup">{escape(title)}</th><td colspan="{len(results.scenarios)}"></td></tr>'
                    f"{rows}</tbody>")
    return f'<table><thead><tr><td></td>{head}</tr></thead>{"".join(body)}</table>'


def matrix_row(results, row):
    cells = "".join(matrix_cell(results.cells.get((row.name, scenario.name))) for scenario in results.scenarios)
    return f'<tr><th scope="row"><a href="#{anchor(row.protocol)}">{escape(row.title)}</a></th>{cells}</tr>'


def matrix_cell(cell):
    if not cell:
        return "<td></td>"
    title = escape(f"{cell.row.title}. {cell.scenario.title}: {cell.verdict}. {sentence(cell)}")
    inner = f'{sign(cell.verdict)}<span class="hidden">{cell.verdict}</span>'
    if cell.was_played:
        inner = f'<a href="#{cell.id}" title="{title}">{inner}</a>'
    else:
        inner = f'<span title="{title}">{inner}</span>'
    return f'<td class="{css_class(cell.verdict)}">{inner}</td>'


def anchor(protocol):
    return f"about-{protocol}"


# ---- The story ----


def story(results):
    chapters = []
    for title, text, protocols in results.chapters():
        steps = "".join(step(results, name, rows) for name, rows in protocols.items())
        chapters.append(f"<section><h3>{escape(title)}</h3><p>{code(text)}</p>{steps}</section>")
    return "".join(chapters)


def step(results, name, rows):
    """One protocol: what it is, what it fixed, and what is wrong with it, shown by the flaw that its successor fixes."""
    first = rows[0]
    before = results.protocols.get(first.follows)
    after = results.successors(name)
    called = f" <code>{escape(name)}</code>" if name != first.protocol_title else ""
    parts = [f'<article id="{anchor(name)}"><h4>{escape(first.protocol_title)}{called}</h4>',
             *(f"<p>{code(paragraph)}</p>" for paragraph in first.summary.split("\n\n"))]
    if first.mends:
        instead = f"It replaces {link(before[0])}. " if before else ""
        parts.append(f"<p><strong>What it mends.</strong> {instead}{code(first.mends)}</p>")
    if before:
        parts.append(listed("Now withstands", results.mended_by(name)))
    shown = results.telling(name)
    others = [cell for cell in results.cells_of(name, *BAD) if cell not in shown]
    parts += [*(told(cell) for cell in shown), listed("Also fails", others)]
    if after:
        links = " and ".join(link(results.protocols[other][0]) for other in after)
        parts.append(f'<p class="next">Replaced by {links}.</p>')
    return "".join(parts) + "</article>"


def told(cell):
    """A cell as a part of the story."""
    title = {"holds": "What it withstands.", "fenced": "What the token is for."}.get(cell.verdict, "What goes wrong.")
    text = cell.expected.why if cell.expected else cell.scenario.summary
    where = f" ({cell.row.title})" if cell.row.title != cell.row.protocol_title else ""
    return (f"<p><strong>{title}</strong> {escape(cell.scenario.title + where)}: {code(text)}</p>"
            + figure(cell, f"story-{cell.id}"))


def link(row):
    return f'<a href="#{anchor(row.protocol)}">{escape(row.protocol_title)}</a>'


def listed(title, cells):
    if not cells:
        return ""
    links = ", ".join(f'<a class="{css_class(cell.verdict)}" href="#{cell.id}">{sign(cell.verdict)}'
                      f"{escape(cell.scenario.title)}</a>" for cell in cells)
    return f'<p class="listed">{title}: {links}.</p>'


# ---- Every cell ----


def every_cell(results):
    parts = []
    for row in [row for _, _, protocols in results.chapters() for rows in protocols.values() for row in rows]:
        cells = results.of_row(row)
        ran = [cell for cell in cells if cell.was_played]
        left_out = [f"{escape(cell.scenario.title)} ({escape(cell.history['sentence'].splitlines()[-1])})"
                    for cell in cells if not cell.was_played]
        parts.append(f"<section><h3>{escape(row.title)}</h3>")
        parts += [details(cell) for cell in ran]
        if left_out:
            parts.append(f'<p class="left-out">Not played: {"; ".join(left_out)}.</p>')
        parts.append("</section>")
    return "".join(parts)


def details(cell):
    """Closed at first; a link to the figure in it opens it."""
    summary = f"<summary>{badge(cell.verdict)} {escape(cell.scenario.title)}</summary>"
    return (f'<details>{summary}<p class="scenario">{code(cell.scenario.summary)}</p>{figure(cell, cell.id)}{why(cell)}'
            "</details>")
