//! READs in the simulation. It is a single process, so registered memory is read through /proc/self/mem, in
//! lines or words, in an order drawn from the seed. The simulation may continue between two parts of one READ,
//! so rows can be written meanwhile. A READ fails if its memory is not registered, or if this side may not
//! read.

use super::Sim;
use super::world::{ConnectionSide, SimWorld};
use gannet_transport::{NetError, Prng, ReadCapability, ReadRequest, Region, Registrar, RemoteReader};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// The unit that is read at one moment: a line if lines are whole, else a word.
const LINE: u64 = 64;
const WORD: u64 = 8;

/// Between two parts, the simulation continues with a probability of one in this many, for at most [`STEP_MAX`].
const STEP_ONE_IN: u64 = 16;
const STEP_MAX: Duration = Duration::from_micros(20);

/// The registered memory of the simulation.
#[derive(Debug, Default)]
pub(super) struct RegisteredMemory {
    whole_lines: bool,
    regions: Mutex<RegionTable>,
}

/// The last key, and for each key an address and a length.
type RegionTable = (u32, BTreeMap<u32, (u64, u64)>);

impl RegisteredMemory {
    pub(super) fn new(whole_lines: bool) -> RegisteredMemory {
        RegisteredMemory { whole_lines, ..RegisteredMemory::default() }
    }
}

/// Ends a registration when it is dropped.
struct RegistrationGuard(Arc<RegisteredMemory>, u32);

impl Drop for RegistrationGuard {
    fn drop(&mut self) {
        self.0.regions.lock().unwrap_or_else(PoisonError::into_inner).1.remove(&self.1);
    }
}

/// The registrar of the simulation.
pub(super) struct SimRegistrar(pub(super) Arc<RegisteredMemory>);

impl Registrar for SimRegistrar {
    fn register(&self, addr: usize, bytes: usize) -> Result<Region, NetError> {
        let mut regions = self.0.regions.lock().unwrap_or_else(PoisonError::into_inner);
        regions.0 += 1;
        let rkey = regions.0;
        regions.1.insert(rkey, (addr as u64, bytes as u64));
        let held = Box::new(RegistrationGuard(self.0.clone(), rkey));
        Ok(Region { addr: addr as u64, bytes: bytes as u64, rkey, held })
    }

    fn answering(&self) -> ReadCapability {
        ReadCapability { by_device: true, whole_lines: self.0.whole_lines }
    }

    fn regions(&self) -> u64 {
        self.0.regions.lock().unwrap_or_else(PoisonError::into_inner).1.len() as u64
    }
}

/// The reads of one side.
pub(super) struct SimReader {
    world: Rc<RefCell<SimWorld>>,
    /// The simulation, which continues while something is read.
    sim: Option<Sim>,
    side: ConnectionSide,
    registered: Arc<RegisteredMemory>,
    memory: Option<File>,
    landing: Vec<u8>,
    prng: Prng,
}

impl SimReader {
    pub(super) fn new(
        world: &Rc<RefCell<SimWorld>>,
        sim: Option<Sim>,
        side: ConnectionSide,
        registered: Arc<RegisteredMemory>,
    ) -> SimReader {
        let prng = Prng::new(side.connection);
        SimReader { world: world.clone(), sim, side, registered, memory: None, landing: Vec::new(), prng }
    }

    /// Reads a part, if it may be read at this moment.
    fn read_part(&mut self, from: u64, rkey: u32, range: Range<usize>) -> io::Result<()> {
        let (addr, bytes) = (from, range.len() as u32);
        self.world.borrow_mut().may_read(self.side)?;
        self.check(&ReadRequest { addr, rkey, bytes, at: 0 })?;
        if self.memory.is_none() {
            self.memory = Some(File::open("/proc/self/mem")?);
        }
        let SimReader { memory: Some(memory), landing, .. } = self else { return Ok(()) };
        memory.read_exact_at(&mut landing[range], from)
    }

    /// The parts of these READs, each with its key, in the order of their addresses.
    fn parts(&self, wants: &[ReadRequest]) -> Vec<(u64, u32, Range<usize>)> {
        let size = if self.registered.whole_lines { LINE } else { WORD };
        let mut parts = Vec::new();
        for want in wants {
            let end = want.addr + u64::from(want.bytes);
            let mut from = want.addr;
            while from < end {
                let to = ((from / size + 1) * size).min(end);
                let at = u64::from(want.at) + (from - want.addr);
                parts.push((from, want.rkey, at as usize..(at + to - from) as usize));
                from = to;
            }
        }
        parts
    }

    fn check(&self, want: &ReadRequest) -> io::Result<()> {
        let regions = self.registered.regions.lock().unwrap_or_else(PoisonError::into_inner);
        let inside = regions.1.get(&want.rkey).is_some_and(|&(addr, bytes)| {
            want.addr >= addr && want.addr + u64::from(want.bytes) <= addr + bytes
        });
        if inside { Ok(()) } else { Err(io::Error::other("remote access error")) }
    }
}

impl RemoteReader for SimReader {
    fn landing(&mut self, bytes: usize) -> io::Result<()> {
        if self.landing.len() < bytes {
            self.landing = vec![0; bytes];
        }
        Ok(())
    }

    fn landed(&self) -> &[u8] {
        &self.landing
    }

    fn by_device(&self) -> bool {
        true
    }

    fn read(&mut self, wants: &[ReadRequest], _: Duration) -> io::Result<()> {
        let mut parts = self.parts(wants);
        while !parts.is_empty() {
            let next = self.prng.below(parts.len() as u64) as usize;
            let (from, rkey, range) = parts.swap_remove(next);
            if let Err(error) = self.read_part(from, rkey, range) {
                self.world.borrow_mut().reset(self.side.connection);
                return Err(error);
            }
            if let Some(sim) = &self.sim
                && self.prng.below(STEP_ONE_IN) == 0
            {
                sim.go_on(STEP_MAX);
            }
        }
        Ok(())
    }
}
