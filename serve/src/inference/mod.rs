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
pub use examples::data_of;
pub use metadata::metadata;
pub use request::InferRequest;
