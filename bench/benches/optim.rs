//! What does an update rule cost a row, when the rows are in the cache? Nanoseconds a row = time / 1,024.
//! The rule is dispatched once a batch and the dimension is known at compile time, as core does it.
#![allow(missing_docs)]

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use gannet_bench::{DIMS, criterion, rules};
use gannet_optim::{Rule, Update, Visitor};
use std::hint::black_box;

const ROWS: usize = 1024;

struct Updates<'a, const D: usize> {
    rows: &'a mut [f32],
    gradients: &'a [f32],
}

impl<const D: usize> Visitor for Updates<'_, D> {
    type Out = ();
    fn run<U: Update>(self, rule: U) {
        let rows = self.rows.chunks_exact_mut(U::floats(D));
        for (row, gradient) in rows.zip(self.gradients.chunks_exact(D)) {
            rule.update(row, gradient);
        }
    }
}

fn update(rule: &Rule, dim: u32, rows: &mut [f32], gradients: &[f32]) {
    match dim {
        1 => rule.visit(Updates::<1> { rows, gradients }),
        16 => rule.visit(Updates::<16> { rows, gradients }),
        64 => rule.visit(Updates::<64> { rows, gradients }),
        _ => unreachable!("DIMS has a dimension that this benchmark does not know"),
    }
}

fn optim(c: &mut Criterion) {
    let mut group = c.benchmark_group("update");
    group.throughput(Throughput::Elements(ROWS as u64));
    for rule in rules() {
        for dim in DIMS {
            let gradients: Vec<f32> =
                (0..ROWS * dim as usize).map(|i| (i % 17) as f32 / 16.0 - 0.5).collect();
            let mut rows = vec![0.1; ROWS * rule.floats(dim as usize)];
            group.bench_function(BenchmarkId::new(rule.name(), dim), |b| {
                b.iter(|| update(&rule, dim, black_box(&mut rows), black_box(&gradients)));
            });
        }
    }
    group.finish();
}

criterion_group! { name = benches; config = criterion(); targets = optim }
criterion_main!(benches);
