//! Servers, tested from outside: transports, memory, metrics, security, hostile peers.

mod cached;
mod hostile;
mod io;
mod many_tables;
mod memory;
mod metrics;
mod one_sided;
mod security;
mod transport;

#[path = "../../node/server/tests/attack/mod.rs"]
mod attack;
#[path = "../harness/mod.rs"]
mod harness;
#[path = "../harness/reader.rs"]
mod reader;
