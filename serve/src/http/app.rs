//! What the answers to all requests share.

use super::admission::{Admission, Admitted};
use super::body;
use crate::config::MetricsPage;
use crate::counters::Counters;
use crate::error::RequestError;
use crate::learn::Learning;
use crate::limits::Limits;
use crate::models::{Catalog, Chosen};
use axum::http::{HeaderMap, header};
use gannet::security::Token;
use std::sync::Arc;
use std::time::Duration;

/// The state of a process that serves.
pub struct App {
    /// The models.
    pub catalog: Arc<Catalog>,
    /// What is counted.
    pub counters: Arc<Counters>,
    /// Who may begin.
    pub admission: Admission,
    /// The limits.
    pub limits: Limits,
    /// The token that requests must carry.
    pub token: Option<Token>,
    /// Models that are older make the process unready.
    pub max_age: Option<Duration>,
    /// The page of metrics.
    pub metrics: MetricsPage,
    /// The folder that learns, if there is one.
    pub learning: Option<Arc<Learning>>,
}

impl App {
    /// Lets a request for predictions begin.
    ///
    /// # Errors
    /// Its token is wrong, it is too large, or there are too many others.
    pub fn admit(&self, headers: &HeaderMap) -> Result<Admitted, RequestError> {
        self.check_token(headers)?;
        body::announced(headers, self.limits.body_bytes)?;
        self.admission.enter()
    }

    /// The model of a request whether it is ready. Who has no token learns no names of others.
    ///
    /// # Errors
    /// There is no such model, or not this version of it.
    pub fn ready(&self, name: &str, version: Option<&str>, has_token: bool) -> Result<Chosen, RequestError> {
        let hidden = |_| RequestError::NotFound("there is no such model".to_owned());
        let found = self.catalog.find(name, version);
        if has_token { found } else { found.map_err(hidden) }
    }

    /// Checks the token of a request.
    ///
    /// # Errors
    /// It is missing or wrong.
    pub fn check_token(&self, headers: &HeaderMap) -> Result<(), RequestError> {
        let Some(token) = &self.token else { return Ok(()) };
        let given = headers.get(header::AUTHORIZATION).map(|value| value.as_bytes());
        let given = given.and_then(|value| value.split_at_checked(7));
        match given {
            Some((scheme, secret)) if scheme.eq_ignore_ascii_case(b"Bearer ") && token.is(secret) => Ok(()),
            _ => Err(RequestError::Unauthorized),
        }
    }
}
