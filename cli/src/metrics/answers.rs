//! What the endpoint of `--metrics` answers.

use crate::metrics::{process, text};
use gannet::metrics::MetricsSink;
use gannet::server::ServerCounters;
use std::sync::{Arc, Mutex, PoisonError};

type WriteMetrics = Box<dyn Fn(&mut dyn MetricsSink) + Send + Sync>;

/// The metrics and the health of this process, for the endpoint.
pub struct Answers {
    pub role: &'static str,
    pub started: f64,
    pub parts: Mutex<Vec<WriteMetrics>>,
    pub server: Mutex<Option<Arc<ServerCounters>>>,
}

impl Answers {
    pub fn metrics(&self) -> String {
        let mut page = text::TextPage::default();
        process::tell(self.role, self.started, &mut page);
        self.parts.lock().unwrap_or_else(PoisonError::into_inner).iter().for_each(|write| write(&mut page));
        page.text()
    }

    /// What is wrong with the process, if anything.
    pub fn trouble(&self) -> Option<String> {
        let server = self.server.lock().unwrap_or_else(PoisonError::into_inner);
        let (thread, silent) = server.as_ref()?.stuck()?;
        Some(format!("server thread {thread} has not looked at its links for {:.0} s", silent.as_secs_f64()))
    }
}
