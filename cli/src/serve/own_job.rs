//! The job of `gannet serve --learn` without `--job`: one server and one worker on this machine, which train the folder
//! of examples from the model that is served.

use crate::failure::{Failure, STOPPED};
use crate::flags::{LaunchArgs, spelled};
use crate::launch::addresses::Addresses;
use crate::launch::command_line::{Job, JobCommand};
use crate::launch::output::Output;
use crate::launch::place::ProcessPlace;
use crate::launch::process::Process;
use crate::launch::supervisor::Supervisor;
use gannet::storage::Checkpoint;
use gannet::train::saved::{DataReading, Shape, reading};
use gannet::train::{Columns, ScaleKind};
use gannet_serve::LineForm;
use std::ffi::OsString;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// How often each process may be started again.
const RESTARTS: u32 = 1000;

/// Seconds between checkpoints, unless the words behind `--` say another number.
const CHECKPOINT_SECS: &str = "2";

/// The folder of its checkpoints, in that of `--learn`.
pub const CHECKPOINTS: &str = "checkpoints";

/// A job that has not begun.
pub struct OwnJob {
    job: Job,
    /// The ports stay claimed until the job has ended.
    addresses: Addresses,
}

/// The words that say how a model reads its data.
fn words_of_reading(reading: &DataReading) -> Result<Vec<String>, Failure> {
    let mut words = Vec::new();
    if let Some(columns) = &reading.columns {
        words.extend(words_of_columns(columns)?);
    }
    if let Some(two) = reading.two {
        words.push(format!("--positive={}", two.positive()));
    }
    let (named, lettered) = reading.crosses.texts();
    words.extend(named.iter().map(|cross| format!("--cross={cross}")));
    for letters in lettered {
        words.push(if letters.len() == 2 {
            format!("--quadratic={letters}")
        } else {
            format!("--cubic={letters}")
        });
    }
    words.extend((!reading.intercept).then(|| "--no-intercept".to_owned()));
    Ok(words)
}

fn words_of_columns(columns: &Columns) -> Result<Vec<String>, Failure> {
    let Columns { label, categorical, numeric, both, ignored, offset, importance, scale, others, .. } =
        columns;
    let mut words = Vec::new();
    // Where every name is a column of categories, they are not listed.
    let categorical: &[String] = if *others { &[] } else { categorical };
    let lists = [("categorical", categorical), ("numeric", numeric), ("both", both), ("ignore", ignored)];
    for (flag, names) in lists {
        if let Some(name) = names.iter().find(|name| name.contains(',')) {
            return Err(Failure::input(format!(
                "--learn: column {name:?} has a comma in its name, which --{flag} cannot say: give the columns other \
                 names, and train the model anew"
            )));
        }
        words.extend((!names.is_empty()).then(|| format!("--{flag}={}", names.join(","))));
    }
    for (flag, name) in [("label", label), ("offset", offset), ("importance", importance)] {
        words.extend(name.as_ref().map(|name| format!("--{flag}={name}")));
    }
    words.extend((scale.kind == ScaleKind::Log).then(|| "--scale=log".to_owned()));
    Ok(words)
}

/// The words that say the structure of a model.
fn words_of_shape(shape: &Shape) -> Vec<String> {
    let settings = shape.settings().into_iter().map(|(flag, value)| format!("--{flag}={value}"));
    std::iter::once(format!("--model={}", shape.model)).chain(settings).collect()
}

/// The flags of a training of a folder, which begins from a model in `model`. `more` are the words behind `--`: a flag
/// there takes the place of one that is known here.
///
/// # Errors
/// There is no model, or its format cannot be learned from requests.
pub fn flags_of_training(folder: &Path, model: &Path, more: &[OsString]) -> Result<Vec<OsString>, Failure> {
    let first = Checkpoint::open_to_read(model)?;
    let reading = reading(&first, model).map_err(|error| Failure::input(error.to_string()))?;
    let form = LineForm::of(&reading).map_err(|why| Failure::input(format!("--learn: {why}")))?;
    let path = |flag: &str, path: &Path| {
        let mut word = OsString::from(format!("--{flag}="));
        word.push(path);
        word
    };
    let mut flags = vec![path("follow", &folder.join("examples")), path("warm-start", model)];
    flags.push(path("checkpoint", &folder.join(CHECKPOINTS)));
    let mut own =
        vec![format!("--checkpoint-secs={CHECKPOINT_SECS}"), format!("--format={}", form.names().0)];
    own.extend(words_of_reading(&reading)?);
    own.extend(words_of_shape(&Shape::of(&first)));
    let more = spelled(more.iter().cloned());
    let flag = |word: &str| word.split('=').next().unwrap_or_default().to_owned();
    let is_said = |own: &String| more.iter().any(|word| flag(&word.to_string_lossy()) == flag(own));
    flags.extend(own.iter().filter(|own| !is_said(own)).map(OsString::from));
    flags.extend(more);
    Ok(flags)
}

/// Words as a shell takes them.
pub fn quoted(words: &[OsString]) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_=./,:+@%".contains(c);
    let quoted = |word: &OsString| match word.to_string_lossy() {
        word if word.chars().all(is_plain) => word.into_owned(),
        word => format!("'{}'", word.replace('\'', "'\\''")),
    };
    words.iter().map(quoted).collect::<Vec<_>>().join(" ")
}

impl OwnJob {
    /// The job of a folder, with the flags of [`flags_of_training`].
    ///
    /// # Errors
    /// As for these; or the flags are wrong, or there is no free port.
    pub fn of(folder: &Path, model: &Path, more: &[OsString]) -> Result<OwnJob, Failure> {
        let mut command = vec![OsString::from("train")];
        command.extend(flags_of_training(folder, model, more)?);
        let args = LaunchArgs {
            servers: 1,
            workers: 1,
            data_dir: Some(folder.join("rows")),
            restarts: RESTARTS,
            logs: None,
            hosts: None,
            ssh: String::new(),
            remote_dir: None,
            remote_program: None,
            command,
        };
        let command = JobCommand::of(&args.command)?;
        let addresses = Addresses::here(args.servers, command.needs_coordinator())?;
        let job = command.job(&args, &addresses);
        job.check()?;
        job.check_worker()?;
        Ok(OwnJob { job, addresses })
    }

    /// Its servers.
    pub fn servers(&self) -> Vec<String> {
        self.addresses.addrs.clone()
    }

    /// Runs the job until a signal stops it. Only the main thread may call this: the system ends the processes with
    /// the thread that starts them.
    ///
    /// # Errors
    /// It has ended for another reason.
    pub fn run(&self, stop: &AtomicBool) -> Result<(), Failure> {
        let output = Arc::new(Output::new(None)?);
        let process = |role| Process::new(role, ProcessPlace::Here, self.job.words(role), output.clone());
        let processes = self.job.roles().map(process).collect();
        let keeps = (self.job.keeps_rows(), self.job.keeps_keys());
        match Supervisor::new(processes, keeps, RESTARTS).run(stop, || None).outcome {
            Err(why) if why.code == STOPPED => Ok(()),
            outcome => outcome,
        }
    }
}
