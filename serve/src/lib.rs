//! Predictions over HTTP: saved models that answer requests in the Open Inference Protocol and in a plain form.
//!
//! [`serve`] loads the models and begins to answer. A thread looks at their folders, and others follow servers. A new
//! model takes the place of the former one between two requests.
#![forbid(unsafe_code)]

mod config;
mod counters;
mod depth;
mod error;
#[cfg(feature = "grpc")]
mod grpc;
mod http;
mod inference;
mod learn;
mod limits;
mod models;
mod scores;

pub use config::{MetricsPage, ModelSource, ServeConfig, TrafficShare};
pub use counters::Counters;
pub use error::{RequestError, ServeError};
pub use http::Serving;
pub use learn::{AskJob, JobStand, JoinLimits, KeeperLimits, LearnConfig, LearnCounters, LineForm};
pub use limits::Limits;
pub use models::{Catalog, FollowedServers, Following, ModelOrigin, NotesOfRun, Relay, ServedModel, Slot};
pub use scores::explanation;

use crate::http::App;
use crate::learn::Learning;
use crate::models::ModelWatch;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// Models that are served. [`stop`](Self::stop) ends it.
pub struct Server {
    serving: Serving,
    learning: Option<Arc<Learning>>,
    _watch: ModelWatch,
}

/// Loads the models and begins to answer requests. `counters` are what the page of metrics tells.
///
/// # Errors
/// A model cannot be loaded, settings contradict each other, or the system lacks something.
pub fn serve(
    mut config: ServeConfig,
    catalog: Arc<Catalog>,
    counters: Arc<Counters>,
) -> Result<Server, ServeError> {
    let watch = ModelWatch::start(catalog.clone())?;
    let learning = learning(&mut config, &catalog, &counters)?;
    let app = App {
        learning: learning.clone(),
        admission: http::Admission::new(&config.limits),
        catalog,
        counters,
        limits: config.limits.clone(),
        token: config.token.clone(),
        max_age: config.max_age,
        metrics: config.metrics.clone(),
    };
    Ok(Server { serving: Serving::start(config, app)?, learning, _watch: watch })
}

/// The folder that learns for the first model.
fn learning(
    config: &mut ServeConfig,
    catalog: &Catalog,
    counters: &Counters,
) -> Result<Option<Arc<Learning>>, ServeError> {
    let Some(learn) = config.learn.take() else { return Ok(None) };
    let model = catalog.slots()[0].current();
    counters.learns.store(true, Relaxed);
    let learning = Learning::start(learn, &model.saved, counters.learn.clone(), config.limits.requests)?;
    Ok(Some(Arc::new(learning)))
}

impl Server {
    /// The address of the listener.
    pub fn addr(&self) -> SocketAddr {
        self.serving.addr()
    }

    /// Accepts no further connection, and waits for the answers to requests that have begun.
    pub fn stop(self) {
        if let Some(learning) = &self.learning {
            learning.end_waits();
        }
        self.serving.stop();
    }
}
