"""Plots as SVG, written by hand: no library, the same text from the same data, light and dark."""

import html
import math

# Hues that stay apart for colour-blind readers, for a light and a dark ground.
LIGHT = ["#2a78d6", "#eb6834", "#1baf7a", "#4a3aa7", "#eda100", "#e87ba4", "#008300", "#e34948"]
DARK = ["#3987e5", "#d95926", "#199e70", "#9085e9", "#c98500", "#d55181", "#008300", "#e66767"]
# Beyond eight series the shape changes: colour alone would not tell them apart.
SHAPES = ["m-3 0a3 3 0 1 0 6 0a3 3 0 1 0-6 0z", "m-2.7-2.7h5.4v5.4h-5.4z", "m0-3.6l3.4 6.2h-6.8z",
          "m0-3.8l3.8 3.8l-3.8 3.8l-3.8-3.8z"]
WIDTH = 920


def number(x):
    return f"{x:.1f}".rstrip("0").rstrip(".")


def style():
    def rules(ground, ink, quiet, grid, hues):
        text = f".ground{{fill:{ground}}}text{{fill:{ink}}}.quiet{{fill:{quiet}}}"
        text += f".grid{{stroke:{grid}}}.axis{{stroke:{quiet}}}.mark{{stroke:{ground}}}"
        return text + "".join(f".h{i}{{fill:{hue}}}" for i, hue in enumerate(hues))
    dark = rules("#1a1a19", "#ffffff", "#c3c2b7", "#383835", DARK)
    return ("<style>text{font:12px system-ui,sans-serif}.title{font-size:15px;font-weight:600}"
            ".grid,.axis{stroke-width:1}.mark{stroke-width:.5;fill-opacity:.8}"
            + rules("#fcfcfb", "#0b0b0b", "#52514e", "#e1e0d9", LIGHT)
            + f"@media(prefers-color-scheme:dark){{{dark}}}</style>")


def drawing(height, title, parts):
    """The ground is drawn, too: a page may be dark when its reader's system is light."""
    return "\n".join([f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" '
                      f'width="{WIDTH}" height="{height}" role="img">',
                      f"<title>{html.escape(title)}</title>", style(),
                      f'<rect class="ground" width="{WIDTH}" height="{height}"/>',
                      text(16, 26, title, "title"), *parts, "</svg>", ""])


def text(x, y, words, kind="", anchor="start"):
    kind = f' class="{kind}"' if kind else ""
    return (f'<text x="{number(x)}" y="{number(y)}" text-anchor="{anchor}"{kind}>'
            f"{html.escape(words)}</text>")


def line(x1, y1, x2, y2, kind):
    ends = " ".join(f'{name}="{number(v)}"'
                    for name, v in (("x1", x1), ("y1", y1), ("x2", x2), ("y2", y2)))
    return f'<line class="{kind}" {ends}/>'


def marks(series, places):
    """One path a series: small files also with thousands of points."""
    shape = SHAPES[series // len(LIGHT) % len(SHAPES)]
    path = "".join(f"M{number(x)} {number(y)}{shape}" for x, y in places)
    return f'<path class="mark h{series % len(LIGHT)}" d="{path}"/>'


def ratios(series, title, name_of_x):
    """Scatter, both axes logarithmic: series is {name: [(x in seconds, ratio)]}."""
    points = [p for places in series.values() for p in places]
    left, right, top, bottom = 60, WIDTH - 20, 44, 430
    low_x, high_x = (f(x for x, _ in points) for f in (min, max))
    low_x, high_x = low_x / 1.3, high_x * 1.3
    reach = max(max(abs(math.log(y)) for _, y in points) * 1.08, math.log(1.6))

    def at_x(x):
        return left + (right - left) * math.log(x / low_x) / math.log(high_x / low_x)

    def at_y(y):
        return (top + bottom) / 2 - (bottom - top) / 2 * math.log(y) / reach

    parts = []
    for decade in range(-9, 5):
        if low_x <= 10.0 ** decade <= high_x:
            x = at_x(10.0 ** decade)
            unit, power = ("us", 6) if decade < -3 else ("ms", 3) if decade < 0 else ("s", 0)
            count = 10.0 ** (decade + power)
            parts += [line(x, top, x, bottom, "grid"),
                      text(x, bottom + 18, f"{count:g} {unit}", "quiet", "middle")]
    steps = (1.1, 1.25, 1.5, 2, 3, 5, 10, 20, 50, 100)
    wanted = [s for s in steps if math.log(s) <= reach]
    for step in [s for s in wanted if s == 2 or abs(math.log(s)) > reach / 9]:
        for y in (step, 1 / step):
            parts += [line(left, at_y(y), right, at_y(y), "grid"),
                      text(left - 8, at_y(y) + 4, f"{y:.3g}", "quiet", "end")]
    parts += [line(left, at_y(1), right, at_y(1), "axis"),
              text(left - 8, at_y(1) + 4, "1", "quiet", "end"),
              text((left + right) / 2, bottom + 38, name_of_x, "quiet", "middle"),
              text(right, top - 8, "predicted / measured; above 1: predicted too slow", "quiet",
                   "end")]
    for i, places in enumerate(series.values()):
        parts.append(marks(i, [(at_x(x), at_y(y)) for x, y in places]))
    columns, height = 3, bottom + 64
    for i, (name, places) in enumerate(series.items()):
        x = 24 + (i % columns) * (WIDTH - 30) / columns
        y = height + i // columns * 20
        parts += [marks(i, [(x, y - 4)]), text(x + 10, y, f"{name} ({len(places)})")]
    rows = -(-len(series) // columns)
    return drawing(height + 20 * rows, title, parts)


def bars(rows, title, goals):
    """Horizontal bars of fractions: rows is [(name, group, value)], goals {group: limit}."""
    groups = list(goals)
    left, right, top, step = 270, WIDTH - 90, 70, 20
    most = max([value for _, _, value in rows] + [v for v in goals.values() if v]) * 1.05
    bottom = top + step * len(rows)

    def at_x(value):
        return left + (right - left) * value / most

    parts = []
    tick = next(t for t in (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 1e9) if most / t <= 10)
    for i in range(int(most / tick) + 1):
        x = at_x(i * tick)
        parts += [line(x, top - 6, x, bottom, "grid"),
                  text(x, bottom + 16, f"{100 * i * tick:g} %", "quiet", "middle")]
    x = 24
    for i, group in enumerate(groups):
        label = group + (f" (goal: {100 * goals[group]:g} %, the upright line)"
                         if goals[group] else "")
        parts += [f'<rect class="h{i}" x="{x - 5}" y="43" width="10" height="10" rx="2"/>',
                  text(x + 10, 52, label)]
        x += 30 + 6.6 * len(label)
    for i, (name, group, value) in enumerate(rows):
        y = top + step * i
        h = groups.index(group)
        parts += [text(left - 8, y + 14, name, "", "end"),
                  f'<rect class="h{h}" x="{left}" y="{number(y + 4)}" '
                  f'width="{number(max(at_x(value) - left, 1))}" height="12" rx="2"/>',
                  text(WIDTH - 20, y + 14, f"{100 * value:.1f} %", "quiet", "end")]
        if goals[group]:
            goal = at_x(goals[group])
            parts.append(line(goal, y + 1, goal, y + step - 1, "axis"))
    return drawing(bottom + 30, title, parts)
