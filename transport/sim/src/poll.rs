//! Waits of the simulation: what has happened on connections and listeners, in virtual time.

use super::world::{ConnectionSide, Edge};
use super::{Sim, SimListener, SimStream, process};
use gannet_transport::{Event, NetError, Poll, Waker};
use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

/// The virtual time that a wait of zero takes.
const LOOK: Duration = Duration::from_micros(1);

/// Waits in virtual time.
pub struct SimPoll {
    sim: Sim,
    sides: Vec<(ConnectionSide, u64)>,
    /// Addresses, numbers and tokens.
    listeners: Vec<(String, u64, u64)>,
    woken: Rc<Cell<bool>>,
}

impl SimPoll {
    pub(super) fn new(sim: Sim) -> SimPoll {
        SimPoll { sim, sides: Vec::new(), listeners: Vec::new(), woken: Rc::default() }
    }

    fn look(&mut self, events: &mut Vec<Event>) {
        let mut world = self.sim.world.borrow_mut();
        self.sides.retain(|&(side, token)| {
            let Some(Edge { readable, writable, closed }) = world.edge(side) else { return false };
            if readable || writable || closed {
                events.push(Event { token, readable, writable, closed });
            }
            true
        });
        for (addr, id, token) in &self.listeners {
            if world.has_waiting(addr, *id) {
                events.push(Event { token: *token, readable: true, ..Event::default() });
            }
        }
    }
}

impl Poll for SimPoll {
    type Stream = SimStream;
    type Listener = SimListener;
    type Waker = SimWaker;

    fn add(&mut self, stream: &SimStream, token: u64) -> Result<(), NetError> {
        self.sides.retain(|(side, _)| *side != stream.side);
        self.sides.push((stream.side, token));
        Ok(())
    }

    fn remove(&mut self, stream: &SimStream) -> Result<(), NetError> {
        self.sides.retain(|(side, _)| *side != stream.side);
        Ok(())
    }

    fn add_listener(&mut self, listener: &SimListener, token: u64) -> Result<(), NetError> {
        self.listeners.push((listener.addr.clone(), listener.id, token));
        Ok(())
    }

    fn waker(&self) -> SimWaker {
        SimWaker(self.woken.clone())
    }

    fn wait(&mut self, timeout: Duration, events: &mut Vec<Event>) -> Result<(), NetError> {
        events.clear();
        let deadline = self.sim.world_now() + self.sim.host.world_time(timeout);
        if process::is_running() {
            // Each check takes time, so a process that spins lets the others go on.
            let until = deadline.max(self.sim.world_now() + LOOK);
            self.look(events);
            while events.is_empty() && !self.woken.replace(false) && self.sim.world_now() < until {
                self.sim.suspend(until);
                self.look(events);
            }
            return Ok(());
        }
        loop {
            self.look(events);
            if !events.is_empty() || self.woken.replace(false) || self.sim.stepping.get() {
                return Ok(());
            }
            if self.sim.world_now() >= deadline {
                // Each check takes time too, so a caller that spins reaches its time limit.
                self.sim.step(deadline + LOOK);
                self.look(events);
                return Ok(());
            }
            self.sim.step(deadline);
        }
    }
}

/// Wakes a simulated poll.
#[derive(Clone)]
pub struct SimWaker(Rc<Cell<bool>>);

impl Waker for SimWaker {
    fn wake(&self) {
        self.0.set(true);
    }
}
