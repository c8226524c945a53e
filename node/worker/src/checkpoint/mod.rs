//! Cuts of all tables of a job: the protocol between the coordinator of a checkpoint and the server threads.
//!
//! ```text
//! coordinator                       each thread of each server
//!   freeze       ->                 holds back every push that it has not begun
//!                <-  progress       what it has of the last push of each pusher
//!   admit        ->                 lets in the pushes that another thread has begun
//!                <-  progress       ... until every push is whole
//!   torn         ->                 says which pushers of incomplete pushes are gone
//!                <-  gone
//!   give up      ->                 fences those that are gone everywhere
//!   mark         ->                 marks the cut of each shard, and begins to write its rows
//!                <-  marked         positions, cursors, states
//!   release      ->                 lets all pushes in
//!   poll         ->                 writes on, a slice between other requests
//!                <-  written        the files
//! ```
//! All threads hold back new pushes from the first mark to the last. So no push is in the cut of one shard and missing
//! in that of another. A thread knows only the last push of a pusher. But whoever has a worker's last push, whole, has
//! all its earlier ones: the worker sees to that (`calls/cut_client.rs`). So a cut has the pushes of each pusher up to
//! one sequence number.
//!
//! A push stays incomplete for good if its pusher is gone. When every thread says so, the coordinator has the pusher
//! fenced in every shard. A fence takes the place of the push in the shard's entry of the pusher. So the push is ended
//! on all shards alike: those that have rows of it keep them, and none applies more. A coordinator may die when only
//! some threads have the fence. The next one finds that, and fences the pusher on the others before it marks the cut.
//!
//! A follower cuts in the same way, several times a second. It names where its last cut ends, and reads the rows above
//! it block by block instead of having them written.

pub(crate) mod coordinator;
pub(crate) mod cut_manifest;
pub(crate) mod follower;
pub(crate) mod frozen;
pub(crate) mod half_fenced;
pub(crate) mod options;
pub(crate) mod owner;
pub(crate) mod torn;
