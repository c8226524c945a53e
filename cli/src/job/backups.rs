//! Jobs in which servers are backups of each other, and a coordinator says which server owns what.

use crate::failure::Failure;
use crate::flags::backups::OnServerLossName;
use crate::flags::security::{SecurityArgs, TlsClientArgs};
use crate::flags::{JobArgs, ReplicationName};
#[cfg(feature = "etcd")]
use crate::security;
#[cfg(feature = "etcd")]
use gannet::backups::CoordinatorError;
use gannet::backups::{
    Coordinator, CoordinatorAddr, MembershipConfig, OnServerLoss, Places, RUN_KEPT, RemoteCoordinator,
    ReplicationMode,
};
use gannet::security::Token;
use gannet::{ServerConfig, Transports};
use std::sync::Arc;
use std::time::Duration;

/// The lease of a server, in seconds, without `--lease`.
const LEASE: f64 = 2.0;

/// Checks the flags.
pub fn check_backups(job: &JobArgs) -> Result<(), Failure> {
    let backups = &job.backups;
    let Some(coordinator) = &backups.coordinator else { return Ok(()) };
    addr_of(coordinator)?;
    let servers = job.ps_hosts.len();
    if backups.backups as usize >= servers {
        let n = backups.backups;
        return Err(Failure::input(format!(
            "--backups {n}: --ps-hosts names {servers}, and a server is no backup of itself; name more servers"
        )));
    }
    if backups.lease.is_some_and(|lease| !(0.5..=600.0).contains(&lease)) {
        let lease = backups.lease.unwrap_or_default();
        return Err(Failure::input(format!("--lease {lease}: from 0.5 to 600 s are possible")));
    }
    if let Some(spare) = &job.backups.spare {
        check_spare(job, spare, coordinator)?;
    }
    if job.ps_hosts.contains(coordinator) {
        return Err(Failure::input(format!(
            "--coordinator {coordinator}: it is one of --ps-hosts, which may die; start a `gannet scheduler` elsewhere"
        )));
    }
    if job.backups.on_server_loss == Some(OnServerLossName::Restore) && job.checkpoint.checkpoint.is_none() {
        let text =
            "--on-server-loss restore: give every ps and worker --checkpoint DIR, which it goes back to";
        return Err(Failure::input(text));
    }
    Ok(())
}

/// Checks the flags of a ps without a place of its own.
fn check_spare(job: &JobArgs, spare: &str, coordinator: &str) -> Result<(), Failure> {
    let why = if !has_port(spare) {
        "HOST:PORT is needed, for example 127.0.0.1:7709"
    } else if job.ps_hosts.iter().any(|host| host == spare) {
        "it is one of --ps-hosts, so it has a place: start it with --task-index, or give it another address"
    } else if spare == coordinator {
        "it is the coordinator: give it another address"
    } else if job.typed.has("--task-index") {
        "it has no --task-index, because it has no place in --ps-hosts: leave --task-index out"
    } else if job.data_dir.is_some() {
        "it has no place of its own, and the rows that it takes are in memory: leave --data-dir out"
    } else if job.backups.backups == 0 {
        "with --backups 0 no server needs it: give the --backups of the other ps"
    } else {
        return Ok(());
    };
    Err(Failure::input(format!("--spare {spare}: {why}")))
}

/// Whether an address has a host and a port.
pub fn has_port(addr: &str) -> bool {
    addr.rsplit_once(':').is_some_and(|(host, port)| !host.is_empty() && port.parse::<u16>().is_ok())
}

/// The coordinator that the flag names.
fn addr_of(coordinator: &str) -> Result<CoordinatorAddr, Failure> {
    CoordinatorAddr::parse(coordinator)
        .map_err(|why| Failure::input(format!("--coordinator {coordinator}: {why}")))
}

/// The address to which the process connects for the coordinator as for a server, if it is a `gannet scheduler`.
pub fn server_of(coordinator: Option<&str>) -> Option<String> {
    let is_etcd = |addr: &&str| addr.starts_with("etcd://") || addr.starts_with("etcds://");
    coordinator.filter(|addr| !is_etcd(addr)).map(str::to_owned)
}

/// Where a ps listens.
pub fn listens_at(job: &JobArgs) -> &str {
    job.backups.spare.as_ref().unwrap_or_else(|| &job.ps_hosts[job.task_index as usize])
}

/// The servers of the job in the order of their places. With a coordinator place 0 has the scheduler, so the order must
/// not depend on how a process writes the addresses.
pub fn in_places(job: &JobArgs) -> Vec<String> {
    let mut hosts = job.ps_hosts.clone();
    if job.backups.coordinator.is_some() {
        hosts.sort();
    }
    hosts
}

/// Where a worker of the job learns who owns what.
pub fn places(job: &JobArgs, net: &Transports, token: Option<&Token>) -> Result<Option<Places>, Failure> {
    let flags = (&job.security, &job.tls_client);
    let of = |addr| places_of(addr, job.run.name(), (net, token), flags);
    job.backups.coordinator.as_deref().map(of).transpose()
}

/// The places of a run, as the coordinator at this address knows them.
pub fn places_of(
    addr: &str,
    run: &str,
    (net, token): (&Transports, Option<&Token>),
    flags: (&SecurityArgs, &TlsClientArgs),
) -> Result<Places, Failure> {
    let coordinator: Arc<dyn Coordinator> = match addr_of(addr)? {
        CoordinatorAddr::Scheduler(addr) => {
            Arc::new(RemoteCoordinator::new(net.clone(), &addr, token.cloned()))
        }
        CoordinatorAddr::Etcd { members, has_tls } => etcd(&members, has_tls, flags)?,
    };
    Ok(Places { coordinator, job: run.to_owned() })
}

/// A cluster of etcd.
#[cfg(feature = "etcd")]
fn etcd(
    members: &[String],
    has_tls: bool,
    (security, tls): (&SecurityArgs, &TlsClientArgs),
) -> Result<Arc<dyn Coordinator>, Failure> {
    use gannet::backups::{EtcdCoordinator, EtcdTls};
    let failed = |error: CoordinatorError| Failure::input(format!("--coordinator: {}", error.0));
    let tls = match (has_tls, &tls.tls_ca) {
        (false, _) => None,
        (true, Some(ca)) => {
            let shown = security::pair(security);
            Some(EtcdTls::load(ca, tls.tls_name.as_deref(), shown).map_err(failed)?)
        }
        (true, None) => {
            let text = "--coordinator etcds://...: give --tls-ca FILE with the authority that signed etcd's certificates";
            return Err(Failure::input(text));
        }
    };
    for member in members {
        security::must_be_encrypted(&format!("etcd member {member}"), member, has_tls, security.insecure)?;
    }
    Ok(Arc::new(EtcdCoordinator::new(members, tls).map_err(failed)?))
}

/// A build without etcd.
#[cfg(not(feature = "etcd"))]
fn etcd(_: &[String], _: bool, _: (&SecurityArgs, &TlsClientArgs)) -> Result<Arc<dyn Coordinator>, Failure> {
    Err(Failure::input(
        "--coordinator etcd://...: this gannet was built without etcd; `cargo install --locked --path cli` \
         builds one that has it, or name a `gannet scheduler`",
    ))
}

/// What the job does when rows are gone.
fn on_server_loss(job: &JobArgs) -> OnServerLoss {
    match job.backups.on_server_loss {
        Some(OnServerLossName::Restore) => OnServerLoss::Restore,
        Some(OnServerLossName::Wait) => OnServerLoss::Wait,
        Some(OnServerLossName::Stop) => OnServerLoss::Stop,
        None if job.checkpoint.checkpoint.is_some() => OnServerLoss::Restore,
        None => OnServerLoss::Stop,
    }
}

/// The place and the backups of a ps.
pub struct Membership<'a> {
    job: &'a JobArgs,
}

impl<'a> Membership<'a> {
    /// That of a job with a coordinator.
    pub fn of(job: &'a JobArgs) -> Option<Membership<'a>> {
        job.backups.coordinator.as_ref().map(|_| Membership { job })
    }

    /// Adds it to the configuration of a server.
    pub fn add(&self, config: &mut ServerConfig, net: &Transports) -> Result<(), Failure> {
        let (job, hosts, own) = (self.job, in_places(self.job), listens_at(self.job));
        let (place, backups) = (hosts.iter().position(|host| host == own), job.backups.backups as usize);
        let at = place.unwrap_or(0);
        config.replication = match job.backups.replication {
            Some(ReplicationName::Async) => ReplicationMode::Async,
            Some(ReplicationName::Sync) | None => ReplicationMode::Sync,
        };
        let backup = |by: usize| hosts[(at + by) % hosts.len()].clone();
        // A server without a place of its own has no neighbours.
        config.backups = (1..=backups).filter(|_| place.is_some()).map(backup).collect();
        let Some(Places { coordinator, job: name }) = places(job, net, config.token.as_ref())? else {
            return Ok(());
        };
        config.membership = Some(MembershipConfig {
            coordinator,
            job: name,
            place: (at as u32, hosts.len() as u32),
            addr: own.to_owned(),
            servers: hosts,
            is_backup: place.is_none(),
            backups,
            lease: Duration::from_secs_f64(job.backups.lease.unwrap_or(LEASE)),
            kept: RUN_KEPT,
            on_server_loss: on_server_loss(job),
        });
        Ok(())
    }
}
