//! How the numbers of a CSV file's columns are scaled before anything is learned from them. A model remembers it, so
//! that what it scores is scaled by the numbers that it was trained on.

/// How numbers are scaled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ScaleKind {
    /// Not at all.
    #[default]
    None,
    /// Less the column's mean, by its standard deviation.
    Standard,
    /// From the column's least to its greatest number: 0 to 1.
    MinMax,
    /// ln(1 + x), and -ln(1 - x) below 0.
    Log,
}

impl ScaleKind {
    const ALL: [ScaleKind; 4] = [ScaleKind::None, ScaleKind::Standard, ScaleKind::MinMax, ScaleKind::Log];

    /// What `--scale` calls it.
    pub fn name(self) -> &'static str {
        match self {
            ScaleKind::None => "none",
            ScaleKind::Standard => "standard",
            ScaleKind::MinMax => "minmax",
            ScaleKind::Log => "log",
        }
    }

    /// The scaling that `--scale` calls so.
    pub fn of_name(name: &str) -> Option<ScaleKind> {
        ScaleKind::ALL.into_iter().find(|kind| kind.name() == name)
    }

    /// Whether it must know all the numbers first.
    pub fn looks_at_all(self) -> bool {
        matches!(self, ScaleKind::Standard | ScaleKind::MinMax)
    }
}

/// How one column is scaled: x becomes (x - center) / spread, and 0 where the spread is 0.
#[derive(Clone, Debug, PartialEq)]
pub struct ScaledColumn {
    /// Its name.
    pub name: String,
    /// Its mean, or its least number.
    pub center: f64,
    /// Its standard deviation, or how far its greatest number is from its least.
    pub spread: f64,
}

/// How the numbers of all columns are scaled.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Scale {
    /// How.
    pub kind: ScaleKind,
    /// The columns, where they must be known.
    pub columns: Vec<ScaledColumn>,
}

/// What becomes of the numbers of one column.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Scaling {
    Kept,
    Log,
    By { center: f64, spread: f64 },
}

impl Scale {
    /// The columns, a line each, as [`of_lines`](Self::of_lines) reads them.
    pub fn lines(&self) -> String {
        let line = |column: &ScaledColumn| format!("{:?} {:?} {}", column.center, column.spread, column.name);
        self.columns.iter().map(line).collect::<Vec<_>>().join("\n")
    }

    /// A scaling of this kind by such lines; what is none is left out.
    pub fn of_lines(kind: ScaleKind, lines: &str) -> Scale {
        let column = |line: &str| {
            let mut parts = line.splitn(3, ' ');
            let mut number = || parts.next()?.parse().ok();
            let (center, spread) = (number()?, number()?);
            Some(ScaledColumn { name: parts.next()?.to_owned(), center, spread })
        };
        Scale { kind, columns: lines.lines().filter_map(column).collect() }
    }

    /// For the column of this name; `None`: it is not known how.
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
    /// What a number becomes.
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
