//! The short help (`-h`), and other spellings of flags. The section of a flag stands beside it (`help_heading`).

use clap::{Arg, Command};
use std::ffi::OsString;

/// The flags in the short help of a command. Commands that are not listed show all their flags.
const SHORT: [(&str, &str); 3] = [
    (
        "train",
        "test label positive numeric categorical scale model warm-start optimizer alpha epochs out \
         ps-hosts worker-hosts job-name task-index",
    ),
    ("server", "listen threads data-dir memory-limit no-verify token-file metrics"),
    ("scheduler", "listen data-dir token-file metrics"),
];

/// The command line with its short help.
pub fn arranged(command: Command) -> Command {
    let names: Vec<String> = command.get_subcommands().map(|sub| sub.get_name().to_owned()).collect();
    // Flags about logs are in the long help of each command.
    let command = command.mut_args(|arg| arg.hide_short_help(true));
    names.into_iter().fold(command, |command, name| command.mut_subcommand(name, subcommand))
}

fn subcommand(command: Command) -> Command {
    let name = command.get_name().to_owned();
    let short = SHORT.iter().find(|(of, _)| *of == name).map(|&(_, flags)| flags);
    let command = command.mut_args(|arg| {
        let hidden = arg.is_hide_short_help_set()
            || short
                .zip(arg.get_long())
                .is_some_and(|(short, long)| short.split(' ').all(|flag| flag != long));
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
    fn every_flag_of_training_has_its_section_and_the_short_help_names_none_for_nothing() {
        let command = arranged(crate::flags::Cli::command());
        let flags = |command: &Command| -> Vec<String> {
            command.get_arguments().filter_map(|arg| arg.get_long()).map(str::to_owned).collect()
        };
        let train = command.find_subcommand("train").unwrap();
        for arg in train.get_arguments().filter(|arg| arg.get_long().is_some()) {
            assert!(arg.get_help_heading().is_some(), "{:?} is in no section", arg.get_long());
        }
        // A group behind another one is in the section of that one, unless it names its own.
        for flag in ["backups", "tasks", "feed", "run", "sync", "shards"] {
            let arg = train.get_arguments().find(|arg| arg.get_long() == Some(flag)).unwrap();
            assert_eq!(arg.get_help_heading(), Some("Job"), "{flag}");
        }
        for (name, shown) in SHORT {
            let known = flags(command.find_subcommand(name).unwrap());
            assert!(shown.split(' ').all(|flag| known.iter().any(|of| of == flag)), "{name}: {shown:?}");
        }
    }
}
