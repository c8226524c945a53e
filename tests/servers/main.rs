//! Servers, tested from outside: transports, memory, metrics, security, hostile peers; RDMA in guests.

mod cached;
#[cfg(any(feature = "rdma", feature = "rdma-dlopen"))]
mod guests;
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
