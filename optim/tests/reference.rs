//! Compares the rules with numbers of TensorFlow's kernels in double precision (made by `scripts/optim_reference.py`):
//! every coordinate's whole state after every step.

use gannet_optim::{AdaGrad, Adam, AmsGrad, Ftrl, Momentum, RmsProp, RowAdaGrad, Sgd, Update};

const DIM: usize = 7;

/// One file: the gradients of each step, and the columns of state after it.
struct Reference {
    gradients: Vec<Vec<f32>>,
    after: Vec<Vec<Vec<f64>>>, // step, column, coordinate
}

fn parse(text: &str, columns: &str) -> Reference {
    let mut lines = text.lines();
    assert_eq!(lines.next(), Some(format!("step,coordinate,gradient,{columns}").as_str()));
    let names = columns.split(',').count();
    let mut reference = Reference { gradients: vec![], after: vec![] };
    for (i, line) in lines.enumerate() {
        let cells: Vec<f64> = line.split(',').map(|c| c.parse().unwrap()).collect();
        assert_eq!(cells[..2], [(i / DIM) as f64, (i % DIM) as f64]);
        assert_eq!(cells.len(), 3 + names);
        if i % DIM == 0 {
            reference.gradients.push(vec![]);
            reference.after.push(vec![vec![]; names]);
        }
        let step = i / DIM;
        assert_eq!(f64::from(cells[2] as f32), cells[2], "a gradient is a float32");
        reference.gradients[step].push(cells[2] as f32);
        (0..names).for_each(|c| reference.after[step][c].push(cells[3 + c]));
    }
    assert_eq!(reference.gradients.len(), 24);
    reference
}

/// Steps `rule` from the weights `start`. The planes are the file's first columns; one more column, if there is
/// one, is the weight. A scalar of the row is repeated in every line of its file; the first is compared. A
/// float of 24 bits may differ by `tolerance` times the largest value of its column so far.
fn check<U: Update>(rule: U, start: [f32; DIM], text: &str, columns: &str, tolerance: f64) {
    let reference = parse(text, columns);
    let mut row = vec![f32::NAN; U::floats(DIM)];
    let mut weights = [f32::NAN; DIM];
    rule.init(&start, &mut row);
    let mut largest = vec![[0f64; DIM]; columns.split(',').count()];
    for (step, (gradient, after)) in reference.gradients.iter().zip(&reference.after).enumerate() {
        rule.update(&mut row, gradient);
        rule.weights(&row, &mut weights);
        let ours = row.chunks(DIM).chain([&weights[..]]);
        for (column, (theirs, ours)) in after.iter().zip(ours).enumerate() {
            for (j, (t, o)) in theirs.iter().zip(ours).enumerate() {
                let scale = largest[column][j].max(t.abs());
                largest[column][j] = scale;
                let off = (f64::from(*o) - t).abs();
                assert!(
                    off <= tolerance * scale,
                    "step {step} column {column} coordinate {j}: {o} beside {t}, {off:e} away"
                );
                assert!(*t != 0.0 || *o == 0.0, "step {step} column {column} coordinate {j}: {o}, not 0");
            }
        }
    }
}

fn start() -> [f32; DIM] {
    std::array::from_fn(|j| if j % 2 == 0 { 0.5 * j as f32 } else { -0.5 * j as f32 })
}

#[test]
fn sgd_is_tensorflows() {
    check(Sgd { lr: 0.05 }, start(), include_str!("reference/sgd.csv"), "w", 1e-6);
}

#[test]
fn adagrad_is_tensorflows() {
    let rule = AdaGrad { lr: 0.1, eps: 1e-10, initial_accumulator: 0.0 };
    check(rule, start(), include_str!("reference/adagrad.csv"), "w,s", 1e-6);
    let rule = AdaGrad { lr: 0.05, eps: 0.01, initial_accumulator: 0.1 };
    check(rule, start(), include_str!("reference/adagrad_initial.csv"), "w,s", 1e-6);
}

#[test]
fn ftrl_is_tensorflows() {
    let rule = Ftrl { alpha: 0.1, beta: 1.0, l1: 0.0, l2: 0.0 };
    check(rule, [0.0; DIM], include_str!("reference/ftrl.csv"), "z,n,w", 3e-6);
    let rule = Ftrl { alpha: 0.3, beta: 0.5, l1: 0.7, l2: 1.5 };
    check(rule, [0.0; DIM], include_str!("reference/ftrl_l1_l2.csv"), "z,n,w", 3e-6);
}

#[test]
fn momentum_is_tensorflows() {
    let rule = Momentum { lr: 0.05, momentum: 0.9, nesterov: false };
    check(rule, start(), include_str!("reference/momentum.csv"), "w,m", 1e-6);
    let rule = Momentum { lr: 0.02, momentum: 0.75, nesterov: true };
    check(rule, start(), include_str!("reference/nesterov.csv"), "w,m", 1e-6);
}

#[test]
fn rmsprop_is_tensorflows() {
    let rule = RmsProp { lr: 0.05, rho: 0.9, eps: 1e-7 };
    check(rule, start(), include_str!("reference/rmsprop.csv"), "w,s", 1e-6);
}

#[test]
fn adam_is_tensorflows_and_kerass() {
    let rule = Adam { lr: 0.1, beta1: 0.9, beta2: 0.999, eps: 1e-8, decay: 0.0 };
    check(rule, start(), include_str!("reference/adam.csv"), "w,m,v", 1e-6);
    let rule = Adam { lr: 0.05, beta1: 0.8, beta2: 0.95, eps: 1e-4, decay: 0.25 };
    check(rule, start(), include_str!("reference/adamw.csv"), "w,m,v", 1e-6);
    let rule = AmsGrad { lr: 0.05, beta1: 0.8, beta2: 0.75, eps: 1e-6, decay: 0.125 };
    check(rule, start(), include_str!("reference/amsgrad.csv"), "w,m,v,h", 1e-6);
}

#[test]
fn row_wise_adagrad_is_torchrecs_on_tensorflows_kernel() {
    let rule = RowAdaGrad { lr: 0.1, eps: 1e-6, initial_accumulator: 0.1 };
    check(rule, start(), include_str!("reference/row_adagrad.csv"), "w,s", 1e-6);
}
