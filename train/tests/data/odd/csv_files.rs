//! CSV, as RFC 4180 has it and as programs write it.

use super::run::{Case, Count, Error, Rows, text, with};

pub fn cases() -> Vec<Case> {
    [quotes(), numbers(), forms(), records(), labels(), delimiters(), sizes()].into_iter().flatten().collect()
}

fn forms() -> Vec<Case> {
    vec![
        text("empty", "a.csv", "", Error(&["no examples in it"])),
        text("a header alone", "a.csv", "label,x\n", Error(&["no examples in it"])),
        text("a header without a newline", "a.csv", "label,x", Error(&["no examples in it"])),
        text("a header and blank lines", "a.csv", "label,x\n\n\r\n", Error(&["no examples in it"])),
        text("no newline at the end", "a.csv", "label,x\n1,a", Rows("1¦x=a")),
        text("CRLF and LF mixed", "a.csv", "label,x\r\n1,a\n0,b\r\n1,c", Rows("1¦x=a§0¦x=b§1¦x=c")),
        text("CR alone", "a.csv", "label,x\r1,a\r0,b\r", Error(&["end in CR alone"])),
        text("CR within a line", "a.csv", "label,x\n1,a\rb\n", Rows("1¦x=a\rb")),
        text("blank lines between records", "a.csv", "\n\nlabel,x\n\n1,a\n\n\n0,b\n\n", Rows("1¦x=a§0¦x=b")),
        text("a mark", "a.csv", "\u{feff}label,x\n1,a\n", Rows("1¦x=a")),
        text("a mark before a quote", "a.csv", "\u{feff}\"label\",\"x\"\n1,a\n", Rows("1¦x=a")),
        text("UTF-16", "a.csv", b"\xff\xfel\0a\0", Error(&["UTF-16"])),
        text("not UTF-8", "a.csv", b"label,x\n1,\xff\xfe\n", Count(1)),
        text("a header that is not UTF-8", "a.csv", b"label,\xe9\n1,a\n", Rows("1¦\u{fffd}=a")),
        text("NUL", "a.csv", "label,x\n1,a\0b\n", Rows("1¦x=a\0b")),
        text("NULs at the end", "a.csv", "label,x\n1,a\n\0\0\0\0", Error(&[":3: ", "2 fields, found 1"])),
    ]
}

fn records() -> Vec<Case> {
    vec![
        text(
            "a row too short",
            "a.csv",
            "label,x,y\n1,a,b\n1,a\n",
            Error(&[":3: ", "expected 3 fields, found 2"]),
        ),
        text(
            "a row too long",
            "a.csv",
            "label,x\n1,a\n1,a,b\n",
            Error(&[":3: ", "expected 2 fields, found more"]),
        ),
        text("a delimiter at the end of rows", "a.csv", "label,x\n1,a,\n", Error(&[":2: ", "found more"])),
        text("a delimiter at the end of all lines", "a.csv", "label,x,\n1,a,\n0,b,\n", Rows("1¦x=a§0¦x=b")),
        text("ragged rows that are skipped", "a.csv", "label,x\n1\n", Error(&[":2: ", "found 1"])),
        with(
            "ragged rows among others",
            "a.csv",
            "label,x\n1\n0,a\n1,a,b\n1,c\n",
            "skip=2",
            Rows("0¦x=a§1¦x=c"),
        ),
        text("a column twice", "a.csv", "label,x,x\n1,a,b\n", Error(&["twice"])),
        text("the label twice", "a.csv", "label,label,x\n1,0,b\n", Error(&["twice"])),
        text("names with blanks", "a.csv", " label , x \n1,a\n", Rows("1¦x=a")),
        text("values with blanks", "a.csv", "label,x,y\n 1 , a ,b \n", Rows("1¦x= a ¦y=b ")),
        text("names that are empty", "a.csv", ",label,x\n0,1,a\n1,0,b\n", Rows("1¦x=a§0¦x=b")),
        text("all values empty", "a.csv", "label,x,y\n1,,\n", Rows("1¦x=¦y=")),
    ]
}

fn labels() -> Vec<Case> {
    vec![
        text("no label column: the first is it", "a.csv", "y,x\n1,a\n", Rows("1¦x=a")),
        with("another label column", "a.csv", "x,y\na,1\n", "label=y", Rows("1¦x=a")),
        with(
            "a label column that is not there",
            "a.csv",
            "x,y\na,1\n",
            "label=z",
            Error(&["no column \"z\"", "x, y"]),
        ),
        text("an empty label", "a.csv", "label,x\n,a\n", Error(&[":2: ", "the line has no label"])),
        text("NA for a label", "a.csv", "label,x\nNA,a\n", Error(&[":2: ", "no label"])),
        with("labels that are words", "a.csv", "label,x\nyes,a\nno,b\n", "positive=yes", Rows("1¦x=a§0¦x=b")),
        with(
            "a third word",
            "a.csv",
            "label,x\nyes,a\nno,b\nmaybe,c\n",
            "positive=yes",
            Error(&[":4: ", "maybe"]),
        ),
        with(
            "true and false",
            "a.csv",
            "label,x\nTrue,a\nFalse,b\n",
            "signs",
            Error(&[":2: ", "--positive"]),
        ),
        text("no header", "a.csv", "1,a\n0,b\n", Error(&["begins with a header", "--no-header"])),
        with("no header, as said", "a.csv", "1,a\n0,b\n", "columns= label=1", Rows("1¦2=a§0¦2=b")),
        with("names for no header", "a.csv", "a,1\nb,0\n", "columns=x,label", Rows("1¦x=a§0¦x=b")),
        with("too few names", "a.csv", "a,1,2\n", "columns=x,label", Error(&["has 3 fields", "names 2"])),
    ]
}

fn delimiters() -> Vec<Case> {
    vec![
        text("semicolons", "a.csv", "label;x\n1;a\n", Error(&["is the delimiter right"])),
        with("semicolons, as said", "a.csv", "label;x\n1;a,b\n", "delimiter=;", Rows("1¦x=a,b")),
        with("bars, as said", "a.csv", "label|x\n1|a\n", "delimiter=|", Rows("1¦x=a")),
        text("tabs", "a.tsv", "label\tx\n1\ta,b\n", Rows("1¦x=a,b")),
        text("tabs without an extension", "a", "label\tx\n1\ta\n", Rows("1¦x=a")),
        text("tabs in a file called .csv", "a.csv", "label\tx\n1\ta\n", Error(&["no feature columns"])),
        text("only a label", "a.csv", "label\n1\n", Error(&["no feature columns"])),
        text(
            "HTML",
            "a.csv",
            "<!DOCTYPE html>\n<html><body>404</body></html>\n",
            Error(&["no feature columns"]),
        ),
    ]
}

fn sizes() -> Vec<Case> {
    let wide = |cells: usize| (0..cells).map(|at| format!("c{at}")).collect::<Vec<_>>().join(",");
    let row = |cells: usize| vec!["x"; cells].join(",");
    let huge = "x".repeat(8 << 20);
    vec![
        text("16,384 columns", "a.csv", format!("label,{}\n1,{}\n", wide(16_383), row(16_383)), Count(1)),
        text(
            "16,385 columns",
            "a.csv",
            format!("label,{}\n1,{}\n", wide(16_384), row(16_384)),
            Error(&["16384"]),
        ),
        text("a field of 8 MiB", "a.csv", format!("label,x\n1,{huge}\n0,y\n"), Count(2)),
        text(
            "a record over 16 MiB",
            "a.csv",
            format!("label,x,y,z\n1,{huge},{huge},{huge}\n"),
            Error(&[":2: the line is longer"]),
        ),
        text(
            "repeated headers",
            "a.csv",
            "label,x\n1,a\nlabel,x\n0,b\n",
            Error(&[":3: ", "in column \"label\""]),
        ),
        text("a comment", "a.csv", "# made by x\nlabel,x\n1,a\n", Error(&["no feature columns"])),
        text("a form feed", "a.csv", "label,x\n1,a\x0c\n", Rows("1¦x=a\x0c")),
        with(
            "crosses",
            "a.csv",
            "label,x,y\n1,a,b\n",
            "cross=x,z",
            Error(&["\"z\"", "no column of features", "x, y"]),
        ),
    ]
}

fn quotes() -> Vec<Case> {
    let open = format!("label,x\n1,\"{}\n", "a\n".repeat(9 << 20));
    vec![
        text("a delimiter in quotes", "q.csv", "label,x\n1,\"a,b\"\n", Rows("1¦x=a,b")),
        text("breaks in quotes", "q.csv", "label,x\n1,\"a\nb\r\nc\"\n0,d\n", Rows("1¦x=a\nb\r\nc§0¦x=d")),
        text("doubled quotes", "q.csv", "label,x\n1,\"say \"\"no\"\"\"\n", Rows("1¦x=say \"no\"")),
        text("a quote alone in quotes", "q.csv", "label,x\n1,\"\"\"\"\n", Rows("1¦x=\"")),
        text("empty quotes", "q.csv", "label,x\n1,\"\"\n", Rows("1¦x=")),
        text("a quote within a field", "q.csv", "label,x\n1,5\"6\n0,a\"\n", Rows("1¦x=5\"6§0¦x=a\"")),
        text("a blank before a quote", "q.csv", "label,x\n1, \"a\"\n", Rows("1¦x= \"a\"")),
        text(
            "text behind a quote",
            "q.csv",
            "label,x\n1,\"a\"b\n",
            Error(&[":2: ", "the delimiter after the closing quote"]),
        ),
        text(
            "a blank behind a quote",
            "q.csv",
            "label,x\n1,\"a\" \n",
            Error(&[":2: ", "the delimiter after the closing quote"]),
        ),
        text("backslashes", "q.csv", "label,x\n1,\"a\\\"\n0,b\n", Rows("1¦x=a\\§0¦x=b")),
        text("an open quote", "q.csv", "label,x\n1,\"a\n0,b\n", Error(&[":2: ", "the closing quote"])),
        text(
            "an open quote in the header",
            "q.csv",
            "label,\"x\n1,a\n",
            Error(&["closing quote", "in the header"]),
        ),
        text("a quote open for 18 MiB", "q.csv", open, Error(&[":2: ", "does not end within"])),
        text("quotes around all", "q.csv", "\"label\",\"x\"\r\n\"1\",\"a\"\r\n", Rows("1¦x=a")),
        text(
            "a break in the header",
            "q.csv",
            "label,\"x\ny\"\n1,a\n",
            Error(&["has a line break; rename it"]),
        ),
        text("single quotes", "q.csv", "label,x,y\n1,'a,b'\n", Rows("1¦x='a¦y=b'")),
        text("the line behind breaks is named", "q.csv", "label,x\n1,\"a\nb\"\nz,c\n", Error(&[":4: "])),
        with("quotes around numbers", "q.csv", "label,n\n1,\"0.5\"\n", "numeric=n", Rows("1¦n#0.5")),
    ]
}

/// A number of the column n, and what it becomes.
fn number(what: &'static str, value: &str, rows: &'static str) -> Case {
    with(what, "n.csv", format!("label,n\n1,{value}\n"), "numeric=n", Rows(rows))
}

fn no_number(what: &'static str, value: &str, says: &'static [&'static str]) -> Case {
    with(what, "n.csv", format!("label,n\n1,0.5\n0,{value}\n"), "numeric=n", Error(says))
}

fn numbers() -> Vec<Case> {
    const NUMBER: &[&str] = &[":3: ", "a number, or nothing or NA", "in column \"n\""];
    const FINITE: &[&str] = &[":3: ", "a finite number", "in column \"n\""];
    vec![
        number("a number with blanks", "  2.5  ", "1¦n#2.5"),
        number("a missing number", "", "1¦n?"),
        number("NA", "NA", "1¦n?"),
        number("a plus", "+7", "1¦n#7"),
        number("a point at the end", "7.", "1¦n#7"),
        number("a point at the start", "-.25", "1¦n#-0.25"),
        number("an exponent", "1E-3", "1¦n#0.001"),
        number("minus zero", "-0", "1¦n#0"),
        number("more digits than f32 has", "16777217", "1¦n#16777216"),
        number("a large whole number", "123456789012345678901234567890", "1¦n#1.2345679e29"),
        number("nan", "nan", "1¦n?"),
        number("NaN of pandas", "NaN", "1¦n?"),
        no_number("nan among letters", "nano", NUMBER),
        no_number("NAN", "NAN", FINITE),
        no_number("inf", "inf", FINITE),
        no_number("-Infinity", "-Infinity", FINITE),
        no_number("too large a number", "1e39", FINITE),
        no_number("hexadecimal", "0x1F", NUMBER),
        no_number("Python's underscores", "1_000", NUMBER),
        no_number("a decimal comma in quotes", "\"0,5\"", NUMBER),
        no_number("thousands", "\"1,000.5\"", NUMBER),
        no_number("a percent", "50%", NUMBER),
        no_number("a currency", "$5", NUMBER),
        number("null", "null", "1¦n?"),
        number("None", "None", "1¦n?"),
        number("N/A", "N/A", "1¦n?"),
        no_number("a date", "2026-11-27", NUMBER),
        no_number("a dash", "-", NUMBER),
        no_number("Arabic digits", "\u{663}", NUMBER),
        no_number("a minus of typographers", "\u{2212}5", NUMBER),
        no_number("a decimal comma", "0,5", &[":3: ", "expected 2 fields"]),
        with(
            "text where numbers are",
            "n.csv",
            "label,n\n1,low\n",
            "numeric=n",
            Error(&[":2: ", "a number, or nothing or NA"]),
        ),
        with(
            "an offset that is missing",
            "n.csv",
            "label,n,x\n1,,a\n",
            "offset=n",
            Error(&[":2: ", "an offset"]),
        ),
        with("an offset NaN", "n.csv", "label,n,x\n1,nan,a\n", "offset=n", Error(&[":2: "])),
    ]
}
