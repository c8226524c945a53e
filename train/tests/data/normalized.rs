//! Normalized values: they do not depend on units, one-hot data stays as it is, and reading ahead changes nothing else.

use gannet_train::{
    AgreedNormalization, Block, ColumnChoice, CsrRows, Data, INTERCEPT_KEY, InterceptStart, NO_FIELD,
    Normalization, Normalize, NormalizedFeature, ReadError, Reader, Share, SurveyQuestions,
};
use proptest::prelude::*;
use std::collections::HashMap;
use std::io::Read;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// The examples of rows in memory: keys and values.
type Rows = Vec<Vec<(u64, f32)>>;

fn data(rows: &Rows, normalize: Normalize) -> Data {
    let mut indptr = vec![0];
    rows.iter().for_each(|row| indptr.push(indptr.last().unwrap() + row.len() as u64));
    let (keys, values) = rows.iter().flatten().copied().unzip();
    let labels = vec![1.0; rows.len()];
    let rows = CsrRows::new(indptr, keys, values, labels, Vec::new()).unwrap();
    Data { normalize, ..Data::rows(Arc::new(rows)) }
}

fn by_first_examples() -> Normalize {
    Normalize::by_first_examples(SurveyQuestions { logarithms: true, start: InterceptStart::Zero })
}

/// All blocks, with the number of each.
fn read(data: &Data, batch: usize, share: Share) -> Vec<(u64, Block)> {
    let mut reader = Reader::open(data, batch, share).unwrap();
    let (mut all, mut block) = (Vec::new(), Block::default());
    while reader.next(&mut block).unwrap() {
        all.push((reader.batch_number(), block.clone()));
    }
    all
}

fn values(rows: &Rows, normalize: Normalize) -> Vec<f32> {
    read(&data(rows, normalize), 7, Share::ALL).iter().flat_map(|(_, block)| block.values.clone()).collect()
}

/// The normalization by the definition: from all values of each feature in the first 10,000 examples.
fn expected(rows: &Rows) -> HashMap<u64, (f64, f64)> {
    let first = &rows[..rows.len().min(10_000)];
    let mut of_key: HashMap<u64, Vec<f64>> = HashMap::new();
    first.iter().flatten().for_each(|&(key, x)| of_key.entry(key).or_default().push(x.into()));
    let mut found = HashMap::new();
    for (key, all) in of_key {
        let sizes: Vec<f64> = all.iter().filter(|x| **x != 0.0).map(|x| x.abs()).collect();
        if sizes.iter().any(|size| *size != sizes[0]) {
            let mean = all.iter().sum::<f64>() / all.len() as f64;
            let about = |center: f64| all.iter().map(|x| (x - center).powi(2)).sum::<f64>();
            let of = match all.len() == first.len() {
                true => (mean, (about(mean) / all.len() as f64).sqrt()),
                false => (0.0, (about(0.0) / sizes.len() as f64).sqrt()),
            };
            found.insert(key, of);
        }
    }
    found
}

fn row() -> impl Strategy<Value = Vec<(u64, f32)>> {
    let sparse = prop::collection::btree_map(2u64..20, -5i8..6, 0..6);
    (0u16..900, sparse).prop_map(|(dense, sparse)| {
        let sparse = sparse.into_iter().map(|(key, x)| (key, if key < 8 { 1.0 } else { f32::from(x) }));
        [(0, f32::from(dense) / 8.0)].into_iter().chain(sparse).collect()
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn values_are_as_defined_and_in_any_unit(
        rows in prop::collection::vec(row(), 1..200),
        powers in prop::collection::vec(-40i32..40, 20),
    ) {
        let sizes = expected(&rows);
        let got = values(&rows, by_first_examples());
        let features = || rows.iter().flat_map(|row| [(INTERCEPT_KEY, 1.0)].into_iter().chain(row.iter().copied()));
        for ((key, x), got) in features().zip(&got) {
            let sign = if x == 0.0 { 0.0 } else { f64::from(x.signum()) };
            let want = sizes.get(&key).map_or(sign, |(center, size)| (f64::from(x) - center) / size);
            let want = want.clamp(-16.0, 16.0);
            prop_assert!((want - f64::from(*got)).abs() <= 1e-5 * want.abs().max(1.0), "{key} {x}: {want} {got}");
        }
        let scaled: Rows = rows
            .iter()
            .map(|row| row.iter().map(|&(key, x)| (key, x * 2f32.powi(powers[key as usize]))).collect())
            .collect();
        // Powers of two are exact.
        let in_other_units = values(&scaled, by_first_examples());
        for (one, other) in got.iter().zip(&in_other_units) {
            prop_assert!((one - other).abs() <= 1e-6 * one.abs().max(1.0), "{one} {other}");
        }
    }

    #[test]
    fn reading_ahead_changes_nothing_else(
        rows in prop::collection::vec(row(), 1..60),
        batch in 1usize..20,
        (workers, worker) in (1u32..4).prop_flat_map(|workers| (Just(workers), 0..workers)),
    ) {
        let share = Share { worker, workers };
        let plain = read(&data(&rows, Normalize::off()), batch, share);
        let normalized = read(&data(&rows, by_first_examples()), batch, share);
        let without = |blocks: &[(u64, Block)]| -> Vec<(u64, Block)> {
            let mut blocks = blocks.to_vec();
            blocks.iter_mut().for_each(|(_, block)| block.values.clear());
            blocks
        };
        prop_assert_eq!(without(&plain), without(&normalized));
    }

    #[test]
    fn lines_say_all(features in prop::collection::vec((any::<u64>(), any::<f32>(), any::<f32>(), 0f32..9.0), 0..50)) {
        let features = features.into_iter().map(|(key, center, factor, unit)| NormalizedFeature { key, center, factor, unit });
        let all = Normalization::new(features.collect());
        prop_assert_eq!(Normalization::of_lines(&all.lines()), Some(all.clone()));
        prop_assert!(all.features().iter().all(|feature| all.feature(feature.key) == Some(feature)));
        prop_assert_eq!(Normalization::of_lines("1 2"), None);
    }
}

#[test]
fn one_hot_data_stays_as_it_is() {
    let rows: Rows = (0..30_000u64).map(|i| vec![(i % 13, 1.0), (100 + i % 1000, 1.0)]).collect();
    let normalize = by_first_examples();
    assert_eq!(values(&rows, normalize.clone()), values(&rows, Normalize::off()));
    assert!(normalize.known().unwrap().features().is_empty());
}

#[test]
fn only_the_first_examples_say_how_large_values_are() {
    let mut rows: Rows = (0..20_000u32).map(|i| vec![(1, 1.0 + (i % 5) as f32)]).collect();
    let before = values(&rows, by_first_examples());
    rows[10_000..].iter_mut().for_each(|row| row[0].1 = 1e30);
    rows[19_999].push((2, -7.5));
    let after = values(&rows, by_first_examples());
    assert_eq!(before[..20_000], after[..20_000]);
    // Outliers are bounded, and a feature that was not seen becomes its sign.
    assert_eq!(after[39_998..], [1.0, 16.0, -1.0]);
}

#[test]
fn wide_examples_are_shortened() {
    let rows: Rows =
        (0..300u64).map(|i| (0..1000).map(|k| (k, ((i * 7 + k * 13) % 101) as f32)).collect()).collect();
    let got = values(&rows, by_first_examples());
    let length: f32 = got[1..1001].iter().map(|x| x * x).sum();
    assert!((40.0..90.0).contains(&length), "{length}");
}

#[test]
fn an_error_comes_behind_the_examples_before_it() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.svm");
    std::fs::write(&path, "1 1:5\n0 1:7\n1 1:x\n1 1:6\n").unwrap();
    let data = |normalize| Data { normalize, ..Data::new(path.to_str().unwrap()) };
    let look = |normalize| {
        let mut reader = Reader::open(&data(normalize), 1, Share::ALL).unwrap();
        let mut block = Block::default();
        let mut next = || reader.next(&mut block).map(|more| (more, block.len())).map_err(|e| e.to_string());
        (0..5).map(|_| next()).collect::<Vec<_>>()
    };
    let plain = look(Normalize::off());
    assert!(plain[1] == Ok((true, 1)) && plain[2].is_err(), "{plain:?}");
    assert_eq!(look(by_first_examples()), plain);
    // Nothing to look at says nothing.
    std::fs::write(&path, "").unwrap();
    assert!(matches!(Reader::survey(&data(Normalize::off())), Ok(None) | Err(ReadError::Empty { .. })));
}

/// Workers that agree on the first normalization that is named.
#[derive(Default)]
struct First(Mutex<Option<Normalization>>);

impl AgreedNormalization for First {
    fn agree(&self, own: Normalization) -> Result<Normalization, String> {
        Ok(self.0.lock().unwrap().get_or_insert(own).clone())
    }
}

#[test]
fn workers_agree_and_test_data_says_nothing() {
    let of = |size: f32| (0..50).map(|i| vec![(1, size * (1 + i % 7) as f32)]).collect::<Rows>();
    let agreed = Arc::new(First::default());
    let (one, other) = (by_first_examples(), by_first_examples());
    [&one, &other].into_iter().for_each(|normalize| normalize.agree_with(agreed.clone()));
    let test = one.follower();
    // Nothing is known yet, and test data does not decide it.
    assert_eq!(values(&of(8.0), test.clone()), values(&of(8.0), Normalize::off()));
    let (first, second) = (values(&of(2.0), one.clone()), values(&of(4.0), other.clone()));
    assert_eq!(one.known(), other.known());
    assert_ne!(first, second);
    assert_eq!(values(&of(2.0), test), first);
    assert_eq!(values(&of(2.0), Normalize::by(one.known().unwrap().clone())), first);
}

/// Lines that come slowly, a hundred at a time.
struct Slow {
    sent: Arc<AtomicUsize>,
    left: Vec<u8>,
}

impl Read for Slow {
    fn read(&mut self, out: &mut [u8]) -> std::io::Result<usize> {
        if self.left.is_empty() {
            let chunk = self.sent.fetch_add(1, Relaxed);
            if chunk == 30 {
                return Ok(0);
            }
            std::thread::sleep(Duration::from_millis(300));
            self.left = (0..100).flat_map(|i| format!("1 1:{}\n", 100 * chunk + i).into_bytes()).collect();
        }
        let count = out.len().min(self.left.len());
        out[..count].copy_from_slice(&self.left[..count]);
        self.left.drain(..count);
        Ok(count)
    }
}

#[test]
fn examples_that_come_slowly_are_not_waited_for() {
    let normalize = by_first_examples();
    let data = Data { normalize: normalize.clone(), ..Data::new("-") };
    let sent = Arc::<AtomicUsize>::default();
    let slow = Slow { sent: sent.clone(), left: Vec::new() };
    let mut reader = Reader::over(&data, Box::new(slow), 10, Share::ALL).unwrap();
    let mut block = Block::default();
    assert!(reader.next(&mut block).unwrap());
    // About four hundred lines came in a second.
    assert!(sent.load(Relaxed) < 15, "{sent:?} of 30 chunks");
    let known = normalize.known().unwrap().clone();
    let mut examples = block.len();
    while reader.next(&mut block).unwrap() {
        examples += block.len();
    }
    assert_eq!((examples, normalize.known()), (3_000, Some(&known)));
}

/// The normalized numbers of a CSV file with a skewed column, one that is not, and a click in 40 rows.
fn of_columns(unit: f32, asks: SurveyQuestions) -> (Normalize, Block) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.csv");
    let line = |i: u32| {
        format!("{},{},{}\n", u32::from(i.is_multiple_of(40)), SKEWED[i as usize % 8] * unit, i % 100)
    };
    std::fs::write(&path, "label,skewed,even\n".to_owned() + &(0..800).map(line).collect::<String>())
        .unwrap();
    let numeric = ["skewed", "even"].map(String::from).to_vec();
    let columns = ColumnChoice { numeric, ..ColumnChoice::default() };
    let normalize = Normalize::by_first_examples(asks);
    let data = Data { columns, normalize: normalize.clone(), ..Data::new(path.to_str().unwrap()) };
    (normalize, read(&data, 800, Share::ALL).swap_remove(0).1)
}

const SKEWED: [f32; 8] = [0.0, 1.0, 2.0, 2.0, 3.0, 8.0, 90.0, -1.0];

#[test]
fn skewed_numbers_become_logarithms_in_any_unit() {
    let asks = SurveyQuestions { logarithms: true, start: InterceptStart::Zero };
    let (_, block) = of_columns(1.0, asks);
    let logarithms = SKEWED.map(|x| (f64::from(x.abs()) + 1.0).ln().copysign(f64::from(x)));
    let mean = logarithms.iter().sum::<f64>() / 8.0;
    let spread = (logarithms.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / 8.0).sqrt();
    for i in 0..800 {
        let got = &block.values[block.range(i)];
        let (skewed, even) =
            ((logarithms[i % 8] - mean) / spread, ((i % 100) as f64 - 49.5) / 833.25f64.sqrt());
        assert_eq!(got[0], 1.0, "the intercept");
        assert!((f64::from(got[1]) - skewed).abs() < 1e-5, "{i}: {got:?} {skewed}");
        assert!((f64::from(got[2]) - even).abs() < 1e-5, "{i}: {got:?} {even}");
    }
    for unit in [1e-6, 4096.0, 1e6] {
        let (_, other) = of_columns(unit, asks);
        let all = block.values.iter().zip(&other.values);
        assert!(all.into_iter().all(|(one, other)| (one - other).abs() < 1e-4), "{unit}");
    }
    let (_, plain) = of_columns(1.0, SurveyQuestions::default());
    assert!(block.values != plain.values && plain.values[1] != 0.0);
}

#[test]
fn the_intercept_starts_at_the_log_odds() {
    let asks = SurveyQuestions { logarithms: false, start: InterceptStart::OddsOfRare };
    let (normalize, block) = of_columns(1.0, asks);
    let odds = (1.0f32 / 39.0).ln();
    assert!((normalize.known().unwrap().start() - odds).abs() < 1e-6);
    assert!(block.bases.iter().all(|base| (base - odds).abs() < 1e-6) && block.bases.len() == 800);
    let (normalize, block) = of_columns(1.0, SurveyQuestions::default());
    assert!(normalize.known().unwrap().start() == 0.0 && block.bases.is_empty());
    // Labels that are all one say nothing, and common ones little.
    let rows: Rows = vec![vec![(3, 1.0)]; 50];
    let normalize = Normalize::by_first_examples(asks);
    let blocks = read(&data(&rows, normalize.clone()), 7, Share::ALL);
    assert!(blocks.iter().all(|(_, block)| block.bases.is_empty()));
    assert_eq!(normalize.known().unwrap().start(), 0.0);
}

#[test]
fn rows_of_columns_are_read_as_those_of_a_file() {
    let asks = SurveyQuestions { logarithms: true, start: InterceptStart::OddsOfRare };
    let (_, file) = of_columns(1.0, asks);
    let keys: Vec<u64> = file.keys.iter().copied().filter(|&key| key != INTERCEPT_KEY).collect();
    let values: Vec<f32> = (0..800).flat_map(|i| [SKEWED[i % 8], (i % 100) as f32]).collect();
    let indptr = (0..=800).map(|i| 2 * i).collect();
    let rows = CsrRows::new(indptr, keys, values, file.labels.clone(), Vec::new()).unwrap();
    let read_rows = |rows: CsrRows| {
        let normalize = Normalize::by_first_examples(asks);
        let data = Data { normalize, ..Data::rows(Arc::new(rows)) };
        read(&data, 800, Share::ALL).swap_remove(0).1
    };
    let places = [0, 1].repeat(800);
    let mut block = read_rows(rows.clone().of_columns(places.clone()).unwrap());
    assert_eq!(std::mem::take(&mut block.fields), [NO_FIELD, 0, 1].repeat(800));
    assert_eq!(block, file);
    assert!(read_rows(rows.clone()).values != file.values, "without columns nothing becomes a logarithm");
    assert!(rows.of_columns(places[1..].to_vec()).is_err(), "a field for each feature");
}
