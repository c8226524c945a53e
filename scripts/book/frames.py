#!/usr/bin/env python3
"""Prints every kind of frame and every message, from their declarations: `scripts/book/frames.py`.

node/wire/src/frames/table_tests.rs compares the table with the types that the code has.
"""

import pathlib
import re

ROOT = pathlib.Path(__file__).resolve().parents[2]
WIRE = ROOT / "node" / "wire" / "src"
INTRO = """# Frames and messages

Every kind of frame and every message, as the code declares them. [The wire format](wire.md) says what they mean
together.

## Kinds
In the table:
- `aux` lists flags and their values; their sum is the field.
- `a; b` is two u32 in one word, the first in the low half. `x + 1` means: x + 1, or 0 for none.
- 0: the sender writes 0, and a server refuses anything else with 1. So are unknown bits of other fields.
"""
MESSAGES = """## Messages
A field of a message is archived by rkyv as its Rust type. The number at the end of a name is its version word.
"""
DOC = r"((?:^[ \t]*///[^\n]*\n)+)"
DECLARED = re.compile(DOC + r'[ \t]*(\d+) (\w+) "([^"]+)" (\w+) "([^"]+)" \{([^}]*)\}', re.M)
PLACE = re.compile(r'(Aux|W\d) "([^"]+)":([^;]*);')
DECLARED_FIELD = re.compile(r"/\*\*(.*?)\*/\s*(\w+):", re.S)
ROW = re.compile(
    r'for (\w+) \{.*?kind: (\d+),\s*name: "([^"]+)",\s*direction: FrameDirection::(\w+),\s*'
    r'fields: &\[(.*?)\n        \],\s*payload: "([^"]+)"',
    re.S,
)
ROW_FIELD = re.compile(r'\(\s*Field::(\w+),\s*"([^"]+)",?\s*\)')


def words(doc):
    """The text of a doc comment, on one line."""
    text = " ".join(line.strip().removeprefix("///").strip() for line in doc.strip().splitlines())
    return re.sub(r"\[`([^`]+)`\]", r"`\1`", re.sub(r"\s+", " ", text))


def declared(text):
    """The frames of a `frames!` block: kind, name, direction, places, payload, words, words of fields."""
    for doc, kind, _, name, direction, payload, body in DECLARED.findall(text):
        places = {place: meaning for place, meaning, _ in PLACE.findall(body)}
        fields = [(field, words(said)) for said, field in DECLARED_FIELD.findall(body)]
        yield int(kind), name, direction, places, payload, words(doc), fields


def by_hand(text):
    """The frames whose `FrameRow` is written out."""
    for frame, kind, name, direction, fields, payload in ROW.findall(text):
        doc, body = re.search(DOC + r"#\[derive[^\n]*\]\npub struct " + frame + r" \{\n([^}]*)\}", text, re.M).groups()
        said = [(field, words(of)) for of, field in re.findall(DOC + r" *pub (\w+):", body, re.M)]
        yield int(kind), name, direction, dict(ROW_FIELD.findall(fields)), payload, words(doc), said


def frames():
    """All frames by their kinds."""
    texts = [file.read_text() for file in sorted((WIRE / "frames").glob("*.rs")) if file.stem not in ("declare", "table_tests")]
    return sorted(frame for text in texts for frame in [*declared(text), *by_hand(text)])


def messages(file):
    """The declarations of a file that are archived, each with its words."""
    found, open_ = [], []
    for line in file.read_text().split("\n#[cfg(test)]\nmod ")[0].splitlines():
        open_ = open_ + [line] if line.strip() else []
        ends = line in ("}", "};") or line.startswith("pub struct") and line.endswith((";", "{}"))
        if ends and any(of.startswith("#[derive(Archive") for of in open_):
            found += ["\n".join(open_)]
        if ends:
            open_ = []
    return found


def page():
    out = [INTRO, "| kind | name | direction | aux | w0 | w1 | w2 | w3 | payload |", "|---|---|---|---|---|---|---|---|---|"]
    all_frames = frames()
    for kind, name, direction, places, payload, _, _ in all_frames:
        to = {"ToServer": "to server", "ToWorker": "to worker"}[direction]
        cells = [str(kind), name, to, *(places.get(place, "0") for place in ("Aux", "W0", "W1", "W2", "W3")), payload]
        out += [f"| {' | '.join(cells)} |"]
    out += ["", "## What they say", ""]
    for kind, name, *_, said, fields in all_frames:
        out += [f"- **{kind} {name}.** {said}", *(f"  - `{field}`: {of}" for field, of in fields)]
    out += ["", MESSAGES]
    for file in sorted((WIRE / "messages").glob("*.rs")):
        found = messages(file)
        if found:
            out += [f"### {file.stem.replace('_', ' ').capitalize()}", "", "```rust", "\n\n".join(found), "```", ""]
    return "\n".join(out)


if __name__ == "__main__":
    print(page(), end="")
