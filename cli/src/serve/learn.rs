//! `gannet serve --learn`: the folder that takes examples, and the job that trains them.

use crate::checkpoint_place::create_checkpoints;
use crate::failure::Failure;
use crate::flags::learn::LearnArgs;
use crate::flags::serve::ServeArgs;
use crate::security::{self, Secured};
use crate::serve::own_job::{CHECKPOINTS, OwnJob, flags_of_training, quoted};
use crate::serve::security_of_client;
use gannet::job::{JobClient, JobStatus};
use gannet::runs::RunId;
use gannet::{Transports, WorkerConfig};
use gannet_serve::{AskJob, JobStand, JoinLimits, KeeperLimits, LearnConfig, ModelOrigin};
use std::ffi::OsString;
use std::path::Path;
use std::time::Duration;

/// How long a server may take to say how far the job is.
const ANSWER_TIME: Duration = Duration::from_secs(2);

/// The servers of a job, of which one has its scheduler.
struct JobServers {
    secured: Secured,
    run: String,
    /// The one that has said something of the job comes first.
    servers: Vec<String>,
    /// A server has said something.
    is_known: bool,
}

impl JobServers {
    fn config(&self, server: &str) -> WorkerConfig {
        WorkerConfig {
            token: self.secured.token.clone(),
            one_thread: true,
            run: Some(RunId { name: self.run.clone(), generation: 0, rows_since: 0, birth: 0 }),
            peer_timeout: ANSWER_TIME,
            ..WorkerConfig::reader([server.to_owned()])
        }
    }

    /// Asks how far the job is. A job that no server knows has not begun.
    fn ask(&mut self) -> Result<JobStand, String> {
        let mut silent = None;
        for at in 0..self.servers.len() {
            match JobClient::<Transports>::status_of(self.secured.net.clone(), self.config(&self.servers[at]))
            {
                Ok(Some(job)) => {
                    self.is_known = true;
                    self.servers.swap(0, at);
                    return stand(&job);
                }
                Ok(None) => {}
                Err(error) => silent = Some(error.to_string()),
            }
        }
        let servers = self.servers.join(", ");
        match silent {
            Some(why) => Err(format!("the job that learns: {why}")),
            None if self.is_known => Err(format!("no server knows the job that learns any more: {servers}")),
            None => Ok(JobStand::default()),
        }
    }
}

fn stand(job: &JobStatus) -> Result<JobStand, String> {
    match &job.failed {
        Some(why) => Err(format!("the job that learns has failed: {why}")),
        None => Ok(JobStand { found: job.tasks, trained: job.tasks_done, is_over: job.saved }),
    }
}

/// Asks the servers of a job.
fn asking(args: &ServeArgs, servers: Vec<String>) -> Result<AskJob, Failure> {
    let own = security_of_client(args);
    let secured =
        security::of_worker(args.transport.transport.net(args.io), &servers, &own, &args.tls_client)?;
    let run = args.learn.job_run.clone();
    let mut servers = JobServers { secured, run, servers, is_known: false };
    Ok(Box::new(move || servers.ask()))
}

/// The job that the command runs itself. `None`: it does not learn, or another job does it. Then this says which flags
/// that job needs.
pub fn own_job(args: &ServeArgs) -> Result<Option<OwnJob>, Failure> {
    let LearnArgs { learn, job, train, .. } = &args.learn;
    let Some(folder) = learn else { return Ok(None) };
    match (args.model.first(), job.is_empty()) {
        (Some(model), true) => {
            let mut more = train.clone();
            // Its servers ask for the token that requests must have.
            more.extend(args.security.token_file.iter().map(|file| {
                let mut word = OsString::from("--token-file=");
                word.push(file);
                word
            }));
            OwnJob::of(folder, &model.folder, &more).map(Some)
        }
        (Some(model), false) => {
            let flags = quoted(&flags_of_training(folder, &model.folder, &[])?);
            notice!("gannet: what is learned, a job trains with these flags: {flags}");
            Ok(None)
        }
        (None, false) => Ok(None),
        (None, true) => Err(Failure::input(
            "--learn: name the model to begin with (--model DIR), or the servers of the job that trains DIR/examples \
             (--job HOST:PORT,..)",
        )),
    }
}

/// Where the first model comes from when it is learned further: from the checkpoints of the job, once there is one.
pub fn learned(first: ModelOrigin, folder: &Path) -> Result<ModelOrigin, Failure> {
    let place = folder.join(CHECKPOINTS);
    let directory = create_checkpoints(&place)?;
    let place = place.display().to_string();
    let then = ModelOrigin::Checkpoints { place, directory, number: None };
    Ok(ModelOrigin::Learned(Box::new(first), Box::new(then)))
}

/// How the command learns. `None`: it does not.
pub fn config(args: &ServeArgs, own: Option<&OwnJob>) -> Result<Option<LearnConfig>, Failure> {
    let flags = &args.learn;
    let Some(folder) = flags.learn.clone() else { return Ok(None) };
    let servers = own.map_or_else(|| flags.job.clone(), OwnJob::servers);
    let limits =
        KeeperLimits { ids: flags.id_window as usize, waiting_bytes: flags.learn_bytes.as_u64() as usize };
    let join = flags.join_window.map(|seconds| JoinLimits {
        window: Duration::from_secs_f64(seconds),
        bytes: flags.join_bytes.as_u64() as usize,
    });
    Ok(Some(LearnConfig { folder, limits, join, ask: asking(args, servers)? }))
}
