//! The servers of a job for a process that only reads from them: which they are, and which run they train.

use crate::failure::Failure;
use crate::flags::DEFAULT_RUN;
use crate::flags::security::{SecurityArgs, TlsClientArgs};
use crate::flags::transport::{IoArgs, TransportArgs};
use crate::job::backups;
use crate::security;
use gannet::runs::known_runs;
use gannet::{Transports, WorkerConfig};
use std::time::Duration;

/// How the servers of a job are named and reached.
pub struct ServersOfJob<'a> {
    /// The addresses of all of them.
    pub hosts: &'a [String],
    /// Where their places are, if they have backups.
    pub coordinator: Option<&'a str>,
    /// The run, if it is named.
    pub run: Option<&'a str>,
    /// The transport.
    pub transport: TransportArgs,
    /// How bytes move over TCP.
    pub io: IoArgs,
    /// The token and TLS.
    pub security: (&'a SecurityArgs, &'a TlsClientArgs),
    /// How long to wait for a server.
    pub peer_timeout: Duration,
}

impl ServersOfJob<'_> {
    /// The network, and the settings of a reader.
    pub fn reader(&self) -> Result<(Transports, WorkerConfig), Failure> {
        let net = self.transport.transport.net(self.io);
        let mut hosts = self.hosts.to_vec();
        if self.coordinator.is_some() {
            // The places of a job are in this order.
            hosts.sort();
        }
        let (own, tls) = self.security;
        let all: Vec<String> = hosts.iter().cloned().chain(backups::server_of(self.coordinator)).collect();
        let secured = security::of_worker(net, &all, own, tls)?;
        let of = |addr| {
            let (run, net) = (self.run.unwrap_or(DEFAULT_RUN), (&secured.net, secured.token.as_ref()));
            backups::places_of(addr, run, net, (own, tls))
        };
        let config = WorkerConfig {
            places: self.coordinator.map(of).transpose()?,
            token: secured.token,
            peer_timeout: self.peer_timeout,
            ..WorkerConfig::reader(&hosts)
        };
        Ok((secured.net, config))
    }

    /// The run: the one that is named, or the only one that the servers know. Empty: they know none.
    pub fn run(&self, net: &Transports, config: &WorkerConfig) -> Result<String, Failure> {
        if let Some(run) = self.run {
            return Ok(run.to_owned());
        }
        let runs = known_runs(net.clone(), config)?;
        match &runs[..] {
            [] => Ok(String::new()),
            [run] => Ok(run.name.clone()),
            several => {
                let names: Vec<&str> = several.iter().map(|run| run.name.as_str()).collect();
                Err(Failure::input(format!(
                    "the servers have the runs {}: choose one with --run",
                    names.join(", ")
                )))
            }
        }
    }
}
