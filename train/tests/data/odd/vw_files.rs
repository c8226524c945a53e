//! Vowpal Wabbit's text and JSON lines.

use super::run::{Case, Count, Error, Rows, text, with};

pub fn cases() -> Vec<Case> {
    [forms(), values(), json()].into_iter().flatten().collect()
}

fn forms() -> Vec<Case> {
    vec![
        text("empty", "a.vw", "", Error(&["no examples in it"])),
        text("blank lines", "a.vw", "\n\n1 |u x\n\n\n-1 |u y\n\n", Rows("1¦u^x:1§-1¦u^y:1")),
        text("a bar alone", "a.vw", "1 |\n", Rows("1")),
        text("two bars", "a.vw", "1 || 3\n", Rows("1¦3:1")),
        text("bars side by side", "a.vw", "1 |a x|b y|c|d z\n", Rows("1¦a^x:1¦b^y:1¦d^z:1")),
        text("a bar at the end", "a.vw", "1 |a x|\n", Rows("1¦a^x:1")),
        text("a blank behind the bar", "a.vw", "1 | x\n", Rows("1¦^x:1")),
        text("no bar", "a.vw", "1 | x\n1 3:1\n", Error(&[":2: ", "a | before the features"])),
        text("a bar within a name", "a.vw", "1 |u a|b\n", Rows("1¦u^a:1")),
        text(
            "no label at all",
            "a.vw",
            "|u x\n'tag |u y\n",
            Error(&["none of its 2 lines", "no line has a label"]),
        ),
        text("some labels", "a.vw", "|u x\n1 |u y\n|u z\n", Rows("1¦u^y:1")),
        with("no label, to predict", "a.vw", "|u x\n", "unlabelled", Rows("NaN¦u^x:1")),
        text("importance, base and tag", "a.vw", "0 2 0.5 'third_house | price:.5\n", Rows("0¦^price:0.5")),
        text("a tag that touches the bar", "a.vw", "1 1 tag|u x\n", Rows("1¦u^x:1")),
    ]
}

fn values() -> Vec<Case> {
    vec![
        text("a scaled namespace", "a.vw", "1 |u:0.5 x:4\n", Rows("1¦u^x:2")),
        text("a scale that is text", "a.vw", "1 |u:x y\n", Error(&[":1: "])),
        text("an endless scale", "a.vw", "1 |u:inf x\n", Error(&[":1: ", "finite"])),
        text("a negative importance", "a.vw", "1 -2 | x\n", Error(&[":1: ", "not negative"])),
        text("NaN for an importance", "a.vw", "1 nan | x\n", Error(&[":1: ", "importance"])),
        text("NaN for a value", "a.vw", "1 | x:nan\n", Error(&[":1: ", "finite"])),
        text("1e999", "a.vw", "1 | x:1e999\n", Error(&[":1: ", "fits f32"])),
        text("a comma for the point", "a.vw", "1 |u x:0,5\n", Count(1)),
        text("a name that is empty", "a.vw", "1 |u :2\n", Error(&[":1: ", "a name before the colon"])),
        text("three parts", "a.vw", "1 |u x:1:2\n", Error(&[":1: ", "a number after the colon"])),
        text("a control character", "a.vw", "1 |u a\x01b\n", Error(&[":1: ", "without control characters"])),
        text("not UTF-8", "a.vw", b"1 |u caf\xe9\n", Count(1)),
        text("UTF-16", "a.vw", b"\xff\xfe1\0 \0|\0", Error(&["UTF-16"])),
        text("CRLF", "a.vw", "1 |u x\r\n-1 |u y:2\r\n", Rows("1¦u^x:1§-1¦u^y:2")),
        text("a contextual bandit", "a.vw", "1:2:0.4 | x\n", Error(&[":1: ", "contextual-bandit"])),
        text("shared lines", "a.vw", "shared | x\n", Error(&[":1: ", "shared"])),
        text("several labels", "a.vw", "1,2 | x\n", Error(&[":1: ", "not several"])),
        with(
            "a cross without one field",
            "a.vw",
            "1 |u x |v y\n0 |u z\n",
            "cross=u,w",
            Rows("1¦u^x:1¦v^y:1§0¦u^z:1"),
        ),
    ]
}

fn json() -> Vec<Case> {
    vec![
        with(
            "JSON: namespaces",
            "a.json",
            "{\"_label\": 1, \"u\": {\"x\": 2, \"c\": true}}\n",
            "format=vw-json",
            Rows("1¦u^x:2¦u^c:1"),
        ),
        with(
            "JSON: known by its label",
            "a.json",
            "{\"_label\": 0, \"u\": {\"_text\": \"a b\"}}\n",
            "",
            Rows("0¦u^a:1¦u^b:1"),
        ),
        with(
            "JSON: no label",
            "a.json",
            "{\"u\": {\"x\": 2}}\n",
            "format=vw-json",
            Error(&["none of its 1 lines"]),
        ),
        with(
            "JSON: a label that is text",
            "a.json",
            "{\"_label\": \"x\", \"u\": 1}\n",
            "format=vw-json",
            Error(&[":1: "]),
        ),
        with(
            "JSON: an array",
            "a.json",
            "[{\"_label\": 1}]\n",
            "format=vw-json",
            Error(&[":1: ", "JSON object"]),
        ),
        with(
            "JSON: 100,000 lists deep",
            "a.json",
            format!("{{\"_label\": 1, \"_x\": {}{}}}\n", "[".repeat(100_000), "]".repeat(100_000)),
            "format=vw-json",
            Error(&[":1: ", "at most 512 objects and lists"]),
        ),
        with(
            "JSON: torn",
            "a.json",
            "{\"_label\": 1, \"u\": {\"x\"",
            "format=vw-json",
            Error(&[":1: ", "JSON object"]),
        ),
    ]
}
