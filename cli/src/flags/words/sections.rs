//! The help in sections: the section of each flag, the flags in the short help (`-h`), and other spellings of flags.

use clap::{Arg, Command};
use std::ffi::OsString;

/// The sections in the order of the help, each with its flags.
const SECTIONS: [(&str, &[&str]); 12] = [
    (
        "Data",
        &[
            "format",
            "label",
            "positive",
            "categorical",
            "numeric",
            "scale",
            "criteo-counts",
            "skip-bad-lines",
            "test",
        ],
    ),
    (
        "Model",
        &[
            "model",
            "no-intercept",
            "classes",
            "factors",
            "deviation",
            "hidden",
            "topics",
            "document-prior",
            "word-prior",
            "vocabulary",
            "seed",
            "admit-count",
            "admit-sketch",
            "admit-probability",
            "row-type",
        ],
    ),
    (
        "Optimizer",
        &[
            "optimizer",
            "push",
            "reduce",
            "alpha",
            "beta",
            "l1",
            "l2",
            "l21",
            "momentum",
            "rho",
            "beta1",
            "beta2",
            "epsilon",
            "weight-decay",
            "clip-value",
            "clip-norm",
            "schedule",
            "warmup",
            "decay-steps",
            "decay-rate",
            "decay-end",
            "decay-power",
            "history",
            "max-iter",
            "tolerance",
            "data-memory",
            "pass-timeout",
        ],
    ),
    ("Training", &["warm-start", "epochs", "batch", "threads", "validate-every"]),
    ("Output", &["out", "save-secs", "json"]),
    ("Checkpoints", &["checkpoint", "checkpoint-secs", "checkpoint-keep"]),
    (
        "Job",
        &[
            "ps-hosts",
            "worker-hosts",
            "job-name",
            "task-index",
            "sync",
            "issync",
            "replicas-to-aggregate",
            "worker-timeout",
            "deterministic",
            "damping",
            "shards",
            "peer-timeout",
            "run",
            "continue",
            "fresh",
            "allow-missing-workers",
            "tasks",
            "task-bytes",
            "start-together",
            "scheduler",
            "backups",
            "coordinator",
            "replication",
            "lease",
            "on-server-loss",
            "spare",
            "feed",
            "peer",
        ],
    ),
    (
        "Server",
        &[
            "listen",
            "exit-with-job",
            "data-dir",
            "restore",
            "memory-limit",
            "no-verify",
            "sessions-max",
            "session-silence",
            "session-memory",
            "keyset-memory",
            "rdma-memory",
            "credit-requests",
        ],
    ),
    (
        "Transport",
        &[
            "transport",
            "one-sided",
            "wire",
            "cache-bytes",
            "cache-use",
            "cache-staleness",
            "sync-rows",
            "active-pull",
            "io",
        ],
    ),
    ("Security", &["token-file", "tls-cert", "tls-key", "insecure", "tls-client-ca", "tls-ca", "tls-name"]),
    ("Metrics", &["metrics", "metrics-public"]),
    ("Logs", &["log", "log-json"]),
];

/// The flags in the short help of a command. Commands that are not listed show all their flags.
const SHORT: [(&str, &[&str]); 3] = [
    (
        "train",
        &[
            "test",
            "label",
            "positive",
            "numeric",
            "categorical",
            "scale",
            "model",
            "warm-start",
            "optimizer",
            "alpha",
            "epochs",
            "out",
            "ps-hosts",
            "worker-hosts",
            "job-name",
            "task-index",
        ],
    ),
    ("server", &["listen", "threads", "data-dir", "memory-limit", "no-verify", "token-file", "metrics"]),
    ("scheduler", &["listen", "data-dir", "token-file", "metrics"]),
];

/// The command line with its flags in sections.
pub fn arranged(command: Command) -> Command {
    let names: Vec<String> = command.get_subcommands().map(|sub| sub.get_name().to_owned()).collect();
    // Flags about logs are in the long help of each command.
    let command = command.mut_args(|arg| in_section(arg).hide_short_help(true));
    names.into_iter().fold(command, |command, name| command.mut_subcommand(name, subcommand))
}

fn subcommand(command: Command) -> Command {
    let name = command.get_name().to_owned();
    let short = SHORT.iter().find(|(of, _)| *of == name).map(|&(_, flags)| flags);
    let command = command.mut_args(|arg| {
        let arg = in_section(arg);
        let hidden = arg.is_hide_short_help_set()
            || short.zip(arg.get_long()).is_some_and(|(short, long)| !short.contains(&long));
        in_short(arg).hide_short_help(hidden)
    });
    if short.is_none() {
        return command;
    }
    // The text after the long help stays.
    let long = command.get_after_help().map(ToString::to_string);
    let command =
        command.after_help(format!("These are the flags to begin with: `gannet {name} --help` shows all."));
    command.after_long_help(long.unwrap_or_else(|| "The README and docs/ say more of each.".into()))
}

/// The short help of a flag is its first sentence.
fn in_short(arg: Arg) -> Arg {
    let Some(help) = arg.get_help().map(ToString::to_string) else { return arg };
    match help.split_once(". ") {
        Some((first, _)) if arg.get_long_help().is_none() => arg.help(first.to_owned()).long_help(help),
        _ => arg,
    }
}

fn in_section(arg: Arg) -> Arg {
    let Some(long) = arg.get_long().map(str::to_owned) else { return arg };
    let section = SECTIONS.iter().find(|(_, flags)| flags.contains(&long.as_str()));
    // A flag without a section is among the options of its command.
    match section {
        Some(&(name, _)) => arg.help_heading(name),
        None => arg,
    }
}

/// Replaces underscores in flags by dashes: scripts of TensorFlow write `--ps_hosts`.
pub fn spelled(words: impl Iterator<Item = OsString>) -> Vec<OsString> {
    let mut flags = true;
    let spell = |word: OsString| {
        flags &= word != "--";
        let text = word.to_str().filter(|text| flags && text.starts_with("--") && text.contains('_'));
        let Some(text) = text else { return word };
        match text.split_once('=') {
            Some((flag, value)) => format!("{}={value}", flag.replace('_', "-")).into(),
            None => text.replace('_', "-").into(),
        }
    };
    words.map(spell).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn underscores_are_taken_for_dashes_in_flags_and_nowhere_else() {
        let words = ["train", "a_b.svm", "--ps_hosts=a_b:1", "--task_index", "1", "--", "--a_b"];
        let spelled = spelled(words.iter().map(OsString::from));
        assert_eq!(spelled, ["train", "a_b.svm", "--ps-hosts=a_b:1", "--task-index", "1", "--", "--a_b"]);
    }

    #[test]
    fn every_flag_of_training_has_its_section_and_sections_name_no_flag_twice_or_for_nothing() {
        let command = arranged(crate::flags::Cli::command());
        let flags = |command: &Command| -> Vec<String> {
            command.get_arguments().filter_map(|arg| arg.get_long()).map(str::to_owned).collect()
        };
        let train = command.find_subcommand("train").unwrap();
        for arg in train.get_arguments().filter(|arg| arg.get_long().is_some()) {
            assert!(arg.get_help_heading().is_some(), "{:?} is in no section", arg.get_long());
        }
        let mut known: Vec<String> = command.get_subcommands().flat_map(flags).collect();
        known.extend(flags(&command));
        let mut named: Vec<&str> = SECTIONS.iter().flat_map(|&(_, flags)| flags).copied().collect();
        assert!(named.iter().all(|flag| known.iter().any(|of| of == flag)), "{named:?}");
        let all = named.len();
        named.sort_unstable();
        named.dedup();
        assert_eq!(named.len(), all);
        for (name, shown) in SHORT {
            let known = flags(command.find_subcommand(name).unwrap());
            assert!(shown.iter().all(|flag| known.iter().any(|of| of == flag)), "{name}: {shown:?}");
        }
    }
}
