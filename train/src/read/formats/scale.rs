//! The scaling of the numbers of a CSV file's columns. A model stores it, so that scoring scales numbers as the
//! training did.

/// A kind of scaling.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ScaleKind {
    /// No scaling.
    #[default]
    None,
    /// Subtracts the column's mean and divides by its standard deviation.
    Standard,
    /// Maps the column's least and greatest number to 0 and 1.
    MinMax,
    /// ln(1 + x), and -ln(1 - x) below 0.
    Log,
}

impl ScaleKind {
    const ALL: [ScaleKind; 4] = [ScaleKind::None, ScaleKind::Standard, ScaleKind::MinMax, ScaleKind::Log];

    /// Its name in `--scale`.
    pub fn name(self) -> &'static str {
        match self {
            ScaleKind::None => "none",
            ScaleKind::Standard => "standard",
            ScaleKind::MinMax => "minmax",
            ScaleKind::Log => "log",
        }
    }

    /// The kind with this name in `--scale`.
    pub fn of_name(name: &str) -> Option<ScaleKind> {
        ScaleKind::ALL.into_iter().find(|kind| kind.name() == name)
    }

    /// Whether it needs a pass over all numbers first.
    pub fn looks_at_all(self) -> bool {
        matches!(self, ScaleKind::Standard | ScaleKind::MinMax)
    }
}

/// The scaling of one column: x becomes (x - center) / spread, and 0 where the spread is 0.
#[derive(Clone, Debug, PartialEq)]
pub struct ScaledColumn {
    /// The column's name.
    pub name: String,
    /// The column's mean, or its least number.
    pub center: f64,
    /// The column's standard deviation, or the difference of its greatest and least number.
    pub spread: f64,
}

/// The scaling of all columns.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Scale {
    /// The kind of scaling.
    pub kind: ScaleKind,
    /// The columns, for kinds that depend on them.
    pub columns: Vec<ScaledColumn>,
}

/// The scaling of the numbers of one column.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Scaling {
    Kept,
    Log,
    By { center: f64, spread: f64 },
}

impl Scale {
    /// The columns, one line each, in the form that [`of_lines`](Self::of_lines) reads.
    pub fn lines(&self) -> String {
        let line = |column: &ScaledColumn| format!("{:?} {:?} {}", column.center, column.spread, column.name);
        self.columns.iter().map(line).collect::<Vec<_>>().join("\n")
    }

    /// A scaling of this kind from such lines. Wrong lines are ignored.
    pub fn of_lines(kind: ScaleKind, lines: &str) -> Scale {
        let column = |line: &str| {
            let mut parts = line.splitn(3, ' ');
            let mut number = || parts.next()?.parse().ok();
            let (center, spread) = (number()?, number()?);
            Some(ScaledColumn { name: parts.next()?.to_owned(), center, spread })
        };
        Scale { kind, columns: lines.lines().filter_map(column).collect() }
    }

    /// The scaling of the column of this name.
    ///
    /// # Errors
    /// The column is unknown: in words.
    pub(crate) fn known(&self, name: &str) -> Result<Scaling, String> {
        let unknown =
            || format!("column {name:?} holds numbers, and --scale has not seen it in the training data");
        self.of(name).ok_or_else(unknown)
    }

    /// The scaling of the column of this name. `None` when the column is unknown.
    pub(crate) fn of(&self, name: &str) -> Option<Scaling> {
        match self.kind {
            ScaleKind::None => Some(Scaling::Kept),
            ScaleKind::Log => Some(Scaling::Log),
            ScaleKind::Standard | ScaleKind::MinMax => {
                let column = self.columns.iter().find(|column| column.name == name)?;
                Some(Scaling::By { center: column.center, spread: column.spread })
            }
        }
    }
}

impl Scaling {
    /// Scales a number.
    #[inline]
    pub(crate) fn of(self, x: f32) -> f32 {
        match self {
            Scaling::Kept => x,
            Scaling::Log => (f64::from(x).abs().ln_1p() as f32).copysign(x),
            Scaling::By { spread: 0.0, .. } => 0.0,
            Scaling::By { center, spread } => ((f64::from(x) - center) / spread) as f32,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_scaled_by_their_column() {
        let column = |center, spread| ScaledColumn { name: "a".into(), center, spread };
        let scale = |kind, column| Scale { kind, columns: vec![column] }.of("a").unwrap();
        assert_eq!(scale(ScaleKind::Standard, column(10.0, 4.0)).of(16.0), 1.5);
        assert_eq!(scale(ScaleKind::MinMax, column(10.0, 0.0)).of(16.0), 0.0);
        let log = scale(ScaleKind::Log, column(0.0, 0.0));
        assert_eq!((log.of(0.0), log.of(-7.0)), (0.0, -log.of(7.0)));
        assert!((log.of(7.0) - 8f32.ln()).abs() < 1e-6);
        assert_eq!(Scale { kind: ScaleKind::Standard, columns: Vec::new() }.of("a"), None);
        ScaleKind::ALL.into_iter().for_each(|kind| assert_eq!(ScaleKind::of_name(kind.name()), Some(kind)));
    }
}
