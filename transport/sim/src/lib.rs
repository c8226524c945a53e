//! A network in memory, with faults and its own clock, all from one seed: a whole cluster in one thread.
//!
//! Servers are actors: functions that do the work that is ready and return. A test drives the simulation
//! through a worker. When the worker waits, the actors run and virtual time advances to the next event. So the
//! worker's blocking calls run the same code as over TCP. Several workers that wait at once are processes
//! ([`Sim::spawn`]).
#![deny(unsafe_code)]

mod host;
mod poll;
mod process;
mod rdma;
mod world;

pub use poll::{SimPoll, SimWaker};
pub use process::SimProcess;
pub use world::Faults;

use gannet_transport::{Listener, Net, NetError, Registrar, RemoteReader, Stream};
use host::Host;
use rdma::{RegisteredMemory, SimReader, SimRegistrar};
use rustix::fd::{BorrowedFd, OwnedFd};
use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::io;
use std::io::{IoSlice, IoSliceMut};
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::time::Duration;
use world::{ConnectionSide, SimWorld};

/// The longest step of virtual time, so that actors notice when their time limits pass.
const STEP_MAX: Duration = Duration::from_millis(10);

type Actor = Box<dyn FnMut()>;

type Actors = RefCell<Vec<(u64, Actor)>>;

/// A simulated network; clones are the same network. It is not `Send`: one thread uses it. Actors exist as long
/// as the handle that [`Sim::new`] returned, and may own clones of it.
pub struct Sim {
    world: Rc<RefCell<SimWorld>>,
    actors: Weak<Actors>,
    actors_owner: Option<Rc<Actors>>,
    next_actor: Rc<Cell<u64>>,
    /// Whether an actor is running. A wait inside an actor must not step the world, and returns at once; inside a
    /// process it suspends the process.
    stepping: Rc<Cell<bool>>,
    /// Actors that do not run now.
    paused: Rc<RefCell<BTreeSet<u64>>>,
    /// The host of this handle.
    host: Rc<Host>,
}

impl Clone for Sim {
    fn clone(&self) -> Sim {
        Sim {
            world: self.world.clone(),
            actors: self.actors.clone(),
            actors_owner: None,
            next_actor: self.next_actor.clone(),
            stepping: self.stepping.clone(),
            paused: self.paused.clone(),
            host: self.host.clone(),
        }
    }
}

impl Drop for Sim {
    fn drop(&mut self) {
        // Actors that are dropped close their connections in the world, so the world must still exist.
        if let Some(actors) = self.actors_owner.take() {
            let actors = std::mem::take(&mut *actors.borrow_mut());
            drop(actors);
        }
    }
}

impl Sim {
    /// Makes the world of this seed.
    pub fn new(seed: u64, faults: Faults) -> Sim {
        let actors = Rc::<Actors>::default();
        Sim {
            world: Rc::new(RefCell::new(SimWorld::new(seed, faults))),
            actors: Rc::downgrade(&actors),
            actors_owner: Some(actors),
            next_actor: Rc::default(),
            stepping: Rc::default(),
            paused: Rc::default(),
            host: Rc::default(),
        }
    }

    /// The same network for a host whose clock is this far ahead of the others; [`Net::now`] returns that
    /// clock. If a later incarnation has a handle that is less far ahead, it sees a clock that has gone back.
    pub fn ahead(&self, ahead: Duration) -> Sim {
        self.on("", ahead, 0)
    }

    /// The same network for a host of this name: it is the host of the connections and listeners of this handle and its
    /// clones. Its clock is this far ahead of the others, and faster by so many millionths, or slower.
    ///
    /// ```
    /// # use gannet_transport::Net;
    /// # use gannet_sim::{Faults, Sim};
    /// # use std::time::Duration;
    /// let sim = Sim::new(1, Faults::none());
    /// let fast = sim.on("a", Duration::ZERO, 50_000);
    /// let (all, own) = (sim.now(), fast.now());
    /// sim.run(Duration::from_secs(100));
    /// assert_eq!((sim.now() - all, fast.now() - own), (Duration::from_secs(100), Duration::from_secs(105)));
    /// ```
    pub fn on(&self, host: &str, ahead: Duration, millionths: i32) -> Sim {
        let mut other = self.clone();
        other.host = Rc::new(Host::new(host, ahead, millionths));
        other
    }

    /// The clock of this handle's host jumps ahead.
    pub fn jump(&self, by: Duration) {
        self.host.jump(by);
    }

    /// For this long nothing arrives that a host sends to another, and neither connects to the other. It arrives when
    /// that is over, if the connection still exists.
    pub fn cut(&self, from: &str, to: &str, duration: Duration) {
        let mut world = self.world.borrow_mut();
        let until = world.now + duration;
        world.cut(from, to, until);
    }

    /// Breaks all connections of a host and frees its listening addresses, as if its processes had been killed. Those
    /// who have mapped their memory still see it. The caller does not run them any more.
    pub fn crash(&self, host: &str) {
        self.world.borrow_mut().crash(host);
    }

    /// From now on this actor does not run, or runs again. Time goes on.
    pub fn pause(&self, actor: u64, paused: bool) {
        let mut all = self.paused.borrow_mut();
        match paused {
            true => all.insert(actor),
            false => all.remove(&actor),
        };
    }

    /// Puts all processes on one host: files can be passed over connections.
    pub fn near(self) -> Sim {
        self.world.borrow_mut().near = true;
        self
    }

    /// Gives its connections RDMA. Registered memory is read in words, in any order, while the simulation continues.
    pub fn far(self) -> Sim {
        self.readable(false)
    }

    /// Gives its connections RDMA that reads whole lines of 64 bytes: each line at one moment, lines in any order.
    pub fn far_lines(self) -> Sim {
        self.readable(true)
    }

    fn readable(self, whole_lines: bool) -> Sim {
        self.world.borrow_mut().registered = Some(Arc::new(RegisteredMemory::new(whole_lines)));
        self
    }

    /// Runs `actor` whenever a caller waits, until [`Sim::remove_actor`].
    pub fn add_actor(&self, actor: impl FnMut() + 'static) -> u64 {
        let id = self.next_actor.get();
        self.next_actor.set(id + 1);
        if let Some(actors) = self.actors.upgrade() {
            actors.borrow_mut().push((id, Box::new(actor)));
        }
        id
    }

    /// Runs `body` as a process of its own: it may wait while other processes and actors run. It begins with the next
    /// step of the simulation, and ends with its function, or when it is killed.
    ///
    /// ```
    /// use gannet_sim::{Faults, Sim};
    /// use gannet_transport::{Net, Poll};
    /// use std::time::Duration;
    ///
    /// let sim = Sim::new(1, Faults::none());
    /// let sleep = |seconds| {
    ///     let own = sim.clone();
    ///     sim.spawn(move || own.poll().unwrap().wait(Duration::from_secs(seconds), &mut Vec::new()).unwrap())
    /// };
    /// let (short, long) = (sleep(2), sleep(5));
    /// sim.run(Duration::from_secs(3));
    /// assert!(short.has_ended() && !long.has_ended());
    /// sim.kill(&long);
    /// ```
    ///
    /// # Panics
    /// When there is no memory for a stack, or when a process or an actor calls it. A panic of `body` ends the
    /// simulation.
    pub fn spawn(&self, body: impl FnOnce() + 'static) -> SimProcess {
        assert!(
            !process::is_running() && !self.stepping.get(),
            "a process or an actor cannot spawn a process"
        );
        let (process, run) = process::make(self.next_actor.get(), body);
        self.add_actor(run);
        process
    }

    /// Ends a process in the middle of its wait, and drops everything that it owns. Do not call it from within a
    /// process or an actor.
    pub fn kill(&self, process: &SimProcess) {
        self.remove_actor(process.actor);
    }

    /// Drops an actor and everything that it owns, as if its process had been killed. Do not call it from
    /// within an actor.
    pub fn remove_actor(&self, id: u64) {
        let Some(actors) = self.actors.upgrade() else { return };
        let mut actors = actors.borrow_mut();
        let gone: Vec<_> = actors.extract_if(.., |(actor, _)| *actor == id).collect();
        drop(actors);
        drop(gone);
    }

    /// Sets the faults from now on.
    pub fn set_faults(&self, faults: Faults) {
        self.world.borrow_mut().faults = faults;
    }

    /// Breaks every connection to this address; bytes in flight are lost.
    pub fn reset_all(&self, addr: &str) {
        self.world.borrow_mut().reset_all(addr);
    }

    /// Breaks every connection to this address and refuses new ones for this long.
    pub fn cut_off(&self, addr: &str, duration: Duration) {
        let mut world = self.world.borrow_mut();
        let until = world.now + duration;
        world.cut_off(addr, until);
    }

    /// Connections broken so far.
    pub fn resets(&self) -> u64 {
        self.world.borrow().resets
    }

    /// Runs the simulation for this long.
    ///
    /// # Panics
    /// When a process or an actor calls it: they wait by [`Poll::wait`](gannet_transport::Poll::wait).
    pub fn run(&self, duration: Duration) {
        assert!(
            !process::is_running() && !self.stepping.get(),
            "a process or an actor cannot run the simulation"
        );
        let deadline = self.world_now() + duration;
        while self.world_now() < deadline {
            self.step(deadline);
        }
    }

    fn world_now(&self) -> Duration {
        self.world.borrow().now
    }

    /// Runs every actor once, then advances time to the next event, at most to `deadline`.
    fn step(&self, deadline: Duration) {
        self.world.borrow_mut().wake_at = None;
        self.run_actors();
        let mut world = self.world.borrow_mut();
        let step = world.now + STEP_MAX;
        let wake = world.wake_at.unwrap_or(step);
        world.now = world.next_due().unwrap_or(step).min(wake).min(step).min(deadline).max(world.now);
    }

    /// Suspends the running process. The simulation goes on with it at the next event, or at this time.
    fn suspend(&self, until: Duration) {
        let mut world = self.world.borrow_mut();
        world.wake_at = Some(world.wake_at.map_or(until, |at| at.min(until)));
        drop(world);
        process::suspend();
    }

    /// Advances the world by at most `most` in the middle of an operation of the driving thread.
    fn go_on(&self, most: Duration) {
        let until = self.world_now() + most;
        if process::is_running() {
            self.suspend(until);
        } else if !self.stepping.get() {
            self.step(until);
        }
    }

    fn run_actors(&self) {
        let Some(actors) = self.actors.upgrade() else { return };
        if self.stepping.replace(true) {
            return;
        }
        for (id, actor) in actors.borrow_mut().iter_mut() {
            if !self.paused.borrow().contains(id) {
                actor();
            }
        }
        self.stepping.set(false);
    }
}

impl Net for Sim {
    type Stream = SimStream;
    type Listener = SimListener;
    type Poll = SimPoll;
    type Waker = SimWaker;

    fn connect(&self, addr: &str, _: Duration) -> Result<SimStream, NetError> {
        let connected = self.world.borrow_mut().connect(addr, self.host.name());
        let side = connected.map_err(|source| NetError::Connect { addr: addr.to_owned(), source })?;
        Ok(SimStream::new(&self.world, Some(self.clone()), side))
    }

    fn begin_connect(&self, addr: &str, _: usize) -> Result<SimStream, NetError> {
        self.connect(addr, Duration::ZERO)
    }

    fn listen(&self, addr: &str) -> Result<SimListener, NetError> {
        let listening = self.world.borrow_mut().listen(addr, self.host.name());
        let (addr, id) = listening.map_err(|source| NetError::Listen { addr: addr.to_owned(), source })?;
        Ok(SimListener { world: self.world.clone(), addr, id })
    }

    fn poll(&self) -> Result<SimPoll, NetError> {
        Ok(SimPoll::new(self.clone()))
    }

    fn registrar(&self) -> Option<Arc<dyn Registrar>> {
        let registered = self.world.borrow().registered.clone()?;
        Some(Arc::new(SimRegistrar(registered)))
    }

    fn now(&self) -> Duration {
        self.host.time(self.world_now())
    }
}

/// One side of a simulated connection. Dropping it closes the side.
pub struct SimStream {
    world: Rc<RefCell<SimWorld>>,
    side: ConnectionSide,
    peer: Arc<str>,
    received: Vec<u8>,
    sending: Vec<u8>,
    reader: Option<SimReader>,
}

impl SimStream {
    fn new(world: &Rc<RefCell<SimWorld>>, sim: Option<Sim>, side: ConnectionSide) -> SimStream {
        let peer = world.borrow().peer_name(side);
        let registered = world.borrow().registered.clone();
        let reader = registered.map(|registered| SimReader::new(world, sim, side, registered));
        SimStream { world: world.clone(), side, peer, received: Vec::new(), sending: Vec::new(), reader }
    }

    /// Breaks the connection.
    pub fn reset(&self) {
        self.world.borrow_mut().reset(self.side.connection);
    }
}

impl Drop for SimStream {
    fn drop(&mut self) {
        self.world.borrow_mut().close(self.side);
    }
}

impl Stream for SimStream {
    fn recv(&mut self, slices: &mut [IoSliceMut<'_>]) -> io::Result<Option<usize>> {
        self.received.resize(slices.iter().map(|slice| slice.len()).sum(), 0);
        let Some(got) = self.world.borrow_mut().recv(self.side, &mut self.received)? else { return Ok(None) };
        let mut rest = &self.received[..got];
        for slice in slices {
            let (here, after) = rest.split_at(rest.len().min(slice.len()));
            slice[..here.len()].copy_from_slice(here);
            rest = after;
        }
        Ok(Some(got))
    }

    fn send(&mut self, slices: &[IoSlice<'_>]) -> io::Result<Option<usize>> {
        self.sending.clear();
        for slice in slices {
            self.sending.extend_from_slice(slice);
        }
        self.world.borrow_mut().send(self.side, &self.sending)
    }

    fn peer(&self) -> Arc<str> {
        self.peer.clone()
    }

    fn is_remote(&self) -> bool {
        true
    }

    fn transport(&self) -> &'static str {
        "sim"
    }

    fn is_near(&self) -> bool {
        self.world.borrow().near
    }

    fn reader(&mut self) -> Option<&mut dyn RemoteReader> {
        self.reader.as_mut().map(|reader| reader as &mut dyn RemoteReader)
    }

    fn allow_reads(&mut self) -> io::Result<bool> {
        Ok(self.world.borrow_mut().allow_reads(self.side))
    }

    fn give(&mut self, file: BorrowedFd<'_>) -> io::Result<()> {
        self.world.borrow_mut().give(self.side, file.try_clone_to_owned()?)
    }

    fn take_given(&mut self) -> io::Result<Option<OwnedFd>> {
        Ok(self.world.borrow_mut().take_given(self.side))
    }
}

/// A simulated listening address. Dropping it frees the address.
pub struct SimListener {
    world: Rc<RefCell<SimWorld>>,
    addr: String,
    id: u64,
}

impl Drop for SimListener {
    fn drop(&mut self) {
        self.world.borrow_mut().unlisten(&self.addr, self.id);
    }
}

impl Listener for SimListener {
    type Stream = SimStream;

    fn accept(&mut self) -> Result<Option<SimStream>, NetError> {
        let accepted = self.world.borrow_mut().accept(&self.addr, self.id);
        Ok(accepted.map(|side| SimStream::new(&self.world, None, side)))
    }

    fn addr(&self) -> &str {
        &self.addr
    }
}
