//! Which model has which setting.

use crate::failure::Failure;
use crate::flags::{ModelArgs, ModelName};

/// The flag of a setting, whether it was given, and the models that have it.
type Setting = (&'static str, bool, &'static [ModelName]);

pub fn settings(args: &ModelArgs) -> [Setting; 9] {
    use ModelName::{Deepfm, Fm, Lda, Mf, Softmax};
    [
        ("--classes", args.classes.is_some(), &[Softmax]),
        ("--factors", args.factors.is_some(), &[Fm, Deepfm, Mf]),
        ("--deviation", args.deviation.is_some(), &[Fm, Deepfm, Mf]),
        ("--hidden", !args.hidden.is_empty(), &[Deepfm]),
        ("--topics", args.topics.is_some(), &[Lda]),
        ("--document-prior", args.document_prior.is_some(), &[Lda]),
        ("--word-prior", args.word_prior.is_some(), &[Lda]),
        ("--vocabulary", args.vocabulary.is_some(), &[Lda]),
        ("--seed", args.seed.is_some(), &[Fm, Deepfm, Mf, Lda]),
    ]
}

/// Refuses settings that the model does not have.
pub fn check(args: &ModelArgs) -> Result<(), Failure> {
    let name = |model: &ModelName| format!("{model:?}").to_lowercase();
    for (flag, is_given, models) in settings(args) {
        if is_given && !models.contains(&args.model) {
            let whose: Vec<String> = models.iter().map(name).collect();
            return Err(Failure::input(format!(
                "{flag} is no setting of --model {}; it belongs to {}",
                name(&args.model),
                whose.join(", ")
            )));
        }
    }
    if let Some(x) = args.deviation.filter(|x| !(x.is_finite() && *x >= 0.0)) {
        return Err(Failure::input(format!("--deviation {x}: a finite number from 0 is needed")));
    }
    Ok(())
}
