//! The names of features, for people: `city=Paris` for a category, `age` for a number, `user^7` for a feature of a
//! namespace. Training sees only keys. Whoever wants names reads the data a second time, here.

use crate::read::block::{Block, INTERCEPT_KEY};
use crate::read::bytes::source::Source;
use crate::read::bytes::stream::{ReadPosition, Stream};
use crate::read::data::{Data, Share};
use crate::read::error::ReadError;
use crate::read::fields::example_fields::FieldUse;
use crate::read::fields::field::{FieldId, FieldRun};
use crate::read::formats::format::LineReader;
use crate::read::formats::json::Json;
use crate::read::formats::text_key::{ColumnKeys, text_key};
use crate::read::formats::{criteo, csv};
use crate::read::normalization::Normalize;
use crate::read::reader::Reader;
#[cfg(feature = "parquet")]
use crate::read::tables::table_blocks;
use std::collections::HashMap;
use std::fmt::Write;

/// Examples of a batch while crosses are named.
const BATCH: usize = 256;

/// The names of some features, and of the fields that they are of.
pub struct FeatureNames<'w> {
    /// The name of a feature, and the field that it is of; 0: none.
    names: HashMap<u64, (String, u64)>,
    /// How many names there may be.
    most: usize,
    fields: HashMap<u64, String>,
    /// Whether anybody wants the name of the feature with this key.
    is_wanted: &'w dyn Fn(u64) -> bool,
}

impl FeatureNames<'_> {
    /// The names of the wanted features that occur in this data. `is_wanted` is asked for each key. A source must say
    /// the fields of features and leave crosses out: those of the data are named.
    ///
    /// # Errors
    /// The data cannot be read, or only once.
    pub fn of<'w>(data: &Data, is_wanted: &'w dyn Fn(u64) -> bool) -> Result<FeatureNames<'w>, ReadError> {
        FeatureNames::at_most(usize::MAX, data, is_wanted)
    }

    /// The names of the first features of this data, at most so many.
    ///
    /// # Errors
    /// As for [`of`](Self::of).
    pub fn of_first(data: &Data, most: usize) -> Result<FeatureNames<'static>, ReadError> {
        FeatureNames::at_most(most, data, &|_| true)
    }

    fn none<'w>(most: usize, is_wanted: &'w dyn Fn(u64) -> bool) -> FeatureNames<'w> {
        let intercept = (INTERCEPT_KEY, ("intercept".to_owned(), 0));
        FeatureNames { names: HashMap::from([intercept]), most, fields: HashMap::new(), is_wanted }
    }

    fn at_most<'w>(
        most: usize,
        data: &Data,
        is_wanted: &'w dyn Fn(u64) -> bool,
    ) -> Result<FeatureNames<'w>, ReadError> {
        data.must_be_files("naming its features")?;
        let mut names = FeatureNames::none(most, is_wanted);
        // Crosses are named later, and cost time here.
        let plain = Data { fields: FieldUse::default(), ..data.clone() };
        if let Some(source) = &data.source {
            source.texts(&mut |name, text| names.add_text(name, text))?;
            names.add_crosses(data)?;
            return Ok(names);
        }
        #[cfg(feature = "parquet")]
        if table_blocks::is_of(data) {
            table_blocks::texts(&plain, u64::MAX, |name, text, _| names.add_text(name, text))?;
            names.add_crosses(data)?;
            return Ok(names);
        }
        if let Some(text) = &data.text {
            names.add_file(&mut Source::of_text(text.name.clone(), &text.bytes), &plain)?;
        }
        for path in &data.files {
            let io = |source| ReadError::io(path, source);
            let stream = Stream::open(path, ReadPosition::default().read, &data.stop).map_err(io)?;
            let mut source = Source::new(path.clone(), stream, &data.stop)?;
            names.add_file(&mut source, &plain)?;
        }
        names.add_crosses(data)?;
        Ok(names)
    }

    /// The name of the feature with this key. One without a name has its key: in libsvm and libffm that is its id.
    pub fn name(&self, key: u64) -> String {
        self.names.get(&key).map_or_else(|| key.to_string(), |(name, _)| name.clone())
    }

    /// The name of the field of the feature with this key. `None`: it has no name, or it is the intercept.
    pub fn field_of(&self, key: u64) -> Option<&str> {
        self.fields.get(&self.names.get(&key)?.1).map(String::as_str)
    }

    /// How many features have names, without the intercept.
    pub fn len(&self) -> usize {
        self.names.len() - 1
    }

    /// Whether no feature has a name.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// A line for each feature, in the order of their keys: the key, the name of its field, and its name, with tabs
    /// between them. [`of_lines`](Self::of_lines) reads it. Features whose lines would end behind so many bytes have
    /// none.
    pub fn lines(&self, bytes_max: usize) -> String {
        let mut keys: Vec<u64> = self.names.keys().copied().filter(|&key| key != INTERCEPT_KEY).collect();
        keys.sort_unstable();
        let mut lines = String::new();
        for key in keys {
            let (field, before) = (escaped(self.field_of(key).unwrap_or_default()), lines.len());
            let _ = writeln!(lines, "{key}\t{field}\t{}", escaped(&self.name(key)));
            if lines.len() > bytes_max {
                lines.truncate(before);
            }
        }
        lines
    }

    /// The names in such lines. `None`: a line is wrong.
    pub fn of_lines(lines: &str) -> Option<FeatureNames<'static>> {
        let mut names = FeatureNames::none(usize::MAX, &|_| true);
        for line in lines.lines() {
            let mut parts = line.splitn(3, '\t');
            let (key, field, name) = (parts.next()?.parse().ok()?, parts.next()?, parts.next()?);
            let field = unescaped(field);
            let id = if field.is_empty() { 0 } else { FieldId::of(field.as_bytes()).id };
            names.names.insert(key, (unescaped(name), id));
            names.fields.insert(id, field);
        }
        names.fields.remove(&0);
        Some(names)
    }

    /// Names a feature of this field, if anybody wants its name.
    fn put(&mut self, field: u64, key: u64, name: impl FnOnce() -> String) {
        if self.names.len() <= self.most && (self.is_wanted)(key) {
            self.names.entry(key).or_insert_with(|| (name(), field));
        }
    }

    /// Adds a value of a column, in whichever role the column is.
    fn add_text(&mut self, column: &str, text: &[u8]) {
        let (keys, id) = (ColumnKeys::of_numbers(column), FieldId::of(column.as_bytes()).id);
        if self.fields.insert(id, column.to_owned()).is_none() {
            self.put(id, keys.numeric(), || column.to_owned());
            self.put(id, keys.missing(), || format!("{column} is missing"));
        }
        let value = || format!("{column}={}", String::from_utf8_lossy(text));
        self.put(id, keys.categorical(text), value);
        self.put(id, ColumnKeys::new(column).categorical(text), value);
    }

    fn add_file(&mut self, source: &mut Source, plain: &Data) -> Result<(), ReadError> {
        let Some(mut kind) = LineReader::of(source, plain)? else { return Ok(()) };
        let header = match &kind {
            LineReader::Csv(records, _) => records.header.clone(),
            LineReader::Criteo(_) => criteo::columns().collect(),
            LineReader::Libsvm(_) => return Ok(()),
            _ => Vec::new(),
        };
        if let LineReader::Json(_, columns) = &kind {
            // A line may lack them: that is a missing value.
            columns.features().iter().for_each(|column| self.add_text(column, b""));
        }
        let mut block = Block::default();
        while source.fill()? {
            let (buf, p, end) = source.lines();
            let (next, lines) = kind.next(buf, p, end);
            block.clear();
            if !kind.nothing(buf, p) && kind.example(buf, p, end, &mut block).is_ok() {
                self.add_line(&mut kind, &buf[..end], (p, next), &header);
            }
            source.take(next, lines);
        }
        Ok(())
    }

    /// Adds the features of a line without faults.
    fn add_line(&mut self, kind: &mut LineReader, buf: &[u8], (p, next): (usize, usize), header: &[String]) {
        match kind {
            LineReader::Csv(records, _) => {
                csv::fields(buf, p, records, |at, field| self.add_text(&header[at], field));
            }
            LineReader::Json(..) => Json::texts(&buf[p..next], |name, text, _| self.add_text(name, text)),
            LineReader::Criteo(_) => {
                let line = buf[p..next].trim_ascii_end();
                let values = line.split(|&byte| byte == b'\t');
                let label = usize::from(values.clone().count() > header.len());
                for (name, text) in header.iter().zip(values.skip(label)) {
                    self.add_text(name, text);
                    if let Ok(number) = String::from_utf8_lossy(text).parse::<i64>() {
                        self.add_text(name, criteo::bucket_text(number).as_bytes());
                    }
                }
            }
            LineReader::Vw(_) => self.add_vw(&buf[p..next]),
            LineReader::VwJson(_) => {
                if let Ok(object) = sonic_rs::from_slice::<sonic_rs::Object>(&buf[p..next]) {
                    self.add_vw_object("", &object);
                }
            }
            LineReader::Libffm(_) => self.add_libffm(&buf[p..next]),
            LineReader::Libsvm(_) => {}
        }
    }

    /// Adds a feature of a namespace of vw: `name` or `name:text`.
    fn add_vw_feature(&mut self, namespace: &str, name: &str, text: Option<&str>) {
        let field = FieldId::of(namespace.as_bytes());
        self.fields.entry(field.id).or_insert_with(|| namespace.to_owned());
        let number = name.parse::<u64>().ok().filter(|_| namespace.is_empty());
        let key = number.unwrap_or_else(|| text_key(field.id, name.as_bytes()));
        let full = || if namespace.is_empty() { name.to_owned() } else { format!("{namespace}^{name}") };
        self.put(field.id, key, full);
        if let Some(text) = text {
            self.put(field.id, text_key(key, text.as_bytes()), || format!("{}={text}", full()));
        }
    }

    /// Names features `field:id`, and their fields by their numbers.
    fn add_libffm(&mut self, line: &[u8]) {
        let line = String::from_utf8_lossy(line);
        for token in line.split_ascii_whitespace() {
            let mut parts = token.split(':');
            if let (Some(field), Some(Ok(key)), Some(_)) =
                (parts.next(), parts.next().map(str::parse), parts.next())
            {
                let id = FieldId::of(field.as_bytes()).id;
                self.fields.entry(id).or_insert_with(|| field.to_owned());
                self.put(id, key, || format!("{field}:{key}"));
            }
        }
    }

    fn add_vw(&mut self, line: &[u8]) {
        let line = String::from_utf8_lossy(line);
        for part in line.split('|').skip(1) {
            let is_named = !part.starts_with(|c: char| c.is_ascii_whitespace());
            let mut tokens = part.split_ascii_whitespace();
            let first = if is_named { tokens.next().unwrap_or_default() } else { "" };
            let namespace = first.split(':').next().unwrap_or_default();
            for token in tokens {
                let (name, value) = token.split_once(':').map_or((token, None), |(name, v)| (name, Some(v)));
                self.add_vw_feature(namespace, name, value);
            }
        }
    }

    fn add_vw_object(&mut self, namespace: &str, object: &sonic_rs::Object) {
        use sonic_rs::{JsonContainerTrait, JsonValueTrait};
        for (name, value) in object {
            if name == "_text" {
                let text = value.as_str().unwrap_or_default();
                text.split_ascii_whitespace().for_each(|word| self.add_vw_feature(namespace, word, None));
            } else if name.starts_with('_') {
            } else if let Some(inner) = value.as_object() {
                self.add_vw_object(name, inner);
            } else if let Some(list) = value.as_array() {
                for (at, element) in list.iter().enumerate() {
                    match element.as_str() {
                        Some(text) => self.add_vw_feature(name, text, None),
                        None => self.add_vw_feature(name, &at.to_string(), None),
                    }
                }
            } else {
                self.add_vw_feature(namespace, name, value.as_str());
            }
        }
    }

    /// Names the features of crosses by the names of what they cross.
    fn add_crosses(&mut self, data: &Data) -> Result<(), ReadError> {
        let crosses = data.fields.crosses.clone();
        if crosses.is_empty() {
            return Ok(());
        }
        let fields = FieldUse { in_blocks: true, ..FieldUse::default() };
        let plain =
            Data { fields, normalize: Normalize::off(), cache: None, intercept: false, ..data.clone() };
        let mut reader = Reader::open(&plain, BATCH, Share::ALL)?;
        let (mut block, mut example) = (Block::default(), Block::default());
        while reader.next(&mut block)? {
            for i in 0..block.len() {
                let range = block.range(i);
                example.clear();
                example.keys.extend_from_slice(&block.keys[range.clone()]);
                example.values.extend_from_slice(&block.values[range.clone()]);
                let runs = self.runs_of(&block.fields[range]);
                let mut made = Vec::new();
                // What is wrong with the line, the training has said.
                let _ =
                    crosses.each(&mut example, &runs, |key, features| made.push((key, features.to_vec())));
                for (key, features) in made {
                    let joined = |parts: Vec<String>| parts.join(" * ");
                    let name = joined(features.iter().map(|&key| self.name(key)).collect());
                    let of = |&key: &u64| self.field_of(key).unwrap_or_default().to_owned();
                    let field = joined(features.iter().map(of).collect());
                    let id = FieldId::of(field.as_bytes()).id;
                    self.fields.entry(id).or_insert(field);
                    self.put(id, key, || name);
                }
            }
        }
        Ok(())
    }

    /// The runs of features of one field.
    fn runs_of(&self, fields: &[u64]) -> Vec<FieldRun> {
        let mut end = 0;
        let run = |same: &[u64]| {
            end += same.len();
            let letter = self.fields.get(&same[0]).and_then(|name| name.bytes().next()).unwrap_or(b' ');
            FieldRun { field: FieldId { id: same[0], letter }, end }
        };
        fields.chunk_by(|a, b| a == b).map(run).collect()
    }
}

/// A text on one line and without tabs.
fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('\n', "\\n").replace('\r', "\\r").replace('\t', "\\t")
}

/// The text that was [`escaped`].
fn unescaped(text: &str) -> String {
    let (mut out, mut characters) = (String::with_capacity(text.len()), text.chars());
    while let Some(character) = characters.next() {
        out.push(match character {
            '\\' => match characters.next() {
                Some('n') => '\n',
                Some('r') => '\r',
                Some('t') => '\t',
                other => other.unwrap_or('\\'),
            },
            plain => plain,
        });
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn names_come_back_from_their_lines(
            features in prop::collection::btree_map(0..INTERCEPT_KEY, (".*", ".{0,3}"), 0..20)
        ) {
            let mut names = FeatureNames::none(usize::MAX, &|_| true);
            for (&key, (name, field)) in &features {
                let id = if field.is_empty() { 0 } else { FieldId::of(field.as_bytes()).id };
                names.fields.insert(id, field.clone());
                names.put(id, key, || name.clone());
            }
            names.fields.remove(&0);
            let again = FeatureNames::of_lines(&names.lines(usize::MAX)).unwrap();
            prop_assert_eq!((&again.names, &again.fields), (&names.names, &names.fields));
        }
    }

    #[test]
    fn so_many_features_have_names_and_wrong_lines_none() {
        let mut names = FeatureNames::none(2, &|_| true);
        (0..5).for_each(|key| names.put(1, key, || format!("f{key}")));
        assert_eq!((names.len(), names.name(1), names.name(2)), (2, "f1".to_owned(), "2".to_owned()));
        assert_eq!(names.lines(names.lines(usize::MAX).len() - 1).lines().count(), 1, "a line has no room");
        for wrong in ["x\ta\tb", "1\ta", "1"] {
            assert!(FeatureNames::of_lines(wrong).is_none(), "{wrong}");
        }
    }
}
