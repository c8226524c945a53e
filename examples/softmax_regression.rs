//! Softmax regression, in one process: to which of three points does a point of the plane belong? `gannet train --model
//! softmax` does the same with digits (docs/data.md).
use gannet::Rule;
use gannet::optim::{AdaGrad, GradientTransform};
use gannet::storage::Store;
use gannet::table::{Admission, RowType};
use gannet::train::models::{ModelSettings, Softmax, fit};
use gannet::train::{Data, Labels, LocalTables, Options};
use std::fmt::Write as _;
use std::sync::atomic::AtomicBool;

/// Lines of libsvm: a class, and coordinates at most 1.5 from the point of that class.
fn examples(n: u64) -> String {
    const POINTS: [[f64; 2]; 3] = [[0.0, 1.0], [1.0, -1.0], [-1.0, -1.0]];
    let chance = |i: u64| (gannet::table::mix(i) >> 11) as f64 / (1u64 << 53) as f64 * 3.0 - 1.5;
    (0..n).fold(String::new(), |mut text, i| {
        let [x, y] = POINTS[(i % 3) as usize];
        let _ = writeln!(text, "{} 1:{:.4} 2:{:.4}", i % 3, x + chance(2 * i), y + chance(2 * i + 1));
        text
    })
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let path = std::env::temp_dir().join(format!("gannet-points-{}.svm", std::process::id()));
    std::fs::write(&path, examples(30_000))?;
    let rule = Rule::AdaGrad(AdaGrad { lr: 0.1, eps: 1e-8, initial_accumulator: 1.0 });
    let (shaping, admission) = (GradientTransform::NONE, Admission::All);
    let settings =
        ModelSettings { rule, row_type: RowType::F32, shaping, admission, seed: 1, deviation: 0.0, l2: 0.0 };
    let options = Options::new(Data { labels: Labels::Classes(3), ..Data::new(&path.to_string_lossy()) });
    let (mut model, mut tables) = (Softmax::new(settings, 3), LocalTables::new(Store::memory(), 1));
    let fitted = fit(&options, &mut model, &mut tables, &AtomicBool::new(false), &mut |_| {})?;
    println!("{:?}", fitted.progressive);
    std::fs::remove_file(path)?;
    Ok(())
}
