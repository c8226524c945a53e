//! Followers of the cluster: whatever breaks, a copy that has taken a cut is the tables after exactly the pushes up to
//! the cut's cursors, bit for bit, and has all that was acknowledged before.

use super::history::{Acked, History};
use super::mortal::{self, Mortal};
use super::restored::{compare, must_have};
use crate::saved::Rows;
use gannet_core::Cursor;
use gannet_sim::Sim;
use gannet_worker::{FollowedCut, Follower, WorkerConfig, WorkerError};
use std::collections::BTreeMap;
use std::time::Duration;

/// A follower, and its copy of each table.
pub struct Copying {
    follower: Follower<Sim>,
    tables: BTreeMap<String, Rows>,
}

/// What followers have shown.
#[derive(Debug, Default, Clone, Copy)]
pub struct Followed {
    pub full: u64,
    pub deltas: u64,
    pub deletions: u64,
    pub failed: u64,
}

impl Followed {
    pub fn add(&mut self, other: Followed) {
        let Followed { full, deltas, deletions, failed } = other;
        self.full += full;
        self.deltas += deltas;
        self.deletions += deletions;
        self.failed += failed;
    }
}

impl Copying {
    pub fn new(sim: &Sim, addrs: Vec<String>) -> Copying {
        let config = WorkerConfig { peer_timeout: Duration::from_secs(5), ..WorkerConfig::reader(addrs) };
        Copying { follower: Follower::new(sim.clone(), &config, ""), tables: BTreeMap::new() }
    }

    /// Takes the next cut.
    pub fn take(&mut self) -> Result<FollowedCut, WorkerError> {
        let cut = self.follower.cut(&[])?;
        if cut.is_full {
            self.tables.clear();
        }
        for of in &cut.rows {
            let schema = &cut.tables[of.table];
            let table = self.tables.entry(schema.name.clone()).or_default();
            match &of.rows {
                None => of.keys.iter().for_each(|key| drop(table.remove(key))),
                Some(rows) => {
                    let bits = |row: &[f32]| row.iter().map(|float| float.to_bits()).collect();
                    table.extend(of.keys.iter().copied().zip(rows.chunks(schema.floats()).map(bits)));
                }
            }
        }
        Ok(cut)
    }

    /// Checks the copy after a cut that began when these pushes were acknowledged.
    pub fn check(&self, cut: &FollowedCut, history: &History, acked: &Acked) {
        for (number, job) in history.tables.iter().enumerate() {
            let name = &job.schema.name;
            let place = cut.tables.iter().position(|table| table.name == *name);
            let place = place.unwrap_or_else(|| panic!("{name} is missing"));
            let of_table = cut.cursors.iter().filter(|(table, _)| *table == place);
            let cursors: Vec<Cursor> = of_table.map(|(_, cursor)| *cursor).collect();
            must_have(number, &cursors, acked);
            let copy = self.tables.get(name).cloned().unwrap_or_default();
            compare(&copy, &history.rows(number, &cursors), name);
        }
    }
}

/// A follower that is killed at one of its waits, perhaps while pushes are held back for it.
pub fn cut_short(net: Mortal, addrs: Vec<String>) {
    let mut follower = Follower::new(net, &WorkerConfig::reader(addrs), "");
    let _ = mortal::run(|| follower.cut(&[]).and_then(|_| follower.cut(&[])));
}

/// What a cut has shown.
pub fn shown(cut: &FollowedCut) -> Followed {
    let deletions = cut.rows.iter().filter(|of| of.rows.is_none()).map(|of| of.keys.len() as u64).sum();
    Followed { full: u64::from(cut.is_full), deltas: u64::from(!cut.is_full), deletions, failed: 0 }
}
