//! The example of two segments, run: the factorization machine beats its wide part alone on flights that neither learned.

#[path = "../examples/factorization_machine.rs"]
mod example;

#[test]
fn factors_beat_the_wide_part_alone() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/data/flights.csv.gz");
    let [fm, wide] = example::train(path, 40_000, 2).unwrap();
    assert!(fm < wide - 0.005 && wide < 0.6, "held-out log loss {fm}, the wide part alone {wide}");
}
