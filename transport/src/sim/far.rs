//! READs in the simulation: all of it is one process, whose memory is read through /proc/self/mem, line by line in an order
//! drawn from the seed. What was not registered, or not for READs by this side, cannot be read.

use super::prng::Prng;
use super::world::{Side, World};
use crate::error::NetError;
use crate::remote::{Region, Registrar, RemoteReader, Want};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

const LINE: u64 = 64;

/// What is registered.
#[derive(Debug, Default)]
pub(super) struct Registered {
    regions: Mutex<Keyed>,
}

/// The last key, and by key an address and bytes.
type Keyed = (u32, BTreeMap<u32, (u64, u64)>);

/// Ends a registration.
struct Held(Arc<Registered>, u32);

impl Drop for Held {
    fn drop(&mut self) {
        self.0.regions.lock().unwrap_or_else(PoisonError::into_inner).1.remove(&self.1);
    }
}

/// The simulation's.
pub(super) struct SimRegistrar(pub(super) Arc<Registered>);

impl Registrar for SimRegistrar {
    fn register(&self, addr: usize, bytes: usize) -> Result<Region, NetError> {
        let mut regions = self.0.regions.lock().unwrap_or_else(PoisonError::into_inner);
        regions.0 += 1;
        let rkey = regions.0;
        regions.1.insert(rkey, (addr as u64, bytes as u64));
        let held = Box::new(Held(self.0.clone(), rkey));
        Ok(Region { addr: addr as u64, bytes: bytes as u64, rkey, held })
    }

    fn regions(&self) -> u64 {
        self.0.regions.lock().unwrap_or_else(PoisonError::into_inner).1.len() as u64
    }
}

/// One side's reads.
pub(super) struct SimReader {
    world: Rc<RefCell<World>>,
    side: Side,
    registered: Arc<Registered>,
    memory: Option<File>,
    landing: Vec<u8>,
    prng: Prng,
}

impl SimReader {
    pub(super) fn new(world: &Rc<RefCell<World>>, side: Side, registered: Arc<Registered>) -> SimReader {
        let prng = Prng::new(side.connection);
        SimReader { world: world.clone(), side, registered, memory: None, landing: Vec::new(), prng }
    }

    fn check(&self, want: &Want) -> io::Result<()> {
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

    fn read(&mut self, wants: &[Want], _: Duration) -> io::Result<()> {
        let allowed = self.world.borrow_mut().may_read(self.side);
        let checked = allowed.and_then(|()| wants.iter().try_for_each(|want| self.check(want)));
        if let Err(error) = checked {
            self.world.borrow_mut().reset(self.side.connection);
            return Err(error);
        }
        if self.memory.is_none() {
            self.memory = Some(File::open("/proc/self/mem")?);
        }
        let mut lines = Vec::new();
        for want in wants {
            let end = want.addr + u64::from(want.bytes);
            let mut from = want.addr;
            while from < end {
                let to = ((from / LINE + 1) * LINE).min(end);
                let at = u64::from(want.at) + (from - want.addr);
                lines.push((from, at as usize..(at + to - from) as usize));
                from = to;
            }
        }
        let SimReader { memory: Some(memory), landing, prng, .. } = self else { return Ok(()) };
        while !lines.is_empty() {
            let (from, range) = lines.swap_remove(prng.below(lines.len() as u64) as usize);
            memory.read_exact_at(&mut landing[range], from)?;
        }
        Ok(())
    }
}
