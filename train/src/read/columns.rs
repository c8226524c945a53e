//! Which columns of a CSV file are the label and the features.

use crate::limits::COLUMNS_MAX;
use crate::read::error::{ReadError, few};
use crate::read::scale::Scale;
use crate::read::text_key::ColumnKeys;
use std::fmt;

/// The choice of columns, as flags say it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ColumnChoice {
    /// `--label`: without it the column called "label", or else the first.
    pub label: Option<String>,
    /// `--categorical`: without it every column that is neither the label nor numeric; with it exactly these.
    pub categorical: Vec<String>,
    /// `--numeric`.
    pub numeric: Vec<String>,
    /// There are no other columns than those, whatever else the header has.
    pub only: bool,
}

/// The choice as a header decided it, names in the header's order.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Columns {
    /// The label's column; `None` when the file has none and none is needed.
    pub label: Option<String>,
    /// Columns whose values are categories.
    pub categorical: Vec<String>,
    /// Columns whose values are numbers.
    pub numeric: Vec<String>,
    /// What becomes of those numbers.
    pub scale: Scale,
}

impl Columns {
    /// Whether these are the same names in the same roles, in whatever order.
    pub fn alike(&self, other: &Columns) -> bool {
        let same = |a: &[String], b: &[String]| {
            let sorted = |names: &[String]| {
                let mut names = names.to_vec();
                names.sort_unstable();
                names
            };
            a == b || sorted(a) == sorted(b)
        };
        self.label == other.label
            && same(&self.categorical, &other.categorical)
            && same(&self.numeric, &other.numeric)
    }
}

impl From<&Columns> for ColumnChoice {
    fn from(columns: &Columns) -> ColumnChoice {
        let Columns { label, categorical, numeric, .. } = columns.clone();
        ColumnChoice { label, categorical, numeric, only: true }
    }
}

impl fmt::Display for Columns {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "label {:?}", self.label.as_deref().unwrap_or("(none)"))?;
        for (what, names) in [("categorical", &self.categorical), ("numeric", &self.numeric)] {
            if !names.is_empty() {
                write!(f, ", {what} {}", names.join(","))?;
            }
        }
        Ok(())
    }
}

/// What a column is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    Skipped,
    Label,
    Categorical(ColumnKeys),
    /// Its key, and the key that stands for a missing number.
    Numeric(u64, u64),
}

impl ColumnChoice {
    /// Gives each column of the header its role. Without `label_needed` a label that is not there is none.
    ///
    /// # Errors
    /// A name that is not in the header (the columns are listed), stands there twice, or is chosen twice.
    pub(crate) fn resolve(
        &self,
        file: &str,
        header: &[String],
        label_needed: bool,
    ) -> Result<(Columns, Vec<Role>), ReadError> {
        let wrong = |what| ReadError::Columns { file: file.to_owned(), what };
        if header.len() > COLUMNS_MAX {
            return Err(wrong(format!("{} columns; at most {COLUMNS_MAX} are allowed", header.len())));
        }
        let mut roles = vec![Role::Skipped; header.len()];
        let mut set = |at: usize, role: Role| -> Result<(), ReadError> {
            if roles[at] != Role::Skipped {
                let name = &header[at];
                return Err(wrong(format!(
                    "column {name:?} is chosen twice; name it once among --label, --categorical and --numeric"
                )));
            }
            roles[at] = role;
            Ok(())
        };
        let find = |name: &str, flag| {
            let mut at = (0..header.len()).filter(|&i| header[i] == name);
            match (at.next(), at.next()) {
                (Some(i), None) => Ok(i),
                (Some(_), Some(_)) => Err(wrong(format!("the header has column {name:?} twice; rename one"))),
                (None, _) => Err(ReadError::NoColumn {
                    file: file.to_owned(),
                    column: name.to_owned(),
                    flag,
                    columns: header.to_vec(),
                }),
            }
        };
        let label = match &self.label {
            Some(name) if label_needed || header.contains(name) => Some(find(name, "--label")?),
            Some(_) => None,
            None => {
                header.iter().position(|c| c == "label").or((label_needed && !header.is_empty()).then_some(0))
            }
        };
        if let Some(at) = label {
            set(at, Role::Label)?;
        }
        for name in &self.numeric {
            let keys = ColumnKeys::new(name);
            set(find(name, "--numeric")?, Role::Numeric(keys.numeric(), keys.missing()))?;
        }
        for name in &self.categorical {
            set(find(name, "--categorical")?, Role::Categorical(ColumnKeys::new(name)))?;
        }
        if self.categorical.is_empty() && !self.only {
            for (role, name) in roles.iter_mut().zip(header) {
                if *role == Role::Skipped {
                    find(name, "the header")?;
                    *role = Role::Categorical(ColumnKeys::new(name));
                }
            }
        }
        let named = |f: fn(&Role) -> bool| {
            let chosen = header.iter().zip(&roles).filter(|(_, r)| f(r));
            chosen.map(|(name, _)| name.clone()).collect::<Vec<_>>()
        };
        let categorical = named(|r| matches!(r, Role::Categorical(_)));
        let numeric = named(|r| matches!(r, Role::Numeric(..)));
        if categorical.is_empty() && numeric.is_empty() {
            return Err(wrong(format!(
                "no feature columns: the header is {:?}; is the delimiter right (.csv: comma, .tsv: tab)?",
                few(header)
            )));
        }
        let (label, scale) = (label.map(|at| header[at].clone()), Scale::default());
        Ok((Columns { label, categorical, numeric, scale }, roles))
    }
}
