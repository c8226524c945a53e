//! Tells a worker where it may READ a table's rows over RDMA, and registers them for that. Each shard's header and each
//! extent of its rows is registered once, for remote READ only, until the table closes. This happens only if the device
//! does the READs itself, or if the worker wants them all the same.

use gannet_core::{MemoryRange, ReadableShard};
use gannet_transport::{NetError, Region, Registrar};
use gannet_wire::messages::control::{ExtentV1, RegionV1};

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

    pub(crate) fn describe(
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
