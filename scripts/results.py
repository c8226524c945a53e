#!/usr/bin/env python3
"""Writes the tables of docs/benchmarks.md and the charts from the data files in docs/benchmarks/. Standard library only.

    python3 scripts/results.py           # writes tables and charts anew
    python3 scripts/results.py --check   # ends with exit code 1 if one of them differs from the data

A data file is a table of tab-separated cells with a line of names. A first cell that repeats is shown once. In the page, `<!-- table NAME -->` and
`<!-- end -->` stand around the table of NAME.tsv; `<!-- table NAME 1 3 4 -->` takes these columns only.
docs/benchmarks/charts.json says which cells a chart shows.
"""

import json
import math
import pathlib
import re
import sys
from html import escape

ROOT = pathlib.Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "benchmarks.md"
DATA = ROOT / "docs" / "benchmarks"
BEGIN = re.compile(r"<!-- table ([a-z0-9_]+)((?: \d+)*) -->")
WIDTH, LABELS, ROW, TOP = 760, 330, 22, 44
COLORS = ["#2a78b8", "#d9822b"]
STYLE = """<style>
text { font: 13px system-ui, sans-serif; fill: #24292f }
.title { font-weight: 600; font-size: 15px } .small { fill: #57606a; font-size: 12px }
.line { stroke: #8c959f; stroke-width: 1 } .grid { stroke: #d0d7de; stroke-width: 1 }
@media (prefers-color-scheme: dark) {
  text { fill: #e6edf3 } .small { fill: #9da7b1 } .grid { stroke: #3d444d }
}
</style>"""


def table(name):
    """The lines of a data file as lists of cells; the first one has the names of the columns."""
    rows = [line.split("\t") for line in (DATA / f"{name}.tsv").read_text().splitlines()]
    if any(len(row) != len(rows[0]) for row in rows):
        sys.exit(f"docs/benchmarks/{name}.tsv: a line has more or fewer cells than the first")
    return rows


def markdown(name, columns):
    rows = table(name)
    wanted = columns or range(1, len(rows[0]) + 1)
    rows = [[row[column - 1].strip() for column in wanted] for row in rows]
    firsts = [row[0] for row in rows]
    for above, row in zip(firsts[1:], rows[2:]):
        if row[0] == above:
            row[0] = ""
    lines = ["| " + " | ".join(row) + " |" for row in rows]
    lines.insert(1, "|" + "---|" * len(rows[0]))
    return lines


def page():
    """The page with its tables made anew."""
    out, inside = [], False
    for line in PAGE.read_text().splitlines():
        begin = BEGIN.fullmatch(line)
        if line == "<!-- end -->":
            inside = False
        if not inside:
            out.append(line)
        if begin:
            out += markdown(begin[1], [int(c) for c in begin[2].split()])
            inside = True
    return "\n".join(out) + "\n"


def number(cell):
    """The first number of a cell: 1,057,407 or 3.5 (3.1 to 3.7)."""
    found = re.match(r"[^\d-]*(-?[\d,]*\.?\d+)", cell)
    if not found:
        sys.exit(f"no number in {cell!r}")
    return float(found[1].replace(",", ""))


def value(source):
    """What a bar shows: a cell, or a cell over another one. A cell is [data file, line, column], each from 1."""
    cells = [number(table(name)[line][column - 1]) for name, line, column in source]
    return cells[0] if len(cells) == 1 else cells[0] / cells[1]


def shown(number):
    return f"{number:,.0f}" if number >= 20 else f"{number:.1f}" if number >= 2 else f"{number:.2f}"


def chart(spec):
    """Horizontal bars. On a logarithmic axis they begin at 1: to the right is faster, to the left slower."""
    series = spec.get("series", [""])
    bars = [(bar["label"], [value(source) for source in bar["values"]]) for bar in spec["bars"]]
    largest = max(max(values) for _, values in bars)
    log = spec.get("log", False)
    space = WIDTH - LABELS - 70
    low, high = (math.log(0.5), math.log(largest)) if log else (0, largest)

    def x(number):
        return LABELS + space * ((math.log(number) if log else number) - low) / (high - low)

    height = TOP + 24 + sum(ROW * len(values) + 8 for _, values in bars)
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img"'
           f' aria-label="{escape(spec["title"])}">', STYLE,
           f'<text class="title" x="8" y="18">{escape(spec["title"])}</text>']
    at = 8
    for index, name in enumerate(series if len(series) > 1 else []):
        out.append(f'<rect x="{at}" y="27" width="11" height="11" fill="{COLORS[index]}"/>')
        out.append(f'<text class="small" x="{at + 16}" y="37">{escape(name)}</text>')
        at += 40 + 8 * len(name)
    y = TOP
    origin = x(1) if log else LABELS
    for label, values in bars:
        middle = y + ROW * len(values) / 2
        out.append(f'<text x="{LABELS - 8}" y="{middle + 4:.0f}" text-anchor="end">{escape(label)}</text>')
        for index, bar in enumerate(values):
            left, right = sorted([origin, x(bar)])
            out.append(f'<rect x="{left:.1f}" y="{y + 3}" width="{max(right - left, 1):.1f}" height="{ROW - 6}"'
                       f' fill="{COLORS[index]}"/>')
            out.append(f'<text x="{right + 6:.1f}" y="{y + 16}">{shown(bar)}</text>')
            y += ROW
        y += 8
    out.append(f'<line class="line" x1="{origin:.1f}" y1="{TOP - 2}" x2="{origin:.1f}" y2="{y - 4}"/>')
    out.append(f'<text class="small" x="8" y="{y + 14}">{escape(spec["note"])}</text></svg>')
    return "\n".join(out) + "\n"


def main():
    check = sys.argv[1:] == ["--check"]
    charts = json.loads((DATA / "charts.json").read_text())
    made = {PAGE: page()} | {DATA / f"{name}.svg": chart(spec) for name, spec in charts.items()}
    listed = {row[0] for row in table("index")[1:]}
    have = {path.stem for path in DATA.glob("*.tsv")} - {"index"}
    if listed != have:
        sys.exit(f"docs/benchmarks/index.tsv has other data files than the folder: {sorted(listed ^ have)}")
    stale = [path for path, text in made.items() if not path.exists() or path.read_text() != text]
    for path in [] if check else stale:
        path.write_text(made[path])
    for path in stale:
        print(f"{path.relative_to(ROOT)} {'differs from its data: run scripts/results.py' if check else 'written'}")
    sys.exit(1 if check and stale else 0)


if __name__ == "__main__":
    main()
