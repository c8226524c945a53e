//! Messages: the payloads that travel as rkyv, by subject.

pub mod awaited;
pub mod control;
pub mod coordinator;
pub mod cuts;
pub mod data;
pub mod growing;
pub mod job_plan;
pub mod jobs;
pub mod member;
pub mod members;
pub mod runs;
