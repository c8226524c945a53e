//! A cluster of etcd as the coordinator: it goes on when one of its members dies.

pub(crate) mod messages;
pub(crate) mod rpc;

use crate::coordinator::etcd::messages::{
    Compare, DeleteRangeRequest, Header, KeyValue, LeaseGrantRequest, LeaseKeepAliveRequest, PutRequest,
    RangeRequest, RequestOp, TxnRequest, WatchCreateRequest,
};
use crate::coordinator::etcd::rpc::{Member, RpcError};
use crate::limits::{COORDINATOR_PAGE_KEYS, ETCD_MEMBERS_MAX, LEASE_TIMES};
use gannet_wire::coordinator::{
    ConnectLimit, Coordinator, CoordinatorEntry, CoordinatorError, CoordinatorPage, CoordinatorWrite,
};
use gannet_wire::limits::COORDINATOR_TIMEOUT;
use std::fs;
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use tokio::runtime::{Builder, Runtime};
use tonic::transport::{Certificate, ClientTlsConfig, Identity};

/// Before the names of all keys, because others may use the cluster too.
const PREFIX: &str = "gannet/";

/// Whom a client of etcd trusts, and what it shows.
#[derive(Debug, Clone, Default)]
pub struct EtcdTls(ClientTlsConfig);

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
        let mut tls = ClientTlsConfig::new().ca_certificate(Certificate::from_pem(read(ca)?));
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
/// use gannet_wire::Coordinator;
/// use gannet_jobs::EtcdCoordinator;
///
/// let members = ["10.0.0.1:2379", "10.0.0.2:2379", "10.0.0.3:2379"].map(str::to_owned);
/// let etcd = EtcdCoordinator::new(&members, None)?;
/// println!("{:?}", etcd.get("default/place/0")?);
/// # Ok::<(), gannet_wire::CoordinatorError>(())
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
    client: Option<Member>,
    limit: ConnectLimit,
}

/// What a member answers to a call: the answer, or why there is none.
type Answer<T> = Result<T, RpcError>;

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
        let connection = Mutex::new(Connection { runtime, at: 0, client: None, limit: ConnectLimit::FIRST });
        Ok(EtcdCoordinator { members: members.to_vec(), tls, connection })
    }

    /// Asks a member.
    fn call<T>(&self, ask: impl AsyncFnOnce(&mut Member) -> Answer<T>) -> Result<T, CoordinatorError> {
        let mut connection = self.connection.lock().unwrap_or_else(PoisonError::into_inner);
        let Connection { runtime, at, client, limit } = &mut *connection;
        let member = &self.members[*at];
        let asked = async {
            let client = match client {
                Some(client) => client,
                None => {
                    let tls = self.tls.as_ref().map(|tls| tls.0.clone());
                    let connected = within(limit.get(), Member::connect(self.url(member), tls)).await;
                    *limit = limit.after(connected.is_ok());
                    client.insert(connected?)
                }
            };
            within(COORDINATOR_TIMEOUT, ask(client)).await
        };
        let why = match runtime.block_on(asked) {
            Ok(answer) => return Ok(answer),
            Err(why) => why,
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

/// Waits for an answer for at most this time. The error says why there is none.
async fn within<T>(limit: Duration, asked: impl Future<Output = Answer<T>>) -> Result<T, String> {
    match tokio::time::timeout(limit, asked).await {
        Ok(answer) => answer.map_err(|error| error.to_string()),
        Err(_) => Err(format!("it has not answered for {} s", limit.as_secs_f32())),
    }
}

impl Coordinator for EtcdCoordinator {
    fn get(&self, key: &str) -> Result<Option<CoordinatorEntry>, CoordinatorError> {
        let range = RangeRequest { key: of(key).into(), range_end: Vec::new(), limit: 0 };
        let found = self.call(async |member| member.range(range).await)?;
        Ok(found.kvs.into_iter().next().map(entry_of_etcd))
    }

    fn compare_and_set_all(&self, writes: &[CoordinatorWrite]) -> Result<Option<u64>, CoordinatorError> {
        let compare = writes.iter().map(|write| has_version(&write.key, write.version)).collect();
        let put = |CoordinatorWrite { key, value, lease, .. }: &CoordinatorWrite| {
            let (key, value, lease) = (of(key).into(), value.clone(), lease.unwrap_or(0) as i64);
            RequestOp { put: Some(PutRequest { key, value, lease }), delete_range: None }
        };
        let txn = TxnRequest { compare, success: writes.iter().map(put).collect() };
        self.call(async |member| match member.txn(txn).await {
            Ok(done) if done.succeeded => Ok(Some(revision(done.header.as_ref()))),
            Ok(_) => Ok(None),
            // The lease has ended.
            Err(error) if error.is_not_found() => Ok(None),
            Err(error) => Err(error),
        })
    }

    fn remove_all(&self, keys: &[(String, u64)]) -> Result<bool, CoordinatorError> {
        let compare = keys.iter().map(|(key, version)| has_version(key, *version)).collect();
        let delete = |(key, _): &(String, u64)| RequestOp {
            put: None,
            delete_range: Some(DeleteRangeRequest { key: of(key).into() }),
        };
        let txn = TxnRequest { compare, success: keys.iter().map(delete).collect() };
        Ok(self.call(async |member| member.txn(txn).await)?.succeeded)
    }

    fn grant(&self, ttl: Duration) -> Result<u64, CoordinatorError> {
        if ttl < LEASE_TIMES.0 || ttl > LEASE_TIMES.1 {
            let (least, most) = (LEASE_TIMES.0.as_secs_f64(), LEASE_TIMES.1.as_secs_f64());
            let text = format!("a lease of {} s: it must be from {least} to {most} s", ttl.as_secs_f64());
            return Err(CoordinatorError(text));
        }
        let seconds = ttl.as_secs_f64().ceil() as i64;
        let asked = LeaseGrantRequest { ttl: seconds };
        let granted = self.call(async |member| member.lease_grant(asked).await)?;
        match granted.error.is_empty() {
            true => Ok(granted.id as u64),
            false => Err(CoordinatorError(format!("etcd grants no lease: {}", granted.error))),
        }
    }

    fn keep_alive(&self, lease: u64) -> Result<bool, CoordinatorError> {
        let asked = LeaseKeepAliveRequest { id: lease as i64 };
        let kept = self.call(async |member| member.lease_keep_alive(asked).await)?;
        match kept {
            Some(kept) => Ok(kept.ttl > 0),
            None => Err(CoordinatorError("etcd ended a request about a lease without an answer".into())),
        }
    }

    fn list(&self, prefix: &str, after: &str) -> Result<CoordinatorPage, CoordinatorError> {
        // The first key behind another one is that with a zero byte more.
        let key = if after < prefix { of(prefix) } else { of(after) + "\0" };
        let range_end = end_of_prefix(&of(prefix));
        let range = RangeRequest { key: key.into(), range_end, limit: COORDINATOR_PAGE_KEYS as i64 };
        let found = self.call(async |member| member.range(range).await)?;
        let mut entries = Vec::new();
        for known in found.kvs {
            let key = String::from_utf8_lossy(&known.key);
            entries.push((key.strip_prefix(PREFIX).unwrap_or(&key).to_owned(), entry_of_etcd(known)));
        }
        let version = revision(found.header.as_ref());
        Ok(CoordinatorPage { entries, more: found.more, version })
    }

    fn watch(&self, prefix: &str, since: u64, limit: Duration) -> Result<Option<u64>, CoordinatorError> {
        let (key, start_revision) = (of(prefix), since as i64 + 1);
        let create = WatchCreateRequest { range_end: end_of_prefix(&key), key: key.into(), start_revision };
        self.call(async |member| {
            let mut answers = member.watch(create).await?;
            let news = async {
                while let Some(answer) = answers.message().await? {
                    // A revision that etcd has forgotten ends the watch: there may have been changes.
                    if answer.canceled || !answer.events.is_empty() {
                        return Ok(Some(revision(answer.header.as_ref())));
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

/// The condition that a key has this version.
fn has_version(key: &str, version: u64) -> Compare {
    let (key, mod_revision) = (of(key).into(), Some(version as i64));
    Compare { result: Compare::EQUAL, target: Compare::MOD, key, mod_revision }
}

fn entry_of_etcd(known: KeyValue) -> CoordinatorEntry {
    CoordinatorEntry { value: known.value, version: known.mod_revision as u64 }
}

fn revision(header: Option<&Header>) -> u64 {
    header.map_or(0, |header| header.revision as u64)
}

/// The first key behind all that begin with this prefix, which is not empty and ends with an ASCII character.
fn end_of_prefix(prefix: &str) -> Vec<u8> {
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
