//! The chief: worker 0, which leads the training. It handles numbers only (dot products, losses and slopes). It runs
//! programs on the columns at the servers, and requests losses and gradients from the workers by [commands](Command).

use crate::backend::error::BackendError;
use crate::lbfgs::cells::{self, ChiefMemory, Command, FollowerView};
use crate::lbfgs::examples::Losses;
use crate::lbfgs::follower::{CellPoll, PassBuffers};
use crate::lbfgs::layout::Penalties;
use crate::lbfgs::settings::{LbfgsSettings, Trained};
use crate::lbfgs::{Columns, Examples, LbfgsError, WeightSink};
use crate::read::block::INTERCEPT_KEY;
use gannet_core::{hash, shard_of};
use gannet_optim::lbfgs::{Gram, Point, Search, Sum, split, strong_wolfe};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// Why an iteration ends early.
enum Halt {
    /// A worker has restarted, so the iteration must start again.
    Again,
    /// The stop flag is set.
    Stopped,
    /// The training has failed.
    Error(LbfgsError),
}

impl From<BackendError> for Halt {
    fn from(error: BackendError) -> Halt {
        Halt::Error(error.into())
    }
}

/// The objective along the direction.
struct LineSearchPoint {
    from: Point,
    /// `w . d` and `d . d` of the penalised weights, and the growth of `|w|_1` per step.
    wd: f64,
    dd: f64,
    growth: f64,
}

/// The leader of a training. One process trains with a chief alone.
pub struct Chief<'a, C> {
    columns: &'a mut C,
    examples: &'a mut Examples,
    settings: LbfgsSettings,
    penalties: Penalties,
    stop: &'a AtomicBool,
    passes: PassBuffers,
    gram: Gram,
    /// The slots of the valid pairs, the oldest first, and the slot of the next pair.
    order: VecDeque<usize>,
    next: usize,
    half: usize,
    command_id: u64,
    /// `|w|^2` and `|w|_1` of the penalised weights, and the square of the (pseudo-)gradient's length.
    norms: [f64; 3],
    /// The cells of each other worker, as read last.
    arrived: Vec<cells::FollowerView>,
    trained: Trained,
}

impl<'a, C: Columns> Chief<'a, C> {
    /// Makes this worker the chief. It continues from the state in the tables, if there is one. It uses the pairs
    /// there only if they were computed with the same penalties.
    ///
    /// # Errors
    /// The servers are lost.
    pub fn new(
        columns: &'a mut C,
        examples: &'a mut Examples,
        settings: LbfgsSettings,
        stop: &'a AtomicBool,
    ) -> Result<Chief<'a, C>, LbfgsError> {
        let layout = columns.layout();
        let (memory, command_id) = (cells::recall(columns)?, cells::last_command_id(columns)?);
        let arrived = cells::seen(columns, settings.workers)?;
        let free = settings.intercept.then_some(INTERCEPT_KEY);
        let penalties = Penalties { l1: settings.l1, l2: settings.l2, free };
        let mut chief = Chief {
            gram: Gram::new(layout.slots()),
            order: VecDeque::new(),
            next: 0,
            half: 0,
            command_id,
            norms: [0.0; 3],
            arrived,
            trained: Trained { objective: f64::NAN, importance: f64::NAN, ..Trained::default() },
            passes: PassBuffers::default(),
            columns,
            examples,
            settings,
            penalties,
            stop,
        };
        if let Some(memory) = memory {
            chief.go_on_from(&memory);
        }
        Ok(chief)
    }

    fn go_on_from(&mut self, memory: &ChiefMemory) {
        let LbfgsSettings { l1, l2, intercept, .. } = self.settings;
        let slots = self.columns.layout().slots();
        self.half = memory.half;
        self.trained.resumed_at = memory.iterations;
        let penalties = [Command::rounded(l1), Command::rounded(l2)];
        if (penalties, intercept) == ([memory.l1, memory.l2], memory.intercept) && memory.pairs < slots {
            self.next = memory.next % slots;
            self.order = (0..memory.pairs).map(|i| (self.next + slots - memory.pairs + i) % slots).collect();
        }
        let (iterations, pairs) = (memory.iterations, self.order.len());
        tracing::info!(iterations, pairs, "continuing from the weights in the tables");
    }

    /// Starts from the weights that `weights` passes page by page, instead of the weights in the tables. Weights that
    /// it does not pass are 0. Returns how many it passed.
    ///
    /// # Errors
    /// `weights` fails, or the servers are lost.
    pub fn begin_from<E: From<LbfgsError>>(
        &mut self,
        weights: impl FnOnce(&mut WeightSink<'_>) -> Result<(), E>,
    ) -> Result<u64, E> {
        // The id is written before any push under it, so that another chief takes a larger id.
        self.command_id += 1;
        let (command_id, mut count) = (self.command_id, 0);
        cells::command(self.columns, command_id, Command::Roll).map_err(LbfgsError::from)?;
        let columns = &mut *self.columns;
        weights(&mut |keys, weights| {
            let mut rows: Vec<(u64, f32)> = keys.iter().copied().zip(weights.iter().copied()).collect();
            rows.sort_by_key(|&(key, _)| (shard_of(hash(key), columns.layout().schema().shards), key));
            let keys: Vec<u64> = rows.iter().map(|row| row.0).collect();
            count += keys.len() as u64;
            Ok(columns.add(
                command_id,
                &keys,
                rows.iter().flat_map(|row| split(f64::from(row.1))).collect(),
            )?)
        })?;
        let program = self.columns.layout().begin_from(self.half, command_id);
        self.columns.run(&program).map_err(LbfgsError::from)?;
        self.order.clear();
        self.trained.resumed_at = 0;
        self.remember().map_err(LbfgsError::from)?;
        Ok(count)
    }

    /// Trains. Calls `progress` after each iteration.
    ///
    /// # Errors
    /// A worker or the servers are lost, or a number is not finite.
    pub fn train(mut self, progress: &mut dyn FnMut(&Trained)) -> Result<Trained, LbfgsError> {
        loop {
            match self.run(progress) {
                Ok(()) => break,
                Err(Halt::Stopped) => {
                    self.trained.stopped = true;
                    break;
                }
                Err(Halt::Again) => tracing::warn!("a worker has restarted: repeating the iteration"),
                Err(Halt::Error(error)) => return Err(error),
            }
        }
        self.command_id += 1;
        cells::command(self.columns, self.command_id, Command::End)?;
        Ok(self.trained)
    }

    fn run(&mut self, progress: &mut dyn FnMut(&Trained)) -> Result<(), Halt> {
        self.gather()?;
        self.precondition()?;
        self.begin()?;
        progress(&self.trained);
        if self.is_flat() {
            self.trained.converged = true;
            return Ok(());
        }
        // The newest objective is last.
        let mut objectives = VecDeque::from([self.trained.objective]);
        let mut moved = 0.0;
        while self.trained.iterations < u64::from(self.settings.iterations) {
            if self.stop.load(Relaxed) {
                return Err(Halt::Stopped);
            }
            let Some(step) = self.iterate(moved)? else {
                self.trained.converged = true;
                return Ok(());
            };
            moved = step;
            progress(&self.trained);
            objectives.push_back(self.trained.objective);
            if objectives.len() > LbfgsSettings::WINDOW {
                let before = objectives.pop_front().unwrap_or(f64::INFINITY);
                self.trained.converged =
                    before - self.trained.objective <= LbfgsSettings::STALLED * self.trained.objective.abs();
            }
            if self.trained.converged || self.is_flat() {
                self.trained.converged = true;
                return Ok(());
            }
        }
        Ok(())
    }

    /// Whether the length of the mean objective's gradient is within the tolerance.
    fn is_flat(&self) -> bool {
        self.trained.mean_slope() <= self.settings.tolerance
    }

    /// Makes the workers sum an upper bound of each weight's curvature, and the shards compute the preconditioner
    /// from it.
    fn precondition(&mut self) -> Result<(), Halt> {
        self.command(Command::Curvature)?;
        self.trained.passes += 1;
        let program = self.columns.layout().precondition(self.command_id, &self.penalties);
        self.columns.run(&program)?;
        Ok(())
    }

    /// Waits until all workers have started.
    fn gather(&mut self) -> Result<(), Halt> {
        loop {
            self.command_id += 1;
            cells::command(self.columns, self.command_id, Command::Roll)?;
            let own = Losses { loss: self.examples.importance(), slope: self.examples.len() as f64 };
            match self.wait(own, Command::Roll) {
                Err(Halt::Again) => {}
                Err(error) => return Err(error),
                Ok(all) => {
                    (self.trained.importance, self.trained.examples) = (all.loss, all.slope as u64);
                    return Ok(());
                }
            }
        }
    }

    /// Computes loss, slope and dot products at the current weights.
    fn begin(&mut self) -> Result<(), Halt> {
        let at = self.command(Command::Begin { half: self.half })?;
        self.trained.passes += 1;
        self.order.make_contiguous();
        let (order, _) = self.order.as_slices();
        let layout = self.columns.layout();
        let program = layout.gram_program(&self.gram, order, self.half, self.command_id, &self.penalties);
        self.take(&program, at.loss)
    }

    /// Runs a program that computes dot products. Sets the norms and the objective from its sums and the loss.
    fn take(&mut self, gram_program: &crate::lbfgs::layout::GramProgram, loss: f64) -> Result<(), Halt> {
        let sums = self.columns.run(&gram_program.program)?;
        let finite = sums.iter().all(|sum| sum.is_finite());
        let norms = gram_program.take(&mut self.gram, &sums).filter(|_| finite);
        self.norms = norms.ok_or(Halt::Error(LbfgsError::NotFinite("gradient")))?;
        let [squares, ones, slope] = self.norms;
        self.trained.loss = loss;
        self.trained.objective = loss + 0.5 * self.settings.l2 * squares + self.settings.l1 * ones;
        self.trained.slope = slope.sqrt();
        match self.trained.objective.is_finite() {
            true => Ok(()),
            false => Err(Halt::Error(LbfgsError::NotFinite("objective"))),
        }
    }

    /// Runs one iteration. Returns the step, or `None` when no step makes the objective smaller. `moved` is the step
    /// before, which the workers' margins do not include yet.
    fn iterate(&mut self, mut moved: f64) -> Result<Option<f64>, Halt> {
        loop {
            if self.trained.slope == 0.0 {
                return Ok(None);
            }
            let line = self.make_direction()?;
            let found = if line.from.slope < 0.0 { self.search(&line, &mut moved)? } else { None };
            if let Some((point, pass)) = found {
                self.step(point, pass)?;
                return Ok(Some(point.step));
            }
            // The pairs may describe the curvature at another point: try once more without them.
            if self.order.is_empty() {
                return Ok(None);
            }
            self.order.clear();
        }
    }

    /// Whether a pair has measured a positive curvature. With L1 this is over the weights that may move now, so the
    /// answer may change from step to step.
    fn is_curved(&self, slot: usize) -> bool {
        let (s, y) = (self.gram.s(slot), self.gram.y(slot));
        let [sy, yy] = [(s, y), (y, y)].map(|(a, b)| self.gram.get(a, b));
        // Preconditioned, a convex function with curvatures of at most 1 has s y >= y y / (features of an example).
        sy > 1e-9 * yy && yy > 0.0
    }

    /// Computes the direction. Returns the objective's value and slope where it starts.
    fn make_direction(&mut self) -> Result<LineSearchPoint, Halt> {
        let order: Vec<usize> = self.order.iter().copied().filter(|&slot| self.is_curved(slot)).collect();
        let layout = self.columns.layout();
        let program = layout.direction_program(&self.gram, &order, self.half, &self.penalties);
        let sums = self.columns.run(&program)?;
        if sums.iter().any(|sum| !sum.is_finite()) {
            return Err(Halt::Error(LbfgsError::NotFinite("direction")));
        }
        let growth = sums.get(3).map_or(0.0, |norm| norm - self.norms[1]);
        let slope = sums[0] + self.settings.l1 * growth;
        let from = Point { step: 0.0, value: self.trained.objective, slope };
        Ok(LineSearchPoint { from, wd: sums[1], dd: sums[2], growth })
    }

    /// The objective's value and slope at a step.
    fn objective(&self, line: &LineSearchPoint, step: f64, at: Losses) -> (f64, f64) {
        let LbfgsSettings { l1, l2, .. } = self.settings;
        let [squares, ones, _] = self.norms;
        let squares = squares + step * (2.0 * line.wd + step * line.dd);
        let value = at.loss + 0.5 * l2 * squares + l1 * (ones + step * line.growth);
        (value, at.slope + l2 * (line.wd + step * line.dd) + l1 * line.growth)
    }

    /// Searches for a step. Returns it, and the id of the pass that has summed the gradient there.
    fn search(&mut self, line: &LineSearchPoint, moved: &mut f64) -> Result<Option<(Point, u64)>, Halt> {
        let first = self.command(Command::Direction { moved: *moved })?;
        *moved = 0.0;
        self.trained.passes += 1;
        let guessed = self.command_id;
        // With L1 the direction ends at the border of its orthant.
        let longest = if self.settings.l1 > 0.0 { 1.0 } else { Search::default().longest };
        // Where the step may not be longer, a sufficient decrease is enough (Andrew and Gao): losses are convex.
        let curvature = if self.settings.l1 > 0.0 { f64::INFINITY } else { Search::default().curvature };
        let search = Search { longest, curvature, ..Search::default() };
        let mut last = (1.0, first);
        let found = strong_wolfe(&search, line.from, |step| {
            let at = match step == 1.0 {
                true => first,
                false => {
                    self.trained.tries += 1;
                    self.command(Command::Try { step })?
                }
            };
            last = (step, at);
            Ok::<_, Halt>(self.objective(line, step, at))
        })?;
        let Some(point) = found else { return Ok(None) };
        if point.step == 1.0 {
            self.trained.loss = first.loss;
            return Ok(Some((point, guessed)));
        }
        let at = self.command(Command::Gradient { step: point.step })?;
        self.trained.passes += 1;
        self.trained.loss = at.loss;
        Ok(Some((point, self.command_id)))
    }

    /// Takes a step.
    fn step(&mut self, point: Point, pass: u64) -> Result<(), Halt> {
        let layout = self.columns.layout();
        let slot = self.next;
        // The new pair uses the one free slot, and is the newest.
        self.order.push_back(slot);
        self.order.make_contiguous();
        let (order, _) = self.order.as_slices();
        let program = layout.step_program(
            &self.gram,
            order,
            slot,
            self.half,
            Command::rounded(point.step),
            pass,
            &self.penalties,
        );
        self.take(&program, self.trained.loss)?;
        if self.is_curved(slot) {
            self.next = (slot + 1) % layout.slots();
            if self.order.len() > layout.history as usize {
                self.order.pop_front();
            }
        } else {
            // This step measured no positive curvature, so its pair is dropped.
            self.order.pop_back();
        }
        self.half = 1 - self.half;
        self.trained.iterations += 1;
        Ok(self.remember()?)
    }

    fn remember(&mut self) -> Result<(), BackendError> {
        self.command_id += 1;
        let LbfgsSettings { l1, l2, intercept, .. } = self.settings;
        let (half, next, pairs) = (self.half, self.next, self.order.len());
        let iterations = self.trained.resumed_at + self.trained.iterations;
        let memory = ChiefMemory { half, next, pairs, iterations, l1, l2, intercept };
        cells::remember(self.columns, self.command_id, &memory)
    }

    /// Writes a command, runs the chief's part of it, and adds up the answers of all workers.
    fn command(&mut self, command: Command) -> Result<Losses, Halt> {
        self.command_id += 1;
        cells::command(self.columns, self.command_id, command)?;
        // The chief uses the rounded number that the other workers read from the cell.
        let command = match command {
            Command::Direction { moved } => Command::Direction { moved: Command::rounded(moved) },
            Command::Try { step } => Command::Try { step: Command::rounded(step) },
            Command::Gradient { step } => Command::Gradient { step: Command::rounded(step) },
            command => command,
        };
        let own = self.passes.run(self.columns, self.examples, self.command_id, command)?;
        self.wait(own, command)
    }

    /// Waits for the answers of the other workers, and adds them to the chief's in the order of the workers.
    fn wait(&mut self, own: Losses, command: Command) -> Result<Losses, Halt> {
        let (mut loss, mut slope) = (Sum::default(), Sum::default());
        loss.add(own.loss);
        slope.add(own.slope);
        let mut look = CellPoll::new(self.settings.patience);
        while self.settings.workers > 1 {
            let views = cells::seen(self.columns, self.settings.workers)?;
            let previous = std::mem::replace(&mut self.arrived, views);
            let mut restarted = false;
            for (worker, (previous, now)) in (1..).zip(previous.iter().zip(&self.arrived)) {
                if previous.arrived != now.arrived && now.arrived.value < 0.0 {
                    return Err(Halt::Error(LbfgsError::WorkerLeft { worker }));
                }
                restarted |= previous.arrived != now.arrived;
            }
            if restarted {
                return Err(Halt::Again);
            }
            let here =
                |seen: &FollowerView| seen.answered.filter(|(command_id, _)| *command_id == self.command_id);
            let missing = self.arrived.iter().position(|seen| here(seen).is_none());
            let Some(missing) = missing else {
                for (_, answer) in self.arrived.iter().filter_map(here) {
                    loss.add(answer.loss);
                    slope.add(answer.slope);
                }
                break;
            };
            let (worker, at) = (missing as u32 + 1, command.name());
            if look.over() {
                let waited = self.settings.patience;
                return Err(Halt::Error(LbfgsError::WorkerLost { worker, waited, at }));
            }
            if self.stop.load(Relaxed) {
                return Err(Halt::Stopped);
            }
            look.pause(|waited| tracing::warn!(worker, at, waited, "waiting for a worker"));
        }
        Ok(Losses { loss: loss.value(), slope: slope.value() })
    }
}
