//! Predictions over HTTP: saved models that answer requests in the Open Inference Protocol and in a plain form.
//!
//! [`serve`] loads the models and begins to answer. A thread looks at their folders, and a new model takes the place of
//! the former one between two requests.
#![forbid(unsafe_code)]

mod config;
mod counters;
mod depth;
mod error;
#[cfg(feature = "grpc")]
mod grpc;
mod http;
mod inference;
mod limits;
mod models;
mod scores;

pub use config::{MetricsPage, ModelSource, ServeConfig, TrafficShare};
pub use counters::Counters;
pub use error::{RequestError, ServeError};
pub use http::Serving;
pub use limits::Limits;
pub use models::{Catalog, FollowedServers, Following, ModelOrigin, NotesOfRun, Relay, ServedModel, Slot};
pub use scores::explanation;

use crate::http::App;
use crate::models::ModelWatch;
use std::net::SocketAddr;
use std::sync::Arc;

/// Models that are served. [`stop`](Self::stop) ends it.
pub struct Server {
    serving: Serving,
    _watch: ModelWatch,
}

/// Loads the models and begins to answer requests. `counters` are what the page of metrics tells.
///
/// # Errors
/// A model cannot be loaded, settings contradict each other, or the system lacks something.
pub fn serve(
    config: ServeConfig,
    catalog: Arc<Catalog>,
    counters: Arc<Counters>,
) -> Result<Server, ServeError> {
    let watch = ModelWatch::start(catalog.clone())?;
    let app = App {
        admission: http::Admission::new(&config.limits),
        catalog,
        counters,
        limits: config.limits.clone(),
        token: config.token.clone(),
        max_age: config.max_age,
        metrics: config.metrics.clone(),
    };
    Ok(Server { serving: Serving::start(config, app)?, _watch: watch })
}

impl Server {
    /// The address of the listener.
    pub fn addr(&self) -> SocketAddr {
        self.serving.addr()
    }

    /// Accepts no further connection, and waits for the answers to requests that have begun.
    pub fn stop(self) {
        self.serving.stop();
    }
}
