//! Which of the servers of a configuration decides what: who keeps the registry of a run, who says who is dead.

use crate::config::worker_config::WorkerConfig;

/// The server that decides which workers are dead. All workers of a run have the same one, in whatever order they name
/// the servers.
pub(crate) fn deciding_server(config: &WorkerConfig) -> Option<&String> {
    let named = config.registry.as_ref().filter(|_| config.places.is_none());
    named.or_else(|| first_registrar(config))
}

/// The servers that may keep a registry of runs, each once, in the order of text: all workers ask them in this order.
/// Where backups may take the places of servers, it is the server of place 0.
pub(crate) fn registrars(config: &WorkerConfig) -> Vec<&String> {
    let of_places = config.places.is_some().then_some(1);
    let mut servers: Vec<&String> = config.servers.iter().take(of_places.unwrap_or(usize::MAX)).collect();
    servers.sort();
    servers.dedup();
    servers
}

/// The first of them. It is asked at each turn of a worker, so nothing is sorted for it.
pub(crate) fn first_registrar(config: &WorkerConfig) -> Option<&String> {
    if config.places.is_some() { config.servers.first() } else { config.servers.iter().min() }
}

/// The configuration for asking a server about runs.
pub(crate) fn of_registry(config: &WorkerConfig, server: &str) -> WorkerConfig {
    WorkerConfig { servers: vec![server.to_owned()], one_thread: true, secondary: true, ..config.clone() }
}

#[cfg(test)]
mod tests {
    use super::first_registrar;
    use super::registrars;
    use crate::config::worker_config::Places;
    use crate::config::worker_config::WorkerConfig;
    use gannet_jobs::MemoryCoordinator;
    use std::sync::Arc;
    use std::time::Duration;

    /// Whoever asks for the first one gets what whoever asks for all gets first.
    #[test]
    fn the_first_registrar_is_the_first_of_all() {
        for servers in [vec![], vec!["b:1"], vec!["b:1", "a:2", "b:1"], vec!["c:3", "b:1", "a:2"]] {
            let config = WorkerConfig::new(servers.iter().map(|addr| (*addr).to_owned()), 1, 1);
            assert_eq!(first_registrar(&config), registrars(&config).first().copied());
            let places = Places {
                coordinator: Arc::new(MemoryCoordinator::new(Arc::new(|| Duration::ZERO))),
                job: "job".into(),
            };
            let config = WorkerConfig { places: Some(places), ..config };
            assert_eq!(first_registrar(&config), registrars(&config).first().copied());
            assert_eq!(first_registrar(&config).map(String::as_str), servers.first().copied());
        }
    }
}
