//! The formats read in a plain way, by std's split and parse, one line at a time. The readers must agree with it.
#![allow(dead_code)] // each test file uses its part

use gannet_train::{ColumnKeys, Counts, INTERCEPT_KEY, limits::FEATURES_PER_EXAMPLE_MAX, text_key};

/// An example: label, importance and base, features.
pub type Plain = (f32, [f32; 2], Vec<(u64, f32)>);
/// A line: nothing, an example, or wrong.
pub type Line = Option<Result<Plain, ()>>;

/// The lines of a text, without their newlines and without a byte order mark before them.
pub fn lines(text: &[u8]) -> Vec<&[u8]> {
    let text = text.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(text);
    let text = text.strip_suffix(b"\n").unwrap_or(text);
    text.split(|&b| b == b'\n').collect()
}

/// The records of CSV with this delimiter, without their newlines. A newline inside quotes ends none.
pub fn records(text: &[u8], delimiter: u8) -> Vec<&[u8]> {
    let (mut all, mut record, mut line_at) = (Vec::new(), 0, 0);
    for line in lines(text) {
        let from = line.as_ptr().addr() - text.as_ptr().addr();
        let end = from + line.len();
        if line_at == 0 {
            record = from;
        }
        line_at = end + 1;
        if !is_open(&text[record..end], delimiter) {
            all.push(&text[record..end]);
            line_at = 0;
        }
    }
    all.extend((line_at > 0).then(|| &text[record..line_at - 1]));
    all
}

/// Whether a record ends inside quotes.
fn is_open(record: &[u8], delimiter: u8) -> bool {
    let mut rest = record;
    loop {
        if let [b'"', quoted @ ..] = rest {
            rest = quoted;
            loop {
                match rest {
                    [] => return true,
                    [b'"', b'"', more @ ..] => rest = more,
                    [b'"', more @ ..] => break rest = more,
                    [_, more @ ..] => rest = more,
                }
            }
        }
        match rest.iter().position(|&b| b == delimiter || b == b'\n') {
            Some(end) => rest = &rest[end + 1..],
            None => return false,
        }
    }
}

/// The good examples of a text, and the number of wrong lines. `csv`: the delimiter, if the text is CSV.
pub fn all(text: &[u8], csv: Option<u8>, read: impl Fn(&[u8]) -> Line) -> (Vec<Plain>, u64) {
    let (mut good, mut wrong) = (Vec::new(), 0);
    let parts = csv.map_or_else(|| lines(text), |delimiter| records(text, delimiter));
    for part in parts {
        match read(part) {
            None => {}
            Some(Ok(example)) => good.push(example),
            Some(Err(())) => wrong += 1 + part.iter().filter(|&&b| b == b'\n').count() as u64,
        }
    }
    (good, wrong)
}

/// Replaces each label -0 by 0. Returns whether the text had both.
pub fn settle(rows: &mut [Plain]) -> bool {
    let zero = |minus: bool| rows.iter().any(|(y, ..)| *y == 0.0 && y.is_sign_negative() == minus);
    let mixed = zero(true) && zero(false);
    rows.iter_mut().filter(|(y, ..)| *y == 0.0).for_each(|(y, ..)| *y = 0.0);
    mixed
}

fn blank(b: u8) -> bool {
    matches!(b, b' ' | b'\t' | b'\r')
}

fn tokens(text: &[u8]) -> Vec<&[u8]> {
    text.split(|&b| blank(b)).filter(|t| !t.is_empty()).collect()
}

fn number(text: &[u8]) -> Result<f32, ()> {
    let value: f32 = std::str::from_utf8(text).map_err(|_| ())?.parse().map_err(|_| ())?;
    if value.is_finite() { Ok(value) } else { Err(()) }
}

/// Parses digits only.
fn whole(text: &[u8]) -> Result<u64, ()> {
    let digits = !text.is_empty() && text.iter().all(u8::is_ascii_digit);
    std::str::from_utf8(text).ok().filter(|_| digits).and_then(|t| t.parse().ok()).ok_or(())
}

fn split_once(text: &[u8], at: u8) -> (&[u8], Option<&[u8]>) {
    match text.iter().position(|&b| b == at) {
        Some(n) => (&text[..n], Some(&text[n + 1..])),
        None => (text, None),
    }
}

fn example(label: f32, importance: f32, features: Vec<(u64, f32)>) -> Result<Plain, ()> {
    if features.len() >= FEATURES_PER_EXAMPLE_MAX {
        return Err(());
    }
    Ok((label, [importance, 0.0], std::iter::once((INTERCEPT_KEY, 1.0)).chain(features).collect()))
}

/// Parses a label. The label -1, which means 0, becomes -0.
fn sign(text: &[u8]) -> Result<f32, ()> {
    match number(text)? {
        1.0 => Ok(1.0),
        0.0 if !text.starts_with(b"-") => Ok(0.0),
        -1.0 => Ok(-0.0),
        _ => Err(()),
    }
}

pub fn libsvm(line: &[u8], unlabelled: bool) -> Line {
    let mut tokens = tokens(line);
    if let Some(comment) = tokens.iter().position(|t| t.starts_with(b"#")) {
        tokens.truncate(comment);
        if comment == 0 {
            return None;
        }
    }
    let first = *tokens.first()?;
    let mut features = &tokens[1..];
    let label = match first {
        first if sign(first).is_ok() => sign(first).unwrap_or(f32::NAN),
        _ if unlabelled && matches!(split_once(first, b':'), (id, Some(_)) if whole(id).is_ok()) => {
            features = &tokens;
            f32::NAN
        }
        _ => return Some(Err(())),
    };
    let feature = |token: &&[u8]| {
        let (id, value) = split_once(token, b':');
        let id = whole(id).and_then(|id| if id == INTERCEPT_KEY { Err(()) } else { Ok(id) })?;
        Ok((id, value.map_or(Ok(1.0), number)?))
    };
    let features: Result<Vec<_>, ()> = features.iter().map(feature).collect();
    Some(features.and_then(|f| example(label, 1.0, f)))
}

pub fn libffm(line: &[u8], unlabelled: bool) -> Line {
    let is_feature = |token: &[u8]| {
        let (field, rest) = split_once(token, b':');
        whole(field).is_ok() && rest.is_some()
    };
    let mut tokens = tokens(line);
    if let Some(comment) = tokens.iter().position(|t| t.starts_with(b"#")) {
        tokens.truncate(comment);
    }
    if tokens.is_empty() {
        return None;
    }
    let label = match tokens[0] {
        first if sign(first).is_ok() => {
            tokens.remove(0);
            sign(first).unwrap_or(f32::NAN)
        }
        first if unlabelled && is_feature(first) => f32::NAN,
        _ => return Some(Err(())),
    };
    let feature = |token: &&[u8]| {
        let parts: Vec<&[u8]> = token.split(|&b| b == b':').collect();
        let [field, id, value] = parts[..] else { return Err(()) };
        let id = whole(id).and_then(|id| if id == INTERCEPT_KEY { Err(()) } else { Ok(id) })?;
        if whole(field)? > 65535 { Err(()) } else { Ok((id, number(value)?)) }
    };
    let features: Result<Vec<_>, ()> = tokens.iter().map(feature).collect();
    Some(features.and_then(|f| example(label, 1.0, f)))
}

/// The fields of a CSV record, without quotes.
pub fn fields(line: &[u8], delimiter: u8) -> Result<Vec<Vec<u8>>, ()> {
    let mut fields = Vec::new();
    let mut rest = Some(line);
    while let Some(text) = rest {
        if text.first() != Some(&b'"') {
            let (field, after) = split_once(text, delimiter);
            let last = if after.is_none() { field.strip_suffix(b"\r").unwrap_or(field) } else { field };
            fields.push(last.to_vec());
            rest = after;
            continue;
        }
        let (mut field, mut at) = (Vec::new(), 1);
        loop {
            match (text.get(at), text.get(at + 1)) {
                (None, _) => return Err(()),
                (Some(b'"'), Some(b'"')) => (field.push(b'"'), at += 2).0,
                (Some(b'"'), _) => break,
                (Some(&b), _) => (field.push(b), at += 1).0,
            }
        }
        fields.push(field);
        rest = match &text[at + 1..] {
            b"" | b"\r" => None,
            [d, after @ ..] if *d == delimiter => Some(after),
            _ => return Err(()),
        };
    }
    Ok(fields)
}

/// The role of a CSV column.
#[derive(Clone, Copy, Debug)]
pub enum Role {
    Skipped,
    Label,
    Categorical,
    Numeric,
    Both,
}

/// Whether a numeric column holds no number here.
fn is_missing(text: &[u8]) -> bool {
    let words = ["", "NA", "NaN", "nan", "-nan", "N/A", "n/a", "#N/A", "<NA>", "NULL", "null", "None"];
    words.iter().any(|word| word.as_bytes() == text)
}

pub fn csv(line: &[u8], delimiter: u8, columns: &[(&str, Role)]) -> Line {
    if matches!(line, b"" | b"\r") {
        return None;
    }
    let record = || {
        let fields = fields(line, delimiter)?;
        if fields.len() != columns.len() {
            return Err(());
        }
        let (mut label, mut features) = (f32::NAN, Vec::new());
        for (field, (name, role)) in fields.iter().zip(columns) {
            let (keys, trimmed) = (ColumnKeys::new(name), field.trim_ascii());
            match role {
                Role::Skipped => {}
                Role::Label => {
                    label = sign(trimmed)?;
                }
                Role::Categorical => features.push((keys.categorical(field), 1.0)),
                Role::Numeric if is_missing(trimmed) => features.push((keys.missing(), 1.0)),
                Role::Numeric => features.push((keys.numeric(), number(trimmed)?)),
                Role::Both => {
                    let text = String::from_utf8_lossy(field);
                    let value = text.parse::<f64>().ok().filter(|value| value.is_finite());
                    // A number has one text, unless it is a whole one, which may be a code.
                    let one = value.filter(|_| text.contains(['.', 'e', 'E'])).map(|value| value.to_string());
                    let category = one.as_deref().map_or(&field[..], str::as_bytes);
                    features.push((keys.categorical(category), 1.0));
                    let of = if is_missing(trimmed) { Err(()) } else { number(trimmed) };
                    features.push(of.map_or((keys.missing(), 1.0), |number| (keys.numeric(), number)));
                }
            }
        }
        example(label, 1.0, features)
    };
    Some(record())
}

pub fn criteo(line: &[u8], unlabelled: bool, counts: Counts) -> Line {
    if matches!(line, b"" | b"\r") {
        return None;
    }
    let record = || {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        let fields: Vec<&[u8]> = line.split(|&b| b == b'\t').collect();
        let (label, fields) = match (fields.len(), fields[0]) {
            (39, _) if unlabelled => (f32::NAN, &fields[..]),
            (40, b"1" | b"+1") => (1.0, &fields[1..]),
            (40, b"0") => (0.0, &fields[1..]),
            (40, b"-1") => (-0.0, &fields[1..]),
            (40, b"") if unlabelled => (f32::NAN, &fields[1..]),
            _ => return Err(()),
        };
        let mut features = Vec::new();
        for (i, field) in fields[..13].iter().enumerate() {
            let keys = ColumnKeys::new(&format!("I{}", i + 1));
            if field.is_empty() {
                features.push((keys.missing(), 1.0));
                continue;
            }
            let (sign, digits) = field.strip_prefix(b"-").map_or((1, *field), |digits| (-1, digits));
            let x = sign * i64::try_from(whole(digits)?).map_err(|_| ())?;
            features.push(match counts {
                Counts::Log => (keys.numeric(), (x.max(0) as f64).ln_1p() as f32),
                Counts::Buckets if x > 2 => {
                    (keys.categorical(((x as f64).ln().powi(2).floor()).to_string().as_bytes()), 1.0)
                }
                Counts::Buckets => (keys.categorical(format!("SP{x}").as_bytes()), 1.0),
            });
        }
        for (i, field) in fields[13..].iter().enumerate() {
            features.push((ColumnKeys::new(&format!("C{}", i + 1)).categorical(field), 1.0));
        }
        example(label, 1.0, features)
    };
    Some(record())
}

/// `name[:number]`, the name without control characters.
fn named(token: &[u8]) -> Result<(&[u8], f32), ()> {
    let (name, value) = split_once(token, b':');
    if name.is_empty() || name.iter().any(|&b| b < b' ') {
        return Err(());
    }
    Ok((name, value.map_or(Ok(1.0), number)?))
}

pub fn vw(line: &[u8], unlabelled: bool) -> Line {
    if line.iter().all(|&b| blank(b)) {
        return None;
    }
    let record = || {
        let (head, Some(rest)) = split_once(line, b'|') else { return Err(()) };
        let mut before = tokens(head);
        let touches = head.last().is_some_and(|&b| !blank(b));
        if touches || before.last().is_some_and(|t| t.starts_with(b"'")) {
            before.pop();
        }
        let label = match before.first().map(|t| sign(t)) {
            None if unlabelled => f32::NAN,
            None => return Ok(None),
            Some(Ok(label)) => label,
            _ => return Err(()),
        };
        let importance = before.get(1).map_or(Ok(1.0), |t| number(t))?;
        let base = before.get(2).map_or(Ok(0.0), |t| number(t))?;
        if importance < 0.0 || before.len() > 3 {
            return Err(());
        }
        let mut features = Vec::new();
        for part in rest.split(|&b| b == b'|') {
            let mut words = tokens(part);
            let mut namespace = None;
            if part.first().is_some_and(|&b| !blank(b)) {
                namespace = Some(named(words.remove(0))?);
            }
            for word in words {
                let (name, text) = split_once(word, b':');
                let text = text.filter(|text| is_text(text) && !name.is_empty());
                let (name, value) = named(if text.is_some() { name } else { word })?;
                let (key, value) = match (namespace, whole(name)) {
                    (None, Ok(number)) if number != INTERCEPT_KEY => (number, value),
                    (None, _) => (text_key(text_key(0, b""), name), value),
                    (Some((space, scale)), _) => (text_key(text_key(0, space), name), value * scale),
                };
                features.push((text.map_or(key, |text| text_key(key, text)), value));
            }
        }
        if features.iter().any(|f| !f.1.is_finite()) {
            return Err(());
        }
        let (label, [importance, _], features) = example(label, importance, features)?;
        Ok(Some((label, [importance, if base == 0.0 { 0.0 } else { base }], features)))
    };
    record().transpose()
}

/// Whether a value is a text, and no number.
fn is_text(value: &[u8]) -> bool {
    let is_number = std::str::from_utf8(value).is_ok_and(|value| value.parse::<f32>().is_ok());
    let is_plain = value.iter().all(|&b| b > b' ' && b != b':');
    !value.is_empty() && is_plain && !is_number
}
