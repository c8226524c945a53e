//! What images say of backups: up to which command all of them have each shard.
//!
//! Who reads rows in an image does not wait for backups, as the answer to a request does. So a row that has changed
//! since then is not believed there. Images are always behind: they say what was so when the thread last looked.

use crate::replication::gate::ReplicationGate;
use crate::tables::table::ServerTable;
use crate::tables::table_list::TableList;
use gannet_core::Shards;

/// The number of a table, and the last command of each of its shards.
type TableCommands = (usize, Vec<u64>);

/// What the images of a thread say.
#[derive(Default)]
pub(crate) struct PublishedCommands {
    /// How many commands had been told when all that were told was published.
    published: u64,
    /// The last commands of the shards of each table, by its number, and how many had been told then. They are
    /// published when the backups have so many.
    marked: Option<(u64, Vec<TableCommands>)>,
}

impl PublishedCommands {
    /// Publishes what all backups have now.
    pub(crate) fn update(&mut self, tables: &TableList, gate: ReplicationGate) {
        let ReplicationGate { told, acknowledged, .. } = gate;
        let commands =
            |(number, table): (usize, &ServerTable)| Some((number, table.shards.as_ref()?.commands()));
        if acknowledged >= told {
            if self.published != told {
                tables.iter().filter_map(|table| table.shards.as_ref()).for_each(publish_all);
                (self.published, self.marked) = (told, None);
            }
            return;
        }
        if let Some((_, marked)) = self.marked.take_if(|(told, _)| acknowledged >= *told) {
            for (number, commands) in marked {
                if let Some(shards) = tables.get(number).and_then(|table| table.shards.as_ref()) {
                    shards.set_acknowledged(&commands);
                }
            }
        }
        self.marked.get_or_insert_with(|| (told, tables.numbered().filter_map(commands).collect()));
    }
}

/// All that has happened to these shards is acknowledged, or nobody knows of it.
pub(crate) fn publish_all(shards: &Shards) {
    shards.set_acknowledged(&shards.commands());
}
