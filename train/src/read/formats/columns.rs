//! The columns of a CSV file: the label and the features.

use crate::limits::COLUMNS_MAX;
use crate::read::error::{ReadError, few};
use crate::read::formats::number::{NotANumber, parse_float};
use crate::read::formats::scale::{Scale, ScaleKind, Scaling};
use crate::read::formats::text_key::ColumnKeys;
use std::fmt;

/// The choice of columns by flags.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ColumnChoice {
    /// `--label`. Without it the column called "label", or else the first that has a name.
    pub label: Option<String>,
    /// `--categorical`. Without it every column that is neither the label nor numeric; with it exactly these.
    pub categorical: Vec<String>,
    /// `--numeric`.
    pub numeric: Vec<String>,
    /// `--both`: columns whose values are numbers and categories at once.
    pub both: Vec<String>,
    /// `--ignore`: columns that are left out.
    pub ignored: Vec<String>,
    /// `--offset`: the column of the [bases](crate::Block::bases).
    pub offset: Option<String>,
    /// `--importance`: the column of the [importances](crate::Block::importances).
    pub importance: Option<String>,
    /// Whether other columns of the header are ignored.
    pub only: bool,
    /// Whether columns that nothing names are categories whatever their type is: the model that reads them knows no
    /// other numbers.
    pub as_categories: bool,
}

/// The columns that a header has for a choice, with names in the header's order.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Columns {
    /// The label's column. `None` when the file has none and none is needed.
    pub label: Option<String>,
    /// Columns whose values are categories.
    pub categorical: Vec<String>,
    /// Columns whose values are numbers.
    pub numeric: Vec<String>,
    /// Columns whose values are numbers and categories at once.
    pub both: Vec<String>,
    /// The scaling of the numbers.
    pub scale: Scale,
    /// Whether every other name is a column of categories: JSON lines have no header.
    pub others: bool,
    /// The column of the [bases](crate::Block::bases).
    pub offset: Option<String>,
    /// The column of the [importances](crate::Block::importances).
    pub importance: Option<String>,
    /// With `others`: the columns that are left out.
    pub ignored: Vec<String>,
    /// Columns that nothing chose and that are left out, because they have no name.
    pub nameless: Vec<String>,
}

/// The name of a column that has none, by its place from 0: the name that pandas gives it. `DataFrame.to_csv` writes
/// such a column for the index. It is not a feature unless a flag names it.
pub(crate) fn unnamed(at: usize) -> String {
    format!("Unnamed: {at}")
}

/// Whether a column is the index of pandas: one without a name, or as `to_parquet` and `to_feather` name it.
fn is_index(name: &str, at: usize) -> bool {
    name == unnamed(at) || is_index_level(name)
}

fn is_index_level(name: &str) -> bool {
    let number = name.strip_prefix("__index_level_").and_then(|rest| rest.strip_suffix("__"));
    number.is_some_and(|number| number.parse::<u32>().is_ok())
}

/// Whether a name of JSON lines, where columns have no place, is none of its own: empty, or of an index of pandas.
pub fn is_index_of_lines(name: &str) -> bool {
    let number = name.strip_prefix("Unnamed: ");
    name.is_empty() || number.is_some_and(|number| number.parse::<u32>().is_ok()) || is_index_level(name)
}

/// Whether a column is this one, or in the object of this name.
pub fn is_in_object(name: &str, outer: &str) -> bool {
    name.strip_prefix(outer).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}

impl Columns {
    /// Whether both have the same names in the same roles, in any order. JSON lines do not list their categories: with
    /// other formats only the roles that they list are compared.
    pub fn alike(&self, other: &Columns) -> bool {
        let same = |a: &[String], b: &[String]| {
            let sorted = |names: &[String]| {
                let mut names = names.to_vec();
                names.sort_unstable();
                names
            };
            a == b || sorted(a) == sorted(b)
        };
        let categories = self.others != other.others
            || same(&self.categorical, &other.categorical) && same(&self.ignored, &other.ignored);
        self.label == other.label
            && categories
            && same(&self.numeric, &other.numeric)
            && same(&self.both, &other.both)
            && self.offset == other.offset
            && self.importance == other.importance
    }
}

impl Columns {
    /// The columns that become features.
    pub fn features(&self) -> Vec<String> {
        self.categorical.iter().chain(&self.numeric).chain(&self.both).cloned().collect()
    }

    /// The columns that have numbers.
    pub fn numbers(&self) -> impl Iterator<Item = &String> {
        self.numeric.iter().chain(&self.both)
    }

    /// Whether JSON lines have features of this name that no flag lists: a column of categories.
    pub fn takes(&self, name: &str) -> bool {
        let is = |of: &Option<String>| of.as_deref() == Some(name);
        self.others
            && !is(&self.label)
            && !is(&self.offset)
            && !is(&self.importance)
            && !self.ignored.iter().any(|ignored| is_in_object(name, ignored))
            && !self.numbers().any(|number| number == name)
            && !is_index_of_lines(name)
    }

    /// The scaling of each column of the header. Empty: no column is scaled.
    ///
    /// # Errors
    /// The scaling of a column of numbers is not known: in words.
    pub(crate) fn scaling(&self, header: &[String]) -> Result<Vec<Scaling>, String> {
        if self.scale.kind == ScaleKind::None {
            return Ok(Vec::new());
        }
        let of = |name: &String| match self.numbers().any(|number| number == name) {
            true => self.scale.known(name),
            false => Ok(Scaling::Kept),
        };
        header.iter().map(of).collect()
    }
}

impl From<&Columns> for ColumnChoice {
    fn from(columns: &Columns) -> ColumnChoice {
        let Columns { label, categorical, numeric, both, others, ignored, offset, importance, .. } =
            columns.clone();
        ColumnChoice {
            label,
            categorical,
            numeric,
            both,
            ignored,
            offset,
            importance,
            only: !others,
            as_categories: others,
        }
    }
}

impl fmt::Display for Columns {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "label {:?}", self.label.as_deref().unwrap_or("(none)"))?;
        let of = [("categorical", &self.categorical), ("numeric", &self.numeric), ("both", &self.both)];
        for (what, names) in of {
            if !names.is_empty() {
                write!(f, ", {what} {}", names.join(","))?;
            }
        }
        if let Some(offset) = &self.offset {
            write!(f, ", offset {offset:?}")?;
        }
        if let Some(importance) = &self.importance {
            write!(f, ", importance {importance:?}")?;
        }
        if self.others {
            write!(f, ", categorical all others")?;
        }
        if !self.ignored.is_empty() {
            write!(f, ", left out {}", self.ignored.join(","))?;
        }
        Ok(())
    }
}

/// The role of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// It is left out.
    Skipped,
    /// It has the labels.
    Label,
    /// It has a number of each example that is no feature.
    OfExample(ExampleNumber),
    /// Each value is a feature of value 1.
    Categorical(ColumnKeys),
    /// The key of the column's numbers, and the key of a missing number.
    Numeric(u64, u64),
    /// Each value is a feature of value 1, and a number. A text that is no number is a missing one.
    Both(ColumnKeys, u64, u64),
}

/// Which number of an example a column has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExampleNumber {
    /// Its margin without features.
    Offset,
    /// How often it counts.
    Importance,
}

impl ExampleNumber {
    /// Checks the number of a cell. `None`: it is missing.
    ///
    /// # Errors
    /// What was expected.
    pub(crate) fn check(self, number: Option<f32>) -> Result<f32, &'static str> {
        match (self, number.filter(|number| number.is_finite())) {
            (ExampleNumber::Offset, Some(number)) => Ok(number),
            (ExampleNumber::Importance, Some(number)) if number >= 0.0 => Ok(number),
            (ExampleNumber::Offset, None) => Err("expected an offset: a number that may not be missing"),
            (ExampleNumber::Importance, _) => {
                Err("expected an importance: a number that is 0 or more, and may not be missing")
            }
        }
    }

    /// Checks the text of a cell.
    ///
    /// # Errors
    /// What was expected.
    pub(crate) fn parse(self, field: &[u8]) -> Result<f32, &'static str> {
        self.check(parse_number(field).unwrap_or_default())
    }
}

/// The numbers of an example that are no features.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ExampleNumbers {
    pub(crate) base: f32,
    pub(crate) importance: f32,
}

impl ExampleNumbers {
    pub(crate) fn set(&mut self, which: ExampleNumber, number: f32) {
        match which {
            ExampleNumber::Offset => self.base = number,
            ExampleNumber::Importance => self.importance = number,
        }
    }
}

impl Default for ExampleNumbers {
    fn default() -> ExampleNumbers {
        ExampleNumbers { base: 0.0, importance: 1.0 }
    }
}

impl Role {
    /// The role of a column of numbers.
    pub(crate) fn numeric(name: &str) -> Role {
        let keys = ColumnKeys::new(name);
        Role::Numeric(keys.numeric(), keys.missing())
    }

    /// The role of a column whose values are numbers and categories.
    pub(crate) fn both(name: &str) -> Role {
        let keys = ColumnKeys::of_numbers(name);
        Role::Both(keys, keys.numeric(), keys.missing())
    }

    /// How many features a cell becomes.
    pub(crate) fn features(&self) -> usize {
        match self {
            Role::Skipped | Role::Label | Role::OfExample(_) => 0,
            Role::Categorical(_) | Role::Numeric(..) => 1,
            Role::Both(..) => 2,
        }
    }
}

/// The names of the columns, each as often as it has features.
pub(crate) fn names_of_features<'n>(
    names: &'n [String],
    roles: &'n [Role],
) -> impl Iterator<Item = &'n String> {
    names.iter().zip(roles).flat_map(|(name, role)| std::iter::repeat_n(name, role.features()))
}

/// Parses a field of a numeric column. `None`: the number is missing.
#[inline(always)]
pub(crate) fn parse_number(field: &[u8]) -> Result<Option<f32>, &'static str> {
    let field = field.trim_ascii();
    match parse_float(field) {
        Ok(value) => Ok(Some(value)),
        Err(_) if is_missing(field) => Ok(None),
        Err(NotANumber::Missing) => Err(
            "expected a number, or nothing or NA where it is missing (--both allows texts, as categories)",
        ),
        Err(NotANumber::Range) => Err("expected a finite number that fits f32"),
    }
}

/// Whether a text says that a number is missing. These are the texts that pandas and polars write or read so.
pub(crate) fn is_missing(field: &[u8]) -> bool {
    const TEXTS: [&[u8]; 11] =
        [b"NA", b"NaN", b"nan", b"N/A", b"n/a", b"#N/A", b"<NA>", b"NULL", b"null", b"None", b"-nan"];
    field.is_empty() || TEXTS.contains(&field)
}

/// The key and the value of the feature that a number of a column becomes. `None`: the number is missing.
#[inline(always)]
pub(crate) fn number_feature(number: Option<f32>, key: u64, missing: u64) -> (u64, f32) {
    match number {
        Some(value) => (key, value),
        None => (missing, 1.0),
    }
}

/// The columns of a header and the roles that they have so far.
struct Header<'a> {
    file: &'a str,
    names: &'a [String],
    roles: Vec<Role>,
}

impl Header<'_> {
    fn wrong(&self, what: String) -> ReadError {
        ReadError::Columns { file: self.file.to_owned(), what }
    }

    /// The index of the column that a flag names.
    fn find(&self, name: &str, flag: &'static str) -> Result<usize, ReadError> {
        let mut at = (0..self.names.len()).filter(|&i| self.names[i] == name);
        match (at.next(), at.next()) {
            (Some(i), None) => Ok(i),
            (Some(_), Some(_)) => {
                Err(self.wrong(format!("the header has column {name:?} twice; rename one")))
            }
            (None, _) => Err(ReadError::NoColumn {
                file: self.file.to_owned(),
                column: name.to_owned(),
                flag,
                columns: self.names.to_vec(),
            }),
        }
    }

    fn set(&mut self, at: usize, role: Role) -> Result<(), ReadError> {
        if self.roles[at] != Role::Skipped {
            let name = &self.names[at];
            return Err(self.wrong(format!(
                "column {name:?} is chosen twice; name it once among --label, --offset, --importance, --categorical, \
                 --numeric and --both"
            )));
        }
        self.roles[at] = role;
        Ok(())
    }

    /// Makes features of columns that no flag names: numbers where `is_number` returns true. Returns the names of those
    /// that have none, which stay as they are.
    fn take(
        &mut self,
        free: &[usize],
        is_number: &dyn Fn(usize) -> bool,
        as_categories: bool,
    ) -> Result<Vec<String>, ReadError> {
        let mut nameless = Vec::new();
        for &at in free {
            let name = &self.names[at];
            if is_index(name, at) {
                nameless.push(name.clone());
                continue;
            }
            self.find(name, "the header")?;
            self.roles[at] = match is_number(at) && !as_categories {
                true => Role::numeric(name),
                false => Role::Categorical(ColumnKeys::new(name)),
            };
        }
        Ok(nameless)
    }

    /// The names of the columns with a role.
    fn named(&self, is_it: fn(&Role) -> bool) -> Vec<String> {
        let chosen = self.names.iter().zip(&self.roles).filter(|(_, role)| is_it(role));
        chosen.map(|(name, _)| name.clone()).collect()
    }
}

impl ColumnChoice {
    /// Gives each column of the header its role. A label that is not in the header is an error only with
    /// `label_needed`. Columns that nothing names are numeric where `is_number` returns true.
    ///
    /// # Errors
    /// A name is not in the header (the error lists the columns), is there twice, or is chosen twice.
    pub(crate) fn resolve(
        &self,
        file: &str,
        header: &[String],
        label_needed: bool,
        is_number: &dyn Fn(usize) -> bool,
    ) -> Result<(Columns, Vec<Role>), ReadError> {
        let mut columns = Header { file, names: header, roles: vec![Role::Skipped; header.len()] };
        if header.len() > COLUMNS_MAX {
            return Err(columns.wrong(format!("{} columns; at most {COLUMNS_MAX} are allowed", header.len())));
        }
        let label = self.label_of(&columns, label_needed)?;
        if let Some(at) = label {
            columns.set(at, Role::Label)?;
        }
        self.set_numbers(&mut columns, label_needed)?;
        for name in &self.numeric {
            let at = columns.find(name, "--numeric")?;
            columns.set(at, Role::numeric(name))?;
        }
        for name in &self.both {
            let at = columns.find(name, "--both")?;
            columns.set(at, Role::both(name))?;
        }
        for name in &self.categorical {
            let at = columns.find(name, "--categorical")?;
            columns.set(at, Role::Categorical(ColumnKeys::new(name)))?;
        }
        let ignored = self.ignored_of(&columns)?;
        let mut nameless = Vec::new();
        if self.categorical.is_empty() && !self.only {
            let is_free = |at: &usize| columns.roles[*at] == Role::Skipped && !ignored.contains(at);
            let free: Vec<usize> = (0..header.len()).filter(is_free).collect();
            nameless = columns.take(&free, is_number, self.as_categories)?;
        }
        let used = |at: &usize| columns.roles[*at] != Role::Skipped && header[*at].contains(['\n', '\r']);
        if let Some(at) = (0..header.len()).find(used) {
            return Err(
                columns.wrong(format!("the name of column {:?} has a line break; rename it", header[at]))
            );
        }
        let categorical = columns.named(|role| matches!(role, Role::Categorical(_)));
        let numeric = columns.named(|role| matches!(role, Role::Numeric(..)));
        let both = columns.named(|role| matches!(role, Role::Both(..)));
        if categorical.is_empty() && numeric.is_empty() && both.is_empty() {
            return Err(columns.wrong(format!(
                "no feature columns: the header is {:?}; is the delimiter right (.csv: comma, .tsv: tab, others by --delimiter)?",
                few(header)
            )));
        }
        let (label, scale) = (label.map(|at| header[at].clone()), Scale::default());
        let chosen = Columns {
            label,
            categorical,
            numeric,
            both,
            scale,
            nameless,
            offset: self.offset.clone(),
            importance: self.importance.clone(),
            ..Columns::default()
        };
        Ok((chosen, columns.roles))
    }

    /// Gives the columns of an example's offset and importance their roles. Data that is scored needs no importance.
    fn set_numbers(&self, columns: &mut Header<'_>, label_needed: bool) -> Result<(), ReadError> {
        if let Some(name) = &self.offset {
            let at = columns.find(name, "--offset")?;
            columns.set(at, Role::OfExample(ExampleNumber::Offset))?;
        }
        let is_there = |name: &&String| label_needed || columns.names.contains(name);
        if let Some(name) = self.importance.as_ref().filter(is_there) {
            let at = columns.find(name, "--importance")?;
            columns.set(at, Role::OfExample(ExampleNumber::Importance))?;
        }
        Ok(())
    }

    /// The indices of the columns that are left out.
    fn ignored_of(&self, columns: &Header<'_>) -> Result<Vec<usize>, ReadError> {
        let index = |name: &String| {
            let at = columns.find(name, "--ignore")?;
            match columns.roles[at] {
                Role::Skipped => Ok(at),
                _ => Err(columns
                    .wrong(format!("column {name:?} is both left out (--ignore) and chosen; name it once"))),
            }
        };
        self.ignored.iter().map(index).collect()
    }

    /// The index of the label's column.
    fn label_of(&self, columns: &Header<'_>, needed: bool) -> Result<Option<usize>, ReadError> {
        let names = columns.names;
        match &self.label {
            Some(name) if needed || names.contains(name) => columns.find(name, "--label").map(Some),
            Some(_) => Ok(None),
            None => Ok(names
                .iter()
                .position(|name| name == "label")
                .or_else(|| (0..names.len()).find(|&at| needed && !is_index(&names[at], at)))),
        }
    }
}
