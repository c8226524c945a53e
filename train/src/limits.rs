//! Every limit of this crate, and how the limits relate.

use std::time::Duration;

/// Bytes of one read from a file. 256 KiB to 1 MiB measured alike. A chunk should stay in the L2 cache.
pub const CHUNK_BYTES: usize = 256 << 10;
/// Bytes of zeros after the data of a buffer, so that eight-byte loads never run off its end.
pub const PAD_BYTES: usize = 32;
/// How often a wait for a pipe's bytes checks the stop flag.
pub const STOP_LOOK_EVERY: Duration = Duration::from_millis(100);
/// Bytes of a range of an object that is asked for ahead.
#[cfg(feature = "cloud")]
pub const OBJECT_RANGE_BYTES: u64 = 2 << 20;
/// Ranges of an object that are on their way at a time. A reader holds two more.
#[cfg(feature = "cloud")]
pub const OBJECT_RANGES_AHEAD: usize = 3;
/// Bytes of the ranges of all columns of a Parquet file that is an object.
#[cfg(all(feature = "cloud", feature = "parquet"))]
pub const OBJECT_COLUMNS_BYTES: u64 = 64 << 20;
/// The least bytes of a range of a column, so that many columns need more memory than that.
#[cfg(all(feature = "cloud", feature = "parquet"))]
pub const OBJECT_COLUMN_RANGE_MIN: u64 = 64 << 10;
/// Most bytes of a batch in a cache of parsed data.
pub const CACHE_FRAME_MAX: u32 = 1 << 30;
/// Most bytes of a cache.
pub const CACHE_BYTES_MAX: u64 = 256 << 30;
/// Free bytes of a disk that a cache leaves alone, and the part of the others that it may take: one in so many.
pub const CACHE_ROOM_KEPT: u64 = 4 << 30;
/// As above.
pub const CACHE_ROOM_PART: u64 = 2;
/// Most files of one data set.
pub const FILES_MAX: usize = 1 << 20;
/// Longest line, bytes.
pub const LINE_BYTES_MAX: usize = 16 << 20;
/// Most features of one example, the intercept among them.
pub const FEATURES_PER_EXAMPLE_MAX: usize = 1 << 18;
/// Most columns of a CSV file.
pub const COLUMNS_MAX: usize = 1 << 14;
/// Rows of a table file that are decoded at once.
#[cfg(feature = "parquet")]
pub const TABLE_ROWS: usize = 4096;
/// Bytes of a table file that are read at once: a packed page, or what the file says of itself.
#[cfg(feature = "parquet")]
pub const TABLE_PAGE_BYTES_MAX: usize = 1 << 30;
/// The most columns whose values are numbers and categories at once without a flag. More of them are numbers.
pub const BOTH_COLUMNS_MAX: usize = 100;
/// Examples that say how large the values of features are.
pub const SURVEYED_EXAMPLES: usize = 10_000;
/// Features of those examples behind which fewer examples have to do, so that they fit into memory.
pub const SURVEYED_FEATURES_MAX: usize = 1 << 21;
/// How long those examples may take to come from standard input or a FIFO. Then those that have come have to do.
pub const SURVEY_PATIENCE: Duration = Duration::from_secs(1);
/// Examples that are read at once to survey a file.
pub const SURVEY_BATCH: usize = 256;
/// Features whose names a model keeps (`--keep-names`).
pub const NAMES_KEPT_MAX: usize = 1_000_000;
/// Bytes of the note with these names: a manifest of 64 MiB holds it beside others.
pub const NAMES_KEPT_BYTES_MAX: usize = 32 << 20;
/// The most that a value may be on either side of 0 when it is normalized.
pub const NORMALIZED_MAX: f32 = 16.0;
/// The average squared length of the normalized numbers of an example. Longer ones are shortened, because the steps of
/// online learners grow with it.
pub const SURVEYED_LENGTH_MAX: f64 = 64.0;
/// Most crosses of a data set.
pub const CROSSES_MAX: usize = 256;
/// Most fields of one cross.
pub const CROSS_FIELDS_MAX: usize = 6;
/// Objects inside each other in a line of JSON.
pub const JSON_DEPTH_MAX: usize = 16;
/// Objects and lists inside each other in a line of JSON, also in what is left out.
pub const JSON_NESTED_MAX: usize = 512;
/// How often a worker shows the servers that it lives while it waits for the source of its splits.
pub const IN_TOUCH_EVERY: Duration = Duration::from_millis(50);
/// How often a worker looks whether a source has grown.
pub const GROWN_LOOK_EVERY: Duration = Duration::from_millis(250);
/// How long a worker without a task waits before it asks again, where the source grows.
pub const GROWN_ASK_EVERY: Duration = Duration::from_millis(50);
/// Bytes of a task of a file in a growing folder, unless `--task-bytes` says another number.
pub const GROWN_TASK_BYTES: u64 = 4 << 20;
/// Tasks of one file in a growing folder. They are larger in a larger file.
pub const FILE_TASKS_MAX: u32 = 256;
/// How long no message comes before the leader of the partition is asked whether it is there, and how long it may take
/// to answer.
#[cfg(feature = "kafka")]
pub const KAFKA_ASK: [Duration; 2] = [Duration::from_secs(3), Duration::from_secs(2)];
/// How often a worker says that it waits for a broker.
#[cfg(feature = "kafka")]
pub const KAFKA_WARN_EVERY: Duration = Duration::from_secs(10);
/// Messages of a task of a topic.
#[cfg(feature = "kafka")]
pub const KAFKA_TASK_MESSAGES: u64 = 1 << 14;
/// How long a broker may take to answer a question.
#[cfg(feature = "kafka")]
pub const KAFKA_TIMEOUT: Duration = Duration::from_secs(10);
/// How long the brokers may not answer while a topic is trained.
#[cfg(feature = "kafka")]
pub const KAFKA_PATIENCE: Duration = Duration::from_secs(600);
/// How long one wait for a message takes, before the stop flag is looked at.
#[cfg(any(test, feature = "kafka"))]
pub const MESSAGE_POLL: Duration = Duration::from_millis(100);
/// How long a message of a range may be waited for.
#[cfg(any(test, feature = "kafka"))]
pub const MESSAGE_PATIENCE: Duration = Duration::from_secs(600);
/// KiB of messages that the client of Kafka reads ahead, for each partition.
#[cfg(feature = "kafka")]
pub const KAFKA_QUEUE_KIB: &str = "16384";
/// Bytes of messages behind which they are parsed.
#[cfg(any(test, feature = "kafka"))]
pub const MESSAGE_TEXT_BYTES: usize = 256 << 10;
/// How often it is committed how far the training is.
#[cfg(feature = "kafka")]
pub const KAFKA_COMMIT_EVERY: Duration = Duration::from_secs(5);
/// Examples of a batch.
pub const BATCH_MAX: usize = 1 << 16;
/// Most occurrences of a block. With more, a batch's offsets would not fit in u32.
pub const OCCURRENCES_PER_BLOCK_MAX: usize = 1 << 30;
/// Chunks of a split that a client has sent and that wait, and the one that is parsed. Each is at most 1 MiB.
pub const REMOTE_CHUNKS_MAX: usize = 2;
/// First bytes of a remote file that are read to find its format. A data server sends that much at once.
pub const HEAD_BYTES: [usize; 2] = [8 << 10, 256 << 10];
/// Bytes of lines that go to a parsing thread at once, and at most one line more.
pub const PARCEL_BYTES: usize = if cfg!(test) { 300 } else { 1 << 20 };
/// The share of the memory, one part in so many, that is filled without rows found ahead. The learner then fills it,
/// because only it knows all tables.
pub const PREPARE_SPARE: u64 = 16;
/// The largest `--threads` of a training.
pub const THREADS_MAX: usize = 256;
/// Batches between the parse thread and the learning thread.
pub const BATCH_QUEUE_MAX: usize = 4;
/// A worker that has had nothing to learn for so long rests: workers that keep step stop waiting for it.
pub const REST_AFTER: Duration = Duration::from_millis(50);
/// How often a learner checks whether bytes of its split have come.
pub const READ_LOOK: Duration = Duration::from_millis(50);
/// How long a learner waits for those bytes, unless the source of the splits sets another limit.
pub const READ_PATIENCE: Duration = Duration::from_secs(60);
/// Most batches that are pulled ahead of the one that is learned.
pub const DEPTH_MAX: usize = 4;
/// Bad lines that the report quotes.
pub const BAD_LINES_KEPT: usize = 5;
/// Bytes of a bad line that a message shows.
pub const TEXT_SHOWN_BYTES: usize = 80;
/// Most scores that are kept for an exact AUC (8 bytes each). Beyond it a histogram gives the AUC.
pub const EXACT_AUC_MAX: usize = 1 << 26;
/// Home cells of the table that one process trains for itself, 16 or 32 bytes each. Places are u32.
pub const FLAT_CELLS_MAX: usize = 3 << 30;
/// Examples of a batch that is read into memory for L-BFGS. Workers share the data out in such batches.
pub const LBFGS_BATCH: usize = 1024;
/// The first pause between reads of the cells over which the workers of L-BFGS keep step.
pub const LBFGS_LOOK_MIN: Duration = Duration::from_micros(50);
/// The longest pause between those reads.
pub const LBFGS_LOOK_MAX: Duration = Duration::from_millis(2);
/// A wait for another worker that lasts longer is logged.
pub const LBFGS_WAIT_LOGGED: Duration = Duration::from_secs(5);
/// Examples of a block when scoring.
pub const SCORE_BATCH: usize = 4096;

/// The same of a text in memory, which is scored with little memory and can be ended soon.
pub const TEXT_BATCH: usize = 64;
/// Factors of a feature, in factorization machines and matrix factorization.
pub const FACTORS_MAX: u32 = 512;
/// Most factors of a feature for all fields together, and most inputs of a layer. A row has one more weight.
pub const FIELD_FACTORS_MAX: usize = gannet_core::limits::DIM_MAX as usize - 1;
/// Topics of documents. The topic of a token is stored in 16 bits.
pub const TOPICS_MAX: u32 = 8192;
/// Tokens of a batch of documents.
pub const BATCH_TOKENS_MAX: usize = 1 << 30;
/// Most times that a document may have a word.
pub const WORD_REPEATS_MAX: f32 = 65_535.0;
/// Most tokens of a topic. Up to here counts in f32 are exact.
pub const TOPIC_TOKENS_MAX: f32 = (1 << 24) as f32;

const _: () = assert!(TOPICS_MAX <= 1 << 16);
const _: () = assert!(BATCH_TOKENS_MAX < u32::MAX as usize);
const _: () = assert!(STOP_LOOK_EVERY.as_secs() == 0);
const _: () = assert!(PAD_BYTES >= 16);
const _: () = assert!(CHUNK_BYTES <= LINE_BYTES_MAX);
const _: () = assert!(OCCURRENCES_PER_BLOCK_MAX + FEATURES_PER_EXAMPLE_MAX < u32::MAX as usize);
const _: () = assert!(FLAT_CELLS_MAX + 1 < u32::MAX as usize);
const _: () = assert!(SCORE_BATCH <= BATCH_MAX);
