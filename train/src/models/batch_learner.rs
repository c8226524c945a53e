//! Learns and scores a batch, example by example. The loop over the examples is compiled once for each rule and
//! instruction set, so the passes of a model run in registers. All instruction sets give the same bits.

use super::learned_rows::LearnedRows;
use super::{BatchRows, Example, Measures, Objective};
use crate::backend::error::BackendError;
use crate::batch::Batch;
use gannet_optim::{Add, Cpu, Isa, Rule, Update, Work};

/// The two passes of a model over one example. Implementations are `#[inline(always)]`: code that is not inlined is
/// compiled for the oldest CPU.
pub(crate) trait Passes {
    /// The outputs of an example.
    fn task(&self) -> Objective;

    /// The dimension of the vectors that the passes mostly work on. It chooses the instruction set.
    fn lane_dim(&self) -> usize;

    /// Computes the outputs of an example, [`Objective::outputs`] of them. `sparse` are the batch's rows, and `dense`
    /// those of the [dense](super::Model::dense) tables, in order.
    fn forward<I: Isa, R: LearnedRows<I>>(
        &mut self,
        isa: I,
        example: Example<'_>,
        sparse: &R,
        dense: &[R],
        outputs: &mut [f32],
    );

    /// Descends along the gradients of the latest [`forward`](Self::forward) example. `errors` are the derivatives of
    /// its loss by the outputs.
    fn backward<I: Isa, R: LearnedRows<I>>(
        &mut self,
        isa: I,
        example: Example<'_>,
        errors: &[f32],
        sparse: &mut R,
        dense: &mut [R],
    );
}

/// A batch to learn.
pub struct BatchStep<'a> {
    /// The examples.
    pub batch: &'a Batch,
    /// The rows of the batch, then those of the dense tables, in order.
    pub rows: &'a mut [BatchRows],
    /// Counts each example, predicted before it is learned.
    pub measures: Option<&'a mut Measures>,
    /// Examples that were left out, because an output was NaN or infinite.
    pub not_finite: &'a mut u64,
}

/// Learns a batch.
///
/// # Errors
/// The rule cannot replay.
pub(crate) fn learn<P: Passes>(passes: &mut P, step: BatchStep<'_>) -> Result<(), BackendError> {
    let cpu = Cpu::detect().fit(passes.lane_dim());
    learn_on(cpu, passes, step)
}

/// [`learn`] on an instruction set.
pub(crate) fn learn_on<P: Passes>(cpu: Cpu, passes: &mut P, step: BatchStep<'_>) -> Result<(), BackendError> {
    let rule = step.rows.first().and_then(BatchRows::replayed_rule);
    let Some(rule) = rule else {
        cpu.run(Add, SumGradients(passes, step));
        return Ok(());
    };
    let replay = Replay(passes, step);
    match rule {
        Rule::Sgd(rule) => cpu.run(rule, replay),
        Rule::AdaGrad(rule) => cpu.run(rule, replay),
        Rule::RowAdaGrad(rule) => cpu.run(rule, replay),
        Rule::Ftrl(rule) => cpu.run(rule, replay),
        Rule::GroupFtrl(rule) => cpu.run(rule, replay),
        Rule::Add(_)
        | Rule::Momentum(_)
        | Rule::RmsProp(_)
        | Rule::Adam(_)
        | Rule::AmsGrad(_)
        | Rule::Packed(..) => {
            return Err(BackendError::Schema(format!(
                "rule {} learns by gradients, not by replay",
                rule.name()
            )));
        }
    }
    Ok(())
}

/// Calls `each` with the number and the outputs of every example of a batch.
pub(crate) fn score<P: Passes>(
    passes: &mut P,
    batch: &Batch,
    rows: &mut [BatchRows],
    each: &mut dyn FnMut(usize, &mut [f32]),
) {
    Cpu::detect().fit(passes.lane_dim()).run(Add, Score { passes, batch, rows, each });
}

struct Replay<'a, 'b, P>(&'a mut P, BatchStep<'b>);

impl<P: Passes> Work for Replay<'_, '_, P> {
    type Out = ();

    #[inline(always)]
    fn run<I: Isa, U: Update>(self, isa: I, rule: U) {
        let Replay(passes, BatchStep { batch, rows, measures, not_finite }) = self;
        let Some((sparse, dense)) = rows.split_first_mut() else { return };
        let mut dense: Vec<_> = dense.iter_mut().map(|rows| rows.replayed(isa, rule)).collect();
        *not_finite += learn_examples(isa, passes, batch, (sparse.replayed(isa, rule), &mut dense), measures);
    }
}

struct SumGradients<'a, 'b, P>(&'a mut P, BatchStep<'b>);

impl<P: Passes> Work for SumGradients<'_, '_, P> {
    type Out = ();

    #[inline(always)]
    fn run<I: Isa, U: Update>(self, isa: I, _: U) {
        let SumGradients(passes, BatchStep { batch, rows, measures, not_finite }) = self;
        let Some((sparse, dense)) = rows.split_first_mut() else { return };
        let mut dense: Vec<_> = dense.iter_mut().map(|rows| rows.summed(isa)).collect();
        *not_finite += learn_examples(isa, passes, batch, (sparse.summed(isa), &mut dense), measures);
    }
}

/// Returns how many examples were left out. The sparse rows are a value here, so that their pointers stay in
/// registers.
#[inline(always)]
fn learn_examples<I: Isa, P: Passes, R: LearnedRows<I>>(
    isa: I,
    passes: &mut P,
    batch: &Batch,
    (mut sparse, dense): (R, &mut [R]),
    mut measures: Option<&mut Measures>,
) -> u64 {
    let task = passes.task();
    let (mut outputs, mut not_finite) = (vec![0.0; task.outputs()], 0);
    for (i, &label) in batch.block.labels.iter().enumerate() {
        let (example, importance) = (Example::of(batch, i), batch.block.importance(i));
        passes.forward(isa, example, &sparse, &*dense, &mut outputs);
        add_base(&mut outputs, batch.block.base(i));
        match &mut measures {
            Some(measures) => measures.add_and_derive(&mut outputs, label, importance),
            None => task.errors(&mut outputs, label),
        }
        let mut sound = true;
        for error in &mut outputs {
            *error *= importance;
            sound &= error.is_finite();
        }
        // One bad example must not spoil its batch.
        if sound {
            passes.backward(isa, example, &outputs, &mut sparse, dense);
        } else {
            not_finite += 1;
        }
    }
    not_finite
}

/// Adds an example's base to its margin. Readers refuse one where an example has several outputs.
#[inline(always)]
fn add_base(outputs: &mut [f32], base: f32) {
    if let [margin] = outputs {
        *margin += base;
    }
}

struct Score<'a, P> {
    passes: &'a mut P,
    batch: &'a Batch,
    rows: &'a mut [BatchRows],
    each: &'a mut dyn FnMut(usize, &mut [f32]),
}

impl<P: Passes> Work for Score<'_, P> {
    type Out = ();

    #[inline(always)]
    fn run<I: Isa, U: Update>(self, isa: I, _: U) {
        let Score { passes, batch, rows, each } = self;
        let views = rows.iter_mut().map(|rows| rows.summed(isa)).collect::<Vec<_>>();
        let Some((sparse, dense)) = views.split_first() else { return };
        let mut outputs = vec![0.0; passes.task().outputs()];
        for i in 0..batch.block.len() {
            passes.forward(isa, Example::of(batch, i), sparse, dense, &mut outputs);
            add_base(&mut outputs, batch.block.base(i));
            each(i, &mut outputs);
        }
    }
}
