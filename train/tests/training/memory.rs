//! Examples in memory train and test as the same examples in a file do, bit for bit.

use gannet_core::{Schema, Store};
use gannet_optim::{Ftrl, Rule};
use gannet_train::{
    Backend, Block, BlockPass, BlockSource, CsrRows, Data, Embedded, Options, ReadError, Share, evaluate,
    train,
};
use proptest::prelude::*;
use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// An example: its label, and its features.
type Example = (bool, Vec<(u16, i8)>);

fn examples() -> impl Strategy<Value = Vec<Example>> {
    let features = prop::collection::vec((1u16..200, -3i8..4), 0..12);
    prop::collection::vec((any::<bool>(), features), 1..120)
}

fn csr(examples: &[Example]) -> CsrRows {
    let (mut indptr, mut keys, mut values, mut labels) = (vec![0], Vec::new(), Vec::new(), Vec::new());
    for (label, features) in examples {
        keys.extend(features.iter().map(|&(key, _)| u64::from(key)));
        values.extend(features.iter().map(|&(_, value)| f32::from(value)));
        indptr.push(keys.len() as u64);
        labels.push(f32::from(u8::from(*label)));
    }
    CsrRows::new(indptr, keys, values, labels, Vec::new()).unwrap()
}

fn libsvm(examples: &[Example]) -> String {
    let mut text = String::new();
    for (label, features) in examples {
        write!(text, "{}", u8::from(*label)).unwrap();
        features.iter().for_each(|(key, value)| write!(text, " {key}:{value}").unwrap());
        text.push('\n');
    }
    text
}

/// What a training leaves: rows, losses, and how many batches a pass has.
#[derive(Debug, PartialEq)]
struct Outcome {
    rows: Vec<(u64, Vec<u32>)>,
    losses: [Option<u64>; 2],
    batches: u64,
}

fn outcome(options: &Options) -> Outcome {
    let schema = Schema::scalar("lr", Rule::Ftrl(Ftrl { alpha: 0.1, beta: 1.0, l1: 0.01, l2: 0.5 }));
    let mut rows = Embedded::open(&Store::memory(), &schema, 1).unwrap();
    let report = train(options, &mut rows, &AtomicBool::new(false), &mut |_| {}).unwrap();
    let mut all = Vec::new();
    rows.scan(&mut |keys, values| {
        let floats = values.len() / keys.len().max(1);
        let bits = values.chunks(floats.max(1)).map(|row| row.iter().map(|value| value.to_bits()).collect());
        all.extend(keys.iter().copied().zip(bits));
    })
    .unwrap();
    all.sort_unstable();
    let progressive = report.progressive.map(|quality| quality.loss().to_bits());
    let tested = evaluate(&options.data, &mut rows).unwrap().map(|quality| quality.log_loss.to_bits());
    Outcome { rows: all, losses: [progressive, tested], batches: report.batches }
}

/// The examples again, but three at most in a step, and counted.
#[derive(Debug)]
struct Stream(CsrRows);

struct StreamPass(Box<dyn BlockPass>);

impl BlockSource for Stream {
    fn name(&self) -> String {
        "a stream".into()
    }

    fn pass(&self, intercept: bool) -> Result<Box<dyn BlockPass>, ReadError> {
        Ok(Box::new(StreamPass(self.0.pass(intercept)?)))
    }
}

impl BlockPass for StreamPass {
    fn next(&mut self, most: usize, mut block: Option<&mut Block>) -> Result<usize, ReadError> {
        let mut all = 0;
        while all < most {
            let some = self.0.next((most - all).min(3), block.as_deref_mut())?;
            if some == 0 {
                break;
            }
            all += some;
        }
        Ok(all)
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn rows_in_memory_train_the_same_bits_as_a_file(
        examples in examples(),
        batch in 1usize..20,
        epochs in 1u32..3,
        (worker, workers) in (0u32..3, 1u32..4),
        (threads, intercept) in (1usize..3, any::<bool>()),
    ) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("rows.svm");
        std::fs::write(&path, libsvm(&examples)).unwrap();
        let share = Share { worker: worker % workers, workers };
        let of = |data: Data| {
            let data = Data { intercept, ..data };
            outcome(&Options { batch, epochs, share, threads, ..Options::new(data) })
        };
        let file = of(Data::new(path.to_str().unwrap()));
        let rows = csr(&examples);
        prop_assert_eq!(&of(Data::rows(Arc::new(rows.clone()))), &file);
        prop_assert_eq!(&of(Data::rows(Arc::new(Stream(rows)))), &file);
    }
}

#[test]
fn vectors_that_do_not_fit_are_refused_with_the_place() {
    let of = |indptr: &[u64], keys: &[u64], values: &[f32], labels: &[f32], importances: &[f32]| {
        CsrRows::new(indptr.to_vec(), keys.to_vec(), values.to_vec(), labels.to_vec(), importances.to_vec())
            .err()
            .unwrap_or_default()
    };
    let nan = f32::NAN;
    for (why, part) in [
        (of(&[0], &[], &[], &[1.0], &[]), "indptr has 1 entries; 1 labels need 2"),
        (of(&[], &[], &[], &[], &[]), "indptr has 0 entries; 0 labels need 1"),
        (of(&[0, 1], &[7], &[], &[1.0], &[]), "1 keys, and 0 values"),
        (of(&[0, 2], &[7], &[1.0], &[1.0], &[]), "indptr goes from 0 to 2; it must go from 0 to 1"),
        (
            of(&[0, 2, 1, 2], &[7, 8], &[1.0; 2], &[1.0; 3], &[]),
            "example 1: its features begin at 2 and end at 1",
        ),
        (
            of(&[0, 1], &[u64::MAX], &[1.0], &[1.0], &[]),
            "feature 0: the key 18446744073709551615 is that of the",
        ),
        (of(&[0, 1], &[7], &[nan], &[1.0], &[]), "feature 0: the value NaN is not a finite number"),
        (of(&[0, 1], &[7], &[1.0], &[f32::INFINITY], &[]), "example 0: the label inf is not a finite number"),
        (of(&[0, 1], &[7], &[1.0], &[1.0], &[-1.0]), "example 0: the importance -1 is not 0 or more"),
        (of(&[0, 1], &[7], &[1.0], &[1.0], &[1.0; 2]), "1 examples, and 2 importances"),
    ] {
        assert!(why.contains(part), "{part}: {why}");
    }
    assert_eq!(of(&[0, 1], &[7], &[1.0], &[nan], &[0.0]), "", "no label, and an example that does not count");
}
