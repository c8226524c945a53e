//! `--exit-with-job`: a ps that ends by itself when the run of its job is finished.

use crate::failure::{Failure, SYSTEM};
use crate::flags::JobArgs;
use crate::job::backups;
use crate::security;
use gannet::runs::known_runs;
use gannet::{Transports, WorkerConfig};
use rustix::process::{Signal, getpid, kill_process};
use std::time::{Duration, Instant};

/// How often the servers are asked.
const ASK_EVERY: Duration = Duration::from_secs(1);

/// How long a server goes on then: the others must hear of the end, too, and one server alone keeps the registry.
const GRACE: Duration = Duration::from_secs(5);

/// Asks on a thread of its own whether the run is finished. Then this process stops as after SIGTERM.
pub fn watch(job: &JobArgs) -> Result<(), Failure> {
    if !job.exit_with_job {
        return Ok(());
    }
    let hosts = backups::in_places(job);
    let net = job.transport.transport.net(job.io);
    let secured = security::of_worker(net, &hosts, &job.security, &job.tls_client)?;
    let places = backups::places(job, &secured.net, secured.token.as_ref())?;
    let config = WorkerConfig {
        token: secured.token,
        peer_timeout: Duration::from_secs(5),
        one_thread: true,
        places,
        ..WorkerConfig::reader(hosts)
    };
    let (name, patience) = (job.run.name().to_owned(), Duration::from_secs_f64(job.peer_timeout));
    let wait = move || {
        until_finished(&secured.net, &config, &name, patience);
        std::thread::sleep(GRACE);
        notice!("gannet: run {name:?} is finished: this server ends (--exit-with-job)");
        let _ = kill_process(getpid(), Signal::TERM);
    };
    let spawned = std::thread::Builder::new().name("gannet-job-end".into()).spawn(wait);
    spawned.map(drop).map_err(|error| Failure::new(SYSTEM, format!("a thread for --exit-with-job: {error}")))
}

/// A run that was finished when the servers were asked first may be continued, or begun again, by workers that are not
/// there yet. So that end counts only after `patience`.
fn until_finished(net: &Transports, config: &WorkerConfig, name: &str, patience: Duration) {
    let begun = Instant::now();
    // The end that the run had at first. The outer `None`: nobody has answered.
    let mut first: Option<Option<(u32, u64)>> = None;
    loop {
        match known_runs(net.clone(), config) {
            Ok(runs) => {
                let run = runs.iter().find(|run| run.name == name && run.finished);
                let end = run.map(|run| (run.generation, run.finished_at));
                let before = *first.get_or_insert(end);
                if end.is_some() && (end != before || begun.elapsed() > patience) {
                    return;
                }
            }
            // A server may be down, or not be there yet.
            Err(error) => tracing::debug!(%error, "the servers do not say whether the run is finished"),
        }
        std::thread::sleep(if first.is_some() { ASK_EVERY } else { ASK_EVERY / 10 });
    }
}
