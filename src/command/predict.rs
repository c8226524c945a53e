//! temp
use super::{Failure, args::PredictArgs};
pub fn run(_args: &PredictArgs) -> Result<(), Failure> { Ok(()) }
