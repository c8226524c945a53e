//! A coordinator that is an etcd cluster.

use crate::coordinator::{Coordinator, CoordinatorEntry, CoordinatorError};
use crate::limits::COORDINATOR_TIMEOUT;
use etcd_client::{Client, Compare, CompareOp, ConnectOptions, Error, PutOptions, Txn, TxnOp};
use std::future::Future;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use tokio::runtime::{Builder, Runtime};

/// An etcd cluster as the coordinator of jobs. A call waits at most for a second.
///
/// ```no_run
/// use gannet_node::{Coordinator, EtcdCoordinator};
///
/// let coordinator = EtcdCoordinator::new(["10.0.0.1:2379", "10.0.0.2:2379", "10.0.0.3:2379"])?;
/// let lease = coordinator.grant(std::time::Duration::from_secs(2))?;
/// coordinator.compare_and_set("job/owner/0", 0, b"me", Some(lease))?;
/// # Ok::<(), gannet_node::CoordinatorError>(())
/// ```
pub struct EtcdCoordinator {
    endpoints: Vec<String>,
    state: Mutex<EtcdState>,
}

/// The runtime that sends requests, and the client, if there is a connection.
struct EtcdState {
    runtime: Runtime,
    client: Option<Client>,
}

impl EtcdCoordinator {
    /// The cluster with members at these addresses, `host:port`. It connects with the first call.
    ///
    /// # Errors
    /// No address is given, or the system gives no runtime.
    pub fn new(
        endpoints: impl IntoIterator<Item = impl Into<String>>,
    ) -> Result<EtcdCoordinator, CoordinatorError> {
        let endpoints: Vec<String> = endpoints.into_iter().map(Into::into).collect();
        if endpoints.iter().all(String::is_empty) {
            return Err(CoordinatorError("etcd: no address is given".into()));
        }
        let runtime = Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| CoordinatorError(format!("etcd: no runtime: {error}")))?;
        Ok(EtcdCoordinator { endpoints, state: Mutex::new(EtcdState { runtime, client: None }) })
    }

    /// Makes a call. After an error the next call connects again: another member of the cluster may answer.
    fn call<T, F>(&self, call: impl FnOnce(Client) -> F) -> Result<T, CoordinatorError>
    where
        F: Future<Output = Result<T, Error>>,
    {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let EtcdState { runtime, client } = &mut *state;
        let known = client.take();
        let connected = async {
            let client = match known {
                Some(client) => client,
                None => {
                    let options = ConnectOptions::new().with_connect_timeout(COORDINATOR_TIMEOUT / 2);
                    Client::connect(&self.endpoints, Some(options)).await?
                }
            };
            let answer = call(client.clone()).await?;
            Ok::<_, Error>((client, answer))
        };
        let answered = runtime.block_on(async { tokio::time::timeout(COORDINATOR_TIMEOUT, connected).await });
        let at = self.endpoints.join(",");
        match answered {
            Ok(Ok((connected, answer))) => {
                *client = Some(connected);
                Ok(answer)
            }
            Ok(Err(error)) => Err(CoordinatorError(format!("etcd at {at}: {error}"))),
            Err(_) => {
                let seconds = COORDINATOR_TIMEOUT.as_secs_f64();
                Err(CoordinatorError(format!("etcd at {at}: no answer for {seconds} s")))
            }
        }
    }
}

/// Whether etcd says that a lease has ended.
fn has_no_lease(error: &Error) -> bool {
    matches!(error, Error::GRpcStatus(status) if status.message().contains("requested lease not found"))
}

impl Coordinator for EtcdCoordinator {
    fn get(&self, key: &str) -> Result<Option<CoordinatorEntry>, CoordinatorError> {
        let answer = self.call(|mut client| async move { client.get(key, None).await })?;
        Ok(answer.kvs().first().map(|entry| CoordinatorEntry {
            value: entry.value().to_vec(),
            version: entry.mod_revision() as u64,
        }))
    }

    fn compare_and_set(
        &self,
        key: &str,
        version: u64,
        value: &[u8],
        lease: Option<u64>,
    ) -> Result<Option<u64>, CoordinatorError> {
        let options = lease.map(|lease| PutOptions::new().with_lease(lease as i64));
        // A key that does not exist has revision 0.
        let compare = Compare::mod_revision(key, CompareOp::Equal, version as i64);
        let write = Txn::new().when([compare]).and_then([TxnOp::put(key, value, options)]);
        self.call(|mut client| async move {
            match client.txn(write).await {
                Ok(answer) if !answer.succeeded() => Ok(None),
                Ok(answer) => Ok(answer.header().map(|header| header.revision() as u64)),
                Err(error) if has_no_lease(&error) => Ok(None),
                Err(error) => Err(error),
            }
        })
    }

    fn grant(&self, ttl: Duration) -> Result<u64, CoordinatorError> {
        // etcd counts whole seconds. A longer lease only delays a backup.
        let seconds = ttl.as_millis().div_ceil(1000) as i64;
        let answer = self.call(|mut client| async move { client.lease_grant(seconds, None).await })?;
        Ok(answer.id() as u64)
    }

    fn keep_alive(&self, lease: u64) -> Result<bool, CoordinatorError> {
        let lease = lease as i64;
        self.call(|mut client| async move {
            let kept = async {
                let (mut keeper, mut answers) = client.lease_keep_alive(lease).await?;
                keeper.keep_alive().await?;
                Ok::<_, Error>(answers.message().await?.is_some_and(|answer| answer.ttl() > 0))
            };
            match kept.await {
                Ok(is_alive) => Ok(is_alive),
                // The client reports a lease that has ended as an error of the stream.
                Err(error) => match client.lease_time_to_live(lease, None).await {
                    Ok(left) if left.ttl() <= 0 => Ok(false),
                    _ => Err(error),
                },
            }
        })
    }
}
