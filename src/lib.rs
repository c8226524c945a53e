//! Gannet: a parameter server for sparse models.
//!
//! A [`Server`] owns the shards of hash-partitioned tables and runs the optimizer next to the rows. A [`Worker`] pulls
//! rows and pushes sparse gradients over shared memory, RDMA or TCP. Each push is applied exactly once, also when links
//! break, and when a server is killed and started again on its data folder.
//!
//! ```
#![doc = include_str!("../examples/pull_push.rs")]
//! ```
//!
//! # Map
//! The names that every program needs are here. The others are in modules, by subject:
//!
//! | module | what it holds |
//! |---|---|
//! | [`table`] | what a table is: its schema, segments, initial values, admission; what pulls and pushes say |
//! | [`optim`] | update rules (SGD, FTRL, Adam and so on), rate schedules, clipping |
//! | [`server`] | a server's settings, limits, counters and errors |
//! | [`worker`] | a worker's settings, pipelined pulls and pushes, cached rows, errors |
//! | [`sync`] | how workers keep step: asp, ssp, bsp |
//! | [`job`] | a job of several workers: the scheduler's client, heartbeats, splits of the data |
//! | [`runs`] | which run's rows the servers hold, and who trains it |
//! | [`storage`] | shards in this process, where their images live, checkpoints |
//! | [`transport`] | tcp, shared memory, RDMA |
//! | [`security`] | tokens and TLS |
//! | [`metrics`] | counters, for a monitoring system |
//! | [`train`] | readers of data, models, training loops, saved models |
//!
//! The command `gannet` is a crate of its own, in cli/. ARCHITECTURE.md is the map of the source. docs/ has the
//! promises (docs/consistency.md), the formats, and pages for users.
#![forbid(unsafe_code)]

/// Readers, models and training loops: what `gannet train` runs.
pub use gannet_train as train;

pub use gannet_core::{Read, Schema, Write};
pub use gannet_optim::Rule;
pub use gannet_server::{Server, ServerConfig};
pub use gannet_transport::multi::Transports;
pub use gannet_worker::{Worker, WorkerConfig};

/// Update rules: what the optimizer does to a row of floats.
///
/// ```
/// use gannet::Rule;
/// use gannet::optim::{Adam, Ftrl};
///
/// let ftrl = Rule::Ftrl(Ftrl { alpha: 0.1, beta: 1.0, l1: 0.0, l2: 0.0 });
/// assert_eq!(ftrl.floats(1), 2); // z and n
/// ftrl.check()?;
/// let adam = Rule::Adam(Adam { lr: -1.0, beta1: 0.9, beta2: 0.999, eps: 1e-8, decay: 0.0 });
/// assert!(adam.check().is_err());
/// # Ok::<(), gannet::optim::RuleError>(())
/// ```
pub mod optim {
    pub use gannet_optim::*;
}

/// What a table is, and what pulls and pushes say about its rows.
///
/// ```
/// use gannet::optim::{Ftrl, GradientTransform, RowAdaGrad};
/// use gannet::table::{Init, Schema, Segment};
/// use gannet::Rule;
///
/// // A row of a click model: one linear weight, and a factor of 16 weights with an optimizer of its own.
/// let linear = Rule::Ftrl(Ftrl { alpha: 0.1, beta: 1.0, l1: 0.0, l2: 0.0 });
/// let factor = Segment {
///     dim: 16,
///     rule: Rule::RowAdaGrad(RowAdaGrad { lr: 0.05, eps: 1e-8, initial_accumulator: 0.1 }),
///     shaping: GradientTransform::default(),
///     init: Init::Zero,
/// };
/// let schema = Schema { more: vec![factor], ..Schema::scalar("clicks", linear) };
/// schema.check()?;
/// assert_eq!(schema.weights(), 17);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub mod table {
    pub use gannet_core::{
        Admission, Applied, Capacity, Eviction, EvictionError, Init, PusherStatus, Read, RowType,
        SHARDS_DEFAULT, SKETCH_BYTES_DEFAULT, Schema, SchemaError, Segment, Segments, Write, hash, init_row,
        initial_weights, mix, shard_of,
    };
    pub use gannet_wire::shards_for_threads;
    pub use gannet_worker::{TableId, TableStatus};
}

/// A server: its settings, limits, counters and errors.
///
/// ```
/// use gannet::server::{Server, ServerConfig};
/// use gannet::Transports;
///
/// let server = Server::start(Transports::new(), ServerConfig::new("127.0.0.1:0"))?;
/// println!("workers connect to {}", server.addr());
/// assert!(server.is_running());
/// server.stop()?;
/// # Ok::<(), gannet::server::ServerError>(())
/// ```
pub mod server {
    pub use gannet_server::{
        MirrorServer, RestoreError, RestoreSource, Restored, Server, ServerConfig, ServerCounters,
        ServerError, ServerStats, SessionLimits, check_held_tables, restore_folder,
    };
}

/// A worker: its settings, pipelined pulls and pushes, cached rows, errors.
///
/// [`Worker::pull`] and [`Worker::push`] wait for their answers. A training loop keeps several batches in flight:
///
/// ```
/// use gannet::optim::Sgd;
/// use gannet::{Read, Rule, Schema, Server, ServerConfig, Transports, Worker, WorkerConfig, Write};
/// use std::sync::Arc;
///
/// let server = Server::start(Transports::new(), ServerConfig::new("127.0.0.1:0"))?;
/// let config = WorkerConfig::builder([server.addr()]).worker(0).build();
/// let mut worker = Worker::connect(Transports::new(), config)?;
/// let table = worker.open_table(&Schema::scalar("clicks", Rule::Sgd(Sgd { lr: 0.5 })))?;
///
/// // Unique keys, put into the order of their shards. Values travel in that order.
/// let keys = Arc::new(worker.cut(table, &[7, 42]));
/// let pull = worker.begin_pull(table, keys.clone(), Read::Weights, Vec::new(), true)?;
/// // ... begin the pulls of the next batches, compute ...
/// let mut rows = worker.finish_pull(pull)?.values;
/// rows.fill(1.0); // the gradients
/// let seq = worker.next_seq(table);
/// // The servers kept the keys of the pull, so the push sends none.
/// worker.begin_push(table, keys, Write::Gradient, rows, Some(pull), seq)?;
/// worker.drain()?;
///
/// let mut weights = [0.0; 2];
/// worker.pull(table, &[7, 42], Read::Weights, &mut weights)?;
/// assert_eq!(weights, [-0.5, -0.5]);
/// server.stop()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub mod worker {
    pub use gannet_core::CLIENTS;
    pub use gannet_wire::{Chunk, NEXT_INCARNATION, NO_INCARNATION, Refusal, ShardedKeys};
    pub use gannet_worker::limits::CACHE_BYTES_MIN;
    pub use gannet_worker::{
        CacheConfig, CacheUse, Counters, DataName, OneSided, PullId, Pulled, PushId, PushRows, RowCache,
        SharePlace, WireType, Worker, WorkerBuilder, WorkerConfig, WorkerCounters, WorkerError,
    };
}

/// How workers keep step over a table: asp, ssp and bsp (docs/consistency.md).
///
/// ```
/// use gannet::sync::{SyncConfig, SyncMode};
/// use std::time::Duration;
///
/// // Worker 0 of 4: no pull misses more than 8 steps of any worker.
/// let config = SyncConfig {
///     rank: 0,
///     workers: 4,
///     mode: SyncMode::Ssp(8),
///     worker_timeout: Duration::from_secs(30),
///     strict: false,
/// };
/// assert_eq!(config.mode.name(), "ssp:8");
/// // worker.join(table, config)?; then worker.tick(table)? after each step, and worker.leave(table)? at the end.
/// ```
pub mod sync {
    pub use gannet_wire::limits::BSP_WORKERS_MAX;
    pub use gannet_wire::{Merge, StepReduce, SyncConfig, SyncMode};
    pub use gannet_worker::{Staleness, WaitingFor};
}

/// A job of several workers: the client of its scheduler, heartbeats, splits of the data.
///
/// A whole job in one program, whose workers get their data from a client:
///
/// ```no_run
#[doc = include_str!("../examples/in_graph.rs")]
/// ```
pub mod job {
    pub use gannet_jobs::{DataServerConfig, FeedStatus, ServedBytes, TASKS, forget_job, partitions_in};
    pub use gannet_wire::limits::JOB_WORKERS_MAX;
    pub use gannet_wire::{
        Activity, ActivityKind, Found, FoundFile, FoundRange, GrownTask, JobOrders, JobPlan, JobStatus,
        Member, PartitionStand, PlanFile, Progress, SeenFile, SourceStand, Split, SplitGrant,
        WorkerIncarnation, WorkerState,
    };
    pub use gannet_worker::{DataLink, FenceFn, Heartbeat, JobAnswer, JobClient};
}

/// Backups: servers that keep the rows of others and go on in their place (docs/consistency.md).
///
/// A [`Coordinator`](backups::Coordinator) says which server owns what. A server gets its place there by
/// [`ServerConfig::membership`], and a worker learns of a change by [`WorkerConfig::places`].
///
/// ```
/// use gannet::backups::{Coordinator, MemoryCoordinator};
/// use std::sync::Arc;
/// use std::time::Instant;
///
/// let begin = Instant::now();
/// let coordinator = MemoryCoordinator::new(Arc::new(move || begin.elapsed()));
/// assert_eq!(coordinator.get("job/owner/0")?, None);
/// # Ok::<(), gannet::backups::CoordinatorError>(())
/// ```
pub mod backups {
    pub use gannet_jobs::{CoordinatorAddr, MemoryCoordinator};
    #[cfg(feature = "etcd")]
    pub use gannet_jobs::{EtcdCoordinator, EtcdTls};
    pub use gannet_server::limits::RUN_KEPT;
    pub use gannet_server::{
        BackupStatus, GenerationStatus, MemberStatus, MembershipConfig, OnServerLoss, PlaceFolderError,
        PlaceStatus, PlacesForgotten, ReplicationMode, forget_places, generation, members, place_status,
        place_statuses, refuse_without_coordinator,
    };
    pub use gannet_wire::{
        Coordinator, CoordinatorEntry, CoordinatorError, CoordinatorPage, CoordinatorWrite,
    };
    pub use gannet_worker::{Places, RemoteCoordinator};
}

/// Runs: which training's rows the servers hold, and who trains it (docs/jobs.md).
///
/// ```
/// use gannet::runs::known_runs;
/// use gannet::{Server, ServerConfig, Transports, WorkerConfig};
///
/// let server = Server::start(Transports::new(), ServerConfig::new("127.0.0.1:0"))?;
/// let runs = known_runs(Transports::new(), &WorkerConfig::reader([server.addr()]))?;
/// assert!(runs.is_empty(), "nobody has trained here");
/// server.stop()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub mod runs {
    pub use gannet_jobs::{Registry, RunAlone};
    pub use gannet_wire::{
        CLIENT, DeadWorker, Run, RunDecision, RunId, RunIntent, RunMember, RunSetting, StateFileError,
        TableUse,
    };
    pub use gannet_worker::{
        RunClient, RunOrders, RunRequest, RunSession, forget_clients, forget_run, known_runs, known_tables,
        server_of_run,
    };
}

/// Shards in this process, where their images live, and checkpoints.
///
/// A worker saves and loads the rows of a served table with [`Worker::save`] and [`Worker::load`]. It reads all of them
/// with [`Worker::scan`], and deletes some with [`Worker::delete`]. In one's own process:
///
/// ```
/// use gannet::optim::Sgd;
/// use gannet::storage::{Checkpoint, CheckpointWriter, Shards, Store};
/// use gannet::{Read, Rule, Schema};
///
/// let schema = Schema { shards: 4, ..Schema::scalar("clicks", Rule::Sgd(Sgd { lr: 0.5 })) };
/// let mut shards = Shards::open(&Store::memory(), &schema, 0..4)?;
/// let mut weights = [1.0];
/// shards.pull(&[7], Read::Weights, &mut weights, None)?;
/// assert_eq!(weights, [0.0], "a key without a row reads as its initial value");
///
/// let folder = std::env::temp_dir().join(format!("gannet-doc-{}", std::process::id()));
/// let mut writer = CheckpointWriter::create(&folder, &schema)?;
/// writer.shard(gannet::table::shard_of(gannet::table::hash(7), 4), &[7], &[0.25])?;
/// assert_eq!(writer.finish()?, 1);
/// let saved = Checkpoint::open(&folder)?;
/// saved.read(|keys, rows| assert_eq!((keys, rows), (&[7][..], &[0.25][..])))?;
/// # std::fs::remove_dir_all(&folder)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub mod storage {
    pub use gannet_core::{
        Checkpoint, CheckpointError, CheckpointWriter, Filesystem, GrowError, Growth, GrowthConfig,
        ImageCheck, OpenError, Shards, Stats, Store, foreign_entry, is_data_folder, is_left_table,
        is_table_of, own_files, remove_model, try_huge_page,
    };
    // The checkpoints of a job.
    #[cfg(feature = "cloud")]
    pub use gannet_buckets::{BucketError, open_bucket};
    pub use gannet_core::{
        CheckpointDir, CheckpointDirError, CheckpointState, CheckpointStore, Cursor, Draft, EndedRowFile,
        FileEntry, JobManifest, ListedCheckpoint, LocalStore, NewestCheckpoints, OpenedFile, PrunePlan,
        RowBlock, RowFileEncoder, RowFileHead, RowFileKind, RowFileReader, RowFileWriter, SavedRowFile,
        ShardCut, StateEntry, StoreWriter, StoredFile, TableCut, TableUid, Verified,
    };
    pub use gannet_worker::{
        CheckpointOptions, FollowedCut, FollowedRows, Follower, SavedCheckpoint, save_checkpoint,
    };
    // Cuts of shards in one's own process.
    pub use gannet_core::{CutProgress, CutReader, MarkedShard, Position, PushOptions, PushProgress};
}

/// Transports: tcp, shared memory and RDMA (docs/transports.md).
///
/// ```
/// use gannet::transport::{Transport, Transports};
///
/// // What reaches a server best: shared memory on this host, otherwise tcp. Or one transport alone:
/// let network = Transports::new().with_transport(Transport::Tcp);
/// # let _ = network;
/// ```
pub mod transport {
    pub use gannet_transport::multi::{Transport, Transports};
    pub use gannet_transport::tcp::{Io, Tcp, try_uring};
    pub use gannet_transport::verbs;
}

/// Tokens that prove who may connect, and TLS (docs/security.md).
///
/// ```
/// use gannet::security::Token;
///
/// let token = Token::new(b"32 bytes or more from /dev/urandom")?;
/// assert!(Token::new(b"short").is_err());
/// # let _ = token;
/// # Ok::<(), gannet::security::TokenError>(())
/// ```
pub mod security {
    pub use gannet_transport::tls::{TlsClient, TlsError, TlsFileError, TlsServer};
    pub use gannet_wire::{PrivateFileError, Token, TokenError, read_private};
}

/// Counters of servers and workers, for a monitoring system. docs/metrics.md says more.
/// [`MetricsSink`](metrics::MetricsSink) has an example.
pub mod metrics {
    pub use gannet_wire::{BUCKETS, Buckets, MetricsSink, bucket_of_nanos};
}
