//! `gannet serve --learn`: the folder that takes examples, and the job that trains them.

use crate::failure::Failure;
use crate::flags::learn::LearnArgs;
use crate::flags::security::{SecurityArgs, TlsClientArgs};
use crate::security::{self, Secured};
use gannet::job::{JobClient, JobStatus};
use gannet::runs::RunId;
use gannet::{Transports, WorkerConfig};
use gannet_serve::{AskJob, JobStand, JoinLimits, KeeperLimits, LearnConfig};
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
            Some(why) => Err(format!("--job: {why}")),
            None if self.is_known => Err(format!("--job {servers}: no server knows the job any more")),
            None => Ok(JobStand::default()),
        }
    }
}

fn stand(job: &JobStatus) -> Result<JobStand, String> {
    match &job.failed {
        Some(why) => Err(format!("the job that learns has failed: {why}")),
        None => Ok(JobStand { found: job.tasks, trained: job.tasks_done }),
    }
}

/// Asks the servers of `--job`.
fn asking(args: &LearnArgs, own: &SecurityArgs, tls: &TlsClientArgs) -> Result<AskJob, Failure> {
    // The certificate of the command is for HTTP, unless servers of TLS are asked with it.
    let mut own = own.clone();
    if tls.tls_ca.is_none() {
        (own.tls_cert, own.tls_key) = (None, None);
    }
    let secured = security::of_worker(Transports::new(), &args.job, &own, tls)?;
    let (run, servers) = (args.job_run.clone(), args.job.clone());
    let mut servers = JobServers { secured, run, servers, is_known: false };
    Ok(Box::new(move || servers.ask()))
}

/// How the command learns. `None`: it does not.
pub fn config(
    args: &LearnArgs,
    own: &SecurityArgs,
    tls: &TlsClientArgs,
) -> Result<Option<LearnConfig>, Failure> {
    let Some(folder) = args.learn.clone() else { return Ok(None) };
    if args.job.is_empty() {
        return Err(Failure::input(
            "--learn: name the servers of the job that trains DIR/examples: --job HOST:PORT,..",
        ));
    }
    let limits =
        KeeperLimits { ids: args.id_window as usize, waiting_bytes: args.learn_bytes.as_u64() as usize };
    let join = args.join_window.map(|seconds| JoinLimits {
        window: Duration::from_secs_f64(seconds),
        bytes: args.join_bytes.as_u64() as usize,
    });
    Ok(Some(LearnConfig { folder, limits, join, ask: asking(args, own, tls)? }))
}
