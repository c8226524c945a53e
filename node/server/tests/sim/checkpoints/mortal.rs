//! A coordinator that is killed: its network ends it at one of its waits, as a kill would.

use gannet_sim::{Sim, SimListener, SimPoll, SimStream, SimWaker};
use gannet_transport::{Event, Net, NetError, Poll};
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::rc::Rc;
use std::time::Duration;

/// What unwinds in place of a kill.
struct Killed;

/// A network that kills its user after so many waits.
#[derive(Clone)]
pub struct Mortal {
    sim: Sim,
    left: Rc<Cell<u64>>,
    /// A server that does not get what was sent to it just before.
    loses: Rc<str>,
}

impl Mortal {
    pub fn new(sim: &Sim, waits: u64) -> Mortal {
        Mortal::losing(sim, waits, "")
    }

    /// As it dies, the connections to a server break, and what is on its way there is lost.
    pub fn losing(sim: &Sim, waits: u64, server: &str) -> Mortal {
        Mortal { sim: sim.clone(), left: Rc::new(Cell::new(waits)), loses: server.into() }
    }

    /// How many waits are left.
    pub fn left(&self) -> u64 {
        self.left.get()
    }
}

/// Ends the present process of the simulation.
pub fn kill() -> ! {
    resume_unwind(Box::new(Killed))
}

/// Runs a process that may be killed. `None`: it was.
pub fn run<T>(process: impl FnOnce() -> T) -> Option<T> {
    match catch_unwind(AssertUnwindSafe(process)) {
        Ok(done) => Some(done),
        Err(why) if why.is::<Killed>() => None,
        Err(why) => resume_unwind(why),
    }
}

impl Net for Mortal {
    type Stream = SimStream;
    type Listener = SimListener;
    type Poll = MortalPoll;
    type Waker = SimWaker;

    fn connect(&self, addr: &str, timeout: Duration) -> Result<SimStream, NetError> {
        self.sim.connect(addr, timeout)
    }

    fn begin_connect(&self, addr: &str, attempt: usize) -> Result<SimStream, NetError> {
        self.sim.begin_connect(addr, attempt)
    }

    fn listen(&self, addr: &str) -> Result<SimListener, NetError> {
        self.sim.listen(addr)
    }

    fn poll(&self) -> Result<MortalPoll, NetError> {
        Ok(MortalPoll { poll: self.sim.poll()?, of: self.clone() })
    }

    fn now(&self) -> Duration {
        self.sim.now()
    }
}

/// Counts the waits.
pub struct MortalPoll {
    poll: SimPoll,
    of: Mortal,
}

impl Poll for MortalPoll {
    type Stream = SimStream;
    type Listener = SimListener;
    type Waker = SimWaker;

    fn add(&mut self, stream: &SimStream, token: u64) -> Result<(), NetError> {
        self.poll.add(stream, token)
    }

    fn remove(&mut self, stream: &SimStream) -> Result<(), NetError> {
        self.poll.remove(stream)
    }

    fn add_listener(&mut self, listener: &SimListener, token: u64) -> Result<(), NetError> {
        self.poll.add_listener(listener, token)
    }

    fn waker(&self) -> SimWaker {
        self.poll.waker()
    }

    fn wait(&mut self, timeout: Duration, events: &mut Vec<Event>) -> Result<(), NetError> {
        match self.of.left.get().checked_sub(1) {
            Some(left) => self.of.left.set(left),
            None => {
                self.of.sim.reset_all(&self.of.loses);
                kill()
            }
        }
        self.poll.wait(timeout, events)
    }
}
