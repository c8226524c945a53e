#!/usr/bin/env python3
"""Prints the table of all fixed times, from the constants of each crate: `scripts/book/waits.py`."""

import pathlib
import re

ROOT = pathlib.Path(__file__).resolve().parents[2]
CRATES = {
    "node/wire": "All processes",
    "node/worker": "Workers and other clients of servers",
    "node/server": "Servers",
    "node/jobs": "The scheduler, the registry of runs and the coordinator",
    "node/buckets": "Whoever reads or writes a bucket",
    "train": "Training loops",
    "transport": "Transports",
    "cli": "The command",
}
INTRO = """# Waits

Every fixed time, as the code has it: who waits, for how long, and for what. The other times are [flags](flags.md):
`--peer-timeout`, `--worker-timeout`, `--lease`, `--checkpoint-secs` and `--save-secs`.
"""
# Support of tests in the folders of products.
TESTED = re.compile(r"_tests\.rs$|/(hostile|sim|scripted)|/bench/")
CONSTANT = re.compile(r"((?:///.*\n)+)(?:#\[.*\]\n)*(?:pub(?:\([a-z]+\))? )?const (\w+): Duration\s*=\s*([^;]+);")
UNITS = {"micros": "µs", "millis": "ms", "secs": "s"}


def time_of(value):
    """The time that an expression of a constant gives, in words."""
    found = re.fullmatch(r"Duration::from_(micros|millis|secs)\(([\d_ *]+)\)", value.strip())
    if not found:
        raise SystemExit(f"{value}: not a time that this script can read; write Duration::from_secs(..)")
    count = 1
    for factor in found[2].replace("_", "").split("*"):
        count *= int(factor)
    if found[1] == "secs":
        for unit, seconds in (("d", 86_400), ("h", 3600), ("min", 60)):
            if count >= 2 * seconds and count % seconds == 0 or (unit, count) == ("h", 3600):
                return f"{count // seconds} {unit}"
    return f"{count} {UNITS[found[1]]}"


def rows_of(file):
    """A row for each constant of a file."""
    rows, where = [], file.relative_to(ROOT)
    for words, name, value in CONSTANT.findall(file.read_text().split("\n#[cfg(test)]\nmod ")[0]):
        words = " ".join(line.strip().removeprefix("///").strip() for line in words.strip().split("\n"))
        words = re.sub(r"\[`(\w+)`\]", r"`\1`", words).replace("|", "\\|")
        rows.append(f"| `{name}` | {time_of(value)} | {words} | {where} |")
    return rows


def waits():
    out = [INTRO]
    for crate, who in CRATES.items():
        files = sorted(file for file in (ROOT / crate / "src").rglob("*.rs") if not TESTED.search(str(file)))
        rows = [row for file in files for row in rows_of(file)]
        if rows:
            out += [f"## {who}", "", "| constant | time | what for | file |", "|---|---|---|---|", *rows, ""]
    return "\n".join(out)


if __name__ == "__main__":
    print(waits(), end="")
