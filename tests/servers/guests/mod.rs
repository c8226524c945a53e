//! Tests that need an RDMA device, those named `pair` on two machines. scripts/test_rdma.sh runs them. Elsewhere they
//! say that they are skipped.

mod doctor;
mod one_sided;
mod pair;
mod pair_doctor;
mod pair_killed;
