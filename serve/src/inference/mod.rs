//! The Open Inference Protocol, version 2 (<https://github.com/kserve/open-inference-protocol>): tensors of requests
//! and answers, as JSON or with the binary extension of Triton.

mod answer;
mod binary;
mod datum;
mod examples;
mod metadata;
mod request;
mod tensor;

pub use answer::answer;
#[cfg(feature = "grpc")]
pub use answer::{bytes_of, wanted};
#[cfg(feature = "grpc")]
pub use binary::elements;
#[cfg(feature = "grpc")]
pub use datum::Datum;
pub use examples::data_of;
#[cfg(feature = "grpc")]
pub use metadata::TensorMetadata;
pub use metadata::metadata;
pub use request::InferRequest;
#[cfg(feature = "grpc")]
pub use tensor::Tensor;
