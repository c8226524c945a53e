//! JSON lines.

use super::run::{Case, Count, Error, Rows, text, with};

pub fn cases() -> Vec<Case> {
    [numbers(), forms(), torn(), names(), nested(), texts()].into_iter().flatten().collect()
}

fn forms() -> Vec<Case> {
    vec![
        text("empty", "a.jsonl", "", Error(&["no examples in it"])),
        text("blank lines", "a.jsonl", "\n\r\n", Error(&["no examples in it"])),
        text("blank lines between", "a.jsonl", "\n{\"label\":1,\"a\":\"x\"}\n\n\n", Rows("1¦a=x")),
        text("no newline at the end", "a.jsonl", "{\"label\":1,\"a\":\"x\"}", Rows("1¦a=x")),
        text("CRLF", "a.jsonl", "{\"label\":1,\"a\":\"x\"}\r\n{\"label\":0}\r\n", Rows("1¦a=x§0")),
        text("a mark", "a.jsonl", "\u{feff}{\"label\":1,\"a\":\"x\"}\n", Rows("1¦a=x")),
        text("UTF-16", "a.jsonl", b"\xff\xfe{\0", Error(&["UTF-16"])),
        text(
            "an empty object",
            "a.jsonl",
            "{\"label\":1}\n{}\n",
            Error(&[":2: ", "expected a label in \"label\""]),
        ),
        text(
            "an array of objects",
            "a.json",
            "[{\"label\":1},\n{\"label\":0}]\n",
            Error(&["is a JSON array", "jq -c"]),
        ),
        text("an array a line", "a.jsonl", "[1,\"x\"]\n", Error(&[":1: ", "JSON object"])),
        text("numbers a line", "a.jsonl", "1\n2\n", Error(&[":1: ", "JSON object"])),
        text(
            "an object over several lines",
            "a.jsonl",
            "{\n  \"label\": 1\n}\n",
            Error(&[":1: ", "JSON object"]),
        ),
    ]
}

fn torn() -> Vec<Case> {
    vec![
        with(
            "a number twice",
            "a.jsonl",
            "{\"label\":1,\"n\":1,\"n\":2}\n",
            "numeric=n",
            Error(&[":1: ", "\"n\"", "not a second one"]),
        ),
        text(
            "two objects on a line",
            "a.jsonl",
            "{\"label\":1}{\"label\":0}\n",
            Error(&[":1: ", "nothing behind it"]),
        ),
        text(
            "a comma behind an object",
            "a.jsonl",
            "{\"label\":1},\n",
            Error(&[":1: ", "nothing behind it"]),
        ),
        text("a comma at the end", "a.jsonl", "{\"label\":1,\"a\":2,}\n", Error(&[":1: ", "JSON object"])),
        text("single quotes", "a.jsonl", "{'label':1}\n", Error(&[":1: ", "JSON object"])),
        text("names without quotes", "a.jsonl", "{label:1}\n", Error(&[":1: ", "JSON object"])),
        text("comments", "a.jsonl", "{\"label\":1 /* x */}\n", Error(&[":1: "])),
        text("torn in a string", "a.jsonl", "{\"label\":1,\"a\":\"x", Error(&[":1: ", "JSON object"])),
        text("torn in a number", "a.jsonl", "{\"label\":1,\"a\":1", Error(&[":1: ", "JSON object"])),
        text("blanks everywhere", "a.jsonl", " { \"label\" :\t1 , \"a\" : \"x\" } \n", Rows("1¦a=x")),
        text("a form feed behind", "a.jsonl", "{\"label\":1}\x0c\n", Error(&[":1: ", "nothing behind it"])),
    ]
}

fn names() -> Vec<Case> {
    vec![
        text("a name twice", "a.jsonl", "{\"label\":1,\"a\":\"x\",\"a\":\"y\"}\n", Rows("1¦a=x¦a=y")),
        text(
            "the label twice",
            "a.jsonl",
            "{\"label\":1,\"label\":0}\n",
            Error(&[":1: ", "expected one label"]),
        ),
        text("an empty name", "a.jsonl", "{\"label\":1,\"\":\"x\"}\n", Rows("1")),
        text("null", "a.jsonl", "{\"label\":1,\"a\":null}\n", Rows("1¦a=")),
        text("a label null", "a.jsonl", "{\"label\":null,\"a\":1}\n", Error(&[":1: "])),
        text(
            "a label that is text",
            "a.jsonl",
            "{\"label\":\"yes\"}\n",
            Error(&[":1: ", "in column \"label\""]),
        ),
        text("a label true", "a.jsonl", "{\"label\":true,\"a\":1}\n", Rows("1¦a=1")),
        text("a label that is a list", "a.jsonl", "{\"label\":[1],\"a\":1}\n", Error(&[":1: ", "\"label\""])),
    ]
}

fn nested() -> Vec<Case> {
    let nested = |depth: usize| {
        format!("{{\"label\":1,{}1{}\n", "\"a\":{".repeat(depth) + "\"a\":", "}".repeat(depth + 1))
    };
    let lists = |depth: usize| format!("{{\"label\":1,\"a\":{}{}}}\n", "[".repeat(depth), "]".repeat(depth));
    vec![
        text(
            "objects inside",
            "a.jsonl",
            "{\"label\":1,\"a\":{\"b\":{\"c\":\"x\"},\"d\":2}}\n",
            Rows("1¦a.b.c=x¦a.d=2"),
        ),
        text("an empty object inside", "a.jsonl", "{\"label\":1,\"a\":{}}\n", Rows("1")),
        text("lists", "a.jsonl", "{\"label\":1,\"a\":[\"x\",2,true,null]}\n", Rows("1¦a=x¦a=2¦a=true¦a=")),
        text("an empty list", "a.jsonl", "{\"label\":1,\"a\":[]}\n", Rows("1")),
        text(
            "a list in a list",
            "a.jsonl",
            "{\"label\":1,\"a\":[[1]]}\n",
            Error(&[":1: ", "no list inside a list", "\"a\""]),
        ),
        text(
            "an object in a list",
            "a.jsonl",
            "{\"label\":1,\"a\":[{\"b\":1}]}\n",
            Error(&[":1: ", "no object inside a list"]),
        ),
        text("17 objects deep", "a.jsonl", nested(16), Count(1)),
        text("18 objects deep", "a.jsonl", nested(17), Error(&[":1: ", "objects inside each other"])),
        text("100,000 objects deep", "a.jsonl", nested(100_000), Error(&[":1: "])),
        text("100,000 lists deep", "a.jsonl", lists(100_000), Error(&[":1: "])),
        text("a million objects that are open", "a.jsonl", "{\"a\":".repeat(1_000_000), Error(&[":1: "])),
        with(
            "deep lists in what is left out",
            "a.jsonl",
            lists(100_000),
            "ignore=a",
            Error(&[":1: ", "at most 512 objects and lists"]),
        ),
        with("512 lists in what is left out", "a.jsonl", lists(511), "ignore=a", Rows("1")),
        text(
            "brackets in a text",
            "a.jsonl",
            format!("{{\"label\":1,\"a\":\"{}\\\"[\"}}\n", "[{".repeat(5000)),
            Count(1),
        ),
    ]
}

fn texts() -> Vec<Case> {
    vec![
        text(
            "escapes",
            "a.jsonl",
            r#"{"label":1,"a\u0062":"\u00e9\n\t\"\\\/"}"#,
            Rows("1¦ab=\u{e9}\n\t\"\\/"),
        ),
        text("a pair of surrogates", "a.jsonl", r#"{"label":1,"a":"\ud83d\ude00"}"#, Rows("1¦a=\u{1f600}")),
        text("a lone surrogate", "a.jsonl", r#"{"label":1,"a":"\ud83d"}"#, Error(&[":1: "])),
        text(
            "surrogates in the wrong order",
            "a.jsonl",
            r#"{"label":1,"a":"\ude00\ud83d"}"#,
            Error(&[":1: "]),
        ),
        text("an escape that is none", "a.jsonl", r#"{"label":1,"a":"\x41"}"#, Error(&[":1: "])),
        text(
            "a control character in a string",
            "a.jsonl",
            "{\"label\":1,\"a\":\"x\x01y\"}\n",
            Error(&[":1: "]),
        ),
        text("a tab in a string", "a.jsonl", "{\"label\":1,\"a\":\"x\ty\"}\n", Error(&[":1: "])),
        text("NUL behind", "a.jsonl", "{\"label\":1}\0\0\n", Error(&[":1: ", "nothing behind it"])),
        text("not UTF-8", "a.jsonl", b"{\"label\":1,\"a\":\"\xff\"}\n", Error(&[":1: "])),
        with("a label by its flag", "a.jsonl", "{\"y\":1,\"label\":\"x\"}\n", "label=y", Rows("1¦label=x")),
        with(
            "a bad line that is skipped",
            "a.jsonl",
            "{\"label\":1,\"a\":1\n{\"label\":0,\"a\":2}\n",
            "skip=1",
            Rows("0¦a=2"),
        ),
        with(
            "other names are left out",
            "a.jsonl",
            "{\"label\":1,\"a\":1,\"b\":2}\n",
            "categorical=b",
            Rows("1¦b=2"),
        ),
        with("a name that is not there", "a.jsonl", "{\"label\":1,\"a\":1}\n", "categorical=z", Rows("1¦z=")),
        with(
            "a column chosen twice",
            "a.jsonl",
            "{\"label\":1}\n",
            "numeric=a ignore=a",
            Error(&["\"a\" is chosen twice"]),
        ),
    ]
}

fn numbers() -> Vec<Case> {
    let line = |what, value: &str, want| {
        with(what, "n.jsonl", format!("{{\"label\":1,\"n\":{value}}}\n"), "numeric=n", want)
    };
    let plain =
        |what, value: &str, want| text(what, "n.jsonl", format!("{{\"label\":1,\"n\":{value}}}\n"), want);
    vec![
        line("a number", "-1.5e1", Rows("1¦n#-15")),
        line("a number as text", "\"0.5\"", Rows("1¦n#0.5")),
        line("null for a number", "null", Rows("1¦n?")),
        line("NA as text", "\"NA\"", Rows("1¦n?")),
        line("true for a number", "true", Rows("1¦n#1")),
        line("too large a number", "1e39", Error(&[":1: ", "a finite number", "\"n\""])),
        line("1e999", "1e999", Error(&[":1: "])),
        line("NaN, as Python writes it", "NaN", Error(&[":1: ", "JSON object"])),
        line("Infinity, as Python writes it", "-Infinity", Error(&[":1: ", "JSON object"])),
        line("NaN as text", "\"NaN\"", Rows("1¦n?")),
        line("hexadecimal", "0x10", Error(&[":1: "])),
        line("a leading zero", "007", Error(&[":1: "])),
        line("a plus", "+1", Error(&[":1: "])),
        line("a point at the start", ".5", Error(&[":1: "])),
        line("underscores as text", "\"1_000\"", Error(&[":1: ", "a number"])),
        line("a list of numbers", "[1,2]", Error(&[":1: ", "a number, not a list"])),
        line("an object for a number", "{\"x\":1}", Error(&[":1: ", "a number, not an object", "\"n\""])),
        plain("1 and 1.0 are two categories", "1.0", Rows("1¦n=1.0")),
        plain(
            "a whole number of 40 digits",
            "1234567890123456789012345678901234567890",
            Rows("1¦n=1234567890123456789012345678901234567890"),
        ),
    ]
}
