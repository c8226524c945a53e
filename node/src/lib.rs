//! The roles: a [`Server`] owns shards and answers, a [`Worker`] pulls and pushes.
//!
//! A server is an acceptor and one thread a core; each thread owns a contiguous part of the shards of every table and
//! its links. A worker has one link to each thread of each server. On a link frames are handled and answered in order:
//! a pull sees every push sent before it on the link. docs/wire.md has the frames byte by byte.
#![forbid(unsafe_code)]

mod control;
mod cut;
mod error;
#[doc(hidden)]
pub mod hostile;
mod keyed;
pub mod limits;
mod message;
mod newer;
mod partition;
mod runs;
mod scheduler;
mod server;
mod sparing;
mod sync;
mod tally;
mod token;
mod vectors;
mod worker;

pub use cut::{Chunk, Cut};
pub use error::{Refusal, ServerError, WorkerError};
pub use gannet_core::{
    Admission, Applied, DATA_PUSHERS, GrowError, Growing, Growth, Init, NO_CLOCK, OpenError, Program,
    PullError, PushError, PushName, PusherStatus, Read, Reduce, SHARDS_DEFAULT, Schema, Segment, Segments,
    Shards, Stats, Step, Store, TableUid, Term, Vectors, Write, hash, pieces, prefetch, shard_of,
};
pub use gannet_optim as optim;
pub use gannet_transport as transport;
pub use partition::share;
pub use runs::{CLIENT, Decided, Registry, Run, RunAlone, RunId, RunMember, RunsError, Setting, Want};
pub use scheduler::book::{Given, Orders};
pub use scheduler::feeding::{Board, FedCount, Feeding, Stock};
pub use scheduler::holdings::{Holder, TableRecord};
pub use scheduler::member::{Doing, Life, Member, Standing, Told, Work};
pub use scheduler::plan::{Plan, PlanFile, Task};
pub use scheduler::{LedgerError, forget_job};
pub use server::identities::open_whole;
pub use server::incarnations::CounterError;
pub use server::{LocalServer, Served, Server, ServerConfig, SessionLimits};
pub use sync::{Membership, Merge, SyncMode, Together};
pub use tally::{BUCKETS, Buckets, Count, Histogram, Page, ServerTally, WorkerTally, bucket};
pub use token::{Token, TokenError};
pub use worker::{
    Attendance, CacheConfig, Counters, DataName, FeedLink, Hands, JobStatus, Joined, NEXT_INCARNATION,
    NO_INCARNATION, Offer, OneSided, PullId, Pulled, PushId, RowCache, RunSeat, RunWanted, Saw, Seat,
    Staleness, TableId, TableStatus, Text, WaitingFor, Worker, WorkerBuilder, WorkerConfig,
};
