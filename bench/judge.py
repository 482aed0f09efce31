"""What the records of the measuring programs (bench/result.h) mean: medians, ratios, noise, and which goals (goals.py) are
met. bench/run prints it, and docs/benchmarks/make writes it down.

Noise: each slice of a case's base is compared with the mean of the slices before and after it, as the contenders are. Half
the distance between the quartiles of these ratios is the noise of the case. A goal is too close to call if the ratio is
nearer to it than the noise and the noise is above NOISE_LEAST. A figure has no base; its noise is that of its own values."""
import dataclasses
import math
import statistics

from goals import CASES, CURVES

NOISE_LEAST = 0.05
COMPARISONS_LEAST = 10  # of the base with itself; from fewer, nothing can be told
MET, MISSED, NOISY = "met", "missed", "too noisy to tell"


def quartiles(values):
    if len(values) == 1:
        return values * 3
    return statistics.quantiles(values, n=4, method="inclusive")


def number(value):
    """As people read it: three digits, or all of a large one."""
    if value == 0 or abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.3g}" if abs(value) < 100 else f"{value:.0f}"


def over(a, b):
    return a / b if b else math.inf


def spread(values):
    low, middle, high = quartiles(values)
    return (high - low) / 2 / middle if middle else 0


@dataclasses.dataclass
class Verdict:
    """One goal, judged. value is a ratio if there is something to compare with."""
    name: str  # of the case or curve
    placement: str
    of: str
    to: str
    goal: str
    value: float
    low: float
    high: float
    noise: float
    result: str


def judge(goal, value, noise):
    sign, number = goal.split()
    number = float(number)
    if noise > NOISE_LEAST and abs(value - number) < noise * number:
        return NOISY
    return MET if (value >= number if sign == ">=" else value <= number) else MISSED


class Case:
    """A record of contenders, the first of which is the base."""

    def __init__(self, record):
        self.name, self.title, self.unit, self.placement = (record[key] for key in ("case", "title", "unit", "placement"))
        self.contenders = {each["what"]: each for each in record["contenders"]}
        self.names = list(self.contenders)

    def values(self, what):
        return self.contenders[what]["slices"]

    def to_base(self, what):
        """By round. In a round, each contender lies between two slices of the base."""
        base, count, index = self.values(self.names[0]), len(self.names), self.names.index(what)
        if not index:
            return [1.0] * (len(base) // count)
        return [over(value, (base[turn * count + index - 1] + base[turn * count + index]) / 2)
                for turn, value in enumerate(self.values(what))]

    def ratios(self, of, to):
        return [over(a, b) for a, b in zip(self.to_base(of), self.to_base(to))]

    def noise(self):
        base = self.values(self.names[0])
        if len(self.names) == 1:
            return spread(base)
        against_itself = [over(now, (before + after) / 2) for before, now, after in zip(base, base[1:], base[2:])]
        return spread(against_itself) if len(against_itself) >= COMPARISONS_LEAST else 1.0

    def verdicts(self):
        return [self.verdict(*rest) for name, placement, *rest in CASES
                if name == self.name and placement in (self.placement, "any") and self.has(*rest[:2])]

    def has(self, of, to):
        """Figures are cases of one contender; and npm's locks may be missing."""
        return of in self.contenders and (not to or to.removeprefix("p99: ") in self.contenders)

    def verdict(self, of, to, goal):
        of_p99 = to and to.startswith("p99: ")
        other = to.removeprefix("p99: ") if to else None
        if not to:
            low, value, high = quartiles(self.values(of))
        elif of_p99:
            low = value = high = self.contenders[of]["p99_us"] / self.contenders[other]["p99_us"]
        else:
            low, value, high = quartiles(self.ratios(of, other))
        noise = self.noise()
        return Verdict(self.name, self.placement, of, to, goal, value, low, high, noise, judge(goal, value, noise))


class Curve:
    """All points of a curve; series by name, each with (x, values)."""

    def __init__(self, records):
        first = records[0]
        self.name, self.title, self.x, self.unit, self.placement = (
            first[key] for key in ("curve", "title", "x", "unit", "placement"))
        self.series = {}
        self.references = {record["reference"] for record in records if "reference" in record}
        for record in records:
            self.series.setdefault(record["series"], []).append((record["at"], record["values"]))
            if "reference" in record:
                self.series.setdefault(record["reference"], []).append((record["at"], record["reference_values"]))
        for points in self.series.values():
            points.sort()

    def verdicts(self):
        """The last point compared with the first, round by round."""
        found = []
        for name, placement, of, goal in CURVES:
            if name != self.name or placement not in (self.placement, "any") or of not in self.series:
                continue
            (begin, first), *_, (end, last) = self.series[of]
            ratios = [over(b, a) for a, b in zip(first, last)]
            low, value, high = quartiles(ratios)
            noise = spread(first)
            found.append(Verdict(self.name, self.placement, f"{of}, {end:,.0f} {self.x}", f"{begin:,.0f}", goal, value,
                                 low, high, noise, judge(goal, value, noise)))
        return found


def read(records):
    """Cases and curves, in their order. Of a case that was measured twice, the later one counts."""
    cases, points = {}, {}
    for record in records:
        if "case" in record:
            what = tuple(each["what"] for each in record["contenders"])
            cases[record["case"], record["placement"], what] = Case(record)
        elif "curve" in record:
            by_x = points.setdefault((record["curve"], record["placement"]), {})
            by_x[record["series"], record["at"]] = record
    return list(cases.values()), [Curve(list(each.values())) for each in points.values()]
