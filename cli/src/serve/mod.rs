//! `gannet serve`: answers requests for predictions until SIGTERM or SIGINT, then ends those that have begun.

mod follow;
mod learn;
mod own_job;

use crate::checkpoint_place::{directory_and_number, open_checkpoints};
use crate::failure::{Failure, SYSTEM};
use crate::flags::security::SecurityArgs;
use crate::flags::serve::{NamedFolder, ServeArgs};
use crate::metrics::Metrics;
use crate::model::saves;
use crate::server::raise_descriptors;
use crate::{security, signals};
use gannet::server::MirrorServer;
use gannet_serve::{Catalog, Counters, Limits, ModelOrigin, ModelSource, ServeConfig, TrafficShare, serve};
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// The most bytes that --request-bytes allows.
const BODY_BYTES_MAX: u64 = 1 << 30;

/// The most bytes of the bodies of all requests, in bodies of the largest size.
const BODIES: usize = 32;

fn limits(args: &ServeArgs) -> Result<Limits, Failure> {
    let defaults = Limits::default();
    if args.request_bytes.as_u64() > BODY_BYTES_MAX {
        return Err(Failure::input("--request-bytes: at most 1GiB is possible"));
    }
    let body_bytes = args.request_bytes.as_u64() as usize;
    Ok(Limits {
        threads: args.threads.map_or(defaults.threads, |threads| threads as usize),
        connections: args.connections as usize,
        requests: args.requests as usize,
        body_bytes,
        bodies_bytes: defaults.bodies_bytes.max(BODIES * body_bytes),
        time: Duration::from_secs_f64(args.request_time),
    })
}

/// The token and the certificate that are shown to servers. Without --tls-ca the certificate is that of HTTPS alone.
fn security_of_client(args: &ServeArgs) -> SecurityArgs {
    match args.tls_client.tls_ca {
        Some(_) => args.security.clone(),
        None => SecurityArgs { tls_cert: None, tls_key: None, ..args.security.clone() },
    }
}

/// Where the models come from: folders first, then checkpoints, then servers.
fn sources(
    args: &ServeArgs,
    mirror: Option<&Arc<MirrorServer>>,
    stop: &AtomicBool,
) -> Result<Vec<ModelSource>, Failure> {
    let named = |name: &Option<String>| name.clone().unwrap_or_else(|| args.name.clone());
    let name = |of: &NamedFolder| named(&of.name);
    let folder =
        |of: &NamedFolder| ModelSource { name: name(of), origin: ModelOrigin::Folder(of.folder.clone()) };
    let mut all: Vec<ModelSource> = args.model.iter().map(folder).collect();
    if let (Some(folder), Some(first)) = (&args.learn.learn, all.first_mut()) {
        first.origin = learn::learned(first.origin.clone(), folder)?;
    }
    for of in &args.checkpoint {
        let (place, number) = directory_and_number(&of.folder);
        let directory = open_checkpoints(&place)?;
        let place = place.display().to_string();
        all.push(ModelSource {
            name: name(of),
            origin: ModelOrigin::Checkpoints { place, directory, number },
        });
    }
    for of in &args.follow {
        all.push(ModelSource { name: named(&of.name), origin: follow::followed(args, of, mirror, stop)? });
    }
    Ok(all)
}

/// Runs the command.
pub fn run_serve(args: &ServeArgs) -> Result<(), Failure> {
    let (tls, token) = security::of_http(("--listen", &args.listen), &args.security, &args.tls_server)?;
    let stop = signals::stop_flag()?;
    raise_descriptors();
    let limits = limits(args)?;
    let own_job = learn::own_job(args)?;
    let learn = learn::config(args, own_job.as_ref())?;
    let mirror = follow::mirror(args)?;
    let models = sources(args, mirror.as_ref(), &stop)?;
    let splits =
        args.split.iter().map(|(name, percent)| TrafficShare { name: name.clone(), percent: *percent });
    let splits: Vec<TrafficShare> = splits.collect();
    let listener = TcpListener::bind(&args.listen)
        .map_err(|error| Failure::new(SYSTEM, format!("--listen {}: cannot listen: {error}", args.listen)))?;
    let catalog = Arc::new(Catalog::load(&models, &splits)?);
    for slot in catalog.slots() {
        if let ModelOrigin::Folder(folder) = &slot.origin {
            saves::warn_of_early_end(folder, slot.current().saved.reading.ended.as_deref());
        }
    }
    let counters = Arc::new(Counters::default());
    let metrics = Metrics::without_endpoint("serve");
    let told = (catalog.clone(), counters.clone());
    metrics.add_always(move |page| told.1.tell(&told.0, page));
    let scheme = if tls.is_some() { "https" } else { "http" };
    let config = ServeConfig {
        listener,
        token,
        tls,
        max_age: args.max_age.map(Duration::from_secs_f64),
        limits,
        metrics: metrics.page(),
        learn,
    };
    let server = serve(config, catalog.clone(), counters)?;
    for slot in catalog.slots() {
        let (model, source) = (slot.current(), &slot.origin);
        notice!(
            "gannet: model {:?} from {source}: {}, version {}, {} rows",
            slot.name,
            model.saved.shape().model,
            model.version,
            model.saved.rows
        );
    }
    say!("gannet serve listening on {scheme}://{}", server.addr());
    if let Some(mirror) = &mirror {
        say!("gannet serve answers pulls on {}", mirror.addr());
    }
    let learned = own_job.map_or(Ok(()), |job| job.run(&stop));
    if let Err(why) = &learned {
        notice!("gannet: no more is learned, and predictions go on: {why}");
    }
    signals::wait_for_signal(&stop)?;
    server.stop();
    say!("gannet serve stopped");
    learned
}
