//! Flags about metrics.

use clap::Args;

/// Where numbers about the process can be fetched while it runs.
#[derive(Args, Debug, Clone, Default)]
#[command(next_help_heading = "Metrics")]
pub struct MetricsArgs {
    /// Serve http://HOST:PORT/metrics (Prometheus text) and /healthz. Port 0 chooses a port, which standard error says.
    #[arg(id = "metrics", long = "metrics", value_name = "HOST:PORT")]
    pub addr: Option<String>,
    /// Allow an address for --metrics that other machines can reach. Readers see the names of tables, and counts.
    #[arg(id = "metrics-public", long = "metrics-public", requires = "metrics")]
    pub public: bool,
}

impl MetricsArgs {
    /// The text of these flags, for a process that this one starts.
    pub fn flags(&self) -> Vec<String> {
        let addr = self.addr.iter().map(|addr| format!("--metrics={addr}"));
        addr.chain(self.public.then(|| "--metrics-public".to_owned())).collect()
    }
}
