//! How many rows the tables of an estimator had on the servers at the end of its last call. No call takes a row away,
//! so fewer rows mean that a server has lost some between two calls. (A connection sees by itself what happens while it
//! lasts.)

use super::servers::EstimatorServers;
use crate::failure::{CallFailure, Kind};
use gannet::table::TableId;
use gannet::{Schema, Transports, Worker};

/// Tables that are open: their ids and names.
pub type Opened<'a> = [(TableId, &'a str)];

/// Opens the tables of an estimator.
///
/// # Errors
/// The servers are lost, or have a table of this name and another schema.
pub fn open<'a>(
    worker: &mut Worker<Transports>,
    schemas: &'a [Schema],
) -> Result<Vec<(TableId, &'a str)>, CallFailure> {
    schemas.iter().map(|schema| Ok((worker.open_table(schema)?, &*schema.name))).collect()
}

/// The rows of each table. `None`: there was no call yet.
#[derive(Debug, Default)]
pub struct KeptRows(Option<Vec<u64>>);

impl KeptRows {
    /// Refuses to go on if rows are gone.
    ///
    /// # Errors
    /// Rows are gone, or the servers are lost.
    pub fn check(
        &self,
        worker: &mut Worker<Transports>,
        opened: &Opened<'_>,
        servers: &EstimatorServers,
    ) -> Result<(), CallFailure> {
        let Some(kept) = &self.0 else { return Ok(()) };
        for (&(table, name), &before) in opened.iter().zip(kept) {
            let now = worker.status(table)?.stats.rows;
            if now < before {
                return Err(gone(&format!("{}.{name}", servers.name()), (now, before), servers));
            }
        }
        Ok(())
    }

    /// Remembers the number of rows.
    ///
    /// # Errors
    /// The servers are lost.
    pub fn note(&mut self, worker: &mut Worker<Transports>, opened: &Opened<'_>) -> Result<(), CallFailure> {
        let rows = opened.iter().map(|&(table, _)| Ok(worker.status(table)?.stats.rows));
        self.0 = Some(rows.collect::<Result<_, CallFailure>>()?);
        Ok(())
    }
}

fn gone(table: &str, (now, before): (u64, u64), servers: &EstimatorServers) -> CallFailure {
    let servers = servers.addresses();
    CallFailure::new(
        Kind::RowsGone,
        format!(
            "table {table:?} has {now} rows on the servers {servers}, and had {before} at the end of the last call: a \
             server was started again without its rows; fit anew (warm_start=False), and give the servers a data_dir"
        ),
    )
}
