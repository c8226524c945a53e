//! Flags about data: how it is read, whether it grows, and whether it is kept.

pub mod cache;
pub mod follow;
pub mod input;

pub use crate::flags::data::cache::DataCacheArgs;
pub use crate::flags::data::follow::{FollowArgs, FollowOrder};
pub use crate::flags::data::input::{
    CountsName, FormatName, InputArgs, NormalizeName, ScaleName, StartName, TypesName,
};
