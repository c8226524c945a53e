//! libsvm.

use super::run::{Case, Count, Error, Rows, text, with};

pub fn cases() -> Vec<Case> {
    [forms(), ids(), values(), labels(), lines()].into_iter().flatten().collect()
}

fn forms() -> Vec<Case> {
    vec![
        text("no bytes", "a.svm", "", Error(&["no examples in it"])),
        text("blank lines alone", "a.svm", "\n \r\n\t\n", Error(&["no examples in it"])),
        text("comments alone", "a.svm", "# 1 1:1\n  # 2\n", Error(&["no examples in it"])),
        text("a byte order mark alone", "a.svm", "\u{feff}", Error(&["no examples in it"])),
        text("no newline at the end", "a.svm", "1 1:1\n0 2:0.5", Rows("1¦1:1§0¦2:0.5")),
        text("CRLF and LF mixed", "a.svm", "1 1:1\r\n0 2:1\n1 3:1\r\n", Rows("1¦1:1§0¦2:1§1¦3:1")),
        text("CR alone", "a.svm", "1 1:1\r0 2:1\r", Error(&["end in CR alone", "tr"])),
        text("a mark", "a.svm", "\u{feff}1 1:1\n", Rows("1¦1:1")),
        text("UTF-16", "a.svm", b"\xff\xfe1\x00 \x001\x00\n\x00", Error(&["UTF-16", "UTF-8"])),
        text("UTF-16, the other end first", "a.svm", b"\xfe\xff\x001\x00 \x001\x00\n", Error(&["UTF-16"])),
        text(
            "UTF-16 without a mark",
            "a.svm",
            b"1\x00 \x001\x00:\x001\x00\n\x00",
            Error(&[":1: ", "as the label"]),
        ),
        text("NULs at the end", "a.svm", "1 1:1\n\0\0\0\0", Error(&[":2: ", "as the label"])),
        text("NUL in a value", "a.svm", "1 1:1\0\n", Error(&[":1: ", "a number after the colon"])),
        text("not UTF-8", "a.svm", b"1 1:1\n1 2:\xff\n", Error(&[":2: ", "a number after the colon"])),
        text("blanks everywhere", "a.svm", "  \t1 \t 1:1  2:2 \t\n", Rows("1¦1:1¦2:2")),
        text("comments behind examples", "a.svm", "1 1:1 # 2:2\n0#\n", Error(&[":2: "])),
        text("a comment behind a blank", "a.svm", "1 1:1 #2:2\n0 # no feature\n", Rows("1¦1:1§0")),
    ]
}

fn ids() -> Vec<Case> {
    vec![
        text("ids without values", "a.svm", "1 1 2:0.5 3\n", Rows("1¦1:1¦2:0.5¦3:1")),
        text("ids in any order", "a.svm", "1 9:1 2:1 5:1\n", Rows("1¦9:1¦2:1¦5:1")),
        text("the id 0", "a.svm", "1 0:1\n", Rows("1¦0:1")),
        text("an id with leading zeros", "a.svm", "1 007:1\n", Rows("1¦7:1")),
        text("the greatest id", "a.svm", "1 18446744073709551614:1\n", Rows("1¦18446744073709551614:1")),
        text(
            "an id too large",
            "a.svm",
            "1 18446744073709551615:1\n",
            Error(&[":1: ", "at most 18446744073709551614"]),
        ),
        text(
            "an id far too large",
            "a.svm",
            "1 99999999999999999999999:1\n",
            Error(&[":1: ", "18446744073709551614"]),
        ),
        text("a negative id", "a.svm", "1 -3:1\n", Error(&[":1: ", "id:value"])),
        text("an id that is a fraction", "a.svm", "1 1.5:1\n", Error(&[":1: ", "id:value"])),
        text("an id that is text", "a.svm", "1 age:1\n", Error(&[":1: ", "id:value"])),
        text("an id in hexadecimal", "a.svm", "1 0x10:1\n", Error(&[":1: ", "id:value"])),
    ]
}

fn values() -> Vec<Case> {
    vec![
        text("a value in hexadecimal", "a.svm", "1 1:0x10\n", Error(&[":1: ", "a number after the colon"])),
        text("NaN", "a.svm", "1 1:nan\n", Error(&[":1: ", "a finite number"])),
        text("infinity", "a.svm", "1 1:inf\n", Error(&[":1: ", "a finite number"])),
        text("minus infinity", "a.svm", "1 1:-Infinity\n", Error(&[":1: ", "a finite number"])),
        text("1e999", "a.svm", "1 1:1e999\n", Error(&[":1: ", "a finite number that fits f32"])),
        text("1e-999 is 0", "a.svm", "1 1:1e-999\n", Rows("1¦1:0")),
        text("a number that f32 rounds to infinity", "a.svm", "1 1:3.5e38\n", Error(&[":1: ", "fits f32"])),
        text("underscores", "a.svm", "1 1:1_000\n", Error(&[":1: ", "a number after the colon"])),
        text("a comma for the point", "a.svm", "1 1:0,5\n", Error(&[":1: ", "a number after the colon"])),
        text(
            "a comma between thousands",
            "a.svm",
            "0 1:1\n1 1:1,000.5\n",
            Error(&[":2: ", "a number after"]),
        ),
        text(
            "numbers of many forms",
            "a.svm",
            "1 1:+.5 2:5. 3:-1e1 4:1E+1 5:00.50\n",
            Rows("1¦1:0.5¦2:5¦3:-10¦4:10¦5:0.5"),
        ),
        text("a dot alone", "a.svm", "1 1:.\n", Error(&[":1: ", "a number after the colon"])),
        text("an exponent without digits", "a.svm", "1 1:1e\n", Error(&[":1: ", "a number after the colon"])),
        text("two signs", "a.svm", "1 1:--1\n", Error(&[":1: ", "a number after the colon"])),
        text("300 digits", "a.svm", format!("1 1:0.{}\n", "3".repeat(300)), Rows("1¦1:0.33333334")),
        text(
            "no value behind the colon",
            "a.svm",
            "1 1: 2:1\n",
            Error(&[":1: ", "a number after the colon"]),
        ),
        text("a blank before the colon", "a.svm", "1 1 :1\n", Error(&[":1: ", "id:value"])),
        text("two colons", "a.svm", "1 1:1\n1 2:1:1\n", Error(&[":2: "])),
        text("commas between features", "a.svm", "1 1:1,2:1\n", Error(&[":1: "])),
    ]
}

fn labels() -> Vec<Case> {
    vec![
        text("no label", "a.svm", "1:1 2:1\n", Error(&[":1: ", "as the label"])),
        text("a label that is text", "a.svm", "yes 1:1\n", Error(&[":1: ", "as the label"])),
        text("a label NaN", "a.svm", "nan 1:1\n", Error(&[":1: ", "the line has no label"])),
        text("labels of many forms", "a.svm", "+1 1\n-1.5e0 2\n.5 3\n", Rows("1¦1:1§-1.5¦2:1§0.5¦3:1")),
        with("a third class", "a.svm", "1 1\n3 1\n", "signs", Error(&[":2: ", "a label 0, 1, +1 or -1"])),
        with("-1, 0 and 1", "a.svm", "1 1\n0 1\n-1 1\n", "signs", Error(&[":3: ", "mixture of -1, 0 and 1"])),
    ]
}

fn lines() -> Vec<Case> {
    let long = format!("1 {}\n", "1:".repeat(9 << 20));
    vec![
        text("query ids", "a.svm", "1 qid:1 1:0.5 2:1\n0 qid:10 3:1\n", Rows("1¦1:0.5¦2:1§0¦3:1")),
        text("a query id in the wrong place", "a.svm", "1 1:1 qid:3\n", Error(&[":1: ", "id:value"])),
        text("a query id that is text", "a.svm", "1 qid:x 1:1\n", Error(&[":1: "])),
        text("a line too long", "a.svm", long, Error(&[":1: the line is longer than 16777216 bytes"])),
        with(
            "bad lines that are skipped",
            "a.svm",
            "x\n1 1:1\n1 1:x\n0 2:1\n",
            "skip=2",
            Rows("1¦1:1§0¦2:1"),
        ),
        with(
            "one bad line too many",
            "a.svm",
            "x\n1 1:1\n1 1:x\n0 2:1\n",
            "skip=1",
            Error(&[":3: ", "bad line 2 of the 1"]),
        ),
        with("bad lines alone", "a.svm", "x\ny\nz\n", "skip=9", Error(&["none of its 3 lines", ":1: "])),
        with("crosses of libsvm", "a.svm", "1 1:1\n", "cross=a,b", Error(&["libsvm has no fields"])),
        with("columns of libsvm", "a.svm", "1 1:1\n", "format=csv", Error(&["no feature columns"])),
        text("10,000 examples on one line are one", "a.svm", "1 1:1 ".repeat(10_000), Count(1)),
        text("a form feed", "a.svm", "1 1:1\x0c\n", Error(&[":1: "])),
        text("an example of 100,000 features", "a.svm", format!("1 {}\n", "7:1 ".repeat(100_000)), Count(1)),
    ]
}
