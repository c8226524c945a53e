//! Rows of CSV (RFC 4180) as objects in JSON. A training reads both alike: a value is a text, and a field that is empty
//! or `NA` is a missing member.

use serde_json::{Map, Value};

/// The fields of one record. Returns where the next one begins.
fn record(text: &str, from: usize, delimiter: u8) -> Result<(Vec<String>, usize), String> {
    let (bytes, mut fields, mut at) = (text.as_bytes(), Vec::new(), from);
    loop {
        let mut field = String::new();
        if bytes.get(at) == Some(&b'"') {
            at += 1;
            loop {
                let Some(length) = text[at..].find('"') else {
                    return Err("a quote has no end".to_owned());
                };
                field.push_str(&text[at..at + length]);
                at += length + 1;
                if bytes.get(at) != Some(&b'"') {
                    break;
                }
                field.push('"');
                at += 1;
            }
        }
        let length = bytes[at..].iter().position(|&byte| byte == delimiter || byte == b'\n');
        let end = at + length.unwrap_or(bytes.len() - at);
        let rest = &text[at..end];
        let ends = bytes.get(end) != Some(&delimiter);
        field.push_str(if ends { rest.strip_suffix('\r').unwrap_or(rest) } else { rest });
        fields.push(field);
        at = (end + 1).min(bytes.len());
        if ends {
            return Ok((fields, at));
        }
    }
}

/// An object a row. The first record is the header. `delimiter`: as the request says it; else a comma, or a tab where
/// the header has tabs and no comma.
///
/// # Errors
/// A row has another number of fields than the header, in words.
pub fn objects(text: &str, delimiter: Option<u8>) -> Result<Vec<String>, String> {
    let first = text.lines().next().unwrap_or_default();
    let own = if first.contains('\t') && !first.contains(',') { b'\t' } else { b',' };
    let delimiter = delimiter.unwrap_or(own);
    let (header, mut at) = record(text, 0, delimiter)?;
    let mut rows = Vec::new();
    while at < text.len() {
        let (fields, next) = record(text, at, delimiter)?;
        at = next;
        if fields.len() == 1 && fields[0].is_empty() && header.len() > 1 {
            continue;
        }
        if fields.len() != header.len() {
            let (number, found, all) = (rows.len() + 1, fields.len(), header.len());
            return Err(format!("row {number} has {found} fields, and the header {all}"));
        }
        let is_there = |(_, field): &(&String, String)| !field.is_empty() && field != "NA";
        let members = header.iter().zip(fields).filter(is_there);
        let object: Map<String, Value> = members.map(|(name, field)| (name.clone(), field.into())).collect();
        rows.push(Value::Object(object).to_string());
    }
    Ok(rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_become_objects() {
        let text = "city,\"a \"\"b\"\"\",n\r\n\"Rome, \nold\",x,NA\r\n\nOslo,,2\n";
        let expected =
            ["{\"a \\\"b\\\"\":\"x\",\"city\":\"Rome, \\nold\"}", "{\"city\":\"Oslo\",\"n\":\"2\"}"];
        assert_eq!(objects(text, None).unwrap(), expected);
        assert_eq!(objects("a\tb\n1\t2", None).unwrap(), ["{\"a\":\"1\",\"b\":\"2\"}"]);
        assert_eq!(objects("a;b\n1;2", Some(b';')).unwrap(), ["{\"a\":\"1\",\"b\":\"2\"}"]);
        assert_eq!(objects("a,b\n1\n", None).unwrap_err(), "row 1 has 1 fields, and the header 2");
        assert_eq!(objects("a,b\n\"1,2\n", None).unwrap_err(), "a quote has no end");
    }
}
