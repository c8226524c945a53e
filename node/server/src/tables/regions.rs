//! Tells a worker where it may READ a table's rows over RDMA, and registers them for that. Each shard's header and each
//! extent of its rows is registered once, for remote READ only, until the table closes. This happens only if the device
//! does the READs itself, or if the worker wants them all the same.

use crate::requests::bulk::{RequestFailure, RequestOutcome, refuse};
use crate::requests::images::asked_for;
use crate::tables::server_tables::{ServerTable, ServerTables};
use gannet_core::{MemoryRange, ReadableShard};
use gannet_transport::{Frame, NetError, Region, Registrar, Stream, Transmit};
use gannet_wire::frames::declare::FrameKind;
use gannet_wire::frames::read_paths::{RegionsAreFrame, RegionsFrame};
use gannet_wire::limits::REGIONS_PER_REQUEST;
use gannet_wire::messages::control;
use gannet_wire::messages::control::{ExtentV1, RegionV1, RegionsV1};
use gannet_wire::refusal::Refusal;

/// The memory that a thread has registered of one table. Dropped before the shards.
#[derive(Default)]
pub(crate) struct Regions {
    all: Vec<(MemoryRange, Region)>,
    /// A failed registration was logged. Workers ask again and again.
    warned: bool,
}

impl Regions {
    /// The number of registrations.
    pub(crate) fn count(&self) -> usize {
        self.all.len()
    }

    /// The region of a memory range. Registers the range if it is new.
    fn of(&mut self, memory: &MemoryRange, registrar: &dyn Registrar) -> Result<(u64, u32), NetError> {
        let known =
            self.all.iter().find(|(known, _)| (known.addr, known.bytes) == (memory.addr, memory.bytes));
        if let Some((_, region)) = known {
            return Ok((region.addr, region.rkey));
        }
        let region = registrar.register(memory.addr, memory.bytes)?;
        let registered = (region.addr, region.rkey);
        self.all.push((*memory, region));
        Ok(registered)
    }

    fn describe(
        &mut self,
        readable: &ReadableShard,
        registrar: &dyn Registrar,
    ) -> Result<RegionV1, NetError> {
        let (header_addr, header_rkey) = self.of(&readable.header, registrar)?;
        let mut rows = Vec::with_capacity(readable.rows.len());
        for memory in &readable.rows {
            match self.of(memory, registrar) {
                Ok((addr, rkey)) => {
                    rows.push(ExtentV1 { offset: memory.offset, bytes: memory.bytes as u64, addr, rkey });
                }
                // Workers request these rows instead.
                Err(error) => {
                    if !std::mem::replace(&mut self.warned, true) {
                        let (shard, bytes) = (readable.shard, memory.bytes);
                        tracing::warn!(shard, bytes, %error, "rows cannot be registered: workers pull them instead");
                    }
                    break;
                }
            }
        }
        Ok(RegionV1 { incarnation: readable.incarnation, header_addr, header_rkey, rows })
    }
}

/// Answers where `count` of this thread's shards, from the `first`-th on, can be read. The session has greeted.
pub(crate) fn answer<S: Stream>(
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
