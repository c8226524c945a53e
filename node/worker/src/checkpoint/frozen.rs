//! What the server threads say while they hold pushes back for a cut, and what they must still let in.

use crate::checkpoint::options::unexpected;
use crate::error::WorkerError;
use gannet_core::{DATA_PUSHERS, PushProgress, pusher_in_words};
use gannet_wire::messages::cuts::*;
use gannet_wire::share_pushers::worker_of_share;
use std::collections::{BTreeMap, BTreeSet};

/// A push that is not complete, and the start of the worker that sends it.
#[derive(Clone, PartialEq)]
pub(crate) struct TornPush {
    pub(crate) push: PushLimitV1,
    /// The same push, under the worker's own name.
    pub(crate) sender: TornPushV1,
}

/// What all threads have while they hold pushes back.
#[derive(Default, PartialEq)]
pub(crate) struct Frozen {
    pushes: BTreeMap<(String, u64), PushProgress>,
    /// For tables in synchronous steps: the lowest and the highest step of the threads.
    steps: BTreeMap<String, (u64, u64)>,
    /// Tables with shards on a thread where no worker keeps step.
    without_steps: BTreeSet<String>,
    pub(crate) held: Vec<PushLimitV1>,
    /// The last pushes of batches that reached some of the batch tables, with the tables that lack them.
    lacking: Vec<PushLimitV1>,
    /// Pushers of data whose end is held back.
    closing: BTreeSet<u64>,
    /// Pushers of data that is done, as the scheduler says.
    over: BTreeSet<u64>,
}

impl Frozen {
    pub(crate) fn of(replies: &[CutReplyV1], batch_tables: &[String]) -> Result<Frozen, WorkerError> {
        let mut all = Frozen::default();
        for reply in replies {
            let CutReplyV1::Frozen { tables, pushes, held, closing, over } = reply else {
                return Err(unexpected(reply));
            };
            for push in pushes {
                let Some(table) = tables.get(push.table as usize) else { return Err(unexpected(reply)) };
                let own = push.progress();
                let known = all.pushes.entry((table.name.clone(), push.pusher));
                known.and_modify(|known| known.add(&own)).or_insert(own);
            }
            for (name, step) in tables.iter().filter_map(|table| Some((&table.name, table.step?))) {
                let steps = all.steps.entry(name.clone()).or_insert((step, step));
                *steps = (steps.0.min(step), steps.1.max(step));
            }
            let without = tables.iter().filter(|table| table.uid != [0; 16] && table.step.is_none());
            all.without_steps.extend(without.map(|table| table.name.clone()));
            all.held.extend(held.iter().cloned());
            all.closing.extend(closing);
            all.over.extend(over);
        }
        all.lacking = limits_of_lacking(&all.pushes, batch_tables);
        Ok(all)
    }

    pub(crate) fn is_whole(&self) -> bool {
        let in_one_step =
            |(table, (low, high)): (&String, &(u64, u64))| low == high && !self.without_steps.contains(table);
        self.pushes.values().all(PushProgress::is_whole)
            && self.steps.iter().all(in_one_step)
            && self.lacking.is_empty()
            && self.held_before_last().next().is_none()
    }

    /// The last push of each pusher of which a thread holds back an earlier one, or the same: a server that came back
    /// with more threads may get a push later than other threads got the one after it.
    fn held_before_last(&self) -> impl Iterator<Item = PushLimitV1> + '_ {
        self.held.iter().filter_map(|held| {
            let last = self.pushes.get(&(held.table.clone(), held.pusher))?;
            let (incarnation, seq) = (last.incarnation, last.seq);
            let before = (held.incarnation, held.seq) <= (incarnation, seq);
            before.then(|| PushLimitV1 { incarnation, seq, ..held.clone() })
        })
    }

    /// The pushers of data whose end must be let in. Some threads have it already, and these pushers' last pushes seem
    /// incomplete without them.
    pub(crate) fn closes(&self) -> Vec<u64> {
        self.incomplete().intersection(&self.closing).copied().collect()
    }

    /// The pushers of data that is done, and whose last pushes seem incomplete: some threads have closed the data, and
    /// the worker that should have closed it on the others is dead.
    pub(crate) fn over(&self) -> Vec<u64> {
        self.incomplete().intersection(&self.over).copied().collect()
    }

    fn incomplete(&self) -> BTreeSet<u64> {
        let unfinished = self.pushes.values().filter(|push| !push.is_whole()).map(|push| push.pusher);
        unfinished.chain(self.lacking.iter().map(|limit| limit.pusher)).collect()
    }

    /// The pushes that are not complete on all their shards, or that some tables of their batch lack, with the starts
    /// of the workers that send them. A split of the data is left out: another worker trains it again.
    pub(crate) fn torn(&self) -> Vec<TornPush> {
        let is_torn = |of: &&PushProgress| !of.is_whole();
        let limit = |(table, _): &(String, u64), push: &PushProgress| PushLimitV1 {
            table: table.clone(),
            pusher: push.pusher,
            incarnation: push.incarnation,
            seq: push.seq,
        };
        let parts = self.pushes.iter().filter(|(_, push)| is_torn(push));
        let parts = parts.map(|(of, push)| (limit(of, push), push.done, push.unfinished));
        let lacking = self.lacking.iter().map(|limit| (limit.clone(), 0, false));
        parts
            .chain(lacking)
            .filter_map(|(push, done, unfinished)| self.torn_push(push, done, unfinished))
            .collect()
    }

    fn torn_push(&self, push: PushLimitV1, done: u64, unfinished: bool) -> Option<TornPush> {
        let (pusher, incarnation) = match worker_of_share(push.pusher) {
            Some(worker) => (worker, self.start_of(worker, push.incarnation)),
            None if push.pusher < DATA_PUSHERS => (push.pusher, push.incarnation),
            None => return None,
        };
        let table = push.table.clone();
        let sender = TornPushV1 { table, pusher, incarnation, seq: push.seq, done, unfinished };
        Some(TornPush { push, sender })
    }

    /// The newest start of a worker that a shard knows. Its share may be named by an earlier one: before the servers
    /// took their rows from a checkpoint.
    fn start_of(&self, worker: u64, share: u64) -> u64 {
        let known = self.pushes.values().filter(|push| push.pusher == worker).map(|push| push.incarnation);
        known.fold(share, u64::max)
    }

    /// A push or step that is not whole, in words.
    pub(crate) fn missing(&self) -> String {
        if let Some(((table, _), push)) = self.pushes.iter().find(|(_, push)| !push.is_whole()) {
            let who = sender_in_words(push.pusher);
            return format!("push {} of {who} to table {table:?}", push.seq);
        }
        if let Some(PushLimitV1 { table, pusher, seq, .. }) = self.lacking.first() {
            return format!("push {seq} of {} to table {table:?}", sender_in_words(*pusher));
        }
        if let Some(PushLimitV1 { table, pusher, seq, .. }) = self.held_before_last().next() {
            return format!("push {seq} of {} to table {table:?}", sender_in_words(pusher));
        }
        let step =
            self.steps.iter().find(|(table, (low, high))| low != high || self.without_steps.contains(*table));
        step.map_or_else(String::new, |(table, (_, high))| format!("step {high} of table {table:?}"))
    }

    /// What all threads should let in.
    pub(crate) fn limits(&self) -> (Vec<PushLimitV1>, Vec<CutStepV1>) {
        let push = |((table, pusher), push): (&(String, u64), &PushProgress)| PushLimitV1 {
            table: table.clone(),
            pusher: *pusher,
            incarnation: push.incarnation,
            seq: push.seq,
        };
        let unfinished = self.pushes.iter().filter(|(_, push)| !push.is_whole());
        // A batch that a table lacks comes with the table's next step, and so does the rest of a batch that some shards
        // have and others do not.
        let is_part =
            |table: &String| self.pushes.iter().any(|((of, _), push)| of == table && !push.is_whole());
        let lacks = |table: &String| is_part(table) || self.lacking.iter().any(|limit| limit.table == *table);
        let step = |(table, &(low, step)): (&String, &(u64, u64))| {
            let next = u64::from(low == step && lacks(table));
            CutStepV1 { table: table.clone(), step: step + next }
        };
        let limits = unfinished.map(push).chain(self.lacking.iter().cloned()).chain(self.held_before_last());
        (limits.collect(), self.steps.iter().map(step).collect())
    }
}

/// Whose pushes these are, in words.
fn sender_in_words(pusher: u64) -> String {
    match worker_of_share(pusher) {
        Some(worker) => format!("the fixed share of {}", pusher_in_words(worker)),
        None => pusher_in_words(pusher),
    }
}

/// The last push of each pusher of data, for each of these tables that has not begun it although another one has. Who
/// trains the data is about to push it, or to close the data.
pub(crate) fn limits_of_lacking(
    pushes: &BTreeMap<(String, u64), PushProgress>,
    tables: &[String],
) -> Vec<PushLimitV1> {
    let mut last = BTreeMap::<u64, (u64, u64)>::new();
    let of_batch = |table: &String, push: &PushProgress| {
        tables.contains(table) && push.pusher >= DATA_PUSHERS && push.seq > 0 && !push.closed
    };
    for ((_, pusher), push) in pushes.iter().filter(|((table, _), push)| of_batch(table, push)) {
        let last = last.entry(*pusher).or_default();
        *last = (push.incarnation, push.seq).max(*last);
    }
    let lacks = |(pusher, (incarnation, seq)): (u64, (u64, u64))| {
        tables.iter().filter_map(move |table| {
            let known = pushes.get(&(table.clone(), pusher));
            let has = known.is_some_and(|push| (push.incarnation, push.seq) >= (incarnation, seq));
            (!has).then(|| PushLimitV1 { table: table.clone(), pusher, incarnation, seq })
        })
    };
    last.into_iter().flat_map(lacks).collect()
}
