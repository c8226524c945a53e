//! `--metrics`: metrics of a running process, for Prometheus. Each part of the process writes its own metrics; this
//! module puts them on one page. docs/metrics.md says how to read them.

pub mod answers;
pub mod http;
pub mod process;
pub mod text;
pub mod training;

use crate::failure::{Failure, SYSTEM};
use crate::flags::MetricsArgs;
use crate::metrics::answers::Answers;
use crate::metrics::http::Endpoint;
use gannet::metrics::MetricsSink;
use gannet::server::ServerCounters;
use gannet::storage::Store;
use std::net::{SocketAddr, TcpListener, ToSocketAddrs};
use std::sync::{Arc, Mutex, PoisonError};

/// The metrics of this process, and the endpoint of `--metrics`.
pub struct Metrics {
    answers: Arc<Answers>,
    /// Stops when it is dropped.
    endpoint: Option<Endpoint>,
}

impl Metrics {
    /// Listens on the address of the flags, before anything else starts.
    ///
    /// # Errors
    /// The address is invalid, other machines can reach it without `--metrics-public`, or listening there fails.
    pub fn start(args: &MetricsArgs, role: &'static str) -> Result<Metrics, Failure> {
        let mut metrics = Metrics::without_endpoint(role);
        if let Some(addr) = &args.addr {
            metrics.endpoint = Some(listen(addr, args.public, metrics.answers.clone())?);
        }
        Ok(metrics)
    }

    /// The metrics of a process that has a server of pages for them.
    pub fn without_endpoint(role: &'static str) -> Metrics {
        let (started, parts, server) = (process::now(), Mutex::default(), Mutex::default());
        Metrics { answers: Arc::new(Answers { role, started, parts, server }), endpoint: None }
    }

    /// Writes the page.
    pub fn page(&self) -> Arc<dyn Fn() -> String + Send + Sync> {
        let answers = self.answers.clone();
        Arc::new(move || answers.metrics())
    }

    /// Adds the metrics of a part of the process, if anybody can fetch them from its endpoint.
    pub fn add(&self, write: impl Fn(&mut dyn MetricsSink) + Send + Sync + 'static) {
        if self.endpoint.is_some() {
            self.add_always(write);
        }
    }

    /// Adds the metrics of a part of the process.
    pub fn add_always(&self, write: impl Fn(&mut dyn MetricsSink) + Send + Sync + 'static) {
        self.answers.parts.lock().unwrap_or_else(PoisonError::into_inner).push(Box::new(write));
    }

    /// Adds the metrics of a store's images.
    pub fn add_store(&self, store: &Store) {
        let store = store.clone();
        self.add(move |page| {
            let limit = Some(store.memory_limit()).filter(|&limit| limit < u64::MAX);
            page.gauge(
                "gannet_store_used_bytes",
                "Bytes of the images of all tables, plus what is set aside for synchronous steps.",
                &[],
                store.memory_used() as f64,
            );
            page.gauge(
                "gannet_store_limit_bytes",
                "The limit of the bytes that images may take (--memory-limit); +Inf if there is none.",
                &[],
                limit.map_or(f64::INFINITY, |limit| limit as f64),
            );
        });
    }

    /// Adds a server's metrics, and makes `/healthz` depend on its threads.
    pub fn add_server(&self, counters: Arc<ServerCounters>) {
        *self.answers.server.lock().unwrap_or_else(PoisonError::into_inner) = Some(counters.clone());
        self.add(move |page| counters.tell(page));
    }
}

fn listen(text: &str, public: bool, answers: Arc<Answers>) -> Result<Endpoint, Failure> {
    let addrs = addresses(text)?;
    if let Some(open) = addrs.iter().find(|addr| !addr.ip().is_loopback() && !public) {
        return Err(Failure::input(format!(
            "--metrics {text}: other machines can reach {}, and nobody needs a token to read the metrics; use 127.0.0.1 or \
             [::1], or allow it with --metrics-public",
            open.ip()
        )));
    }
    let system = |error| Failure::new(SYSTEM, format!("--metrics {text}: cannot listen: {error}"));
    let listener = TcpListener::bind(&addrs[..]).map_err(system)?;
    let endpoint = Endpoint::start(listener, answers).map_err(system)?;
    crate::log::announce("metrics", &format!("http://{}/metrics", endpoint.addr()));
    Ok(endpoint)
}

fn addresses(text: &str) -> Result<Vec<SocketAddr>, Failure> {
    let port = text.rsplit_once(':').and_then(|(_, port)| port.parse::<u16>().ok());
    if port.is_none() {
        let text = format!("--metrics {text}: HOST:PORT is needed, with a port up to 65535");
        return Err(Failure::input(text));
    }
    match text.to_socket_addrs() {
        Ok(addrs) => Ok(addrs.collect()),
        Err(error) => Err(Failure::input(format!("--metrics {text}: no such address: {error}"))),
    }
}
