//! Training with weights and gradients that travel as f16 has the loss of one with f32, and half of their bytes. So has
//! training of rows whose weights are stored as bf16 or f16.

use crate::model;

use flate2::read::MultiGzDecoder;
use gannet_core::{Admission, RowType, Schema};
use gannet_optim::{AdaGrad, Ftrl, GradientTransform, Rule};
use gannet_server::{Server, ServerConfig};
use gannet_train::models::{FactorizationMachine, ModelSettings, fit};
use gannet_train::{ColumnChoice, Data, Options, PushContent, RemoteBackend, RemoteTables, train};
use gannet_transport::tcp::Tcp;
use gannet_worker::{Counters, WireType, Worker, WorkerConfig};
use std::io::Read;
use std::sync::atomic::AtomicBool;
use tempfile::TempDir;

/// Losses may differ by this share.
const SHARE: f64 = 0.0005;

const COLUMNS: [&str; 9] =
    ["carrier", "flight", "tailnum", "origin", "dest", "hour", "month", "weekday", "date"];

/// What a training came to: the loss of its first pass, that of the test set, and what its worker counted.
type Outcome = (f64, f64, Counters);

/// Training data, and every fifth example of it for the test.
fn held_out(folder: &TempDir, name: &str, header: &str, rows: &str, columns: &[&str]) -> Options {
    let (mut kept, mut held) = (header.to_owned(), header.to_owned());
    for (i, row) in rows.lines().enumerate() {
        let part = if i % 5 == 0 { &mut held } else { &mut kept };
        part.push_str(row);
        part.push('\n');
    }
    let categorical = columns.iter().map(|column| column.to_string()).collect();
    let columns = ColumnChoice { categorical, ..ColumnChoice::default() };
    let data = |name: &str, text: &str| Data {
        columns: columns.clone(),
        ..Data::new(&model::file(folder, name, text.as_bytes()))
    };
    let (train, test) = (data(&format!("kept-{name}"), &kept), data(&format!("held-{name}"), &held));
    let push = Some(PushContent::Gradient);
    Options { batch: 512, epochs: 2, test: Some(test), push, ..Options::new(train) }
}

/// The shipped flights without and with their date, and examples of a hidden logistic model.
fn data_sets(folder: &TempDir) -> Vec<(&'static str, Options)> {
    let packed = std::fs::File::open(concat!(env!("CARGO_MANIFEST_DIR"), "/../data/flights.csv.gz")).unwrap();
    let mut text = String::new();
    MultiGzDecoder::new(packed).read_to_string(&mut text).unwrap();
    let (header, rows) = text.split_once('\n').unwrap();
    let header = format!("{header}\n");
    let hidden = model::libsvm(&model::examples(60_000, 5));
    vec![
        ("flights", held_out(folder, "flights.csv", &header, rows, &COLUMNS[..8])),
        ("flights and dates", held_out(folder, "dated.csv", &header, rows, &COLUMNS)),
        ("a hidden model", held_out(folder, "hidden.svm", "", &hidden, &[])),
    ]
}

fn connect(server: &Server) -> Worker<Tcp> {
    Worker::connect(Tcp::new(), WorkerConfig::new([server.addr()], 1, 1)).unwrap()
}

fn server() -> Server {
    Server::start(Tcp::new(), ServerConfig { threads: 2, ..ServerConfig::new("127.0.0.1:0") }).unwrap()
}

fn logistic_regression(options: &Options, wire: WireType) -> Outcome {
    let server = server();
    let rule = Rule::Ftrl(Ftrl { alpha: 0.05, beta: 1.0, l1: 0.1, l2: 0.1 });
    let mut backend = RemoteBackend::open(connect(&server), &Schema::scalar("lr", rule), 1).unwrap();
    backend.set_wire_type(wire).unwrap();
    let report = train(options, &mut backend, &AtomicBool::new(false), &mut |_| {}).unwrap();
    let losses = (report.progressive.unwrap().loss(), report.test.unwrap().loss());
    (losses.0, losses.1, backend.worker().counters())
}

fn factorization_machine(options: &Options, wire: WireType, row_type: RowType) -> Outcome {
    let server = server();
    let mut tables = RemoteTables::new(connect(&server));
    tables.set_wire_type(wire);
    let rule = Rule::AdaGrad(AdaGrad { lr: 0.05, eps: 1e-8, initial_accumulator: 0.1 });
    let (shaping, admission) = (GradientTransform::NONE, Admission::All);
    let settings = ModelSettings { rule, row_type, shaping, admission, seed: 7, deviation: 0.05, l2: 0.0 };
    let mut model = FactorizationMachine::new(settings, 8);
    let fitted = fit(options, &mut model, &mut tables, &AtomicBool::new(false), &mut |_| {}).unwrap();
    let losses = [fitted.progressive, fitted.test].map(|measured| measured.unwrap().loss());
    (losses[0], losses[1], tables.worker().counters())
}

/// Trains on each data set with both types. `floats` is the number of floats that travel for a key.
fn losses_agree(learn: impl Fn(&Options, WireType) -> Outcome, floats: f64) {
    let folder = tempfile::tempdir().unwrap();
    for (name, options) in data_sets(&folder) {
        let (first, test, wide) = learn(&options, WireType::F32);
        let (first_f16, test_f16, narrow) = learn(&options, WireType::F16);
        let share = |f16: f64, f32: f64| f16 / f32 - 1.0;
        let (first_share, test_share) = (share(first_f16, first), share(test_f16, test));
        let bytes = |counters: Counters| (counters.bytes_sent + counters.bytes_received) as f64;
        let saved = bytes(narrow) / bytes(wide);
        println!(
            "{name}: first pass {first:.6} and {first_f16:.6} ({:+.5}%), test {test:.6} and {test_f16:.6} ({:+.5}%), bytes {saved:.3}",
            first_share * 100.0,
            test_share * 100.0
        );
        assert!(first_share.abs() < SHARE && test_share.abs() < SHARE, "{name}: {first_share} {test_share}");
        // 8 bytes of key, and the floats there and back.
        let want = (8.0 + 4.0 * floats) / (8.0 + 8.0 * floats);
        assert!((saved - want).abs() < 0.02, "{name}: {saved} of the bytes, {want} were expected");
        assert_eq!((narrow.rounded_by_chance, narrow.wide_pushes, narrow.not_finite), (0, 0, 0), "{name}");
    }
}

#[test]
fn logistic_regression_has_the_same_loss() {
    losses_agree(logistic_regression, 1.0);
}

#[test]
fn factorization_machines_have_the_same_loss() {
    losses_agree(|options, wire| factorization_machine(options, wire, RowType::F32), 9.0);
}

#[test]
fn rows_of_bf16_have_the_loss_of_rows_of_f32() {
    rows_have_the_loss_of_f32(RowType::Bf16, 2, &[WireType::F32, WireType::F16]);
}

/// Late in a training the steps are small, and the rounding counts most.
#[test]
fn rows_of_f16_have_the_loss_of_rows_of_f32_after_many_passes() {
    rows_have_the_loss_of_f32(RowType::F16, 8, &[WireType::F32]);
}

fn rows_have_the_loss_of_f32(row_type: RowType, epochs: u32, wires: &[WireType]) {
    let folder = tempfile::tempdir().unwrap();
    for (name, options) in data_sets(&folder) {
        let options = Options { epochs, ..options };
        let wide = factorization_machine(&options, WireType::F32, RowType::F32);
        for &wire in wires {
            let small = factorization_machine(&options, wire, row_type);
            let shares = (small.0 / wide.0 - 1.0, small.1 / wide.1 - 1.0);
            println!("{name}, {wire:?}: {:+.5}%, test {:+.5}%", shares.0 * 100.0, shares.1 * 100.0);
            assert!(shares.0.abs() < SHARE && shares.1.abs() < SHARE, "{name}, {wire:?}: {shares:?}");
            assert!(small.0 != wide.0, "{name}: the rows are f32, so this shows nothing");
        }
    }
}
