//! Where the records of CSV text end (RFC 4180): at a newline that is not inside quotes. A field is quoted when its
//! first byte is a quote. Any other quote is a byte like others, except that two quotes inside a quoted field stand for
//! one.
//!
//! The rule reads every byte once and never goes back. So a record ends at the same place wherever the reading began,
//! if it began at a record. What is wrong inside a record changes no end.

use memchr::{memchr, memchr_iter, memchr2, memrchr};

/// What the bytes so far mean for the next byte.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum InField {
    /// A field begins here.
    #[default]
    Begin,
    /// In a field that is not quoted, or behind the quotes of one.
    Plain,
    /// Inside quotes.
    Quoted,
    /// Behind a quote that is inside quotes, or ends them.
    Quote,
}

/// Reads CSV text in pieces. A new scan is at the start of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CsvScan {
    delimiter: u8,
    in_field: InField,
}

impl CsvScan {
    pub(crate) fn new(delimiter: u8) -> CsvScan {
        CsvScan { delimiter, in_field: InField::Begin }
    }

    pub(crate) fn delimiter(self) -> u8 {
        self.delimiter
    }

    /// Whether the next byte is inside quotes.
    pub(crate) fn in_quotes(self) -> bool {
        self.in_field == InField::Quoted
    }

    /// Reads bytes. Returns the position behind the last record that ends in them.
    pub(crate) fn last_end(&mut self, bytes: &[u8]) -> Option<usize> {
        let (mut p, mut last) = (0, None);
        while p < bytes.len() {
            if self.in_field == InField::Quoted {
                p = self.skip_to_quote(bytes, p);
                continue;
            }
            let to = self.skip_to_opening(bytes, p);
            last = memrchr(b'\n', &bytes[p..to]).map(|at| p + at + 1).or(last);
            p = self.open(bytes, to);
        }
        last
    }

    /// Reads bytes up to the end of a record, or all of them. Returns the position behind the record's newline.
    pub(crate) fn first_end(&mut self, bytes: &[u8]) -> Option<usize> {
        let mut p = 0;
        while p < bytes.len() {
            if self.in_field == InField::Quoted {
                p = self.skip_to_quote(bytes, p);
                continue;
            }
            let rest = &bytes[p..];
            // Most records have no quotes: their newline is nearer than any quote.
            let Some(found) = memchr2(b'\n', b'"', rest) else {
                self.pass(rest);
                return None;
            };
            self.pass(&rest[..found]);
            p += found;
            if bytes[p] == b'\n' {
                self.in_field = InField::Begin;
                return Some(p + 1);
            }
            self.quote();
            p += 1;
        }
        None
    }

    /// Goes behind the next quote, or to the end. The place is inside quotes.
    fn skip_to_quote(&mut self, bytes: &[u8], p: usize) -> usize {
        match memchr(b'"', &bytes[p..]) {
            Some(found) => {
                self.in_field = InField::Quote;
                p + found + 1
            }
            None => bytes.len(),
        }
    }

    /// The position of the next quote that is at the start of a field or right behind a quote, or the end. The place is
    /// outside of quotes; it is then that of the returned position.
    fn skip_to_opening(&mut self, bytes: &[u8], p: usize) -> usize {
        let mut from = p;
        for found in memchr_iter(b'"', &bytes[p..]).map(|found| p + found) {
            self.pass(&bytes[from..found]);
            if self.in_field != InField::Plain {
                return found;
            }
            from = found;
        }
        self.pass(&bytes[from..]);
        bytes.len()
    }

    /// Takes the quote at `p`, if there is one.
    fn open(&mut self, bytes: &[u8], p: usize) -> usize {
        if p == bytes.len() {
            return p;
        }
        self.quote();
        p + 1
    }

    fn quote(&mut self) {
        self.in_field = match self.in_field {
            InField::Begin | InField::Quote => InField::Quoted,
            InField::Plain => InField::Plain,
            InField::Quoted => InField::Quote,
        };
    }

    /// Passes bytes outside of quotes. If they begin with a quote, it is one in a plain field.
    fn pass(&mut self, bytes: &[u8]) {
        if let Some(&last) = bytes.last() {
            let ends = last == self.delimiter || last == b'\n';
            self.in_field = if ends { InField::Begin } else { InField::Plain };
        }
    }
}

/// The end of the record at `p`, and how many lines it has. `end` is the end of whole records.
#[inline(always)]
pub(crate) fn next_record(buf: &[u8], p: usize, end: usize, delimiter: u8) -> (usize, u64) {
    let bytes = buf.get(p..end).unwrap_or_default();
    let line = memchr(b'\n', bytes).map_or(bytes.len(), |at| at + 1);
    if memchr(b'"', &bytes[..line]).is_none() {
        return (p + line, 1);
    }
    let record = CsvScan::new(delimiter).first_end(bytes).unwrap_or(bytes.len());
    (p + record, lines_of(&bytes[..record]))
}

/// How many lines a record has.
pub(crate) fn lines_of(record: &[u8]) -> u64 {
    memchr_iter(b'\n', record).count() as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The ends of all records, byte by byte as RFC 4180 words it, and whether the text ends inside quotes.
    fn by_bytes(text: &[u8], delimiter: u8) -> (Vec<usize>, bool) {
        let (mut ends, mut p) = (Vec::new(), 0);
        loop {
            // A field begins at p.
            if text.get(p) == Some(&b'"') {
                p += 1;
                loop {
                    match (text.get(p), text.get(p + 1)) {
                        (None, _) => return (ends, true),
                        (Some(b'"'), Some(b'"')) => p += 2,
                        (Some(b'"'), _) => break p += 1,
                        _ => p += 1,
                    }
                }
            }
            while text.get(p).is_some_and(|&b| b != delimiter && b != b'\n') {
                p += 1;
            }
            match text.get(p) {
                None => return (ends, false),
                Some(b'\n') => ends.push(p + 1),
                Some(_) => {}
            }
            p += 1;
        }
    }

    fn text() -> impl Strategy<Value = Vec<u8>> {
        prop::collection::vec(prop::sample::select(&b"aa,\n\"\"\";"[..]), 0..80)
    }

    proptest! {
        #[test]
        fn records_end_where_the_standard_says(text in text(), delimiter in prop::sample::select(&b",;"[..])) {
            let (ends, quoted) = by_bytes(&text, delimiter);
            let (mut found, mut p) = (Vec::new(), 0);
            while let Some(end) = CsvScan::new(delimiter).first_end(&text[p..]) {
                prop_assert_eq!(next_record(&text, p, text.len(), delimiter).0, p + end);
                p += end;
                found.push(p);
            }
            prop_assert_eq!(&found, &ends);
            let mut scan = CsvScan::new(delimiter);
            prop_assert_eq!(scan.last_end(&text), ends.last().copied());
            // A quote at the very end may still be the first of two.
            prop_assert_eq!(scan.in_quotes(), quoted);
        }

        #[test]
        fn pieces_are_read_as_the_whole(text in text(), cuts in prop::collection::vec(0usize..80, 0..6)) {
            let mut whole = CsvScan::new(b',');
            let last = whole.last_end(&text);
            let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(text.len())).collect();
            cuts.extend([0, text.len()]);
            cuts.sort_unstable();
            let (mut scan, mut of_pieces) = (CsvScan::new(b','), None);
            for cut in cuts.windows(2) {
                of_pieces = scan.last_end(&text[cut[0]..cut[1]]).map(|end| cut[0] + end).or(of_pieces);
            }
            prop_assert_eq!((of_pieces, scan), (last, whole));
        }
    }
}
