//! The train crate of Gannet: readers, models and training loops.
//!
//! A [`Reader`] parses a data file into [`Block`]s of examples. [`train`](fn@train) learns logistic regression from
//! them. A parse thread makes [`Batch`]es, and the calling thread pulls their rows from a [`Backend`] and learns. It
//! then pushes the change of state from learning one example at a time ([`Replay`]), or the batch's gradient
//! ([`Gradients`]). A backend is the shards in this process ([`Embedded`]), a worker's table on servers
//! ([`RemoteBackend`]), or a table for one process whose rows are learned in place ([`FlatTable`]).
//! [`evaluate`](fn@evaluate) and [`predict`] score. [`saved`] reads the models that `gannet train` wrote.
#![forbid(unsafe_code)]

mod backend;
mod batch;
pub mod lbfgs;
mod learn;
pub mod limits;
pub mod models;
pub mod onnx;
mod read;
pub mod saved;

// Data files and the splits of them that workers train.
pub use read::block::{Block, INTERCEPT_KEY};
pub use read::block_source::{BlockPass, BlockSource, CsrRows};
pub use read::bytes::files::files;
pub use read::bytes::stop_flag::StopFlag;
pub use read::bytes::stream::ReadPosition;
pub use read::cache::place::Cache;
pub use read::class_weights::ClassWeights;
pub use read::data::{CsvForm, Data, DetectedFile, Format, Share, Text};
pub use read::error::{BadLine, BadLines, ReadError};
pub use read::feature_names::FeatureNames;
pub use read::fields::crosses::Crosses;
pub use read::fields::example_fields::FieldUse;
pub use read::fields::field_places::{FieldPlaces, NO_FIELD};
pub use read::formats::columns::{ColumnChoice, Columns, Role, is_in_object, is_index_of_lines};
pub use read::formats::criteo::Counts;
pub use read::formats::labels::{Labels, TwoLabels};
pub use read::formats::scale::{Scale, ScaleKind, ScaledColumn};
pub use read::formats::text_key::{ColumnKeys, cross_key, text_key};
pub use read::growing::folder::{Folder, Until};
#[cfg(feature = "kafka")]
pub use read::growing::kafka::KafkaTopic;
#[cfg(feature = "kafka")]
pub use read::growing::kafka_address::KafkaAddress;
#[cfg(feature = "kafka")]
pub use read::growing::kafka_client::KafkaConfig;
#[cfg(feature = "kafka")]
pub use read::growing::kafka_commits::SavedPartitions;
pub use read::growing::local_tasks::LocalTasks;
pub use read::growing::looking::{GrowingSource, Sample};
pub use read::growing::text_parts::{PartedText, TextParts};
pub use read::holdout::Holdout;
pub use read::kept_negatives::KeptNegatives;
pub use read::normalization::{
    AgreedNormalization, InterceptStart, Normalization, Normalize, NormalizedFeature, SurveyQuestions,
};
pub use read::reader::Reader;
pub use read::splits::file_data_source::FileDataSource;
pub use read::splits::remote_data::RemoteTexts;
pub use read::splits::scheduled_splits::{Scheduled, plan_files};
pub use read::splits::split::{FileFingerprint, GrownSplit, Split, Splits, TextSource, UnchangedFiles};
pub use read::survey::{ColumnSurvey, ColumnType, Survey};
pub use read::table_rows::{NewRows, TableRows, TableSettings};
#[cfg(feature = "arrow")]
pub use read::tables::record_batches::BatchRows;

// Batches.
pub use batch::dedup::{Dedup, NO_LINK};
pub use batch::{Batch, BatchKeys, Batcher, InSplit};

// Where the rows are.
pub use backend::embedded::Embedded;
pub use backend::error::BackendError;
pub use backend::flat_table::FlatTable;
pub use backend::norm_table::{
    NormAtServers, NormInStore, NormRows, norm_schema, norm_table, normalization_of,
};
pub use backend::remote::RemoteBackend;
pub use backend::start_table::{StartAtServers, start_table};
pub use backend::tables::{
    FlatTables, LocalTables, RemoteTables, SavedTables, TableIndex, Tables, WeightTables,
};
pub use backend::trained_rows::TrainedRows;
pub use backend::weights::Weights;
pub use backend::{Backend, PulledRows};

// Training, scoring and what they report.
pub use learn::auc::Auc;
pub use learn::evaluate::{Predicted, evaluate, predict};
pub use learn::gradient::{Gradients, Reduce};
pub use learn::grouped_auc::GroupedQuality;
pub use learn::metrics::{BINS, Bin, Metrics, Quality, log_loss, sigmoid};
pub use learn::options::Options;
pub use learn::pending::test_at_end;
pub use learn::push_content::PushContent;
pub use learn::replay::{Replay, SeenPushRuns, overlay};
pub use learn::report::{Progress, Report, RowSink, StartRows, StepObserver, StepReport, TrainError};
pub use learn::train::{train, train_watched};
