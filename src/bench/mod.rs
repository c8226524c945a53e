//! The canonical work of `gannet bench`: 4,000,000 rows, batches of 65,536 uniform unique keys, 4 in flight, one server
//! process and one worker process on loopback, beside the limit of this machine measured in the same run.

pub mod cpu;
pub mod limit;
pub mod served;
