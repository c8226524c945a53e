//! Where a flag works: in which role of a process, with which model, with which optimizer. A flag that has no effect is
//! refused, because it is probably a mistake.

use crate::failure::Failure;
use crate::flags::{JobName, ModelName, OptimizerName, RUN_FLAGS, TasksName, TrainArgs};
use crate::job::cache;
use crate::train::feed::roles;
use JobName::{Client, Ps, Worker};

/// Flags that only processes of a job have.
const OF_JOBS: [&str; 19] = [
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

/// Flags, the roles in which they do not work, and where they do.
const OF_ROLES: [(&[&str], &[JobName], &str); 12] = [
    (&["--tls-ca"], &[Ps], "a worker; a ps speaks TLS with --tls-cert and --tls-key"),
    (&["--tls-name"], &[Ps], "a worker"),
    (&["--tls-client-ca"], &[Worker], "a ps; a worker trusts servers by --tls-ca"),
    (&["--memory-limit"], &[Worker, Client], "a process that has tables; a worker has none"),
    (
        &RUN_FLAGS,
        &[Ps],
        "a worker or a client (--run: also in a ps with --checkpoint, --coordinator or --exit-with-job)",
    ),
    (&["--lease", "--on-server-loss", "--replication", "--spare"], &[Worker, Client], "a ps"),
    (&["--one-sided"], &[Ps], "a worker"),
    (&["--wire"], &[Ps, Client], "a worker"),
    (&["--exit-with-job"], &[Worker, Client], "a ps: other processes end with their job anyway"),
    (&["--listen"], &[Worker, Client], "a ps; workers and clients use --ps-hosts and --feed"),
    (&["--checkpoint"], &[Client], "a ps or a worker"),
    (&["--data-dir"], &[Worker], "a ps or a client; a worker keeps no rows"),
];

/// Flags of a process that other processes connect to.
const OF_SERVERS: [&str; 6] = [
    "--sessions-max",
    "--session-silence",
    "--session-memory",
    "--keyset-memory",
    "--rdma-memory",
    "--credit-requests",
];

/// Settings of models, and the models that have them.
const OF_MODELS: [(&str, &[ModelName]); 9] = {
    use ModelName::{Deepfm, Fm, Lda, Mf, Softmax};
    [
        ("--classes", &[Softmax]),
        ("--factors", &[Fm, Deepfm, Mf]),
        ("--deviation", &[Fm, Deepfm, Mf]),
        ("--hidden", &[Deepfm]),
        ("--topics", &[Lda]),
        ("--document-prior", &[Lda]),
        ("--word-prior", &[Lda]),
        ("--vocabulary", &[Lda]),
        ("--seed", &[Fm, Deepfm, Mf, Lda]),
    ]
};

/// Settings of `--optimizer lbfgs`.
const OF_LBFGS: [&str; 5] = ["--history", "--max-iter", "--tolerance", "--data-memory", "--pass-timeout"];

/// Refuses flags that have no effect in this process. `is_launched`: all processes of the job have the same flags, so
/// flags of the other role are none.
pub fn check_places(args: &TrainArgs, is_launched: bool) -> Result<(), Failure> {
    let job = &args.job;
    roles::check_role(args)?;
    if args.data.is_empty()
        && !args.follow.grows()
        && job.job_name != Some(Ps)
        && job.data_server.feed.is_none()
    {
        let text = "DATA is missing: name the files to train on, such as `gannet train clicks.svm`; - is standard input";
        return Err(Failure::input(text));
    }
    if !(is_launched && job.job_name == Some(Ps)) {
        check_role(args, is_launched)?;
    }
    check_model(args)?;
    match job.typed.first_of(&OF_LBFGS) {
        Some(flag) if args.optimizer.optimizer != Some(OptimizerName::Lbfgs) => {
            Err(Failure::input(format!("{flag}: works only with --optimizer lbfgs")))
        }
        _ => Ok(()),
    }
}

/// Whether a flag was given and means something here.
fn is_given(args: &TrainArgs, flag: &str) -> bool {
    let job = &args.job;
    // A ps with backups, or one that asks for the end of its run, is also a client of other servers. It must know
    // whose checkpoints it restores, whose rows it keeps in a job with a coordinator, and with which run it ends.
    let joins = job.job_name == Some(Ps) && (job.backups.coordinator.is_some() || job.exit_with_job);
    let means_something = match flag {
        "--tls-ca" | "--tls-name" => !joins,
        "--run" => !joins && (job.job_name != Some(Ps) || job.checkpoint.checkpoint.is_none()),
        // These hold without a job, too.
        "--issync" => job.sync.issync == Some(1),
        "--tasks" => job.tasks.tasks != TasksName::Auto,
        "--cache-bytes" => job.cache.cache_bytes.is_some_and(|bytes| bytes.as_u64() > 0),
        _ => true,
    };
    means_something && job.typed.has(flag)
}

fn check_role(args: &TrainArgs, is_launched: bool) -> Result<(), Failure> {
    let job = &args.job;
    let given = |flags: &[&'static str]| flags.iter().find(|flag| is_given(args, flag)).copied();
    let works_only_in =
        |flag: &str, whose: &str| Err(Failure::input(format!("{flag}: works only in {whose}")));
    let Some(role) = job.job_name else {
        return match (given(&OF_JOBS), given(&OF_SERVERS)) {
            (Some("--issync"), _) => {
                works_only_in(&format!("--issync {}", job.typed.issync), "a process of a job (--job-name)")
            }
            (Some(flag), _) => works_only_in(flag, "a process of a job (--job-name)"),
            (None, Some(flag)) => works_only_in(flag, "a ps or gannet server"),
            (None, None) => check_lr(args),
        };
    };
    if !is_launched {
        let misplaced = OF_ROLES.iter().filter(|(_, not_in, _)| not_in.contains(&role));
        if let Some((flag, whose)) =
            misplaced.filter_map(|(flags, _, whose)| given(flags).zip(Some(whose))).next()
        {
            return works_only_in(flag, whose);
        }
        if let Some(flag) = given(&OF_SERVERS).filter(|_| role == Worker) {
            return works_only_in(flag, "a ps or gannet server");
        }
    }
    check_lr(args)
}

/// Refuses flags of the workers of logistic regression elsewhere.
fn check_lr(args: &TrainArgs) -> Result<(), Failure> {
    let role = args.job.job_name;
    let shards = ["--shards"].into_iter().filter(|_| role != Some(Client));
    let mut flags = cache::FLAGS.into_iter().chain(shards);
    match flags.find(|flag| is_given(args, flag)) {
        Some(flag) if role != Some(Worker) || !cache::learns_so(args) => Err(Failure::input(format!(
            "{flag} works only in a worker of a job with --model lr, and not with --optimizer lbfgs"
        ))),
        _ => Ok(()),
    }
}

/// Refuses settings that the model does not have.
fn check_model(args: &TrainArgs) -> Result<(), Failure> {
    let name = |model: &ModelName| format!("{model:?}").to_lowercase();
    let model = &args.model.model;
    let mut misplaced =
        OF_MODELS.iter().filter(|(flag, models)| is_given(args, flag) && !models.contains(model));
    if let Some((flag, models)) = misplaced.next() {
        let whose: Vec<String> = models.iter().map(name).collect();
        return Err(Failure::input(format!(
            "{flag} is no setting of --model {}; it belongs to {}",
            name(model),
            whose.join(", ")
        )));
    }
    if let Some(x) = args.model.deviation.filter(|x| !(x.is_finite() && *x >= 0.0)) {
        return Err(Failure::input(format!("--deviation {x}: a finite number from 0 is needed")));
    }
    Ok(())
}
