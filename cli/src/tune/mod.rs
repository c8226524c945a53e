//! `gannet tune`: tries settings of a training side by side, on one reading of its data.

mod settings;

use crate::failure::Failure;
use crate::flags::{Cli, Command, JobName, ModelName, OptimizerName, TrainArgs, TuneArgs};
use crate::model::labels::rate;
use crate::model::optimizer;
use crate::report::measures::loss_name;
use crate::report::numbers::Numbers;
use crate::report::words::counted;
use crate::signals;
use crate::train::models::plan::model;
use crate::train::options::options;
use crate::train::{column_types, places};
use gannet::train::models::{Model, Objective, SideBySide, TrialResult, push_of};
use gannet::train::saved::LossName;
use gannet::train::{PushContent, Share};
use serde_json::{Map, json};
use settings::{Tried, all_tried, combinations, set};
use std::ffi::OsString;
use std::time::{Duration, Instant};

/// Runs the command.
pub fn run_tune(args: &TuneArgs) -> Result<(), Failure> {
    let mut train = training(&args.command)?;
    places::Process { args: &train, is_launched: false }.check_places()?;
    check(args, &train)?;
    column_types::settle(&mut train)?;
    as_tables(&mut train);
    let own = optimizer::default_rate(&train.optimizer, rate(train.model.model));
    let tried = all_tried(&args.tries_of, &train, own)?;
    let all = combinations(&tried, args.tries as usize);
    let mut options = options(&train, Share::ALL, false)?;
    let stop = signals::stop_flag()?;
    options.stop_on(&stop);
    let mut models = Vec::new();
    for values in &all {
        tried.iter().zip(values).for_each(|(tried, &value)| set(&mut train, tried.name, value));
        let rows = (train.row_type, &train.admission);
        let of = (&train.job.sync, &options.data);
        models.push(model(&train.model, &train.optimizer, rows, None, of)?.model);
    }
    if push_of(&options, &*models[0]).map_err(|e| Failure::input(e.to_string()))? == PushContent::Gradient {
        return Err(Failure::input(
            "gannet tune compares trainings that change rows at once: it works with --optimizer ftrl, group-ftrl, sgd, \
             adagrad and row-adagrad, without --push gradient, schedules and clipping",
        ));
    }
    let task = models[0].task();
    let start = Instant::now();
    let limit = Duration::from_secs_f64(args.minutes * 60.0);
    let bytes = train.memory.memory_limit.map_or(u64::MAX, |size| size.as_u64() / models.len() as u64);
    let results = race(&options, (limit, &stop), (&mut models, bytes), args.json)?;
    report(args, (&tried, &all), (&results, task), start.elapsed().as_secs_f64())
}

/// Reads the words behind `--`.
fn training(words: &[OsString]) -> Result<TrainArgs, Failure> {
    let program = std::iter::once(OsString::from("gannet"));
    match Cli::of(program.chain(words.iter().cloned()).collect()).map(|cli| cli.command) {
        Ok(Command::Train(args)) => Ok(*args),
        Ok(_) => Err(Failure::input(
            "gannet tune looks for settings of `gannet train`: write train DATA .. behind the --",
        )),
        Err(error) => Err(Failure::input(error.to_string().trim().trim_start_matches("error: ").to_owned())),
    }
}

/// Refuses what cannot be tried side by side.
fn check(args: &TuneArgs, train: &TrainArgs) -> Result<(), Failure> {
    let wrong = |text: &str| Err(Failure::input(text));
    if !(args.minutes.is_finite() && args.minutes > 0.0) {
        return wrong("--minutes: a number above 0 is needed");
    }
    if train.eviction.eviction()?.is_some() {
        return wrong("gannet tune keeps all rows: leave --evict-after, --evict-below and --capacity out");
    }
    let optimizer = train.optimizer.optimizer;
    match train.model.model {
        _ if train.job.job_name.is_some_and(|name| name != JobName::Client)
            || train.job.data_dir.is_some() =>
        {
            wrong("gannet tune works in one process, and keeps no rows: leave --job-name and --data-dir out")
        }
        ModelName::Lda => wrong("--model lda learns no gradients: gannet tune has nothing to try"),
        _ if optimizer == Some(OptimizerName::Lbfgs) => wrong(
            "--optimizer lbfgs looks at all data in each step: compare values of --l2 by trainings of their own",
        ),
        _ if train.lbfgs.warm_start.is_some() => {
            wrong("gannet tune compares trainings from their beginning: leave --warm-start out")
        }
        _ if train.data.follow.grows() => wrong("gannet tune reads data once, from its beginning to its end"),
        _ => Ok(()),
    }
}

/// Makes a logistic regression a linear model of clicks, which learns in a table like the others.
fn as_tables(train: &mut TrainArgs) {
    if train.model.model == ModelName::Lr {
        (train.model.model, train.model.loss) = (ModelName::Linear, Some(LossName(Objective::Click)));
        train.optimizer.optimizer.get_or_insert(OptimizerName::Ftrl);
    }
}

/// Trains the models, and says how far they are.
fn race(
    options: &gannet::train::Options,
    (limit, stop): (Duration, &std::sync::atomic::AtomicBool),
    (models, bytes): (&mut [Box<dyn Model>], u64),
    quiet: bool,
) -> Result<Vec<TrialResult>, Failure> {
    let mut left = models.len();
    let mut progress = |examples: u64, alive: usize| {
        if std::mem::replace(&mut left, alive) != alive && !quiet {
            notice!("gannet: {} tries are left after {}", alive, counted(examples, "example", "examples"));
        }
    };
    let side_by_side = SideBySide { options, limit, stop };
    side_by_side.train(models, bytes, &mut progress).map_err(Failure::from)
}

/// Prints the tries, the best ones first, and the command of the best.
fn report(
    args: &TuneArgs,
    (tried, all): (&[Tried], &[Vec<f32>]),
    (results, task): (&[TrialResult], Objective),
    seconds: f64,
) -> Result<(), Failure> {
    let mut order: Vec<usize> = (0..results.len()).collect();
    let loss = |at: &usize| Some(results[*at].window_loss).filter(|loss| !loss.is_nan()).unwrap_or(f64::MAX);
    order.sort_by(|a, b| results[*b].survived.cmp(&results[*a].survived).then(loss(a).total_cmp(&loss(b))));
    let mut report = Numbers::default();
    report.line("");
    report.show_count("tries", results.len() as u64, "try", "tries");
    report.words(", ");
    report.show("examples", results.iter().map(|of| of.examples).max().unwrap_or(0), " examples in ");
    report.show_float("seconds", seconds, 2, " s");
    let heads: String = tried.iter().map(|of| format!("{:>10}", of.name)).collect();
    report.say(format_args!("{heads}{:>12}{:>14}  {}", "examples", "last window", loss_name(task)));
    report.list(
        "results",
        order.iter().map(|&at| {
            let (of, mut line) = (results[at], Numbers::default());
            let settings: Map<String, serde_json::Value> =
                tried.iter().zip(&all[at]).map(|(of, value)| (of.name.to_owned(), json!(value))).collect();
            line.words(all[at].iter().map(|value| format!("{value:>10}")).collect::<String>());
            line.add("settings", settings);
            line.words(format_args!("{:>12}{:>14.6}  {:.6}", of.examples, of.window_loss, of.loss));
            line.add("examples", of.examples);
            line.add("loss", of.loss);
            line.add("window_loss", of.window_loss);
            line.add("survived", of.survived);
            line
        }),
    );
    if !results[order[0]].window_loss.is_finite() {
        report.print(args.json);
        return Err(Failure::input(
            "no try has a finite loss: try smaller values of alpha, and check the labels and numbers of the data",
        ));
    }
    let best = command(args, tried, &all[order[0]]);
    report.line("best");
    report.show("command", best, "");
    report.print(args.json);
    Ok(())
}

/// The command that trains with these values.
fn command(args: &TuneArgs, tried: &[Tried], values: &[f32]) -> String {
    let mut words = vec!["gannet".to_owned()];
    let mut skips = false;
    for word in args.command.iter().map(|word| word.to_string_lossy()) {
        if std::mem::take(&mut skips) {
            continue;
        }
        let flag = word.strip_prefix("--");
        let is_tried = |flag: &str| tried.iter().any(|of| of.name == flag);
        match flag.map(|flag| flag.split_once('=').map_or((flag, false), |(name, _)| (name, true))) {
            Some((name, has_value)) if is_tried(name) => skips = !has_value,
            _ => words.push(shell_word(&word)),
        }
    }
    words.extend(tried.iter().zip(values).map(|(of, value)| format!("--{} {value}", of.name)));
    words.join(" ")
}

/// A word as a shell reads it.
fn shell_word(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./=:,@%+".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', "'\\''"))
}
