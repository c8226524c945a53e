//! Tables and their images: rows, growth, names of pushes, fences, views.

mod admission;
mod damping;
mod fence;
mod glimpse;
mod growth;
mod model;
mod newer;
mod opened;
mod recut;
mod segments;
mod vectors;
mod view;
mod view_races;

#[path = "../viewing/mod.rs"]
mod viewing;
