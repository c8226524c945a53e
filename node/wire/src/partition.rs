//! Which partitions, and so which shards, belong to which server and thread.
//!
//! A partition is the unit of ownership. There are [`PARTITIONS`] of them, the same ones for all tables. A shard of a
//! table belongs to one partition, whatever the number of the table's shards. So the shards of all tables that are in
//! one partition have one owner.

use gannet_core::{SHARDS_DEFAULT, ShardSet};
use std::ops::Range;

/// Partitions of a job. Tables with more shards have several in each partition. Tables with fewer have none in some.
pub const PARTITIONS: u32 = 1024;

/// The partition of a shard in a table of `shards` shards, a power of two: the partition of the shard's highest hash.
pub fn partition_of(shard: u32, shards: u32) -> u32 {
    (((u64::from(shard) + 1) * u64::from(PARTITIONS) - 1) / u64::from(shards)) as u32
}

/// The shards of a new table for which the default number was asked, at servers with so many threads together: as few
/// as the threads use evenly, because each shard costs a file, a few mappings and about 28 KiB. That is one for each
/// thread if their number is a power of two, and else the power of two above twice their number.
///
/// ```
/// use gannet_wire::shards_for_threads;
///
/// assert_eq!([1, 2, 3, 4, 6, 16, 48, 300].map(shards_for_threads), [2, 2, 8, 4, 16, 16, 64, 64]);
/// ```
pub fn shards_for_threads(threads: usize) -> u32 {
    let even = if threads.is_power_of_two() { threads } else { 2 * threads };
    even.next_power_of_two().clamp(2, SHARDS_DEFAULT as usize) as u32
}

/// Part `index` of `parts` of a range.
fn share(range: Range<u32>, index: u32, parts: u32) -> Range<u32> {
    assert!(index < parts, "part {index} of {parts}");
    let length = u64::from(range.end - range.start);
    let at = |i: u32| range.start + (u64::from(i) * length / u64::from(parts)) as u32;
    at(index)..at(index + 1)
}

/// Which server has which partition.
///
/// ```
/// use gannet_wire::PartitionMap;
///
/// let map = PartitionMap::even(2);
/// assert_eq!(map.shards(1, 64).to_string(), "shards 32 to 63");
/// assert_eq!(map.shards_of_thread(1, 0, 2, 64).to_string(), "shards 32 to 47");
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PartitionMap {
    /// For each partition, the number of its server.
    owners: Vec<u32>,
}

impl PartitionMap {
    /// The partitions in `servers` ranges, as equal as possible, in the order of the servers.
    ///
    /// # Panics
    /// When `servers` is 0.
    pub fn even(servers: u32) -> PartitionMap {
        let mut owners = Vec::with_capacity(PARTITIONS as usize);
        for server in 0..servers {
            owners.resize(share(0..PARTITIONS, server, servers).end as usize, server);
        }
        assert_eq!(owners.len(), PARTITIONS as usize, "no servers");
        PartitionMap { owners }
    }

    /// The map of a job with `servers` servers, which begins on this thread.
    ///
    /// # Panics
    /// When `servers` is 0.
    pub fn of_job(servers: u32) -> PartitionMap {
        Partitioning::here().map(servers)
    }

    /// A map in which the partitions of each server are all over the table. For tests.
    #[cfg(any(test, feature = "test-support"))]
    pub fn scattered(servers: u32) -> PartitionMap {
        PartitionMap { owners: (0..PARTITIONS).map(|partition| partition.count_ones() % servers).collect() }
    }

    /// The partitions of a server, in ascending order.
    fn partitions(&self, server: u32) -> Vec<u32> {
        (0..PARTITIONS).filter(|partition| self.owners[*partition as usize] == server).collect()
    }

    /// A server's shards of a table of `shards` shards.
    pub fn shards(&self, server: u32, shards: u32) -> ShardSet {
        ShardSet::of((0..shards).filter(|shard| self.owners[partition_of(*shard, shards) as usize] == server))
    }

    /// A thread's shards of a table of `shards` shards. `(thread, threads)`: which of its server's threads.
    ///
    /// # Panics
    /// When `thread` is not below `threads`.
    pub fn shards_of_thread(&self, server: u32, thread: u32, threads: u32, shards: u32) -> ShardSet {
        let partitions = self.partitions(server);
        let own = share(0..partitions.len() as u32, thread, threads);
        let own = &partitions[own.start as usize..own.end as usize];
        ShardSet::of((0..shards).filter(|shard| own.binary_search(&partition_of(*shard, shards)).is_ok()))
    }
}

/// How the partitions of a job are divided among its servers.
#[derive(Debug, Clone, Copy)]
pub struct Partitioning {
    #[cfg(any(test, feature = "test-support"))]
    scattered: bool,
}

impl Partitioning {
    /// The way of jobs that begin on this thread.
    pub fn here() -> Partitioning {
        Partitioning {
            #[cfg(any(test, feature = "test-support"))]
            scattered: SCATTERED.get(),
        }
    }

    /// The map of `servers` servers.
    pub fn map(self, servers: u32) -> PartitionMap {
        #[cfg(any(test, feature = "test-support"))]
        if self.scattered {
            return PartitionMap::scattered(servers);
        }
        PartitionMap::even(servers)
    }
}

/// A set of shards as frames and files have it: the first shard of each run, and the one behind its last.
pub fn runs_of_set(set: &ShardSet) -> Vec<(u32, u32)> {
    set.runs().into_iter().map(|run| (run.start, run.end)).collect()
}

/// The set of these runs. `None` if a shard is not below `shards`, or twice in it.
pub fn set_of(runs: &[(u32, u32)], shards: u32) -> Option<ShardSet> {
    let ascending = runs.iter().all(|run| run.0 < run.1) && runs.windows(2).all(|two| two[0].1 <= two[1].0);
    let within = runs.last().is_none_or(|run| run.1 <= shards);
    (ascending && within).then(|| ShardSet::of(runs.iter().flat_map(|run| run.0..run.1)))
}

#[cfg(any(test, feature = "test-support"))]
thread_local! {
    static SCATTERED: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
}

/// With `scattered`, the partitions of jobs on this thread are scattered until the returned guard is dropped. For
/// simulations, in which all processes of a job are on one thread.
#[cfg(any(test, feature = "test-support"))]
pub fn scatter_partitions(scattered: bool) -> ScatteredPartitions {
    SCATTERED.set(scattered);
    ScatteredPartitions
}

/// Until it is dropped, partitions may be scattered.
#[cfg(any(test, feature = "test-support"))]
#[must_use = "partitions are scattered until it is dropped"]
#[derive(Debug)]
pub struct ScatteredPartitions;

#[cfg(any(test, feature = "test-support"))]
impl Drop for ScatteredPartitions {
    fn drop(&mut self) {
        SCATTERED.set(false);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_divided(map: &PartitionMap, shards: u32, servers: u32, threads: u32) {
        let mut all = Vec::new();
        for server in 0..servers {
            let own = map.shards(server, shards);
            let mut of_threads = Vec::new();
            for thread in 0..threads {
                let part = map.shards_of_thread(server, thread, threads, shards);
                of_threads.extend(part.iter());
            }
            assert_eq!(ShardSet::of(of_threads.iter().copied()), own);
            all.extend(of_threads);
        }
        assert_eq!(all.len(), shards as usize);
        assert_eq!(ShardSet::of(all), ShardSet::from(0..shards));
    }

    #[test]
    fn every_shard_has_one_owner_whatever_the_numbers() {
        for (shards, servers, threads) in
            [(64, 1, 1), (64, 3, 2), (2, 3, 4), (4096, 7, 5), (1, 1, 8), (1024, 64, 16)]
        {
            let even = PartitionMap::even(servers);
            is_divided(&even, shards, servers, threads);
            assert!(
                (0..servers).all(|server| even.shards(server, shards).len() as u32 <= shards / servers + 4)
            );
            is_divided(&PartitionMap::scattered(servers), shards, servers, threads);
        }
    }

    /// Data folders depend on it: which shards a server has may not change from one version to the next.
    #[test]
    fn servers_have_the_ranges_that_they_had_before_there_were_partitions() {
        for shards in [1, 2, 8, 64, 256, 1024] {
            for servers in 1..=130 {
                for server in 0..servers {
                    let before = ShardSet::from(share(0..shards, server, servers));
                    assert_eq!(PartitionMap::even(servers).shards(server, shards), before);
                }
            }
        }
    }

    #[test]
    fn shards_of_one_hash_range_are_in_one_partition() {
        assert_eq!((partition_of(0, 1), partition_of(0, 64), partition_of(63, 64)), (1023, 15, 1023));
        assert_eq!((partition_of(0, 4096), partition_of(3, 4096), partition_of(4, 4096)), (0, 0, 1));
        for key in 0..10_000 {
            let of = |shards| gannet_core::shard_of(gannet_core::hash(key), shards);
            assert_eq!(partition_of(of(1024), 1024), of(1024));
            assert_eq!(partition_of(of(4096), 4096), of(1024));
        }
    }
}
