//! Matrix factorization, in one process. The ratings of users for items are made of two hidden factors each, and
//! training finds them again. `gannet train --model mf` does the same with MovieLens (docs/data.md).
use gannet::Rule;
use gannet::optim::{AdaGrad, GradientTransform};
use gannet::storage::Store;
use gannet::table::{Admission, RowType};
use gannet::train::models::{Factorization, ModelSettings, fit};
use gannet::train::{Data, Labels, LocalTables, Options};
use std::fmt::Write as _;
use std::sync::atomic::AtomicBool;

/// A table with columns rating, user and item.
fn ratings(n: u64) -> String {
    let chance = |i: u64| (gannet::table::mix(i) >> 11) as f64 / (1u64 << 53) as f64 * 2.0 - 1.0;
    let factor = |who: u64, f: u64| chance(who * 16 + f);
    (0..n).fold("rating\tuser\titem\n".to_owned(), |mut text, i| {
        let (user, item) = (gannet::table::mix(i) % 200, 1000 + gannet::table::mix(i ^ 1 << 40) % 100);
        let product: f64 = (0..2).map(|f| factor(user, f) * factor(item, f)).sum();
        let _ = writeln!(text, "{:.4}\tu{user}\ti{item}", 3.0 + product);
        text
    })
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let path = std::env::temp_dir().join(format!("gannet-ratings-{}.tsv", std::process::id()));
    std::fs::write(&path, ratings(20_000))?;
    let rule = Rule::AdaGrad(AdaGrad { lr: 0.1, eps: 1e-8, initial_accumulator: 1.0 });
    let (shaping, admission) = (GradientTransform::NONE, Admission::All);
    let settings = ModelSettings {
        rule,
        row_type: RowType::F32,
        shaping,
        admission,
        seed: 1,
        deviation: 0.3,
        l2: 0.001,
    };
    let data = Data { labels: Labels::Numbers, ..Data::new(&path.to_string_lossy()) };
    let options = Options { epochs: 20, ..Options::new(data) };
    let (mut model, mut tables) = (Factorization::new(settings, 4), LocalTables::new(Store::memory(), 1));
    let fitted = fit(&options, &mut model, &mut tables, &AtomicBool::new(false), &mut |_| {})?;
    println!("first pass {:?}\nlast pass  {:?}", fitted.progressive, fitted.last_pass);
    std::fs::remove_file(path)?;
    Ok(())
}
