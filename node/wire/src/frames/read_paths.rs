//! How a worker reads rows without a request: from image files on the same host, or from memory regions over RDMA.

frames! {
    /// Asks for the image files of some shards.
    /// The server gives read-only descriptors of shards, over shared memory; at most 64 a request, before the answer.
    /// It may give fewer. Refused with 2, 4, 10.
    23 ImagesFrame "images" ToServer "-" {
        W0 "table": table: u32;
        W1 "position of the first shard; shards": first: u32, shards: u32;
    }

    /// The answer: the files travel beside the frame.
    24 ImagesGivenFrame "images given" ToWorker "`ImagesV1`" {}

    /// Asks where the rows of some shards can be read over RDMA.
    /// The server registers at most 4 shards for RDMA reads, and lets the session read. A software device is refused
    /// with 2 unless `software` is 1. Refused with 2, 4, 10.
    25 RegionsFrame "regions" ToServer "-" {
        W0 "table": table: u32;
        W1 "position of the first shard; shards": first: u32, shards: u32;
        W2 "software": /** Also if a processor of the server does the READs. */ software: bool;
    }

    /// The answer to a regions request.
    26 RegionsAreFrame "regions are" ToWorker "`RegionsV1`" {
        W0 "whole lines": /** The device reads each cache line as it is at one moment. */ whole_lines: bool;
    }
}

frame_rows!(ImagesFrame, ImagesGivenFrame, RegionsFrame, RegionsAreFrame);
