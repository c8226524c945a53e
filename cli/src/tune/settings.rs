//! The settings that `gannet tune` tries.

use crate::failure::Failure;
use crate::flags::{ModelName, OptimizerName, TrainArgs};
use gannet::table::mix;
use gannet::train::limits::FACTORS_MAX;

/// A setting that can be tried, and its values.
#[derive(Clone, Debug, PartialEq)]
pub struct Tried {
    pub name: &'static str,
    pub values: Vec<f32>,
}

/// Settings that can be tried.
const NAMES: [&str; 5] = ["alpha", "l1", "l2", "factors", "deviation"];

/// Factors of the default rate.
const RATES: [f32; 5] = [1.0, 0.25, 0.5, 2.0, 4.0];

/// Reads `NAME=X,Y,..`.
fn tried(text: &str) -> Result<Tried, Failure> {
    let wrong = |why: &str| {
        Failure::input(format!(
            "--try {text}: {why}; write one such as alpha=0.05,0.1, of {}",
            NAMES.join(", ")
        ))
    };
    let (name, values) = text.split_once('=').ok_or_else(|| wrong("there is no ="))?;
    let name = NAMES.into_iter().find(|known| *known == name).ok_or_else(|| wrong("no such setting"))?;
    let number = |text: &str| text.parse::<f32>().ok().filter(|x| x.is_finite() && *x >= 0.0);
    let values: Option<Vec<f32>> = values.split(',').map(number).collect();
    let values = values.ok_or_else(|| wrong("values are numbers from 0"))?;
    let is_of_factors = |x: f32| x.fract() == 0.0 && (1.0..=FACTORS_MAX as f32).contains(&x);
    if name == "factors" && !values.iter().all(|&x| is_of_factors(x)) {
        return Err(wrong("factors are whole numbers from 1 to 512"));
    }
    Ok(Tried { name, values: once_each(&values) })
}

/// The values without repetitions, in their order.
fn once_each(values: &[f32]) -> Vec<f32> {
    let mut seen = Vec::new();
    for x in values {
        if !seen.contains(x) {
            seen.push(*x);
        }
    }
    seen
}

/// Refuses a setting that the model or its optimizer does not have.
fn check_meaning(of: &Tried, args: &TrainArgs) -> Result<(), Failure> {
    let has_factors = !matches!(args.model.model, ModelName::Lr | ModelName::Linear | ModelName::Softmax);
    let has_l1 = matches!(args.optimizer.optimizer, Some(OptimizerName::Ftrl | OptimizerName::GroupFtrl));
    let whose = match of.name {
        "factors" | "deviation" if !has_factors => "--model fm, ffm, deepfm and mf",
        "l1" if !has_l1 => "--optimizer ftrl and group-ftrl",
        _ => return Ok(()),
    };
    Err(Failure::input(format!("--try {}: means nothing here; it is a setting of {whose}", of.name)))
}

/// The settings to try: those of the flags, or those around the defaults that no flag of the training fixes. The first
/// value of each is the default.
pub fn all_tried(flags: &[String], args: &TrainArgs, rate: f32) -> Result<Vec<Tried>, Failure> {
    if !flags.is_empty() {
        let mut all: Vec<Tried> = Vec::new();
        for text in flags {
            let of = tried(text)?;
            check_meaning(&of, args)?;
            match all.iter_mut().find(|known| known.name == of.name) {
                Some(known) => known.values.extend(of.values),
                None => all.push(of),
            }
        }
        all.iter_mut().for_each(|of| of.values = once_each(&of.values));
        return Ok(all);
    }
    let (own, model) = (&args.optimizer.settings, &args.model);
    let mut all = Vec::new();
    if own.alpha.is_none() {
        all.push(Tried { name: "alpha", values: RATES.map(|of| of * rate).to_vec() });
    }
    let has_own_l2 = matches!(args.optimizer.optimizer, Some(OptimizerName::Ftrl | OptimizerName::GroupFtrl));
    if own.l1.is_none() && has_own_l2 {
        all.push(Tried { name: "l1", values: vec![0.0, 1.0] });
    }
    if own.l2.is_none() {
        // In FTRL the penalty is of a weight; in other rules it is added to each gradient.
        all.push(Tried {
            name: "l2",
            values: if has_own_l2 { vec![0.0, 1.0, 10.0] } else { vec![0.0, 1e-4] },
        });
    }
    if model.factors.is_none() && matches!(model.model, ModelName::Fm | ModelName::Ffm | ModelName::Deepfm) {
        let factors = model.factors() as f32;
        all.push(Tried { name: "factors", values: vec![factors, factors / 2.0, factors * 2.0] });
    }
    Ok(all)
}

/// Combinations of the values: all of them, or `most` that are drawn. The first one has the first values.
pub fn combinations(all: &[Tried], most: usize) -> Vec<Vec<f32>> {
    let mut combined = vec![Vec::new()];
    for Tried { values, .. } in all {
        let longer = |short: &Vec<f32>| -> Vec<Vec<f32>> {
            values.iter().map(|&value| [&short[..], &[value]].concat()).collect()
        };
        combined = combined.iter().flat_map(longer).collect();
    }
    let mut rest: Vec<(u64, Vec<f32>)> = (0..).zip(combined.split_off(1)).collect();
    rest.sort_by_key(|(number, _)| mix(*number + 1));
    rest.truncate(most - 1);
    rest.sort_by_key(|(number, _)| *number);
    combined.extend(rest.into_iter().map(|(_, values)| values));
    combined
}

/// Sets a value in the flags of a training.
pub fn set(args: &mut TrainArgs, name: &str, value: f32) {
    let own = &mut args.optimizer.settings;
    match name {
        "alpha" => own.alpha = Some(value),
        "l1" => own.l1 = Some(value),
        "l2" => own.l2 = Some(value),
        "factors" => args.model.factors = Some(value as u32),
        _ => args.model.deviation = Some(value),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn combinations_begin_with_the_defaults_and_are_each_there_once() {
        let of = |name, values: &[f32]| Tried { name, values: values.to_vec() };
        let all = [of("alpha", &[0.1, 0.2, 0.4]), of("l2", &[0.0, 1.0])];
        let every = combinations(&all, 100);
        assert_eq!((every.len(), &every[0]), (6, &vec![0.1, 0.0]));
        let some = combinations(&all, 4);
        assert!(some.len() == 4 && some[0] == every[0] && some.iter().all(|one| every.contains(one)));
        assert!(some.windows(2).all(|pair| pair[0] != pair[1]));
        assert_eq!(combinations(&[], 4), [Vec::<f32>::new()]);
    }

    #[test]
    fn what_is_no_setting_is_refused() {
        assert_eq!(tried("l2=0,1,0").unwrap(), Tried { name: "l2", values: vec![0.0, 1.0] });
        for text in ["alpha", "beta=1", "alpha=", "alpha=x", "alpha=-1", "l1=nan", "factors=2.5", "factors=0"]
        {
            assert!(tried(text).unwrap_err().to_string().contains("such as alpha="), "{text}");
        }
    }
}
