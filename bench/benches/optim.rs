//! What does an update rule cost a row in the cache, on each instruction set that this CPU has? Nanoseconds a row =
//! time / 1,024. As in core, the rule and the instruction set are dispatched once a batch, and the dimension is known
//! at compile time. `update` applies the rule to whole rows. `weights` computes derived weights, as a pull does.
#![allow(missing_docs)]

mod settings;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use gannet_bench::{DIMS, rules};
use gannet_optim::{Cpu, Isa, Rule, Update, Work};
use settings::criterion;
use std::hint::black_box;

const ROWS: usize = 1024;

struct Updates<'a, const D: usize> {
    rows: &'a mut [f32],
    gradients: &'a [f32],
}

impl<const D: usize> Work for Updates<'_, D> {
    type Out = ();

    #[inline(always)]
    fn run<I: Isa, U: Update>(self, isa: I, rule: U) {
        let rows = self.rows.chunks_exact_mut(U::floats(D));
        for (row, gradient) in rows.zip(self.gradients.chunks_exact(D)) {
            rule.update_on(isa, row, gradient);
        }
    }
}

struct Weights<'a, const D: usize> {
    rows: &'a [f32],
    out: &'a mut [f32],
}

impl<const D: usize> Work for Weights<'_, D> {
    type Out = ();

    #[inline(always)]
    fn run<I: Isa, U: Update>(self, isa: I, rule: U) {
        let rows = self.rows.chunks_exact(U::floats(D));
        for (row, out) in rows.zip(self.out.chunks_exact_mut(D)) {
            rule.weights_on(isa, row, out);
        }
    }
}

fn update(rule: &Rule, cpu: Cpu, dim: u32, rows: &mut [f32], gradients: &[f32]) {
    match dim {
        1 => rule.work(cpu, Updates::<1> { rows, gradients }),
        16 => rule.work(cpu, Updates::<16> { rows, gradients }),
        64 => rule.work(cpu, Updates::<64> { rows, gradients }),
        _ => unreachable!("DIMS has a dimension that this benchmark does not know"),
    }
}

fn weights(rule: &Rule, cpu: Cpu, dim: u32, rows: &[f32], out: &mut [f32]) {
    match dim {
        1 => rule.work(cpu, Weights::<1> { rows, out }),
        16 => rule.work(cpu, Weights::<16> { rows, out }),
        64 => rule.work(cpu, Weights::<64> { rows, out }),
        _ => unreachable!("DIMS has a dimension that this benchmark does not know"),
    }
}

/// The instruction sets that core would use for this dimension, and those that it would not: all except those whose
/// registers would be mostly empty.
fn cpus(dim: u32) -> Vec<Cpu> {
    Cpu::all().into_iter().filter(|cpu| cpu.fit(dim as usize) == *cpu).collect()
}

fn optim(c: &mut Criterion) {
    for rule in rules() {
        let derived = matches!(rule, Rule::Ftrl(_) | Rule::GroupFtrl(_));
        for dim in DIMS {
            let mut gradients: Vec<f32> =
                (0..ROWS * dim as usize).map(|i| (i % 17) as f32 / 16.0 - 0.5).collect();
            let mut rows = vec![0.1; ROWS * rule.floats(dim as usize)];
            for cpu in cpus(dim) {
                let id = BenchmarkId::new(format!("{}/{}", rule.name(), cpu.name()), dim);
                let mut group = c.benchmark_group("update");
                group.throughput(Throughput::Elements(ROWS as u64));
                group.bench_function(id.clone(), |b| {
                    b.iter(|| update(&rule, cpu, dim, black_box(&mut rows), black_box(&gradients)));
                });
                group.finish();
                if derived {
                    let mut group = c.benchmark_group("weights");
                    group.throughput(Throughput::Elements(ROWS as u64));
                    group.bench_function(id, |b| {
                        b.iter(|| weights(&rule, cpu, dim, black_box(&rows), black_box(&mut gradients)));
                    });
                    group.finish();
                }
            }
        }
    }
}

criterion_group! { name = benches; config = criterion(); targets = optim }
criterion_main!(benches);
