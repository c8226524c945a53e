//! The models of `gannet serve` that follow servers.

use crate::failure::{Failure, PEER, STOPPED};
use crate::flags::security::SecurityArgs;
use crate::flags::serve::{NamedServers, ServeArgs};
use crate::job::servers_of_job::ServersOfJob;
use crate::runs::begin::split_notes;
use gannet::storage::Follower;
use gannet_serve::{FollowedServers, Following, ModelOrigin};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// How long a call waits for a server. The model of before is served meanwhile.
const PEER_TIMEOUT: Duration = Duration::from_secs(5);

/// How long the start waits for servers, and for the workers of the run.
const START_TIME: Duration = Duration::from_secs(60);

/// Between two tries at the start.
const AGAIN_AFTER: Duration = Duration::from_millis(500);

/// Begins to follow servers. It waits until they have the tables of a run.
pub fn followed(args: &ServeArgs, of: &NamedServers, stop: &AtomicBool) -> Result<ModelOrigin, Failure> {
    let (place, began) = (of.hosts.join(","), Instant::now());
    let mut told = false;
    loop {
        let why = match begin(args, of, &place) {
            Ok(origin) => return Ok(origin),
            Err(failure) if failure.code == PEER => failure,
            Err(failure) => return Err(failure),
        };
        if stop.load(Relaxed) {
            return Err(Failure::new(
                STOPPED,
                format!("stopped by a signal, before {place} could be followed"),
            ));
        }
        if began.elapsed() >= START_TIME {
            return Err(why);
        }
        if !told {
            notice!("gannet: waits for {place}: {why}");
            told = true;
        }
        std::thread::sleep(AGAIN_AFTER);
    }
}

fn begin(args: &ServeArgs, of: &NamedServers, place: &str) -> Result<ModelOrigin, Failure> {
    // The certificate may be that of HTTPS alone.
    let own = match args.tls_client.tls_ca {
        Some(_) => args.security.clone(),
        None => SecurityArgs { tls_cert: None, tls_key: None, ..args.security.clone() },
    };
    let servers = ServersOfJob {
        hosts: &of.hosts,
        coordinator: args.coordinator.as_deref(),
        run: args.run.as_deref(),
        transport: args.transport,
        io: args.io,
        security: (&own, &args.tls_client),
        peer_timeout: PEER_TIMEOUT,
    };
    let (net, config) = servers.reader()?;
    let run = servers.run(&net, &config)?;
    let follower = Follower::new(net, &config, &run);
    let mut following = Following::new(FollowedServers {
        place: place.to_owned(),
        follower,
        notes: |notes| split_notes(notes).0,
    });
    following.prepare().map_err(|error| Failure::new(PEER, error.to_string()))?;
    Ok(ModelOrigin::Servers(Arc::new(Mutex::new(following))))
}
