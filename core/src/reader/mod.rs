//! Rows read without a request to their owner: through mapped images, or over RDMA.

mod mapped_image;
pub(crate) mod mapped_shards;
pub(crate) mod readable_shard;
pub(crate) mod remote_row_reader;
