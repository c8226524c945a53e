//! Requests and answers over HTTP.

mod admission;
mod answers;
mod app;
mod body;
mod held_body;
mod infer;
mod keeping;
mod learn;
mod pages;
mod plain;
mod received;
mod routes;
mod server;
mod write_limit;

pub use admission::Admission;
pub use app::App;
#[cfg(feature = "grpc")]
pub use body::read as read_body;
#[cfg(feature = "grpc")]
pub use held_body::holding;
#[cfg(feature = "grpc")]
pub use infer::{KIND, scored};
pub use server::Serving;
