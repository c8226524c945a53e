#!/usr/bin/env python3
"""Collects the pages of the book into a folder, and makes those that list flags, metrics, times, frames and files.

    pages.py GANNET OUT

scripts/book.sh calls it. The pages keep their places in the repository, so that links between them hold.
"""

import pathlib
import re
import shutil
import subprocess
import sys
from html import escape

import metrics
from frames import page as frames
from waits import waits

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGES = ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md", "LICENSE", "python/README.md", "data/README.md"]


def help_of(gannet, *command):
    """The help of a command, and of its commands."""
    done = subprocess.run([gannet, *command, "--help"], capture_output=True, text=True, check=True)
    found = [(" ".join(["gannet", *command]), done.stdout)]
    listed = re.search(r"^Commands:\n((?: .*\n)+)", done.stdout, re.M)
    for name in re.findall(r"^  (\w+) ", listed[1], re.M) if listed else []:
        if name != "help":
            found += help_of(gannet, *command, name)
    return found


def plain(text):
    """Text of a help without a meaning in markdown."""
    return re.sub(r"([\\*_|\[\]`#])", r"\\\1", escape(text, quote=False))


def entries(block):
    """The flags, arguments or commands of a group, each as an item: its name, and what the help says of it."""
    out = []
    for entry in re.split(r"\n(?= {2,6}[-<\[\w])", "\n" + block.rstrip()):
        if not entry.strip():
            continue
        name, text = re.fullmatch(r"\s*(.+?)(?:  +|\n|$)(.*)", entry, re.S).groups()
        paragraphs = [re.sub(r"\s+", " ", part).strip() for part in re.split(r"\n\s*\n|\n(?=\s+- )", text)]
        said = "".join(f"\n  {plain(part)}\n" for part in paragraphs if part)
        out += [f"- `{name.strip()}`\n{said}"]
    return out


def flags(gannet):
    """A page with a section for each command, and a list for each group of its flags."""
    out = ["# Flags", "", "The help of each command (`gannet COMMAND --help`)."]
    for name, text in help_of(gannet):
        out += ["", f"## {name}"]
        for part in re.split(r"\n(?=[A-Z][^\n]*:\n)", text.rstrip()):
            first, _, rest = part.partition("\n")
            if re.fullmatch(r"[A-Z][^\n]*:", first):
                # Behind the last group may be paragraphs that do not belong to it.
                group, *behind = re.split(r"\n\n(?=\S)", rest)
                out += ["", f"### {name}: {first[:-1].lower()}", "", *entries(group)]
            else:
                behind = re.split(r"\n\n", part)
            for words in behind:
                usage = words.startswith("Usage:")
                out += ["", "```text\n" + words.rstrip() + "\n```" if usage else plain(words)]
    return "\n".join(out) + "\n"


def code_map():
    done = subprocess.run([ROOT / "scripts" / "code_map.sh"], capture_output=True, text=True, check=True)
    intro = "Every source file with the first sentence of its documentation: what `scripts/code_map.sh` prints."
    return f"# Source files\n\n{intro}\n```text\n{done.stdout.strip()}\n```\n"


def main():
    gannet, out = sys.argv[1], pathlib.Path(sys.argv[2])
    shutil.rmtree(out, ignore_errors=True)
    shutil.copytree(ROOT / "docs", out / "docs")
    for page in PAGES:
        (out / page).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / page, out / page)
    (out / "docs" / "flags.md").write_text(flags(gannet))
    listed = metrics.table(gannet, ROOT / "data" / "flights.csv.gz")
    (out / "docs" / "metric_list.md").write_text(listed)
    (out / "docs" / "code_map.md").write_text(code_map())
    (out / "docs" / "waits.md").write_text(waits())
    (out / "docs" / "frames.md").write_text(frames())
    summary = (out / "docs" / "SUMMARY.md").read_text()
    new = ["- [Flags](flags.md)", "- [List of metrics](metric_list.md)", "- [Waits](waits.md)"]
    summary = summary.replace("- [Metrics and logs]", "\n".join([*new, "- [Metrics and logs]"]))
    summary = summary.replace("- [Inside each crate]", "- [Source files](code_map.md)\n- [Inside each crate]")
    summary = summary.replace("- [Wire format](wire.md)", "- [Wire format](wire.md)\n- [Frames and messages](frames.md)")
    summary = re.sub(r"\]\((?!\.\./)", "](docs/", summary).replace("](../", "](")
    (out / "SUMMARY.md").write_text(summary)
    (out / "docs" / "SUMMARY.md").unlink()


if __name__ == "__main__":
    main()
