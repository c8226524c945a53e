//! Files of Parquet and Arrow give the examples that the same table gives as a CSV file, and damaged ones end by name.

use crate::columns::{Row, choice, examples, of_csv, rows};
use arrow_array::types::Int32Type;
use arrow_array::{
    ArrayRef, BooleanArray, Date32Array, DictionaryArray, Float32Array, Int8Array, Int64Array, ListArray,
    RecordBatch, StringArray, TimestampSecondArray,
};
use arrow_ipc::writer::{FileWriter, StreamWriter};
use gannet_train::{Block, ColumnChoice, ColumnKeys, Data, Labels, Reader, Share, Survey};
use parquet::arrow::ArrowWriter;
use parquet::basic::{Compression, ZstdLevel};
use parquet::file::properties::WriterProperties;
use proptest::prelude::*;
use std::path::Path;
use std::sync::Arc;

pub fn batch(rows: &[Row], packed: bool) -> RecordBatch {
    let texts = || rows.iter().map(|row| row.1.as_deref());
    let city: ArrayRef = match packed {
        true => Arc::new(texts().collect::<DictionaryArray<Int32Type>>()),
        false => Arc::new(texts().collect::<StringArray>()),
    };
    let columns: [(&str, ArrayRef, bool); 6] = [
        ("clicked", Arc::new(rows.iter().map(|row| Some(row.0 as i8)).collect::<Int8Array>()), false),
        ("city", city, true),
        ("height", Arc::new(rows.iter().map(|row| row.2).collect::<Float32Array>()), true),
        // Pandas' index has the place of its column in its name, and is left out.
        ("Unnamed: 3", Arc::new((0..rows.len() as i64).map(Some).collect::<Int64Array>()), false),
        ("hour", Arc::new(rows.iter().map(|row| Some(row.3)).collect::<Int64Array>()), false),
        ("is_new", Arc::new(rows.iter().map(|row| Some(row.4)).collect::<BooleanArray>()), false),
    ];
    RecordBatch::try_from_iter_with_nullable(columns).unwrap()
}

pub fn write_parquet(path: &Path, batches: &[RecordBatch], compression: Compression) {
    write_groups(path, batches, WriterProperties::builder().set_compression(compression).build());
}

/// Each record batch is a row group.
fn write_groups(path: &Path, batches: &[RecordBatch], properties: WriterProperties) {
    let file = std::fs::File::create(path).unwrap();
    let mut writer = ArrowWriter::try_new(file, batches[0].schema(), Some(properties)).unwrap();
    for batch in batches {
        writer.write(batch).unwrap();
        // A row group of its own.
        writer.flush().unwrap();
    }
    writer.close().unwrap();
}

pub fn write_arrow(path: &Path, batches: &[RecordBatch]) {
    let mut writer = FileWriter::try_new(std::fs::File::create(path).unwrap(), &batches[0].schema()).unwrap();
    batches.iter().for_each(|batch| writer.write(batch).unwrap());
    writer.finish().unwrap();
}

pub fn write_stream(path: &Path, batches: &[RecordBatch]) {
    let mut writer =
        StreamWriter::try_new(std::fs::File::create(path).unwrap(), &batches[0].schema()).unwrap();
    batches.iter().for_each(|batch| writer.write(batch).unwrap());
    writer.finish().unwrap();
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn table_files_have_the_examples_of_the_table(rows in rows(), parts in 1usize..30, packed: bool) {
        let folder = tempfile::tempdir().unwrap();
        let want = of_csv(&rows, &folder);
        let batches: Vec<RecordBatch> = rows.chunks(parts).map(|rows| batch(rows, packed)).collect();
        let path = |name: &str| folder.path().join(name);
        let zstd = Compression::ZSTD(ZstdLevel::default());
        write_parquet(&path("a.parquet"), &batches, zstd);
        write_parquet(&path("b"), &batches, Compression::SNAPPY);
        write_parquet(&path("c"), &batches, Compression::GZIP(Default::default()));
        let mut names = vec!["a.parquet", "b", "c"];
        // Arrow's files have one dictionary a column.
        if !packed || batches.len() == 1 {
            write_arrow(&path("d.arrow"), &batches);
            write_stream(&path("e.arrows"), &batches);
            names.extend(["d.arrow", "e.arrows"]);
        }
        for name in names {
            let data = Data { columns: choice(), ..Data::new(path(name).to_str().unwrap()) };
            prop_assert_eq!(&examples(&data), &want, "{}", name);
        }
        // Two files, one after the other, are one.
        let (first, second) = batches.split_at(batches.len() / 2);
        if !first.is_empty() {
            write_parquet(&path("f.parquet"), first, zstd);
            write_parquet(&path("g.parquet"), second, zstd);
            let files = ["f.parquet", "g.parquet"].map(|name| path(name).display().to_string());
            let data = Data { columns: choice(), ..Data::of(files.to_vec()) };
            prop_assert_eq!(&examples(&data), &want);
        }
    }
}

/// Texts and dates that repeat over batches and row groups, whose keys are remembered: each row has those of its texts.
/// The dictionary of a text differs in each row group; one has more texts than a writer keeps in a dictionary.
#[test]
fn values_that_repeat_have_the_keys_of_their_texts() {
    let folder = tempfile::tempdir().unwrap();
    let mut csv = "label,city,many,day,at,count\n".to_owned();
    let mut groups = Vec::new();
    for group in 0..3u64 {
        let at: Vec<u64> = (group * 9_000..(group + 1) * 9_000).map(gannet_core::mix).collect();
        let city = |x: &u64| (!x.is_multiple_of(9)).then(|| format!("city {}", x % 40 + group * 20));
        let many = |x: &u64| format!("{}", x % 8_191);
        let (day, second) = (|x: &u64| (x % 700) as i32, |x: &u64| (x % 5_000) as i64 * 977);
        for x in &at {
            let day = date(day(x));
            let (hour, minute, second) = (second(x) / 3_600, second(x) / 60 % 60, second(x) % 60);
            let (date, hour) = (date((hour / 24) as i32), hour % 24);
            let (label, city, many, count) = (x % 2, city(x).unwrap_or_default(), many(x), x % 300);
            csv += &format!("{label},{city},{many},{day},{date} {hour:02}:{minute:02}:{second:02},{count}\n");
        }
        let columns: [(&str, ArrayRef); 6] = [
            ("label", Arc::new(Int8Array::from_iter_values(at.iter().map(|x| (x % 2) as i8)))),
            ("city", Arc::new(StringArray::from_iter(at.iter().map(city)))),
            ("many", Arc::new(StringArray::from_iter_values(at.iter().map(many)))),
            ("day", Arc::new(Date32Array::from_iter_values(at.iter().map(day)))),
            ("at", Arc::new(TimestampSecondArray::from_iter_values(at.iter().map(second)))),
            ("count", Arc::new(Int64Array::from_iter_values(at.iter().map(|x| (x % 300) as i64)))),
        ];
        groups.push(RecordBatch::try_from_iter(columns).unwrap());
    }
    let text = folder.path().join("x.csv");
    std::fs::write(&text, csv).unwrap();
    let both = ColumnChoice { both: vec!["count".into()], ..ColumnChoice::default() };
    let read = |path: &Path| {
        let data = Data { columns: both.clone(), ..Data::new(path.to_str().unwrap()) };
        let (mut reader, mut block) = (Reader::open(&data, 1_000, Share::ALL).unwrap(), Block::default());
        let mut all = Vec::new();
        while reader.next(&mut block).unwrap() {
            all.push((block.keys.clone(), block.values.clone(), block.labels.clone()));
        }
        all
    };
    let want = read(&text);
    assert_eq!(want.len(), 27);
    for limit in [1 << 20, 64] {
        let path = folder.path().join(format!("{limit}.parquet"));
        let few = WriterProperties::builder()
            .set_dictionary_page_size_limit(limit)
            .set_data_page_row_count_limit(500);
        write_groups(&path, &groups, few.set_write_batch_size(100).build());
        assert!(read(&path) == want, "at most {limit} bytes of texts");
    }
}

/// A day since 1970, of its first two years.
fn date(day: i32) -> String {
    let lengths = [31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    let (year, mut day) = (1970 + day / 365, day % 365);
    let month = lengths.iter().position(|length| {
        let is_in = day < *length;
        day -= if is_in { 0 } else { *length };
        is_in
    });
    format!("{year}-{:02}-{:02}", month.unwrap() + 1, day + 1)
}

fn three_groups(folder: &tempfile::TempDir) -> String {
    let row = |at: i64| (at % 3 == 0, Some(format!("city {}", at % 7)), Some(at as f32), at, at % 2 == 0);
    let batches: Vec<RecordBatch> = (0..3)
        .map(|group| batch(&(group * 900..group * 900 + 900).map(row).collect::<Vec<_>>(), false))
        .collect();
    let path = folder.path().join("x.parquet");
    write_parquet(&path, &batches, Compression::SNAPPY);
    path.display().to_string()
}

/// Floats are numbers by default, and lists are several categories.
#[test]
fn columns_have_the_roles_of_their_types() {
    let folder = tempfile::tempdir().unwrap();
    let lists = [Some(vec![Some(1), Some(2), None]), None, Some(vec![])];
    let columns: [(&str, ArrayRef); 3] = [
        ("label", Arc::new(Int8Array::from(vec![1, 0, 1]))),
        ("tags", Arc::new(ListArray::from_iter_primitive::<Int32Type, _, _>(lists))),
        ("price", Arc::new(Float32Array::from(vec![Some(0.5), None, Some(2.0)]))),
    ];
    let path = folder.path().join("x.parquet");
    write_parquet(&path, &[RecordBatch::try_from_iter(columns).unwrap()], Compression::UNCOMPRESSED);
    let path = path.display().to_string();
    let data = Data { intercept: false, ..Data::new(&path) };
    let block = examples(&data);
    let (tags, price) = (ColumnKeys::new("tags"), ColumnKeys::new("price"));
    let tag = |text: &str| (tags.categorical(text.as_bytes()), 1.0);
    let of = |i: usize| -> Vec<(u64, f32)> {
        block.range(i).map(|at| (block.keys[at], block.values[at])).collect()
    };
    assert_eq!(of(0), [tag("1"), tag("2"), tag(""), (price.numeric(), 0.5)]);
    assert_eq!(of(1), [tag(""), (price.missing(), 1.0)]);
    assert_eq!(of(2), [(price.numeric(), 2.0)]);
    let survey = Survey::of(&data, None).unwrap();
    assert_eq!((survey.column("price").unwrap().numbers, survey.lines.0), (2, 3));
    for (choice, part) in [
        (ColumnChoice { numeric: vec!["tags".into()], ..Default::default() }, "it can only be categorical"),
        (ColumnChoice { categorical: vec!["price".into()], ..Default::default() }, "name it in --numeric"),
        (ColumnChoice { label: Some("x".into()), ..Default::default() }, "--label"),
    ] {
        let error = Reader::look(&Data { columns: choice, ..Data::new(&path) }).unwrap_err().to_string();
        assert!(error.contains(part) && error.contains(&path), "{error}");
    }
}

/// A file with bytes changed anywhere, or cut anywhere, is read right or refused with its name; nothing panics.
#[test]
fn damaged_files_end_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let path = three_groups(&folder);
    let whole = std::fs::read(&path).unwrap();
    let damaged = folder.path().join("y.parquet").display().to_string();
    let (mut named, mut seed) = (0, 7u64);
    for round in 0..400usize {
        seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        let mut bytes = whole.clone();
        let at = (seed >> 20) as usize % bytes.len();
        match round % 3 {
            0 => bytes.truncate(at.max(4)),
            1 => bytes[at] ^= 1 << (seed >> 60 & 7),
            _ => bytes[at..].iter_mut().take(64).for_each(|byte| *byte = (seed >> 50) as u8),
        }
        std::fs::write(&damaged, &bytes).unwrap();
        let data = Data { columns: choice(), ..Data::new(&damaged) };
        let read = Reader::open(&data, 50, Share::ALL).and_then(|mut reader| {
            let mut block = Block::default();
            while reader.next(&mut block)? {}
            Ok(())
        });
        if let Err(error) = read {
            assert!(error.to_string().contains(&damaged), "{error}");
            named += usize::from(error.to_string().contains("cannot be read"));
        }
    }
    assert!(named > 150, "{named}");
}

/// Once a file that says so made the reader allocate and read gigabytes.
#[test]
fn a_description_of_gigabytes_is_refused_before_it_is_read() {
    use std::io::{Seek, SeekFrom, Write};
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("sparse.parquet");
    let mut file = std::fs::File::create(&path).unwrap();
    file.write_all(b"PAR1\x15").unwrap();
    // No byte between is on the disk.
    file.seek(SeekFrom::Start(4_500_000_000)).unwrap();
    file.write_all(&4_000_000_000u32.to_le_bytes()).unwrap();
    file.write_all(b"PAR1").unwrap();
    let path = path.display().to_string();
    let error = Reader::look(&Data::new(&path)).unwrap_err().to_string();
    let says = format!("{path}: its description cannot be read");
    assert!(
        error.contains(&says) && error.contains("4000000000 bytes") && error.contains("1073741824"),
        "{error}"
    );
}

/// The bytes of one column of one row group are damaged: the error has its name and the number of the group.
#[test]
fn a_damaged_page_is_named_with_its_row_group_and_column() {
    let folder = tempfile::tempdir().unwrap();
    let path = three_groups(&folder);
    let file = parquet::file::serialized_reader::SerializedFileReader::try_from(Path::new(&path)).unwrap();
    let metadata = parquet::file::reader::FileReader::metadata(&file).clone();
    let column =
        metadata.row_group(1).columns().iter().position(|c| c.column_path().string() == "city").unwrap();
    let (start, length) = metadata.row_group(1).column(column).byte_range();
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[start as usize..(start + length) as usize].fill(0xa5);
    std::fs::write(&path, bytes).unwrap();
    let data = Data { columns: choice(), ..Data::new(&path) };
    let mut reader = Reader::open(&data, 100, Share::ALL).unwrap();
    let mut block = Block::default();
    let mut read = 0;
    let error = loop {
        match reader.next(&mut block) {
            Ok(true) => read += block.len(),
            Ok(false) => panic!("the damage was not seen"),
            Err(error) => break error.to_string(),
        }
    };
    assert!(read >= 900, "{read}");
    assert!(error.contains(&format!("{path}: row group 1, column \"city\" cannot be read")), "{error}");
}

/// The index of a frame, as pandas names it in its files, was a category that differs in every row.
#[test]
fn the_index_of_pandas_is_left_out() {
    let folder = tempfile::tempdir().unwrap();
    let columns: [(&str, ArrayRef); 3] = [
        ("__index_level_0__", Arc::new(Int64Array::from(vec![7, 8]))),
        ("price", Arc::new(Float32Array::from(vec![0.5, 2.0]))),
        ("city", Arc::new(StringArray::from(vec!["a", "b"]))),
    ];
    let path = folder.path().join("x.parquet").display().to_string();
    write_parquet(Path::new(&path), &[RecordBatch::try_from_iter(columns).unwrap()], Compression::SNAPPY);
    let found = Reader::look(&Data { labels: Labels::Numbers, ..Data::new(&path) }).unwrap().unwrap();
    let columns = found.columns.unwrap();
    assert_eq!(
        (columns.label.as_deref(), columns.nameless),
        (Some("price"), vec!["__index_level_0__".to_owned()])
    );
    assert_eq!((columns.categorical, columns.numeric), (vec!["city".to_owned()], Vec::new()));
    // A model of JSON lines that knows no such number: its floats are texts, which no row of the model may have.
    let choice = ColumnChoice { as_categories: true, label: Some("none".into()), ..ColumnChoice::default() };
    let data = Data { columns: choice, unlabelled: true, intercept: false, ..Data::new(&path) };
    let (mut reader, mut block) = (Reader::open(&data, 7, Share::ALL).unwrap(), Block::default());
    reader.next(&mut block).unwrap();
    let (price, city) = (ColumnKeys::new("price"), ColumnKeys::new("city"));
    let row =
        |number: &str, text: &str| [price.categorical(number.as_bytes()), city.categorical(text.as_bytes())];
    assert_eq!(block.keys, [row("0.5", "a"), row("2.0", "b")].concat());
}
