"""Charts as SVG files: how something grows (panels of lines on logarithmic axes), and ratios (a row for each, on one logarithmic
axis). They have the palettes of the lab's pictures, light and dark, and are narrow, so that an <img> on a phone shows their
text at nearly its full size."""
import math
import sys
from html import escape
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[2]))
from lab.picture import DARK, FONT, LIGHT  # noqa: E402

WIDTH, MARGIN = 480, 16
TITLE_PX, LINE_PX, TICK_PX = 58, 18, 22  # the head of a picture, a line of text, the numbers below an axis
AXIS_X, PLOT_PX = 60, 150  # a panel: where its axis is, and its height
VALUES_PX, ROW_PX = 64, 22  # a row of ratios: its value behind the axis
CHARACTER_PX, LABELS_MOST_PX = 7, 266  # of a label: each character, about, and the most that there is room for
TICKS_MOST = 5
DECADE = 10


def svg(title, subtitle, height, body):
    """A file: the page with its title, and what is on it."""
    return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" '
            f'role="img" aria-label="{escape(title)}: {escape(subtitle)}">\n'
            f"<style>\n{rules(LIGHT)}\n@media(prefers-color-scheme:dark){{\n{rules(DARK)}\n}}\n</style>\n"
            f'<rect x=".5" y=".5" width="{WIDTH - 1}" height="{height - 1}" rx="8" class="page"/>\n'
            + text(MARGIN, 28, title, "title") + "\n" + text(MARGIN, 46, subtitle, "faint") + "\n"
            + "\n".join(body) + "\n</svg>\n")


def rules(colours):
    lines = [f".page{{fill:{colours['page']};stroke:{colours['rule']}}} text{{font:13px {FONT};fill:{colours['ink']}}}",
             f"text.title{{font:600 16px {FONT}}} text.strong{{font-weight:600}} text.faint{{fill:{colours['faint']}}}",
             f".rule{{stroke:{colours['rule']}}} .one{{stroke:{colours['faint']};stroke-width:1.5}}",
             f".r0,.r1{{stroke:{colours['faint']};stroke-width:2;stroke-dasharray:6 4}} .r1{{stroke-dasharray:2 3}}",
             "path.line{fill:none;stroke-width:2} .whisker{stroke-width:2;stroke-opacity:.55}"]
    for index, (fill, edge) in enumerate(zip(colours["who"], colours["edge"])):
        lines.append(f".s{index}{{stroke:{edge}}} .s{index}.dot{{fill:{edge}}} .s{index}.band{{fill:{fill}}}")
    for kind, colour in (("met", "holds"), ("missed", "breaks"), ("unsure", "stalls"), ("plain", "faint")):
        lines.append(f".{kind}{{stroke:{colours[colour]}}} .{kind}.dot,text.{kind}{{fill:{colours[colour]}}}")
    lines.append("text,path.band{stroke:none} path.band{fill-opacity:.6}")
    return "\n".join(lines)


def text(x, y, words, kind="", anchor="start"):
    return (f'<text x="{x:.0f}" y="{y:.0f}" text-anchor="{anchor}"' + (f' class="{kind}"' if kind else "")
            + f">{escape(words, quote=False)}</text>")


def line(x1, y1, x2, y2, kind):
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" class="{kind}"/>'


def number(value):
    """Short, as on an axis: 0.5, 20, 1,023, 5k, 1M."""
    if 1000 < value < 10000 and value % 100:
        return f"{value:,.0f}"
    for size, sign in ((1e6, "M"), (1e3, "k")):
        if value >= size:
            return f"{value / size:.3g}{sign}"
    return f"{value:.3g}"


class Axis:
    """A logarithmic one, from `low` to `high` at the pixels `start` to `end`."""

    def __init__(self, low, high, start, end):
        self.low, self.high, self.start, self.end = low, high, start, end

    def at(self, value):
        share = math.log(min(max(value, self.low), self.high) / self.low) / math.log(self.high / self.low)
        return self.start + share * (self.end - self.start)

    def ticks(self):
        """1, 2 and 5 of each decade, or fewer if that is too many."""
        decades = range(math.floor(math.log10(self.low)) - 1, math.ceil(math.log10(self.high)) + 1)
        for steps in ((1, 2, 5), (1, 3), (1,)):
            found = [step * DECADE ** decade for decade in decades for step in steps]
            found = [value for value in found if self.low * 0.999 <= value <= self.high * 1.001]
            if len(found) <= TICKS_MOST:
                return found
        return found[::2]


# ---- Growth ----


class Panel:
    """Lines over one axis. series: (name, whether it is only a reference, [(x, (low, middle, high))])."""

    def __init__(self, title, unit, series):
        self.title, self.unit, self.series = title, unit, series
        self.legend_px = LINE_PX * len(series) if len(series) > 1 else 0
        self.height = LINE_PX + self.legend_px + 10 + PLOT_PX + TICK_PX + 16

    def looks(self, index):
        """The class of a series; references have no colour."""
        is_reference = self.series[index][1]
        place = sum(other[1] == is_reference for other in self.series[:index])
        return f"r{place % 2}" if is_reference else f"s{place % len(LIGHT['who'])}"

    def draw(self, top):
        plot_top = top + LINE_PX + self.legend_px + 10
        x, y = self.axes(plot_top)
        yield text(MARGIN, top + 13, self.title, "strong")
        yield text(WIDTH - MARGIN, top + 13, self.unit, "faint", "end")
        if self.legend_px:
            yield from self.legend(top + LINE_PX)
        for value in y.ticks():
            yield line(AXIS_X, y.at(value), WIDTH - MARGIN, y.at(value), "rule")
            yield text(AXIS_X - 6, y.at(value) + 4, number(value), "faint", "end")
        for value in sorted({at for *_, points in self.series for at, _ in points}):
            yield line(x.at(value), plot_top + PLOT_PX, x.at(value), plot_top + PLOT_PX + 4, "rule")
            yield text(x.at(value), plot_top + PLOT_PX + 18, number(value), "faint", "middle")
        for index, (_, is_reference, points) in enumerate(self.series):
            yield from self.curve(points, is_reference, self.looks(index), x, y)

    def axes(self, top):
        """What is flat should look flat: y spans a decade at least."""
        all_x = [at for *_, points in self.series for at, _ in points]
        all_y = [value for *_, points in self.series for _, values in points for value in values if value > 0] or [1]
        low, high = min(all_y) / 1.15, max(all_y) * 1.15
        grow = math.sqrt(max(1, DECADE / (high / low)))
        return (Axis(min(all_x), max(max(all_x), min(all_x) * 2), AXIS_X + 10, WIDTH - MARGIN - 14),
                Axis(low / grow, high * grow, top + PLOT_PX, top))

    def legend(self, top):
        for index, (name, is_reference, _) in enumerate(self.series):
            y = top + LINE_PX * index + 9
            kind = self.looks(index)
            yield line(MARGIN, y, MARGIN + 26, y, f"{kind} whisker" if not is_reference else kind)
            if not is_reference:
                yield f'<circle cx="{MARGIN + 13}" cy="{y}" r="3.5" class="{kind} dot"/>'
            yield text(MARGIN + 34, y + 4, name)

    def curve(self, points, is_reference, kind, x, y):
        """The medians, and, behind them, the quartiles."""
        if not is_reference:
            edge = [(at, high) for at, (_, _, high) in points] + [(at, low) for at, (low, _, _) in reversed(points)]
            yield f'<path d="M{" ".join(f"{x.at(at):.1f} {y.at(value):.1f}" for at, value in edge)}Z" class="{kind} band"/>'
        middle = [(x.at(at), y.at(value)) for at, (_, value, _) in points]
        yield f'<path d="M{" ".join(f"{px:.1f} {py:.1f}" for px, py in middle)}" class="{kind} line"/>'
        for px, py in () if is_reference else middle:
            yield f'<circle cx="{px:.1f}" cy="{py:.1f}" r="3.5" class="{kind} dot"/>'


def growth(title, subtitle, panels):
    body, top = [], TITLE_PX
    for panel in panels:
        body += panel.draw(top)
        top += panel.height
    return svg(title, subtitle, top, body)


# ---- Ratios ----

SIGNS = {"met": "✓", "missed": "✗", "unsure": "?", "plain": ""}


def ratios(title, subtitle, groups):
    """groups: (heading, rows); a row: (label, (low, middle, high), the goal or None, and "met", "missed", "unsure" or
    "plain"). The line at 1 is what everything is compared with."""
    rows = [row for _, rows_of_group in groups for row in rows_of_group]
    values = [value for _, quartiles, goal, _ in rows for value in (*quartiles, goal or 1) if value > 0]
    low, high = min(values) / 1.1, max(values) * 1.1
    grow = math.sqrt(max(1, 4 / (high / low)))
    labels_px = min(max(len(row[0]) for row in rows) * CHARACTER_PX, LABELS_MOST_PX) + 8
    axis = Axis(low / grow, high * grow, MARGIN + labels_px, WIDTH - MARGIN - VALUES_PX)
    height = TITLE_PX + sum(ROW_PX * (len(rows_of_group) + 1) + 6 for _, rows_of_group in groups) + TICK_PX + 10
    bottom = height - TICK_PX - 10
    body = [line(axis.at(value), TITLE_PX, axis.at(value), bottom, "rule") for value in axis.ticks() if value != 1]
    body += [text(axis.at(value), bottom + 18, number(value), "faint", "middle") for value in axis.ticks()]
    body.append(line(axis.at(1), TITLE_PX, axis.at(1), bottom, "one"))
    y = TITLE_PX
    for heading, rows_of_group in groups:
        # The heading is on a piece of the page's colour, since it may cross the axis.
        body.append(f'<rect x="{MARGIN}" y="{y + 1}" width="{len(heading) * 7 + 6}" height="{ROW_PX - 2}" class="page" '
                    'stroke-width="0" style="stroke:none"/>')
        body.append(text(MARGIN, y + 16, heading, "strong"))
        y += ROW_PX
        for row in rows_of_group:
            body += draw_row(row, axis, y + ROW_PX / 2)
            y += ROW_PX
        y += 6
    return svg(title, subtitle, height, body)


def draw_row(row, axis, y):
    label, (low, middle, high), goal, result = row
    yield text(MARGIN, y + 4, label)
    yield line(axis.at(low), y, axis.at(high), y, f"{result} whisker")
    if goal:
        yield line(axis.at(goal), y - 8, axis.at(goal), y + 8, f"{result} whisker")
    yield f'<circle cx="{axis.at(middle):.1f}" cy="{y:.0f}" r="4.5" class="{result} dot"/>'
    yield text(WIDTH - MARGIN - 16, y + 4, number(float(f"{middle:.3g}") if middle < 10 else round(middle)), "", "end")
    yield text(WIDTH - MARGIN, y + 4, SIGNS[result], f"{result} strong", "end")
