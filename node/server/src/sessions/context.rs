//! What a session needs of its thread, and what it keeps for its worker.

use crate::counters::server::ThreadCounters;
use crate::peers::buffers::RequestBuffers;
use crate::peers::keysets::Keysets;
use crate::peers::pusher::Pusher;
use crate::places::incarnations::Incarnations;
use crate::places::states::StateHolders;
use crate::replication::gate::ReplicationGate;
use crate::requests::backups;
use crate::requests::states::tell_states;
use crate::requests::subscriptions::Subscriptions;
use crate::server_tables::ServerTables;
use gannet_jobs::runs::registry::Registry;
use gannet_jobs::scheduler::jobs::Schedulers;
use gannet_transport::Link;
use gannet_wire::log_limiter::LogLimiter;
use gannet_wire::messages::control::HelloV1;
use std::time::Duration;

/// A connection that has said who it is: what the acceptor hands to a thread.
pub(crate) struct GreetedConnection<S> {
    pub(crate) link: Link<S>,
    pub(crate) hello: HelloV1,
    pub(crate) hello_id: u64,
}

/// What a session keeps for its worker between requests.
pub(crate) struct WorkerState {
    pub(crate) pusher: Pusher,
    pub(crate) keysets: Keysets,
    pub(crate) subscriptions: Subscriptions,
}

/// What a session needs of its thread.
pub(crate) struct RequestContext<'a> {
    pub(crate) tables: &'a mut ServerTables,
    pub(crate) scratch: &'a mut RequestBuffers,
    pub(crate) counters: &'a ThreadCounters,
    pub(crate) log_limiter: &'a mut LogLimiter,
    /// In thread 0.
    pub(crate) scheduler: Option<&'a mut Schedulers>,
    pub(crate) runs: Option<&'a mut Registry>,
    pub(crate) incarnations: Option<&'a mut Incarnations>,
    /// What time it is.
    pub(crate) now: &'a dyn Fn() -> Duration,
}

impl RequestContext<'_> {
    /// What may leave now. Tells backups the changed states first, so that the answers of this turn wait for them.
    pub(crate) fn gate(&mut self) -> ReplicationGate {
        if let (Some(scheduler), Some(incarnations)) =
            (self.scheduler.as_deref_mut(), self.incarnations.as_deref_mut())
        {
            let runs = self.runs.as_deref_mut();
            tell_states(self.tables, StateHolders { scheduler, runs, incarnations });
        }
        backups::gate(self.tables, self.now)
    }
}
