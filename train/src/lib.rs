//! The train room of gannet: readers, models and training loops.
//!
//! A [`Reader`] turns the bytes of a data file into [`Block`]s of examples. [`train`](fn@train) learns logistic regression
//! from them: a parse thread makes [`Batch`]es, the calling thread pulls their rows from a [`Backend`], and pushes either the
//! change of state that learning one example at a time made ([`Replay`]) or the batch's gradient ([`Gradients`]). The backend is the shards themselves
//! ([`Embedded`]), a worker's links to servers ([`RemoteBackend`]), or a table laid out for one process, whose rows are learned where
//! they are ([`FlatTable`]). [`evaluate`](fn@evaluate) and [`predict`] score.
#![forbid(unsafe_code)]

mod auc;
mod backend;
mod batch;
mod batches;
mod block;
mod cells;
mod columns;
mod criteo;
mod csv;
mod data;
mod decompress;
mod dedup;
mod embedded;
mod error;
mod evaluate;
mod file_data_source;
mod files;
mod flat_table;
mod format;
mod gradient;
mod kernel;
mod labels;
pub mod lbfgs;
mod libsvm;
pub mod limits;
mod lr;
mod metrics;
pub mod models;
mod number;
mod options;
mod push_content;
mod reader;
mod remote;
mod remote_data;
mod repeated_keys;
mod replay;
mod report;
mod scale;
mod scheduled_splits;
mod source;
mod split;
mod stop_flag;
mod stream;
mod survey;
mod tables;
mod text_key;
mod train;
mod update_mode;
mod vw;
mod weights;

pub use auc::Auc;
pub use backend::{Backend, BackendError, PulledRows};
pub use batch::{Batch, Batcher, InSplit};
pub use block::{Block, INTERCEPT_KEY};
pub use columns::{ColumnChoice, Columns};
pub use criteo::Counts;
pub use data::{Data, Format, Share};
pub use dedup::{Dedup, NO_LINK};
pub use embedded::Embedded;
pub use error::{BadLine, BadLines, ReadError};
pub use evaluate::{Predicted, evaluate, predict};
pub use file_data_source::FileDataSource;
pub use files::files;
pub use flat_table::FlatTable;
pub use gradient::{Gradients, Reduce};
pub use labels::{Labels, TwoLabels};
pub use metrics::{BINS, Bin, Metrics, Quality, log_loss, sigmoid};
pub use options::Options;
pub use push_content::PushContent;
pub use reader::{DetectedFile, Reader};
pub use remote::RemoteBackend;
pub use remote_data::{RemoteTexts, TextSource};
pub use replay::{Replay, SeenPushRuns, overlay};
pub use report::{Progress, Report, RowSink, StartRows, StepObserver, StepReport, TrainError};
pub use scale::{Scale, ScaleKind, ScaledColumn};
pub use scheduled_splits::{Scheduled, plan_files};
pub use split::{FileFingerprint, Split, Splits};
pub use stop_flag::StopFlag;
pub use stream::ReadPosition;
pub use survey::{ColumnSurvey, Survey};
pub use tables::{LocalTables, RemoteTables, SavedTables, TableIndex, Tables, WeightTables};
pub use text_key::{ColumnKeys, text_key};
pub use train::{train, train_watched};
pub use weights::Weights;
