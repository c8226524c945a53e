//! Two click models on the shipped flights, in one process: a factorization machine, and one with a small network
//! beside it. Each flight is predicted before it is learned. For comparison, logistic regression (`gannet train
//! data/flights.csv.gz`) has log loss 0.456.
use gannet::Rule;
use gannet::optim::{AdaGrad, GradientTransform};
use gannet::storage::Store;
use gannet::table::{Admission, RowType};
use gannet::train::models::{DeepFm, FactorizationMachine, Model, ModelSettings, fit};
use gannet::train::{Data, LocalTables, Options};
use std::sync::atomic::AtomicBool;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let rule = Rule::AdaGrad(AdaGrad { lr: 0.05, eps: 1e-8, initial_accumulator: 1.0 });
    let (shaping, admission) = (GradientTransform::NONE, Admission::All);
    let settings =
        ModelSettings { rule, row_type: RowType::F32, shaping, admission, seed: 1, deviation: 0.05, l2: 0.0 };
    let machine = Box::new(FactorizationMachine::new(settings, 8)) as Box<dyn Model>;
    let options = Options::new(Data::new(concat!(env!("CARGO_MANIFEST_DIR"), "/data/flights.csv.gz")));
    for mut model in [machine, Box::new(DeepFm::new(settings, 1, 8, &[16, 8]))] {
        let mut tables = LocalTables::new(Store::memory(), 1);
        let fitted = fit(&options, &mut *model, &mut tables, &AtomicBool::new(false), &mut |_| {})?;
        let loss = fitted.progressive.map_or(f64::NAN, |measured| measured.loss());
        println!("{}: log loss {loss:.5}, {} rows, {:.1} s", model.name(), fitted.rows, fitted.seconds);
    }
    Ok(())
}
