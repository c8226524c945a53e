//! Messages of the protocol, with the fields that are used. They are written by hand, so that no build needs a compiler
//! for protobuf. The numbers are those of `open_inference_grpc.proto`. An unknown field is skipped, such as parameters.

use prost::Message;

#[derive(Clone, PartialEq, Message)]
pub struct Empty {}

/// The answer to ServerLive, ServerReady and ModelReady.
#[derive(Clone, PartialEq, Message)]
pub struct Yes {
    #[prost(bool, tag = "1")]
    pub yes: bool,
}

/// The request of ModelReady and ModelMetadata.
#[derive(Clone, PartialEq, Message)]
pub struct ModelName {
    #[prost(string, tag = "1")]
    pub name: String,
    /// Empty: the current one.
    #[prost(string, tag = "2")]
    pub version: String,
}

#[derive(Clone, PartialEq, Message)]
pub struct ServerMetadata {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(string, tag = "2")]
    pub version: String,
    #[prost(string, repeated, tag = "3")]
    pub extensions: Vec<String>,
}

#[derive(Clone, PartialEq, Message)]
pub struct TensorInfo {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(string, tag = "2")]
    pub datatype: String,
    #[prost(int64, repeated, tag = "3")]
    pub shape: Vec<i64>,
}

#[derive(Clone, PartialEq, Message)]
pub struct ModelInfo {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(string, repeated, tag = "2")]
    pub versions: Vec<String>,
    #[prost(string, tag = "3")]
    pub platform: String,
    #[prost(message, repeated, tag = "4")]
    pub inputs: Vec<TensorInfo>,
    #[prost(message, repeated, tag = "5")]
    pub outputs: Vec<TensorInfo>,
}

/// The elements of a tensor, in the list of its type.
#[derive(Clone, PartialEq, Message)]
pub struct Contents {
    #[prost(bool, repeated, tag = "1")]
    pub bools: Vec<bool>,
    #[prost(int32, repeated, tag = "2")]
    pub ints: Vec<i32>,
    #[prost(int64, repeated, tag = "3")]
    pub longs: Vec<i64>,
    #[prost(uint32, repeated, tag = "4")]
    pub unsigned: Vec<u32>,
    #[prost(uint64, repeated, tag = "5")]
    pub unsigned_longs: Vec<u64>,
    #[prost(float, repeated, tag = "6")]
    pub floats: Vec<f32>,
    #[prost(double, repeated, tag = "7")]
    pub doubles: Vec<f64>,
    #[prost(bytes = "vec", repeated, tag = "8")]
    pub texts: Vec<Vec<u8>>,
}

#[derive(Clone, PartialEq, Message)]
pub struct InputTensor {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(string, tag = "2")]
    pub datatype: String,
    #[prost(int64, repeated, tag = "3")]
    pub shape: Vec<i64>,
    /// None where the elements are raw.
    #[prost(message, optional, tag = "5")]
    pub contents: Option<Contents>,
}

#[derive(Clone, PartialEq, Message)]
pub struct WantedOutput {
    #[prost(string, tag = "1")]
    pub name: String,
}

#[derive(Clone, PartialEq, Message)]
pub struct ModelInferRequest {
    #[prost(string, tag = "1")]
    pub model_name: String,
    #[prost(string, tag = "2")]
    pub model_version: String,
    #[prost(string, tag = "3")]
    pub id: String,
    #[prost(message, repeated, tag = "5")]
    pub inputs: Vec<InputTensor>,
    #[prost(message, repeated, tag = "6")]
    pub outputs: Vec<WantedOutput>,
    /// The bytes of each input, if they are raw.
    #[prost(bytes = "vec", repeated, tag = "7")]
    pub raw: Vec<Vec<u8>>,
}

#[derive(Clone, PartialEq, Message)]
pub struct ModelInferResponse {
    #[prost(string, tag = "1")]
    pub model_name: String,
    #[prost(string, tag = "2")]
    pub model_version: String,
    #[prost(string, tag = "3")]
    pub id: String,
    #[prost(message, repeated, tag = "5")]
    pub outputs: Vec<TensorInfo>,
    /// The bytes of each output.
    #[prost(bytes = "vec", repeated, tag = "6")]
    pub raw: Vec<Vec<u8>>,
}
