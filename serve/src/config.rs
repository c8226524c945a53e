//! What is served, and how.

use crate::learn::LearnConfig;
use crate::limits::Limits;
use crate::models::ModelOrigin;
use gannet::security::{TlsServer, Token};
use std::fmt;
use std::net::TcpListener;
use std::sync::Arc;
use std::time::Duration;

/// A model by the name that is in addresses, and where it comes from.
#[derive(Clone)]
pub struct ModelSource {
    /// The name: visible characters of ASCII, but none of `/%?#`.
    pub name: String,
    /// Where the model comes from.
    pub origin: ModelOrigin,
}

/// A share of the requests to one model that another model answers.
#[derive(Clone, Debug, PartialEq)]
pub struct TrafficShare {
    /// The name of the model that answers.
    pub name: String,
    /// Its share in percent, from 0 to 100.
    pub percent: f64,
}

/// Writes a page of metrics.
pub type MetricsPage = Arc<dyn Fn() -> String + Send + Sync>;

/// The settings of [`serve`](fn@crate::serve).
pub struct ServeConfig {
    /// Where requests arrive.
    pub listener: TcpListener,
    /// The token that requests must carry (`Authorization: Bearer TOKEN`).
    pub token: Option<Token>,
    /// The certificate, for HTTPS.
    pub tls: Option<TlsServer>,
    /// A model that is older than this makes `/readyz` answer 503.
    pub max_age: Option<Duration>,
    /// What clients may take.
    pub limits: Limits,
    /// The page of `/metrics`.
    pub metrics: MetricsPage,
    /// How the process learns from requests. `None`: it does not.
    pub learn: Option<LearnConfig>,
}

impl fmt::Debug for ServeConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServeConfig").field("listener", &self.listener).field("limits", &self.limits).finish()
    }
}
