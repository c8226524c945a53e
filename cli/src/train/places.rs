//! Where a flag of `gannet train` means something: in which role of a process, with which model, and with which
//! optimizer. A flag that means nothing is refused, because it is probably a mistake.

#[cfg(test)]
#[path = "places_tests.rs"]
mod tests;

use crate::failure::Failure;
use crate::flags::{
    DataArgs, FormatName, JobArgs, JobName, ModelName, OptimizerName, RUN_FLAGS, ScaleName, ScheduleName,
    SyncName, TasksName, TrainArgs,
};
use crate::model::optimizer::{self, KnownFlag, spelt};
use crate::train::follow;
use JobName::{Client, Ps, Worker};
use clap::ValueEnum;
use gannet::table::RowType;
use gannet::train::models::Objective;
use gannet::worker::WireType;

/// Flags, the processes in which they mean nothing, and why.
type FlagPlace = (&'static [&'static str], fn(&Process<'_>) -> bool, &'static str);

/// All places. The first row that applies is the error.
#[rustfmt::skip]
const PLACES: &[FlagPlace] = &[
    // Jobs whose data comes from a client.
    (&["--feed"], |p| matches!(p.role(), None | Some(Ps)), "works only in a worker or the client of a job"),
    (&["--task-index"], |p| p.is(Client), "a job has one client"),
    (&["DATA"], |p| p.is_fed(), "with --feed only the client reads the data"),
    (READING, |p| p.is_fed(), "with --feed the client decides how the data is read"),
    (&["--task-bytes"], |p| p.is_fed(), "with --feed the client makes the splits"),
    (&["--test", "--out", "--keep-names"], |p| p.is_fed(), "with --feed the client tests and saves"),
    (&["--scheduler"], |p| p.has_feed(), "the client (--feed) is the job's scheduler"),
    (&["--data-dir"], |p| p.is_fed(), "works only in the client (the job's state) or a ps (its shards)"),
    // Data that grows.
    (&["--until", "--until-end"], |p| !p.grows(), "works only with --follow or a topic of Kafka"),
    (&["--follow-order"], |p| !p.follows(), "works only with --follow"),
    (&["--kafka-config"], |p| !p.has_topic(), "works only with a topic of Kafka"),
    (&["--follow"], |p| p.has_topic(), "a topic of Kafka is trained alone"),
    (&["DATA"], |p| p.has_topic(), "one topic of Kafka is trained at a time, and no files beside it"),
    (&["DATA"], |p| p.follows(), "the files of --follow take its place"),
    (&["--feed"], |p| p.grows(), "data that grows needs workers that see it"),
    (&["--epochs"], |p| p.grows(), "data that grows is trained once"),
    (&["--cache"], |p| p.grows(), "data that grows is trained once, so there is nothing to keep for later"),
    (&["--keep-names"], |p| p.is_lda(), "--model lda has words by number; --vocabulary names them"),
    (&["--keep-names"], |p| p.grows(), "the names come from the data when it is read once more, and data that grows is \
        read once"),
    (&["--scale"], |p| p.grows() && p.scales_by_all(), "this scaling looks at all data before the training, and data \
        that grows has no end; --scale log works"),
    (&["--model lda"], |p| p.grows(), "its workers keep their data, which therefore cannot grow"),
    (&["--optimizer lbfgs"], |p| p.grows(), "it looks at all data in each step, which therefore cannot grow"),
    (&["--data-dir"], |p| p.is_alone() && p.grows(), "one process alone does not keep which data it has trained; a \
        job does: gannet launch"),
    (&["--tasks off", "--deterministic"], |p| p.grows() && !p.is_alone(), HANDED_OUT),
    (&["--replicas-to-aggregate"], |p| p.grows() && p.leaves_out_late_workers(), HANDED_OUT),
    // Roles.
    (OF_JOBS, |p| p.is_alone(), "works only in a process of a job (--job-name)"),
    (&["--tls-ca"], |p| p.is(Ps), "works only in a worker; a ps speaks TLS with --tls-cert and --tls-key"),
    (&["--one-sided"], |p| p.is(Ps), "works only in a worker"),
    (&["--tls-client-ca"], |p| p.is(Worker), "works only in a ps; a worker trusts servers by --tls-ca"),
    (&["--memory-limit"], |p| p.is(Worker) || p.is(Client),
        "works only in a process that has tables; a worker has none"),
    (&RUN_FLAGS, |p| p.is(Ps), "works only in a worker or a client (--run: also in a ps with --checkpoint, \
        --coordinator or --exit-with-job)"),
    (&["--lease", "--on-server-loss", "--replication", "--spare"], |p| p.is(Worker) || p.is(Client),
        "works only in a ps"),
    (&["--wire"], |p| p.is(Ps) || p.is(Client), "works only in a worker"),
    (&["--exit-with-job"], |p| p.is(Worker) || p.is(Client),
        "works only in a ps: other processes end with their job anyway"),
    (&["--listen"], |p| p.is(Worker) || p.is(Client),
        "works only in a ps; workers and clients use --ps-hosts and --feed"),
    (&["--checkpoint"], |p| p.is(Client), "works only in a ps or a worker"),
    (&["--data-dir"], |p| p.is(Worker), "works only in a ps or a client; a worker keeps no rows"),
    (OF_SERVERS, |p| p.is_alone() || p.is(Worker), "works only in a ps or gannet server"),
    (OF_CACHE, |p| p.pulls_no_rows() || p.is(Client), LR_WORKER),
    (&["--shards"], |p| p.pulls_no_rows(), LR_WORKER),
    (OF_CACHE.split_at(1).1, |p| p.has_no_cache(), "works only with a cache (--cache-bytes)"),
    (&RUN_FLAGS, |p| p.is_alone() && p.args.job.data_dir.is_none(),
        "works only in a job (--job-name) or with --data-dir"),
    (&["--scheduler"], |p| p.is_coordinated(), "with --coordinator the owner of the first place is the scheduler"),
    (&["--feed"], |p| p.is_coordinated(), "with --coordinator the client cannot be the scheduler"),
    // Optimizers.
    (&["--history", "--max-iter", "--tolerance", "--data-memory", "--pass-timeout"], |p| !p.is_lbfgs(),
        "works only with --optimizer lbfgs"),
    (&["--optimizer lbfgs"], |p| !p.is_lr(), "works only with --model lr"),
    (&["--warm-start"], |p| p.is(Ps), "works only in a worker, which puts the rows on the servers"),
    (&["--warm-start"], |p| p.has_feed(), "the workers of a client (--feed) cannot compare its data with that of the \
        model; let the workers read the data"),
    (&["--validate", "--patience"], |p| p.has_feed(), "the client of --feed scores --test every --validate-every steps"),
    (&["--patience"], |p| p.is_job_of_shares(), "needs a scheduler that can end the job: --tasks on"),
    (&["--plots"], |p| p.is_lbfgs() || p.is_lda() || p.model_predicts_no_label(), "plots are of the probabilities of a label, \
        and of a training by steps"),
    (&["--patience"], |p| p.grows(), "data that grows has its own end (--until)"),
    (&["--patience"], |p| p.is_alone() && p.args.job.data_dir.is_some(), "a --data-dir keeps the last rows, not those of \
        the best validation; save with --out"),
    (&["--validate", "--patience"], |p| p.is_lbfgs(), "L-BFGS has no steps of batches; it scores --test at its end"),
    (&["--feed"], |p| p.is_lbfgs() || !p.is_lr(),
        "works only with --model lr, and not with --optimizer lbfgs; let the workers read the data"),
    (&["--scale"], |p| p.has_feed(), "the workers of a client cannot read its files before the training; scale the \
        numbers when you write the files"),
    (&["--wire", "--row-type"], |p| p.is_lbfgs(), "the vectors and sums of --optimizer lbfgs must stay f32"),
    (&["--push", "--reduce", "--clip-value", "--clip-norm", "--schedule", "--warmup"], |p| p.is_lbfgs(),
        "no setting of --optimizer lbfgs, which has --l1, --l2"),
    (&["--normalize"], |p| p.is_lbfgs(), "L-BFGS measures features as they are, and needs no step of one size"),
    (&["--normalize"], |p| p.is_lda(), "--model lda counts words, so values stay as they are"),
    (&["--epochs"], |p| p.is_lbfgs(), "L-BFGS has --max-iter"),
    (&["--batch"], |p| p.is_lbfgs(), "L-BFGS looks at the whole data"),
    (&["--validate-every"], |p| p.is_lbfgs(), "L-BFGS has no steps of batches; it scores --test at its end"),
    (&["--save-secs"], |p| p.is_lbfgs(), "L-BFGS saves --out when it has ended"),
    (ADMISSION, |p| p.is_lbfgs(), "L-BFGS gives every key a row"),
    (EVICTION, |p| p.is_lbfgs(), "L-BFGS needs the rows of all features in each step"),
    (&["--sync", "--issync"], |p| p.is_lbfgs(), "the workers of L-BFGS make each pass together by themselves"),
    (&["--replicas-to-aggregate"], |p| p.is_lbfgs(), "L-BFGS needs the gradients of all workers"),
    (&["--damping"], |p| p.is_lbfgs(), "L-BFGS pushes no changes of state"),
    (&["--worker-timeout"], |p| p.is_lbfgs(), "L-BFGS waits for its workers for --pass-timeout"),
    (&["--deterministic"], |p| p.is_lbfgs(),
        "L-BFGS adds sums over rows in the order in which the rows came, which is one of timing"),
    (&["--tasks", "--task-bytes", "--start-together", "--scheduler"], |p| p.is_lbfgs(),
        "does not work with L-BFGS, whose workers keep fixed shares of the data in memory"),
    // Models.
    (&["--damping"], |p| !p.is_lr(), "works only with --model lr"),
    (&["--row-type"], |p| matches!(p.model(), ModelName::Lr | ModelName::Linear), "with --model lr and linear a row \
        has one weight, so nothing would be saved (softmax, fm, ffm, deepfm and mf have more)"),
    (&["--wire", "--row-type"], |p| p.is_lda(),
        "the counts of words of --model lda are added up, and must stay exact"),
    (&["--warm-start"], |p| p.is_lda(),
        "--model lda counts topics of words in its documents, and a saved model does not have those counts"),
    (&["--continue"], |p| p.is_lda(), "does not work with --model lda, because no worker knows the topics of the \
        words that are already counted; --fresh samples all documents again"),
    (&["--optimizer", "--alpha", "--push", "--test", "--validate", "--save-secs", "--checkpoint"], |p| p.is_lda(), GRADIENTS),
    (ADMISSION, |p| p.is_lda(), GRADIENTS),
    (EVICTION, |p| p.is_lda(), "--model lda counts the words of its documents, and the counts of a row that dies would be lost"),
    (EVICTION, |p| p.args.job.sync.deterministic, "when a row dies depends on the time"),
    (&["--tasks"], |p| p.is_lda(), "does not work with --model lda, whose workers keep the topics of their words: \
        each worker takes a fixed share"),
    (&["--scheduler", "--task-bytes", "--start-together"], |p| p.has_fixed_share(),
        "works only with --tasks on"),
];

const HANDED_OUT: &str =
    "the scheduler hands out data that grows (--follow, topics of Kafka) to the worker that asks first";

const LR_WORKER: &str = "works only in a worker of a job with --model lr, and not with --optimizer lbfgs";

const GRADIENTS: &str = "a setting of models that learn by gradients; --model lda counts";

const ADMISSION: &[&str] = &["--admit-count", "--admit-probability"];

const EVICTION: &[&str] = &["--evict-after", "--evict-below", "--capacity", "--evict-floor"];

const OF_CACHE: &[&str] =
    &["--cache-bytes", "--cache-use", "--cache-staleness", "--sync-rows", "--active-pull"];

/// How the data is read.
const READING: &[&str] = &[
    "--format",
    "--label",
    "--categorical",
    "--numeric",
    "--both",
    "--types",
    "--ignore",
    "--offset",
    "--importance",
    "--cross",
    "--quadratic",
    "--cubic",
    "--delimiter",
    "--no-header",
    "--criteo-counts",
    "--normalize",
    "--class-weight",
    "--keep-negatives",
    "--positive",
    "--skip-bad-lines",
    "--no-intercept",
    "--intercept-start",
];

/// Flags that only processes of a job have.
const OF_JOBS: &[&str] = &[
    "--one-sided",
    "--wire",
    "--damping",
    "--token-file",
    "--insecure",
    "--tls-ca",
    "--tls-cert",
    "--task-index",
    "--peer-timeout",
    "--tasks",
    "--task-bytes",
    "--start-together",
    "--scheduler",
    "--checkpoint",
    "--coordinator",
    "--sync",
    "--issync",
    "--replicas-to-aggregate",
    "--worker-timeout",
];

/// Flags of a process that other processes connect to.
const OF_SERVERS: &[&str] = &[
    "--sessions-max",
    "--session-silence",
    "--session-memory",
    "--keyset-memory",
    "--rdma-memory",
    "--credit-requests",
];

/// The settings of a model.
fn of_model(model: ModelName) -> Vec<&'static str> {
    match model {
        ModelName::Lr => vec![],
        ModelName::Linear => vec!["--loss"],
        ModelName::Softmax => vec!["--classes"],
        ModelName::Mf => vec!["--factors", "--deviation", "--seed"],
        ModelName::Fm | ModelName::Ffm => vec!["--loss", "--factors", "--deviation", "--seed"],
        ModelName::Deepfm => vec!["--loss", "--factors", "--deviation", "--hidden", "--seed"],
        ModelName::Lda => vec!["--topics", "--document-prior", "--word-prior", "--vocabulary", "--seed"],
    }
}

/// A process, whose role, model and optimizer decide which flags mean something.
pub struct Process<'a> {
    pub args: &'a TrainArgs,
    /// Whether all processes of the job have the same flags, so that those of the other roles are none.
    pub is_launched: bool,
}

impl Process<'_> {
    /// Refuses flags that mean nothing in this process.
    ///
    /// # Errors
    /// The flag, why it means nothing here, and what to do.
    pub fn check_places(&self) -> Result<(), Failure> {
        self.check_missing()?;
        let DataArgs { test, validate, .. } = &self.args.data;
        if self.is_given("--validate-every") && test.is_empty() && validate.is_empty() {
            return Err(Failure::input(
                "--validate-every: name the data that is scored: --validate FILE, or --test FILE",
            ));
        }
        for (flags, means_nothing, why) in PLACES {
            if let Some(flag) = flags.iter().find(|flag| self.is_given(flag)).filter(|_| means_nothing(self))
            {
                return Err(self.refuse(flag, why));
            }
        }
        let (own, model) = (&self.args.optimizer, self.model());
        self.check_settings("--model", model, of_model)?;
        let names = |known: &'static [KnownFlag]| -> Vec<&'static str> {
            known.iter().map(|(flag, _)| *flag).collect()
        };
        if !self.is_lda() {
            let default = if self.is_lr() { OptimizerName::Ftrl } else { OptimizerName::Adagrad };
            let chosen = own.optimizer.unwrap_or(default);
            self.check_settings("--optimizer", chosen, |chosen| names(optimizer::settings(chosen)))?;
        }
        let schedule = own.schedule.schedule.unwrap_or(ScheduleName::Constant);
        self.check_settings("--schedule", schedule, |schedule| names(optimizer::decays(schedule)))?;
        follow::check_topic(&self.args.data)
    }

    fn role(&self) -> Option<JobName> {
        self.args.job.job_name
    }

    fn model(&self) -> ModelName {
        self.args.model.model
    }

    /// Whether it has this role, and flags of its own.
    fn is(&self, role: JobName) -> bool {
        self.role() == Some(role) && !self.is_launched
    }

    fn is_alone(&self) -> bool {
        self.role().is_none()
    }

    fn has_feed(&self) -> bool {
        self.args.job.data_server.feed.is_some()
    }

    /// Whether it is a worker whose data comes from a client.
    fn is_fed(&self) -> bool {
        self.has_feed() && self.role() == Some(Worker)
    }

    fn has_fixed_share(&self) -> bool {
        self.role() == Some(Worker) && !self.has_feed() && self.args.job.tasks.tasks == TasksName::Off
    }

    fn model_predicts_no_label(&self) -> bool {
        self.args.model.objective() != Some(Objective::Click)
    }

    fn is_job_of_shares(&self) -> bool {
        self.has_fixed_share() && self.args.job.worker_hosts.len() > 1
    }

    fn grows(&self) -> bool {
        self.args.data.follow.grows()
    }

    fn follows(&self) -> bool {
        self.args.data.follow.follow.is_some()
    }

    fn has_topic(&self) -> bool {
        self.args.data.follow.topic.is_some()
    }

    fn scales_by_all(&self) -> bool {
        matches!(self.args.data.input.scale, ScaleName::Standard | ScaleName::Minmax)
    }

    fn leaves_out_late_workers(&self) -> bool {
        let JobArgs { sync, worker_hosts, .. } = &self.args.job;
        sync.replicas_to_aggregate.is_some_and(|number| number < worker_hosts.len() as u32)
    }

    fn is_lr(&self) -> bool {
        self.model() == ModelName::Lr
    }

    fn is_lda(&self) -> bool {
        self.model() == ModelName::Lda
    }

    fn is_lbfgs(&self) -> bool {
        self.args.optimizer.optimizer == Some(OptimizerName::Lbfgs)
    }

    fn is_coordinated(&self) -> bool {
        self.args.job.backups.coordinator.is_some()
    }

    fn has_no_cache(&self) -> bool {
        self.args.job.cache.cache_bytes.is_none_or(|bytes| bytes.as_u64() == 0)
    }

    /// Whether it is no process of a job that pulls rows of logistic regression and pushes changes to them.
    fn pulls_no_rows(&self) -> bool {
        match self.role() {
            None => true,
            Some(Ps) => !self.is_launched,
            Some(Worker | Client) => !self.is_lr() || self.is_lbfgs(),
        }
    }

    /// Refuses a process without what it needs.
    fn check_missing(&self) -> Result<(), Failure> {
        let (client, feed) = (self.role() == Some(Client), self.has_feed());
        let text = match self.args.data.files.is_empty() && !self.grows() {
            _ if client && !feed => {
                "--job-name client: --feed HOST:PORT is missing: it says where the client listens for its workers"
            }
            true if client => {
                "--job-name client: DATA is missing: name the files that the client sends to the workers"
            }
            true if self.role() != Some(Ps) && !feed => {
                "DATA is missing: name the files to train on, such as `gannet train clicks.svm`; - is standard input"
            }
            _ => return Ok(()),
        };
        Err(Failure::input(text))
    }

    /// Refuses a setting that a choice does not have, and says which choices have it.
    fn check_settings<T: ValueEnum + Copy>(
        &self,
        of: &str,
        chosen: T,
        settings: impl Fn(T) -> Vec<&'static str>,
    ) -> Result<(), Failure> {
        let has = settings(chosen);
        let mut all = T::value_variants().iter().flat_map(|choice| settings(*choice));
        let Some(flag) = all.find(|flag| self.is_given(flag) && !has.contains(flag)) else { return Ok(()) };
        let takes = if has.is_empty() { "none".into() } else { has.join(", ") };
        let others =
            T::value_variants().iter().filter(|choice| settings(**choice).contains(&flag)).map(spelt);
        let (chosen, others) = (spelt(&chosen), others.collect::<Vec<_>>().join(", "));
        let why = format!("no setting of {of} {chosen}, which has {takes}; it belongs to {others}");
        Err(self.refuse(flag, &why))
    }

    fn refuse(&self, flag: &str, why: &str) -> Failure {
        let (in_job, tasks) = (self.role().is_some(), &self.args.job.tasks.tasks);
        let shown = match flag {
            "DATA" if self.has_topic() => self.args.data.files[0].display().to_string(),
            "--issync" => format!("--issync {}", self.args.job.typed.issync),
            "--tasks" if in_job => format!("--tasks {}", spelt(tasks)),
            _ => flag.to_owned(),
        };
        Failure::input(format!("{shown}: {why}; leave it out"))
    }

    /// Whether a flag was given, with a value that asks for something.
    fn is_given(&self, flag: &str) -> bool {
        let (args, job, role) = (self.args, &self.args.job, self.role());
        // A ps with backups, or one that asks for the end of its run, is also a client of other servers. It must know
        // whose checkpoints it restores, whose rows it keeps in a job with a coordinator, and with which run it ends.
        let joins = role == Some(Ps) && (job.backups.coordinator.is_some() || job.exit_with_job);
        let asks_for_nothing = match flag {
            "DATA" => return !args.data.files.is_empty(),
            "--optimizer lbfgs" => return self.is_lbfgs(),
            "--model lda" => return self.is_lda(),
            "--tasks off" => return job.tasks.tasks == TasksName::Off,
            "--tls-ca" => joins,
            "--run" => joins || (role == Some(Ps) && job.checkpoint.checkpoint.is_some()),
            "--task-index" => role == Some(Client) && job.task_index == 0,
            "--issync" => job.sync.issync != Some(1),
            "--sync" => role.is_some() && job.sync.sync == Some(SyncName::Asp),
            "--tasks" => {
                job.tasks.tasks != TasksName::On && (role.is_some() || job.tasks.tasks == TasksName::Auto)
            }
            "--cache-bytes" => self.has_no_cache(),
            "--wire" => (self.is_launched || role == Some(Worker)) && job.wire.choice() == WireType::F32,
            "--row-type" => args.row_type.choice() == RowType::F32,
            "--epochs" => args.passes.epochs == 1,
            "--format" => args.data.input.format == FormatName::Auto,
            "--skip-bad-lines" => args.data.input.skip_bad_lines == 0,
            _ => false,
        };
        !asks_for_nothing && job.typed.has(flag)
    }
}
