//! Checkpoints and data in a bucket. The object store is moto, a server of the S3 protocol in Python; a proxy before it
//! cuts connections. scripts/test_cloud.sh installs moto, names its program in MOTO_SERVER, and runs these tests.

mod checkpoints;
mod data;
mod store;

#[path = "../harness/mod.rs"]
mod harness;
