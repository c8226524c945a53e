//! Tables and their images: rows, growth, names of pushes, fences, mapped shards.

mod address_ranges;
mod admission;
mod copy_fill;
mod cut;
mod damping;
mod eviction;
mod fence;
mod forgotten;
mod growth;
mod mapped_shards;
mod mapped_shards_races;
mod model;
mod open_shards;
mod pull_newer;
mod recut;
mod remote_row_reader;
mod replay;
mod segments;
mod told;
mod vectors;
mod watched_keys;

#[path = "rules/free_rows.rs"]
mod free_rows;
#[path = "../viewing/mod.rs"]
mod viewing;
