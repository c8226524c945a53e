//! The models of `gannet serve` that follow servers.

use crate::failure::{Failure, PEER, STOPPED, SYSTEM};
use crate::flags::serve::{NamedServers, ServeArgs};
use crate::job::servers_of_job::ServersOfJob;
use crate::runs::begin::split_notes;
use crate::security;
use crate::serve::security_of_client;
use gannet::server::{MirrorServer, ServerConfig};
use gannet::storage::Follower;
use gannet_serve::{FollowedServers, Following, ModelOrigin, Relay};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// How long a call waits for a server. The model of before is served meanwhile.
const PEER_TIMEOUT: Duration = Duration::from_secs(5);

/// How long the start waits for servers, and for the workers of the run.
const START_TIME: Duration = Duration::from_secs(60);

/// Between two tries at the start.
const AGAIN_AFTER: Duration = Duration::from_millis(500);

/// Starts the server that answers pulls, if one is wanted.
pub fn mirror(args: &ServeArgs) -> Result<Option<Arc<MirrorServer>>, Failure> {
    let Some(listen) = &args.pulls else { return Ok(None) };
    if args.follow.len() > 1 {
        return Err(Failure::input("--pulls: it has the rows of one job: give --follow once"));
    }
    let net = args.transport.transport.net(args.io);
    let secured = security::of_server(net, ("--pulls", listen), &args.security, &args.tls_server)?;
    let config = ServerConfig { token: secured.token, ..ServerConfig::new(listen) };
    let server = MirrorServer::start(secured.net, config)
        .map_err(|error| Failure::new(SYSTEM, format!("--pulls {listen}: {error}")))?;
    Ok(Some(Arc::new(server)))
}

/// Begins to follow servers. It waits until they have the tables of a run.
pub fn followed(
    args: &ServeArgs,
    of: &NamedServers,
    mirror: Option<&Arc<MirrorServer>>,
    stop: &AtomicBool,
) -> Result<ModelOrigin, Failure> {
    let (place, began) = (of.hosts.join(","), Instant::now());
    let mut told = false;
    loop {
        let why = match begin(args, of, mirror, &place) {
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

fn begin(
    args: &ServeArgs,
    of: &NamedServers,
    mirror: Option<&Arc<MirrorServer>>,
    place: &str,
) -> Result<ModelOrigin, Failure> {
    let own = security_of_client(args);
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
        relay: mirror
            .cloned()
            .map(|mirror| -> Relay { Box::new(move |cut, age| mirror.take_over(cut, age)) }),
    });
    following.prepare().map_err(|error| Failure::new(PEER, error.to_string()))?;
    Ok(ModelOrigin::Servers(Arc::new(Mutex::new(following))))
}
