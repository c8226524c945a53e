//! `gannet serve`, tested from outside: answers beside `gannet predict`, new models under requests, limits, access.

mod access;
mod checkpoints;
mod client;
mod follow;
#[cfg(feature = "grpc")]
mod grpc;
mod inference;
mod learn;
mod learn_refusals;
mod limits;
mod models;
mod plain;

#[path = "../harness/mod.rs"]
mod harness;
