//! Requests for the memory that a worker may READ.

use crate::peers::outcome::{RequestFailure, RequestOutcome, refuse};
use crate::requests::images::asked_for;
use crate::server_tables::ServerTables;
use crate::tables::table::ServerTable;
use gannet_transport::{Frame, Stream, Transmit};
use gannet_wire::frames::declare::FrameKind;
use gannet_wire::frames::read_paths::{RegionsAreFrame, RegionsFrame};
use gannet_wire::limits::REGIONS_PER_REQUEST;
use gannet_wire::messages::control;
use gannet_wire::messages::control::RegionsV1;
use gannet_wire::refusal::Refusal;

/// Answers where `count` of this thread's shards, from the `first`-th on, can be read. The session has greeted.
pub(crate) fn answer_regions_request<S: Stream>(
    frame: &Frame<'_>,
    tables: &mut ServerTables,
    stream: &mut S,
    transmit: &mut Transmit,
) -> RequestOutcome {
    let RegionsFrame { table: number, first, shards: count, software } = RegionsFrame::decode(&frame.head)?;
    let Some(registrar) = tables.registrar.clone() else {
        return refuse(Refusal::Unknown, "this server registers no memory");
    };
    let answering = registrar.answering();
    if !answering.by_device && !software {
        let text = "this server's RDMA device is software: a READ would cost it more than a request \
                    (--one-sided always reads all the same)";
        return refuse(Refusal::Unknown, text);
    }
    let Some(ServerTable { shards, regions, .. }) = tables.all.get_mut(number as usize) else {
        return refuse(Refusal::Unknown, format!("no table {number} has been opened on this thread"));
    };
    let Some(shards) = shards else {
        return refuse(Refusal::WrongShard, "this thread owns no shard of the table");
    };
    let of = match asked_for(shards, first, count, REGIONS_PER_REQUEST) {
        Ok(of) => of,
        Err(text) => return refuse(Refusal::WrongShard, format!("regions of {text}")),
    };
    let images = |why: String| RequestFailure::Refused(Refusal::Images, why);
    match stream.allow_reads() {
        Ok(true) => {}
        Ok(false) => return refuse(Refusal::Unknown, "memory cannot be read over this link"),
        Err(error) => return Err(images(format!("READs cannot be allowed: {error}"))),
    }
    let mut reply = RegionsV1 { shards: Vec::with_capacity(count as usize) };
    for readable in &shards.readable(&of) {
        reply
            .shards
            .push(regions.describe(readable, &*registrar).map_err(|error| images(error.to_string()))?);
    }
    let answer = RegionsAreFrame { whole_lines: answering.whole_lines };
    Ok(transmit.send_copy(answer.encode(frame.head.id), &control::seal(&reply))?)
}
