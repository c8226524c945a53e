//! Requests and answers over HTTP.

mod admission;
mod app;
mod body;
mod infer;
mod pages;
mod plain;
mod routes;
mod server;

pub use admission::Admission;
pub use app::App;
pub use server::Serving;
