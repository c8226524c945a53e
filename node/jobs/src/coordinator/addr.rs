//! How a user names a coordinator.

/// Where a coordinator is.
///
/// ```
/// use gannet_jobs::CoordinatorAddr;
///
/// let scheduler = CoordinatorAddr::parse("10.0.0.9:7700");
/// assert_eq!(scheduler, Ok(CoordinatorAddr::Scheduler("10.0.0.9:7700".into())));
/// assert!(matches!(CoordinatorAddr::parse("etcds://a:2379,b:2379"), Ok(CoordinatorAddr::Etcd { has_tls: true, .. })));
/// assert!(CoordinatorAddr::parse("10.0.0.9").is_err());
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CoordinatorAddr {
    /// A `gannet scheduler`, as `HOST:PORT`.
    Scheduler(String),
    /// A cluster of etcd, as `etcd://HOST:PORT,HOST:PORT,...` or `etcds://...`.
    Etcd {
        /// `HOST:PORT` of each.
        members: Vec<String>,
        /// They speak TLS.
        has_tls: bool,
    },
}

impl CoordinatorAddr {
    /// The coordinator that a text names.
    ///
    /// # Errors
    /// It names none: what is wanted.
    pub fn parse(text: &str) -> Result<CoordinatorAddr, String> {
        let etcd = text.strip_prefix("etcd://").map(|members| (members, false));
        let Some((members, has_tls)) = etcd.or(text.strip_prefix("etcds://").map(|members| (members, true)))
        else {
            return match has_port(text) {
                true => Ok(CoordinatorAddr::Scheduler(text.to_owned())),
                false => Err("HOST:PORT of a `gannet scheduler` is needed, for example 127.0.0.1:7700, or \
                     etcd://HOST:PORT,HOST:PORT,..."
                    .into()),
            };
        };
        let members: Vec<String> = members.split(',').map(str::to_owned).collect();
        match members.iter().find(|member| !has_port(member)) {
            None => Ok(CoordinatorAddr::Etcd { members, has_tls }),
            Some(member) => Err(format!(
                "{member:?} is no HOST:PORT of a member of etcd; write for example \
                 etcd://10.0.0.1:2379,10.0.0.2:2379,10.0.0.3:2379"
            )),
        }
    }

    /// The addresses of its processes.
    pub fn hosts(&self) -> &[String] {
        match self {
            CoordinatorAddr::Scheduler(addr) => std::slice::from_ref(addr),
            CoordinatorAddr::Etcd { members, .. } => members,
        }
    }
}

/// Whether an address has a host and a port.
fn has_port(addr: &str) -> bool {
    addr.rsplit_once(':').is_some_and(|(host, port)| !host.is_empty() && port.parse::<u16>().is_ok())
}
