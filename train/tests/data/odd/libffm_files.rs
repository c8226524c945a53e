//! libffm.

use super::run::{Case, Error, Rows, text, with};

pub fn cases() -> Vec<Case> {
    vec![
        text("plain", "a.ffm", "1 1:10:0.5 2:70:1\n0 1:30:1\n", Rows("1¦10:0.5¦70:1§0¦30:1")),
        text("told by its first line", "a", "1 0:3:1\n", Rows("1¦3:1")),
        text("a negative field", "a.ffm", "1 -1:10:1\n", Error(&[":1: ", "field:id:value"])),
        text("a field too large", "a.ffm", "1 65536:10:1\n", Error(&[":1: ", "65535"])),
        text("the greatest field", "a.ffm", "1 65535:10:1\n", Rows("1¦10:1")),
        text("a field that is text", "a.ffm", "1 user:10:1\n", Error(&[":1: ", "field:id:value"])),
        text("no field", "a.ffm", "1 1:10:1\n0 10:1\n", Error(&[":2: ", "field:id:value"])),
        text("no value", "a.ffm", "1 1:10\n", Error(&[":1: "])),
        text("an empty value", "a.ffm", "1 1:10:\n", Error(&[":1: ", "a number"])),
        text("three colons", "a.ffm", "1 1:10:1:1\n", Error(&[":1: "])),
        text("NaN", "a.ffm", "1 1:10:nan\n", Error(&[":1: ", "a finite number"])),
        text(
            "CRLF, blanks and comments",
            "a.ffm",
            "# x\r\n1  1:10:1\t2:3:1 \r\n0 # none\r\n",
            Rows("1¦10:1¦3:1§0"),
        ),
        text("a field twice", "a.ffm", "1 1:10:1 1:11:1\n", Rows("1¦10:1¦11:1")),
        text("no label", "a.ffm", "1:10:1\n", Error(&[":1: ", "as the label"])),
        with("no label, to predict", "a.ffm", "1:10:1\n", "unlabelled", Rows("NaN¦10:1")),
        text("an id too large", "a.ffm", "1 1:18446744073709551615:1\n", Error(&[":1: "])),
    ]
}
