//! `--class-weight` and `--keep-negatives`: how often the examples of each class count in the training, and how many of
//! them are learned.

use crate::failure::Failure;
use crate::flags::{ClassWeight, TrainArgs};
use gannet::train::models::Objective;
use gannet::train::{ClassWeights, Options, Reader};

/// Weighs and samples the training data as the flags say. Test data is neither weighed nor sampled.
pub fn weigh(args: &TrainArgs, options: &mut Options) -> Result<(), Failure> {
    if args.data.keep_negatives.is_some() && args.model.objective() != Some(Objective::Click) {
        return Err(Failure::input(
            "--keep-negatives: this model predicts no probability that could be corrected; it works with --model lr, fm, \
             ffm and deepfm, which learn --loss logistic",
        ));
    }
    options.data.kept_negatives = args.data.keep_negatives;
    let Some(flag) = args.data.class_weight else { return Ok(()) };
    if !args.model.objective().is_some_and(Objective::is_of_two) {
        return Err(Failure::input(
            "--class-weight: the labels of this model are not 1 and 0; it works with --model lr, fm, ffm and deepfm. \
             Weigh examples with --importance",
        ));
    }
    options.data.class_weights = Some(match flag {
        ClassWeight::Of(weights) => weights,
        ClassWeight::Balanced => balanced(args, options)?,
    });
    Ok(())
}

/// The weights with which both classes count alike, by the first examples.
fn balanced(args: &TrainArgs, options: &Options) -> Result<ClassWeights, Failure> {
    let unknown =
        |why: &str| Failure::input(format!("--class-weight balanced: {why}: say POS:NEG, such as 10:1"));
    if args.job.job_name.is_some() {
        return Err(unknown("each worker of a job sees other examples"));
    }
    if options.data.must_be_files("").is_err() {
        return Err(unknown("this data comes once, and its labels are not known before"));
    }
    let (positives, negatives) =
        Reader::first_labels(&options.data).map_err(|error| Failure::input(error.to_string()))?;
    let weights = ClassWeights::balanced(positives, negatives)
        .ok_or_else(|| unknown("all of the first 10,000 examples have one label"))?;
    if args.output.tells() {
        notice!("gannet: --class-weight balanced, by the first 10,000 examples: {weights}");
    }
    Ok(weights)
}
