//! `--loss`: what a model with one output learns.

use crate::models::{NumberLoss, Objective};
use std::fmt;
use std::str::FromStr;

/// A loss by its name in `--loss`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LossName(pub Objective);

/// The part of a quantile's name before its share.
const QUANTILE: &str = "quantile:";

impl FromStr for LossName {
    type Err = String;

    fn from_str(text: &str) -> Result<LossName, String> {
        let number = |loss| Ok(LossName(Objective::Number(loss)));
        match text {
            "logistic" => Ok(LossName(Objective::Click)),
            "hinge" => Ok(LossName(Objective::Separation)),
            "squared" => number(NumberLoss::Squared),
            "poisson" => number(NumberLoss::Poisson),
            _ => {
                let share = text.strip_prefix(QUANTILE).and_then(|share| share.parse::<f64>().ok());
                let millionths = share.map(|share| (share * 1e6).round());
                match millionths.filter(|share| (1.0..1e6).contains(share)) {
                    Some(share) => number(NumberLoss::Quantile(share as u32)),
                    None => Err(
                        "say logistic, squared, poisson, hinge or quantile:T, with T above 0 and below 1 (such as \
                         quantile:0.9)"
                            .to_owned(),
                    ),
                }
            }
        }
    }
}

impl fmt::Display for LossName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Objective::Click | Objective::Class(_) => write!(f, "logistic"),
            Objective::Separation => write!(f, "hinge"),
            Objective::Number(NumberLoss::Squared) => write!(f, "squared"),
            Objective::Number(NumberLoss::Poisson) => write!(f, "poisson"),
            Objective::Number(NumberLoss::Quantile(share)) => {
                write!(f, "{QUANTILE}{}", f64::from(share) / 1e6)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_as_they_are_written() {
        for name in ["logistic", "squared", "poisson", "hinge", "quantile:0.9", "quantile:0.000001"] {
            assert_eq!(name.parse::<LossName>().map(|loss| loss.to_string()).as_deref(), Ok(name));
        }
        for name in ["", "log", "quantile", "quantile:0", "quantile:1", "quantile:x", "quantile:nan"] {
            assert!(name.parse::<LossName>().unwrap_err().contains("quantile:T"), "{name}");
        }
    }
}
