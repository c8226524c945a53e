//! Flags about logs, which every command has.

use clap::Args;

/// What is logged on standard error, and how.
#[derive(Args, Debug, Clone, Default)]
#[command(next_help_heading = "Logs")]
pub struct LogArgs {
    /// What to log: off, error, warn, info, debug, trace, or by module: warn,gannet_server=debug. Default: GANNET_LOG,
    /// else warn.
    #[arg(id = "log", long = "log", global = true, value_name = "LEVEL")]
    pub level: Option<String>,
    /// Make every line on standard error a JSON object: logs, progress and warnings.
    #[arg(id = "log-json", long = "log-json", global = true)]
    pub json: bool,
}

impl LogArgs {
    /// The text of these flags, for a process that this one starts.
    pub fn flags(&self) -> Vec<String> {
        let level = self.level.iter().map(|level| format!("--log={level}"));
        level.chain(self.json.then(|| "--log-json".to_owned())).collect()
    }
}
