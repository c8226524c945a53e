#!/usr/bin/env python3
"""Collects the pages of the book into a folder, and makes those that list flags and source files: book_pages.py GANNET OUT.

scripts/book.sh calls it. The pages keep their places in the repository, so that links between them hold.
"""

import pathlib
import re
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
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


def flags(gannet):
    """A page with a section for each command, and a block for each group of its flags."""
    out = ["# Flags", "", "The help of each command (`gannet COMMAND --help`)."]
    for name, text in help_of(gannet):
        out += ["", f"## {name}"]
        for part in re.split(r"\n(?=[A-Z][^\n]*:\n)", text.rstrip()):
            first, _, rest = part.partition("\n")
            if re.fullmatch(r"[A-Z][^\n]*:", first):
                out += ["", f"**{first[:-1]}**", "```text", rest.rstrip(), "```"]
            else:
                out += ["", "```text", part, "```"]
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
    (out / "docs" / "code_map.md").write_text(code_map())
    summary = (out / "docs" / "SUMMARY.md").read_text()
    summary = summary.replace("- [Metrics and logs]", "- [Flags](flags.md)\n- [Metrics and logs]")
    summary = summary.replace("- [Inside each crate]", "- [Source files](code_map.md)\n- [Inside each crate]")
    summary = re.sub(r"\]\((?!\.\./)", "](docs/", summary).replace("](../", "](")
    (out / "SUMMARY.md").write_text(summary)
    (out / "docs" / "SUMMARY.md").unlink()


if __name__ == "__main__":
    main()
