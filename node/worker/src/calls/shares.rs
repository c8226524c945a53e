//! The place of a worker in its fixed share of the data: where it goes on when its servers come from a checkpoint.
//!
//! A worker with a fixed share can name its pushes by the batches of the share. A checkpoint then says how many
//! batches it has. After a restore the worker goes on with the next one.

use crate::calls::tables::status_parts;
use crate::error::WorkerError;
use crate::requests::names::{DataName, TableId};
use crate::worker::Worker;
use gannet_transport::Net;
use gannet_wire::incarnation::NO_INCARNATION;
use gannet_wire::messages::control::{RestoredShareV1, StatusV2};
use gannet_wire::share_pushers::share_pusher;

/// The place in a fixed share of the data, and the names of the pushes from there on. [`Worker::begin_share`] has an
/// example.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SharePlace {
    pusher: u64,
    incarnation: u64,
    batches: u64,
}

impl SharePlace {
    /// Batches of the share before this place, counted over all passes.
    pub fn batches(&self) -> u64 {
        self.batches
    }

    /// The name of a push from here on, counted from 1. Each batch has one push to each table.
    pub fn name(&self, push: u64) -> DataName {
        let seq = self.batches + push;
        DataName { pusher: self.pusher, incarnation: self.incarnation, seq, clock: seq }
    }
}

impl<N: Net> Worker<N> {
    /// Begins the worker's fixed share of the data. With `go_on` the place is behind the last batch that the
    /// checkpoint has, if all servers took these tables from one and the share has pushed nothing since. Otherwise the
    /// share begins at its first batch, and the servers forget its earlier place.
    ///
    /// If a checkpoint has a batch in some tables only, the worker trains that batch again. The tables that have it
    /// drop the second push.
    ///
    /// ```
    /// # use gannet_core::{Schema, Write};
    /// # use gannet_optim::{Add, Rule};
    /// # use gannet_server::{Server, ServerConfig};
    /// # use gannet_worker::{Worker, WorkerConfig};
    /// # use gannet_transport::multi::Transports;
    /// # let server = Server::start(Transports::new(), ServerConfig::new("127.0.0.1:0"))?;
    /// # let config = WorkerConfig::builder([server.addr()]).incarnation(1).build();
    /// # let mut worker = Worker::connect(Transports::new(), config)?;
    /// # let table = worker.open_table(&Schema::scalar("clicks", Rule::Add(Add)))?;
    /// let share = worker.begin_share(&[table], true)?;
    /// assert_eq!(share.batches(), 0); // the server does not come from a checkpoint
    ///
    /// let cut = std::sync::Arc::new(worker.cut(table, &[7]));
    /// let seq = worker.next_seq(table);
    /// let named = (seq, Some(share.name(1)));
    /// let push = worker.begin_push_named(table, cut, Write::Gradient, vec![1.0], None, named)?;
    /// worker.finish_push(push)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// A request was refused, or a peer is lost for good.
    pub fn begin_share(&mut self, tables: &[TableId], go_on: bool) -> Result<SharePlace, WorkerError> {
        let (pusher, incarnation) = (share_pusher(self.links.config.pusher), self.links.config.incarnation);
        let mut restored = Vec::new();
        for &table in tables.iter().filter(|_| go_on) {
            let parts = status_parts(self, table)?;
            restored.push(restored_place(pusher, parts.into_iter().filter(|part| part.shards > 0)));
        }
        let place = restored.into_iter().collect::<Option<Vec<_>>>().and_then(|tables| lowest_share(&tables));
        if let Some((incarnation, batches)) = place {
            return Ok(SharePlace { pusher, incarnation, batches });
        }
        for &table in tables.iter().filter(|_| incarnation != NO_INCARNATION) {
            // A checkpoint that is saved before the first push must not have the earlier place.
            self.close_data(table, pusher, incarnation - 1)?;
        }
        Ok(SharePlace { pusher, incarnation, batches: 0 })
    }
}

/// The last push of a share that the checkpoint has, from what the threads say of one table: its incarnation and
/// number. (0, 0): the checkpoint has none. `None`: the rows are not those of the checkpoint.
fn restored_place(pusher: u64, parts: impl Iterator<Item = StatusV2>) -> Option<(u64, u64)> {
    let mut place = None;
    for part in parts {
        let known: Vec<RestoredShareV1> = part.restored?;
        let own = known.iter().find(|known| known.pusher == pusher);
        let own = own.map_or((0, 0), |own| (own.incarnation, own.seq));
        // A thread without it has had a later push.
        if *place.get_or_insert(own) != own {
            return None;
        }
    }
    place
}

/// The place that all tables have passed, under the incarnation of the tables that have a push.
fn lowest_share(tables: &[(u64, u64)]) -> Option<(u64, u64)> {
    let incarnation = tables.iter().map(|&(incarnation, _)| incarnation).max().filter(|&last| last > 0)?;
    let of_it = |&(of, seq): &(u64, u64)| if of == incarnation { seq } else { 0 };
    let same = tables.iter().all(|&(of, _)| of == incarnation || of == 0);
    same.then(|| (incarnation, tables.iter().map(of_it).min().unwrap_or(0)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(restored: Option<&[(u64, u64, u64)]>) -> StatusV2 {
        let share =
            |&(pusher, incarnation, seq): &(u64, u64, u64)| RestoredShareV1 { pusher, incarnation, seq };
        let restored = restored.map(|all| all.iter().map(share).collect());
        StatusV2 { rows: 0, bytes: 0, shards: 1, pushers: Vec::new(), restored }
    }

    #[test]
    fn the_place_is_known_while_all_threads_have_the_rows_of_the_checkpoint() {
        let place = |parts: Vec<StatusV2>| restored_place(9, parts.into_iter());
        let (have, other) = (Some(&[(9, 4, 17), (8, 4, 18)][..]), Some(&[(8, 4, 18)][..]));
        assert_eq!(place(vec![part(have), part(have)]), Some((4, 17)));
        assert_eq!(place(vec![part(other), part(other)]), Some((0, 0)));
        // The share has pushed to one thread; one server does not come from the checkpoint; there is no thread.
        assert_eq!(place(vec![part(have), part(other)]), None);
        assert_eq!(place(vec![part(have), part(None)]), None);
        assert_eq!(place(Vec::new()), None);
    }

    #[test]
    fn the_share_goes_on_behind_the_batches_that_all_tables_have() {
        assert_eq!(lowest_share(&[(4, 17)]), Some((4, 17)));
        assert_eq!(lowest_share(&[(4, 17), (4, 16)]), Some((4, 16)));
        assert_eq!(lowest_share(&[(4, 1), (0, 0)]), Some((4, 0)));
        assert_eq!(lowest_share(&[(0, 0), (0, 0)]), None);
        assert_eq!(lowest_share(&[(4, 17), (3, 17)]), None);
    }
}
