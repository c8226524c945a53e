//! What an unknown flag was meant to be: names that users of other programs type, and slips of the keyboard.

use clap::Command;
use clap::error::{ContextKind, ContextValue, Error, ErrorKind};

/// Names of others (vw, scikit-learn, TensorFlow, PyTorch), and ours. The first word of ours is the flag.
const FOREIGN: [(&str, &str); 33] = [
    (
        "lr learning-rate learningrate l eta eta0 step-size stepsize ftrl-alpha",
        "--alpha RATE is the learning rate",
    ),
    ("ftrl-beta", "--beta X"),
    (
        "num-epochs n-epochs nepochs epoch passes max-epochs num-train-epochs",
        "--epochs N is how many passes are made",
    ),
    (
        "batch-size batchsize minibatch mini-batch minibatch-size bs train-batch-size",
        "--batch N is how many examples a batch has",
    ),
    (
        "ps server servers ps-host server-hosts parameter-servers num-servers",
        "--ps-hosts HOST:PORT,.. names the servers",
    ),
    ("worker workers worker-host num-workers", "--worker-hosts HOST:PORT,.. names the workers"),
    ("role job task-type job-type", "--job-name ps|worker|client is what this process is"),
    ("task task-id task-number rank index worker-index", "--task-index N is which of them this process is"),
    ("sync-replicas synchronous", "--sync bsp has all workers make each step together"),
    ("staleness max-staleness", "--sync ssp:N bounds how far workers are apart"),
    (
        "test-data test-file valid validation validation-data eval eval-data eval-file",
        "--test FILE is the data to test on",
    ),
    (
        "save output o model-dir save-dir checkpoint-dir ckpt-dir train-dir export-dir final-regressor f",
        "--out DIR is where the model is written",
    ),
    (
        "load resume restore initial-regressor i init-model pretrained",
        "--warm-start DIR begins from a saved model",
    ),
    ("optim opt solver algorithm", "--optimizer NAME is the update rule"),
    (
        "ftrl adam sgd adagrad rmsprop bfgs lbfgs",
        "--optimizer NAME is the update rule, such as --optimizer adam",
    ),
    ("loss loss-function objective link", "--model NAME is what is learned: lr, linear, softmax, fm, ..."),
    (
        "reg reg-lambda lambda l2-reg l2-regularization-strength weight-penalty alpha-l2",
        "--l2 X is the penalty on squares",
    ),
    ("c", "--l2 X is 1/C of scikit-learn (--optimizer lbfgs)"),
    ("penalty", "--l1 X and --l2 X are the penalties"),
    ("l1-reg l1-regularization-strength", "--l1 X is the penalty on absolute values"),
    ("noconstant fit-intercept no-bias", "--no-intercept leaves the intercept out"),
    ("tol gtol termination eps-tol", "--tolerance X is when L-BFGS ends (--optimizer lbfgs)"),
    (
        "maxiter max-iterations n-iter num-iterations",
        "--max-iter N bounds the iterations (--optimizer lbfgs)",
    ),
    ("mem", "--history PAIRS is how many curvature pairs are kept (--optimizer lbfgs)"),
    ("n-jobs jobs num-threads nthreads j", "--threads N"),
    (
        "embedding-dim embedding-size num-factors n-factors latent-dim k",
        "--factors N (--model fm, deepfm, mf)",
    ),
    ("hidden-units hidden-size layers dnn-hidden-units", "--hidden N,N,.. (--model deepfm)"),
    ("num-classes n-classes nclasses oaa", "--classes N (--model softmax)"),
    ("num-topics n-topics n-components", "--topics N (--model lda)"),
    ("random-state random-seed", "--seed N"),
    ("target target-column label-column label-col y", "--label COLUMN is the column of the label"),
    ("port host bind address addr", "--listen HOST:PORT is where it listens"),
    ("verbose v quiet log-level loglevel", "--log LEVEL, such as --log info"),
];

/// What needs no flag.
const DATA: &str = "train train-data train-file data dataset input input-file training-data d x";

/// Replaces clap's tip in an error about an unknown flag by one that says what was meant, if that is known.
pub fn explained(mut error: Error, command: &mut Command, words: &[String]) -> Error {
    let unknown = error.get(ContextKind::InvalidArg).map(ToString::to_string);
    let Some(unknown) = unknown.filter(|_| error.kind() == ErrorKind::UnknownArgument) else { return error };
    let name = words.iter().find(|word| command.find_subcommand(word.as_str()).is_some());
    let of = name.and_then(|name| command.find_subcommand(name)).unwrap_or(command);
    let tip = tip(of, &unknown);
    // clap suggests the flag that looks most alike, whatever its meaning, and shows it in the usage.
    error.remove(ContextKind::SuggestedArg);
    error.remove(ContextKind::Suggested);
    error.remove(ContextKind::Usage);
    if let Some(tip) = tip {
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![tip.into()]));
    }
    error
}

/// What `unknown` was meant to be.
fn tip(command: &Command, unknown: &str) -> Option<String> {
    let name = unknown.split('=').next().unwrap_or(unknown).trim_start_matches('-');
    let name = name.replace('_', "-").to_lowercase();
    let flags: Vec<&str> =
        command.get_arguments().filter(|arg| !arg.is_hide_set()).filter_map(|arg| arg.get_long()).collect();
    let takes_data = command.get_positionals().next().is_some();
    if takes_data && DATA.split(' ').any(|foreign| foreign == name) {
        return Some(format!("the data needs no flag: `gannet {} FILE`", command.get_name()));
    }
    let known = FOREIGN.iter().find(|(foreign, _)| foreign.split(' ').any(|foreign| foreign == name));
    if let Some((_, ours)) = known {
        let flag = ours.trim_start_matches('-').split([' ', ',']).next().unwrap_or_default();
        return flags.contains(&flag).then(|| (*ours).to_owned());
    }
    let near = flags.iter().map(|flag| (distance(&name, flag), flag)).min()?;
    let most = if name.chars().count() < 4 {
        0
    } else if name.chars().count() < 8 {
        1
    } else {
        2
    };
    (near.0 <= most).then(|| format!("did you mean --{}?", near.1))
}

/// Letters to insert, remove or change (Levenshtein), where a swap of two counts once.
fn distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let mut before: Vec<usize> = Vec::new();
    let mut last: Vec<usize> = (0..=b.len()).collect();
    for i in 1..=a.len() {
        let mut row = vec![i];
        for j in 1..=b.len() {
            let change = last[j - 1] + usize::from(a[i - 1] != b[j - 1]);
            let mut best = change.min(last[j] + 1).min(row[j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                best = best.min(before[j - 2] + 1);
            }
            row.push(best);
        }
        before = std::mem::replace(&mut last, row);
    }
    last[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn every_tip_names_a_flag_that_some_command_has() {
        let command = crate::flags::Cli::command();
        for (_, ours) in FOREIGN {
            let flag = ours.trim_start_matches('-').split([' ', ',']).next().unwrap();
            let mut all =
                command.get_subcommands().flat_map(Command::get_arguments).chain(command.get_arguments());
            assert!(all.any(|arg| arg.get_long() == Some(flag)), "{ours}");
        }
    }

    #[test]
    fn distances_are_counted_in_slips() {
        for (a, b, slips) in
            [("", "ab", 2), ("epochs", "epochs", 0), ("epohcs", "epochs", 1), ("lr", "l2", 1)]
        {
            assert_eq!((distance(a, b), distance(b, a)), (slips, slips), "{a} {b}");
        }
    }
}
