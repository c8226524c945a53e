//! The Open Inference Protocol, version 2 over gRPC (feature `grpc`): on the port of the REST pages, as HTTP/2.

mod messages;
mod service;

pub use service::call;
