//! Deals the faults of a round, and waits until followers are new again.

use super::faults::{Blow, Fault};
use super::job::{Job, until};
use super::pusher::Pusher;
use crate::harness::Process;
use gannet::{Schema, Transports};
use rustix::process::Signal;
use std::collections::BTreeMap;
use std::sync::atomic::Ordering::SeqCst;
use std::time::{Duration, Instant};

/// Longer than the lease of a server: it has lost its place.
const BEYOND_LEASE: Duration = Duration::from_secs(4);
/// A backup takes no place earlier than this after a death.
const BEFORE_TAKEN: Duration = Duration::from_secs(1);

/// How often each kind of fault was dealt.
pub type Dealt = BTreeMap<&'static str, u32>;

/// A job, and what is dealt to it.
pub struct Dealer<'a> {
    pub job: &'a mut Job,
    pub schema: Schema,
    pub pusher: Option<Pusher>,
    /// The servers that have places, or are backups of those.
    members: [usize; 2],
    pub dealt: Dealt,
    pub longest: Duration,
    began: Instant,
}

impl<'a> Dealer<'a> {
    /// `pushes`: a worker of this process pushes, too.
    pub fn new(job: &'a mut Job, pushes: bool) -> Dealer<'a> {
        let schema = job.schema();
        let mut dealer = Dealer {
            job,
            schema,
            pusher: None,
            members: [0, 1],
            dealt: Dealt::new(),
            longest: Duration::ZERO,
            began: Instant::now(),
        };
        if pushes {
            dealer.push();
        }
        dealer
    }

    /// Starts to push in another life of the rows.
    fn push(&mut self) {
        let (state, config) = (&self.job.state, self.job.client());
        self.pusher = Some(Pusher::start(state, Transports::new(), config, self.schema.clone()));
    }

    pub fn deal(&mut self, blow: &Blow) {
        if self.pusher.is_some() {
            self.job.until_done(blow.percent);
        }
        let is_of_server = |fault: &Fault| {
            matches!(fault, Fault::KillServer(_) | Fault::MoveServer(_) | Fault::StopServer(_))
        };
        let mut pause = blow.pause;
        if self.job.backed && blow.faults.iter().any(is_of_server) {
            self.job.until_backed();
            let stops = blow.faults.iter().any(|fault| matches!(fault, Fault::StopServer(_)));
            pause = if stops { pause.max(BEYOND_LEASE) } else { pause };
        }
        println!("  {:.1} s: {:?}", self.began.elapsed().as_secs_f64(), blow.faults);
        blow.faults.iter().for_each(|fault| self.begin(fault));
        std::thread::sleep(pause);
        blow.faults.iter().for_each(|fault| self.end(fault, blow.chance));
        if blow.waits {
            self.recover();
        }
        self.job.state.check();
    }

    /// Notes that nothing new reaches these followers from now on.
    fn cut_off(&self, followers: &[usize], until: Option<Duration>) {
        let now = Instant::now();
        for &follower in followers {
            let mut cut_off = self.job.state.followers[follower].cut_off.lock().unwrap();
            cut_off.push((now, until.map(|time| now + time)));
        }
    }

    /// Something new may reach the followers again.
    fn joined(&self, followers: &[usize]) {
        for &follower in followers {
            let mut cut_off = self.job.state.followers[follower].cut_off.lock().unwrap();
            let open = cut_off.iter_mut().filter(|(_, until)| until.is_none());
            open.for_each(|(_, until)| *until = Some(Instant::now()));
        }
    }

    fn note(&mut self, what: &'static str) {
        *self.dealt.entry(what).or_default() += 1;
    }

    fn begin(&mut self, fault: &Fault) {
        let until_taken = self.job.backed.then_some(BEFORE_TAKEN);
        match *fault {
            Fault::KillServer(which) | Fault::MoveServer(which) => {
                self.job.servers[self.members[which]].take().unwrap().kill();
                self.cut_off(&[0, 1], until_taken);
            }
            Fault::StopServer(which) => {
                let server = self.job.servers[self.members[which]].as_ref().unwrap();
                server.child.signal(Signal::STOP);
                self.cut_off(&[0, 1], until_taken);
            }
            Fault::KillFollower(which) => {
                self.job.kill_follower(which);
                if which == 0 {
                    self.cut_off(&[1], None);
                }
            }
            Fault::KillTrainer(which) => self.kill_trainer(which),
            Fault::Restore => {
                until("a checkpoint", || {
                    let folder = std::fs::read_dir(self.job.checkpoints()).ok()?;
                    folder.flatten().any(|of| of.path().join("MANIFEST").exists()).then_some(())
                });
                if let Some(pusher) = &mut self.pusher {
                    pusher.stop(&self.job.state);
                }
                (0..self.job.training.workers).for_each(|which| self.kill_trainer(which));
                (0..2).for_each(|which| self.job.servers[which].take().unwrap().kill());
                self.cut_off(&[0, 1], None);
            }
        }
    }

    /// Kills a trainer, unless it has ended.
    fn kill_trainer(&mut self, which: usize) {
        *self.job.state.dripped.lock().unwrap() = None;
        let Some(mut trainer) = self.job.trainers[which].take() else { return };
        if trainer.is_alive() {
            trainer.child.0.kill().unwrap();
        }
        let done = trainer.wait();
        let is_over = done.code == Some(2) && done.err.contains("is finished");
        assert!(matches!(done.code, None | Some(0)) || is_over, "{done:?}");
    }

    fn end(&mut self, fault: &Fault, chance: u64) {
        match *fault {
            Fault::KillServer(which) => {
                let server = self.members[which];
                self.joined_by_server();
                self.job.servers[server] = Some(self.job.server(server));
                self.note(if self.job.backed { "places taken by backups" } else { "servers killed" });
            }
            Fault::MoveServer(which) => {
                self.job.hosts.push(crate::harness::ports::free_addr());
                let spare = self.job.hosts.len() - 1;
                let server = self.job.server(spare);
                self.job.servers.push(Some(server));
                self.members[which] = spare;
                self.note("places moved to new servers");
            }
            Fault::StopServer(which) => {
                self.joined_by_server();
                self.go_on(which);
                self.note(if self.job.backed { "owners stopped" } else { "servers stopped" });
            }
            Fault::KillFollower(which) => {
                self.job.start_follower(which);
                if which == 0 {
                    self.joined(&[1]);
                }
                self.note(["feeding followers killed", "fed followers killed"][which]);
            }
            Fault::KillTrainer(which) => {
                self.job.start_trainer(which);
                self.note("trainers killed");
            }
            Fault::Restore => {
                self.job.restore(chance);
                self.joined(&[0, 1]);
                for which in 0..2 {
                    self.job.servers[which] = Some(self.job.server(which));
                }
                (0..self.job.training.workers).for_each(|which| self.job.start_trainer(which));
                if self.pusher.is_some() {
                    self.push();
                }
                self.note("restores of older checkpoints");
            }
        }
    }

    /// A server on a data folder comes back. The times of servers with backups have ends of their own.
    fn joined_by_server(&self) {
        if !self.job.backed {
            self.joined(&[0, 1]);
        }
    }

    /// A server that was stopped goes on. If it has lost its place it ends, and is started again.
    fn go_on(&mut self, which: usize) {
        let number = self.members[which];
        let server = self.job.servers[number].as_mut().unwrap();
        server.child.signal(Signal::CONT);
        if !self.job.backed {
            return;
        }
        let start = Instant::now();
        while start.elapsed() < BEYOND_LEASE {
            if server.child.0.try_wait().unwrap().is_some() {
                self.job.servers[number] = Some(self.job.server(number));
                return;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Waits until both followers have rows of a moment after now, by themselves.
    pub fn recover(&mut self) {
        let start = Instant::now();
        for follower in &self.job.state.followers {
            until("a follower that is new", || {
                self.job.state.check();
                (*follower.rows_of.lock().unwrap() > Some(start)).then_some(())
            });
        }
        self.longest = self.longest.max(start.elapsed());
    }

    /// Waits until all is trained.
    pub fn end_of_training(&mut self) {
        if let Some(stands) = self.job.state.dripped.lock().unwrap().take() {
            rustix::process::kill_process(stands, Signal::CONT).unwrap();
        }
        for trainer in self.job.trainers.iter_mut().filter_map(Option::take) {
            let done = Process::wait(trainer);
            let is_over = done.code == Some(2) && done.err.contains("is finished");
            assert!(done.code == Some(0) || is_over, "{done:?}");
        }
    }

    /// Waits until all is trained, and holds the answers of both followers against the model that was saved.
    pub fn finish(&mut self) {
        println!("  {:.1} s: no more faults", self.began.elapsed().as_secs_f64());
        if let Some(pusher) = &mut self.pusher {
            pusher.stop(&self.job.state);
        }
        self.end_of_training();
        let tasks = self.job.status()["job"]["tasks"].as_u64().unwrap();
        self.recover();
        (0..2).for_each(|which| self.job.has_all(which));
        // Each task ends by a command in each shard, and so do workers.
        let (shards, other) = (self.job.state.shards.load(SeqCst), self.job.state.seen().other);
        assert!(other <= shards * (tasks + 16), "{other} commands are no pushes of rows");
        let lives = self.job.state.lives.lock().unwrap();
        assert!(!lives[0].acked.is_empty(), "nothing was pushed");
    }
}
