//! The row of the intercept is free of FTRL's penalties, and no other row is.

use gannet_core::*;
use gannet_optim::*;

const FTRL: Ftrl = Ftrl { alpha: 0.1, beta: 1.0, l1: 100.0, l2: 1.0 };

fn schemas() -> Vec<Schema> {
    let Ftrl { alpha, beta, l1, l2 } = FTRL;
    let group = Rule::GroupFtrl(GroupFtrl { alpha, beta, l1, l2, l21: 1.0 });
    let wide = |rule, dim| Schema { dim, shards: 1, ..Schema::scalar("t", rule) };
    let rule = Rule::AdaGrad(AdaGrad { lr: 0.1, eps: 1e-8, initial_accumulator: 0.1 });
    let factors = Segment { dim: 4, rule, shaping: GradientTransform::NONE, init: Init::Zero };
    vec![
        wide(Rule::Ftrl(FTRL), 1),
        wide(Rule::Ftrl(FTRL), 19),
        wide(group, 16),
        Schema { more: vec![factors], ..wide(Rule::Ftrl(FTRL), 1) },
    ]
}

fn name(seq: u64) -> PushName {
    PushName { pusher: 1, incarnation: 1, seq, row: 0 }
}

fn pull(table: &mut Shards, key: u64, read: Read) -> Vec<f32> {
    let mut out = vec![0.0; table.schema().read_floats(read)];
    table.pull(&[key], read, &mut out, None).unwrap();
    out
}

/// Gradients and changes of state reach the same row, which has weights. Other rows have none, so large is `l1`.
#[test]
fn only_the_intercept_is_free() {
    for schema in schemas() {
        let of = |key: u64, by_change: bool| {
            let mut table = Shards::open(&Store::memory(), &schema, 0..1).unwrap();
            for seq in 1..=5 {
                let gradient = vec![0.5; schema.weights()];
                if by_change {
                    // What another table makes of the gradient, as a worker that replays.
                    let mut copy = Shards::open(&Store::memory(), &schema, 0..1).unwrap();
                    let before = pull(&mut table, key, Read::State);
                    copy.push(&name(1), Write::Row, &[key], None, &before).unwrap();
                    copy.push(&name(2), Write::Gradient, &[key], None, &gradient).unwrap();
                    let after = pull(&mut copy, key, Read::State);
                    let change: Vec<f32> = after.iter().zip(&before).map(|(a, b)| a - b).collect();
                    table.push(&name(2 * seq), Write::Change, &[key], None, &change).unwrap();
                    table
                        .push(&name(2 * seq + 1), Write::Change, &[key], None, &vec![0.0; change.len()])
                        .unwrap();
                } else {
                    let applied = table.push(&name(seq), Write::Gradient, &[key], None, &gradient).unwrap();
                    assert_eq!(applied, Applied { applied: 1, ..Applied::default() });
                }
            }
            (pull(&mut table, key, Read::State), pull(&mut table, key, Read::Weights))
        };
        let dim = schema.dim as usize;
        for by_change in [false, true] {
            let (state, weights) = of(INTERCEPT_KEY, by_change);
            assert!(state[dim..2 * dim].iter().all(|n| (n + 1.25).abs() < 1e-5), "{state:?}");
            assert!(weights[..dim].iter().all(|w| *w < -0.05), "{weights:?}");
            let (state, weights) = of(7, by_change);
            assert!(state[dim..2 * dim].iter().all(|n| (n - 1.25).abs() < 1e-5), "{state:?}");
            assert!(weights[..dim].iter().all(|w| *w == 0.0), "{weights:?}");
        }
    }
}

/// A whole row that is free goes to the intercept alone. So does one of a checkpoint.
#[test]
fn other_rows_cannot_become_free() {
    for schema in schemas() {
        let mut table = Shards::open(&Store::memory(), &schema, 0..1).unwrap();
        let free = pull(&mut table, INTERCEPT_KEY, Read::State);
        assert!(schema.is_sound_row(INTERCEPT_KEY, &free) && !schema.is_sound_row(7, &free));
        let refused = table.push(&name(1), Write::Row, &[7], None, &free).unwrap();
        assert_eq!(refused, Applied { not_finite: 1, ..Applied::default() });
        assert!(table.restore_rows(&[7], &free).is_err());
        let applied = table.push(&name(2), Write::Row, &[INTERCEPT_KEY], None, &free).unwrap();
        assert_eq!(applied, Applied { applied: 1, ..Applied::default() });
        assert_eq!(table.restore_rows(&[INTERCEPT_KEY], &free).unwrap(), 1);
    }
}
