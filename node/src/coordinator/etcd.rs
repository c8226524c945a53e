//! A cluster of etcd as the coordinator: it goes on when one of its members dies.

use super::{Coordinator, CoordinatorEntry, CoordinatorError, CoordinatorPage, CoordinatorWrite};
use crate::limits::{COORDINATOR_PAGE_KEYS, COORDINATOR_TIMEOUT, ETCD_MEMBERS_MAX, LEASE_TIMES};
use etcd_client::{
    Certificate, Client, Compare, CompareOp, ConnectOptions, Error, GetOptions, GetResponse, Identity,
    PutOptions, TlsOptions, Txn, TxnOp, WatchOptions,
};
use std::fs;
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use tokio::runtime::{Builder, Runtime};

/// Before the names of all keys, because others may use the cluster too.
const PREFIX: &str = "gannet/";
/// gRPC's code of an answer about a thing that is not there.
const NOT_FOUND: i32 = 5;

/// Whom a client of etcd trusts, and what it shows.
#[derive(Debug, Clone, Default)]
pub struct EtcdTls(TlsOptions);

impl EtcdTls {
    /// Trusts what the authorities in the file `ca` have signed. `name`: the name in the members' certificates, if it
    /// is not that of their addresses. `shown`: the client's own certificate and its key, in files.
    ///
    /// # Errors
    /// A file cannot be read.
    pub fn load(
        ca: &Path,
        name: Option<&str>,
        shown: Option<(&Path, &Path)>,
    ) -> Result<EtcdTls, CoordinatorError> {
        let read = |file: &Path| {
            fs::read(file).map_err(|error| CoordinatorError(format!("the file {}: {error}", file.display())))
        };
        let mut tls = TlsOptions::new().ca_certificate(Certificate::from_pem(read(ca)?));
        if let Some(name) = name {
            tls = tls.domain_name(name);
        }
        if let Some((cert, key)) = shown {
            tls = tls.identity(Identity::from_pem(read(cert)?, read(key)?));
        }
        Ok(EtcdTls(tls))
    }
}

/// A cluster of etcd as a coordinator (etcd's API, version 3). A call asks one member. If the member gives no answer,
/// the next call asks the next one.
///
/// etcd counts leases in whole seconds: a time is rounded up. It raises times below the length of about two of its
/// elections. A lease ends when etcd has revoked it, some time after it has run out.
///
/// ```no_run
/// use gannet_node::{Coordinator, EtcdCoordinator};
///
/// let members = ["10.0.0.1:2379", "10.0.0.2:2379", "10.0.0.3:2379"].map(str::to_owned);
/// let etcd = EtcdCoordinator::new(&members, None)?;
/// println!("{:?}", etcd.get("default/place/0")?);
/// # Ok::<(), gannet_node::CoordinatorError>(())
/// ```
pub struct EtcdCoordinator {
    members: Vec<String>,
    tls: Option<EtcdTls>,
    connection: Mutex<Connection>,
}

struct Connection {
    /// It moves bytes only while a call waits.
    runtime: Runtime,
    /// The member that is asked.
    at: usize,
    client: Option<Client>,
}

/// What a member answers to a call: the answer, or why there is none.
type Answer<T> = Result<T, Error>;

impl EtcdCoordinator {
    /// The cluster of these members (`HOST:PORT`). It connects with the first call. `None`: without encryption.
    ///
    /// # Errors
    /// There is no member or there are more than 16, or the system gives no event queue.
    pub fn new(members: &[String], tls: Option<EtcdTls>) -> Result<EtcdCoordinator, CoordinatorError> {
        if members.is_empty() || members.len() > ETCD_MEMBERS_MAX {
            let text =
                format!("{} members of etcd: from 1 to {ETCD_MEMBERS_MAX} are possible", members.len());
            return Err(CoordinatorError(text));
        }
        let runtime = Builder::new_current_thread().enable_all().build();
        let runtime =
            runtime.map_err(|error| CoordinatorError(format!("starting a client of etcd: {error}")))?;
        let connection = Mutex::new(Connection { runtime, at: 0, client: None });
        Ok(EtcdCoordinator { members: members.to_vec(), tls, connection })
    }

    fn options(&self) -> ConnectOptions {
        let options = ConnectOptions::new().with_connect_timeout(COORDINATOR_TIMEOUT);
        match &self.tls {
            Some(tls) => options.with_tls(tls.0.clone()),
            None => options,
        }
    }

    /// Asks a member.
    fn call<T>(&self, ask: impl AsyncFnOnce(&mut Client) -> Answer<T>) -> Result<T, CoordinatorError> {
        let mut connection = self.connection.lock().unwrap_or_else(PoisonError::into_inner);
        let Connection { runtime, at, client } = &mut *connection;
        let member = &self.members[*at];
        let asked = async {
            let client = match client {
                Some(client) => client,
                None => client.insert(Client::connect([self.url(member)], Some(self.options())).await?),
            };
            ask(client).await
        };
        let asked = runtime.block_on(async { tokio::time::timeout(COORDINATOR_TIMEOUT, asked).await });
        let why = match asked {
            Ok(Ok(answer)) => return Ok(answer),
            Ok(Err(error)) => error.to_string(),
            Err(_) => format!("it has not answered for {} s", COORDINATOR_TIMEOUT.as_secs_f32()),
        };
        let error = CoordinatorError(format!("member {member} of etcd: {why}"));
        (connection.client, connection.at) = (None, (connection.at + 1) % self.members.len());
        Err(error)
    }

    fn url(&self, member: &str) -> String {
        let scheme = if self.tls.is_some() { "https" } else { "http" };
        format!("{scheme}://{member}")
    }
}

impl Coordinator for EtcdCoordinator {
    fn get(&self, key: &str) -> Result<Option<CoordinatorEntry>, CoordinatorError> {
        let found: GetResponse = self.call(async |client| client.get(of(key), None).await)?;
        let entry = found.kvs().first().map(|known| CoordinatorEntry {
            value: known.value().to_vec(),
            version: known.mod_revision() as u64,
        });
        Ok(entry)
    }

    fn compare_and_set_all(&self, writes: &[CoordinatorWrite]) -> Result<Option<u64>, CoordinatorError> {
        let (mut compares, mut puts) = (Vec::new(), Vec::new());
        for CoordinatorWrite { key, version, value, lease } in writes {
            let key = of(key);
            compares.push(Compare::mod_revision(key.as_str(), CompareOp::Equal, *version as i64));
            let options = lease.map(|lease| PutOptions::new().with_lease(lease as i64));
            puts.push(TxnOp::put(key.as_str(), value.as_slice(), options));
        }
        let txn = Txn::new().when(compares).and_then(puts);
        self.call(async |client| {
            match client.txn(txn).await {
                Ok(done) if done.succeeded() => Ok(done.header().map(|header| header.revision() as u64)),
                Ok(_) => Ok(None),
                // The lease has ended.
                Err(Error::GRpcStatus(status)) if status.code() as i32 == NOT_FOUND => Ok(None),
                Err(error) => Err(error),
            }
        })
    }

    fn remove_all(&self, keys: &[(String, u64)]) -> Result<bool, CoordinatorError> {
        let compares = keys
            .iter()
            .map(|(key, version)| Compare::mod_revision(of(key), CompareOp::Equal, *version as i64));
        let removals = keys.iter().map(|(key, _)| TxnOp::delete(of(key), None));
        let txn = Txn::new().when(compares.collect::<Vec<_>>()).and_then(removals.collect::<Vec<_>>());
        Ok(self.call(async |client| client.txn(txn).await)?.succeeded())
    }

    fn grant(&self, ttl: Duration) -> Result<u64, CoordinatorError> {
        if ttl < LEASE_TIMES.0 || ttl > LEASE_TIMES.1 {
            let (least, most) = (LEASE_TIMES.0.as_secs_f64(), LEASE_TIMES.1.as_secs_f64());
            let text = format!("a lease of {} s: it must be from {least} to {most} s", ttl.as_secs_f64());
            return Err(CoordinatorError(text));
        }
        let seconds = ttl.as_secs_f64().ceil() as i64;
        let granted = self.call(async |client| client.lease_grant(seconds, None).await)?;
        Ok(granted.id() as u64)
    }

    fn keep_alive(&self, lease: u64) -> Result<bool, CoordinatorError> {
        // The call sends one sign of life, and fails if the answer says that the lease has ended.
        self.call(async |client| match client.lease_keep_alive(lease as i64).await {
            Ok(_) => Ok(true),
            Err(Error::LeaseKeepAliveError(_)) => Ok(false),
            Err(error) => Err(error),
        })
    }

    fn list(&self, prefix: &str, after: &str) -> Result<CoordinatorPage, CoordinatorError> {
        // The first key behind another one is that with a zero byte more.
        let begin = if after < prefix { of(prefix) } else { of(after) + "\0" };
        let options =
            GetOptions::new().with_range(behind(&of(prefix))).with_limit(COORDINATOR_PAGE_KEYS as i64);
        let found = self.call(async |client| client.get(begin.as_str(), Some(options)).await)?;
        let mut entries = Vec::new();
        for known in found.kvs() {
            let key = String::from_utf8_lossy(known.key());
            let entry =
                CoordinatorEntry { value: known.value().to_vec(), version: known.mod_revision() as u64 };
            entries.push((key.strip_prefix(PREFIX).unwrap_or(&key).to_owned(), entry));
        }
        let version = found.header().map_or(0, |header| header.revision() as u64);
        Ok(CoordinatorPage { entries, more: found.more(), version })
    }

    fn watch(&self, prefix: &str, since: u64, limit: Duration) -> Result<Option<u64>, CoordinatorError> {
        let from = WatchOptions::new().with_prefix().with_start_revision(since as i64 + 1);
        self.call(async |client| {
            let mut answers = client.watch(of(prefix), Some(from)).await?;
            let news = async {
                while let Some(answer) = answers.message().await? {
                    // A revision that etcd has forgotten ends the watch: there may have been changes.
                    if answer.canceled() || !answer.events().is_empty() {
                        return Ok(answer.header().map(|header| header.revision() as u64));
                    }
                }
                Ok(None)
            };
            // The call as a whole has a limit, above which the member counts as silent.
            let limit = limit.min(COORDINATOR_TIMEOUT / 2);
            tokio::time::timeout(limit, news).await.unwrap_or(Ok(None))
        })
    }
}

/// The first key behind all that begin with this prefix, which is not empty and ends with an ASCII character.
fn behind(prefix: &str) -> Vec<u8> {
    let mut end = prefix.as_bytes().to_vec();
    if let Some(last) = end.last_mut() {
        *last += 1;
    }
    end
}

/// The key in the cluster.
fn of(key: &str) -> String {
    format!("{PREFIX}{key}")
}
