//! A saved model as a file of ONNX, the open format that onnxruntime and other servers of models read.
//!
//! The graph reads hashed features: `ids` and `values`, as readers give them before they are normalized, and for models
//! with vectors by field `fields`. It normalizes the values and looks the rows up itself. An id that the model has no
//! row for has no part in the output. -1 fills up examples with fewer features: it is the intercept's key, which no
//! data has.

mod graph;
mod messages;
mod scores;
mod values;

use crate::learn::measures::Objective;
use crate::read::block::INTERCEPT_KEY;
use crate::read::fields::field_places::FieldPlaces;
use crate::read::normalization::Normalization;
use graph::{Dim, Graph, ML, Value};
use messages::{FLOAT, INT64, ModelProto, OperatorSetIdProto, StringStringEntryProto};
use prost::Message;
use thiserror::Error;

/// The most bytes of a file: protobuf counts them in 31 bits.
const BYTES_MAX: usize = i32::MAX as usize;

/// The version of the format, and those of the operators.
const IR_VERSION: i64 = 8;
const OPERATORS: i64 = 17;
const ML_OPERATORS: i64 = 2;

/// A dimension for the examples of a call, and one for the features of an example.
const EXAMPLES: Dim = Dim::Free("examples");
const FEATURES: Dim = Dim::Free("features");

/// A model that cannot be a file of ONNX.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum OnnxError {
    /// The format has no room for so many rows.
    #[error(
        "a file of ONNX has at most 2 GiB, and this model needs {bytes} bytes: train with fewer features \
         (--admit-count) or fewer --factors"
    )]
    TooLarge {
        /// What the rows need.
        bytes: usize,
    },
    /// There is no graph for the model.
    #[error("there is no ONNX graph for models of {0}")]
    Kind(String),
}

/// The parts of a saved model that its graph needs.
pub struct OnnxSource<'a> {
    /// Its kind, as `--model` names it.
    pub kind: &'a str,
    /// What its output is.
    pub task: Objective,
    /// The keys of its features, with that of the intercept.
    pub keys: Vec<u64>,
    /// The weights of each, one row after another.
    pub weights: Vec<f32>,
    /// Weights of a row.
    pub width: usize,
    /// The layers of its network: for each unit the weights, and the bias behind them.
    pub layers: Vec<Vec<Vec<f32>>>,
    /// The fields for which it has vectors.
    pub fields: Option<&'a FieldPlaces>,
    /// What the values of its features become.
    pub normalization: Option<&'a Normalization>,
    /// Whether the data may say a part of each example's margin (`--offset`, the base of vw).
    pub offset: bool,
    /// What the file says about the model.
    pub notes: Vec<(String, String)>,
}

/// The features of a model by the numbers of their rows in the graph. The row behind the last has zeros.
struct Rows<'a> {
    keys: Vec<u64>,
    /// The weights of each, in the same order.
    weights: Vec<&'a [f32]>,
    /// Those of the intercept.
    intercept: Option<&'a [f32]>,
    width: usize,
}

impl<'a> Rows<'a> {
    fn of(source: &'a OnnxSource<'_>) -> Rows<'a> {
        let weights = source.weights.chunks_exact(source.width);
        let mut all: Vec<(u64, &[f32])> = source.keys.iter().copied().zip(weights).collect();
        all.sort_unstable_by_key(|(key, _)| *key);
        // It has the largest of all keys.
        let intercept = all.pop_if(|(key, _)| *key == INTERCEPT_KEY).map(|(_, weights)| weights);
        let (keys, weights) = all.into_iter().unzip();
        Rows { keys, weights, intercept, width: source.width }
    }

    /// The weights `from` to `to` of all rows, and of the row of zeros.
    fn part(&self, from: usize, to: usize) -> Vec<f32> {
        let rows = self.weights.iter().flat_map(|row| row[from..to].iter().copied());
        rows.chain(std::iter::repeat_n(0.0, to - from)).collect()
    }

    /// A weight of the intercept; 0 without one.
    fn intercept(&self, at: usize) -> f32 {
        self.intercept.map_or(0.0, |row| row[at])
    }
}

/// What the nodes of all models read.
struct Features {
    /// The number of each feature's row, (examples, features).
    rows: Value,
    /// Its normalized value, (examples, features), float32.
    values: Value,
    /// The place of its field, (examples, features), or -1; for models with vectors by field.
    places: Option<Value>,
    /// The number of places.
    place_count: usize,
}

/// The bytes of a file of ONNX with the model. Its inputs are `ids` (int64: keys whose bits are those of uint64) and
/// `values` (float32), both (examples, features), and where the model needs them `fields` (int64: the keys of the
/// fields' names) of the same shape, and `offset` (float32, (examples,); 0 where a call leaves it out). Its outputs are
/// `margin` and `probability`, or `margin` alone, or `prediction`, each (examples,), or `class` (examples,) and
/// `probabilities` (examples, classes).
///
/// # Errors
/// The model is too large, or of a kind that has no graph.
pub fn onnx(source: &OnnxSource<'_>) -> Result<Vec<u8>, OnnxError> {
    let rows = Rows::of(source);
    // A key has at most ten bytes, the number of a row five, and normalization takes 13.
    let bytes = (rows.keys.len() + 1) * (10 + 5 + 13 + rows.width * 4);
    if bytes > BYTES_MAX {
        return Err(OnnxError::TooLarge { bytes });
    }
    let mut graph = Graph::default();
    let features = inputs(&mut graph, source, &rows);
    scores::outputs(&mut graph, source, &rows, &features)?;
    let operators = |domain: &str, version| OperatorSetIdProto { domain: domain.to_owned(), version };
    let note =
        |(key, value): &(String, String)| StringStringEntryProto { key: key.clone(), value: value.clone() };
    let model = ModelProto {
        ir_version: IR_VERSION,
        producer_name: "gannet".to_owned(),
        producer_version: env!("CARGO_PKG_VERSION").to_owned(),
        doc_string: format!("A model of kind {} with {} features.", source.kind, rows.keys.len()),
        graph: Some(graph.finish(source.kind)),
        opset_import: vec![operators("", OPERATORS), operators(ML, ML_OPERATORS)],
        metadata_props: source.notes.iter().map(note).collect(),
    };
    let bytes = model.encoded_len();
    if bytes > BYTES_MAX {
        return Err(OnnxError::TooLarge { bytes });
    }
    Ok(model.encode_to_vec())
}

fn inputs(graph: &mut Graph, source: &OnnxSource<'_>, rows: &Rows<'_>) -> Features {
    let shape = [EXAMPLES, FEATURES];
    let ids =
        graph.input("ids", INT64, &shape, "keys of features, the bits of uint64; -1 where there is none");
    let given = graph.input("values", FLOAT, &shape, "values of features; 0 where there is none");
    let known: Vec<i64> = rows.keys.iter().map(|&key| key as i64).collect();
    let numbers = (0..known.len() as i64).collect();
    let found = graph.look_up(&ids, known, numbers, rows.keys.len() as i64);
    let values = match source.normalization {
        Some(normalization) => values::normalized(graph, normalization, (&rows.keys, &found), &given),
        None => given,
    };
    let (mut places, mut place_count) = (None, 1);
    if let Some(fields) = source.fields {
        let ids =
            graph.input("fields", INT64, &shape, "keys of the fields' names; any number where there is none");
        let known: Vec<i64> = fields.ids().iter().map(|&id| id as i64).collect();
        place_count = known.len().min(fields.most());
        let of = (0..known.len()).map(|at| (at % fields.most()) as i64).collect();
        places = Some(graph.look_up(&ids, known, of, -1));
    }
    Features { rows: found, values, places, place_count }
}
