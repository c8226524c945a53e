//! Parquet: types, descriptions that lie, damage. Files with types that Arrow does not write are made column by column.

use super::run::{Case, Count, Error, Rows, Want, text, with};
use arrow_array::builder::{ListBuilder, MapBuilder, StringBuilder};
use arrow_array::types::{Float32Type, Int32Type};
use arrow_array::*;
use arrow_schema::{DataType, Field, Schema};
use parquet::arrow::ArrowWriter;
use parquet::basic::{Compression, Encoding, ZstdLevel};
use parquet::data_type::{
    ByteArray, ByteArrayType, FixedLenByteArray, FixedLenByteArrayType, Int32Type as Int32s, Int96, Int96Type,
};
use parquet::file::properties::{WriterProperties, WriterVersion};
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::parser::parse_message_type;
use std::sync::Arc;

/// A file of record batches, each a row group.
pub fn written(batches: &[RecordBatch], properties: WriterProperties) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut writer = ArrowWriter::try_new(&mut bytes, batches[0].schema(), Some(properties)).unwrap();
    for batch in batches {
        writer.write(batch).unwrap();
        writer.flush().unwrap();
    }
    writer.close().unwrap();
    bytes
}

/// A record batch of a label 1 and this column.
pub fn of(name: &str, column: ArrayRef) -> RecordBatch {
    let labels: ArrayRef = Arc::new(Int8Array::from(vec![1; column.len()]));
    RecordBatch::try_from_iter_with_nullable([("label", labels, false), (name, column, true)]).unwrap()
}

fn plain(batch: RecordBatch) -> Vec<u8> {
    written(&[batch], WriterProperties::default())
}

/// A file with a label 1 and the column x, whose type is given, in one row group. `write` writes the column.
fn by_hand(
    of: &str,
    rows: usize,
    write: impl FnOnce(&mut parquet::file::writer::SerializedColumnWriter<'_>),
) -> Vec<u8> {
    let schema = parse_message_type(&format!("message m {{ required int32 label; {of} }}")).unwrap();
    let mut bytes = Vec::new();
    let mut writer = SerializedFileWriter::new(&mut bytes, Arc::new(schema), Arc::default()).unwrap();
    let mut group = writer.next_row_group().unwrap();
    let mut labels = group.next_column().unwrap().unwrap();
    labels.typed::<Int32s>().write_batch(&vec![1; rows], None, None).unwrap();
    labels.close().unwrap();
    let mut column = group.next_column().unwrap().unwrap();
    write(&mut column);
    column.close().unwrap();
    group.close().unwrap();
    writer.close().unwrap();
    bytes
}

fn strings(values: &[Option<&str>]) -> ArrayRef {
    Arc::new(StringArray::from(values.to_vec()))
}

fn case(what: &'static str, batch: RecordBatch, settings: &'static str, want: Want) -> Case {
    with(what, "a.parquet", plain(batch), settings, want)
}

pub fn cases() -> Vec<Case> {
    let mut cases = types();
    cases.extend(nested());
    cases.extend(forms());
    cases.extend(damage());
    cases
}

fn types() -> Vec<Case> {
    [texts_and_floats(), other_numbers(), times(), odd_types()].into_iter().flatten().collect()
}

fn texts_and_floats() -> Vec<Case> {
    let column = |of: &str, column: ArrayRef| self::of(of, column);
    let floats = |values: &[Option<f64>]| Arc::new(Float64Array::from(values.to_vec())) as ArrayRef;
    vec![
        case(
            "strings and nulls",
            column("x", strings(&[Some("a"), None, Some("")])),
            "",
            Rows("1¦x=a§1¦x=§1¦x="),
        ),
        case(
            "a string with NUL and breaks",
            column("x", strings(&[Some("a\0\n\"b\"")])),
            "",
            Rows("1¦x=a\0\n\"b\""),
        ),
        case(
            "floats",
            column("x", floats(&[Some(0.1), None, Some(-2e-3)])),
            "",
            Rows("1¦x#0.1§1¦x?§1¦x#-0.002"),
        ),
        case("NaN", column("x", floats(&[Some(0.5), Some(f64::NAN)])), "", Rows("1¦x#0.5§1¦x?")),
        case(
            "infinity",
            column("x", floats(&[Some(f64::INFINITY)])),
            "",
            Error(&["row 0", "finite", "\"x\""]),
        ),
        case("a float beyond f32", column("x", floats(&[Some(1e39)])), "", Error(&["row 0", "\"x\""])),
        case(
            "floats as categories",
            column("x", floats(&[Some(1.0)])),
            "categorical=x",
            Error(&["\"x\" has type Float64", "--numeric"]),
        ),
    ]
}

fn other_numbers() -> Vec<Case> {
    let column = |of: &str, column: ArrayRef| self::of(of, column);
    let decimals =
        Decimal128Array::from(vec![Some(12345), None, Some(-5)]).with_precision_and_scale(9, 2).unwrap();
    vec![
        case("decimals", column("x", Arc::new(decimals.clone())), "", Rows("1¦x#123.45§1¦x?§1¦x#-0.05")),
        case(
            "decimals as categories",
            column("x", Arc::new(decimals)),
            "categorical=x",
            Rows("1¦x=123.45§1¦x=§1¦x=-0.05"),
        ),
        case(
            "the greatest integers",
            column("x", Arc::new(UInt64Array::from(vec![u64::MAX]))),
            "",
            Rows("1¦x=18446744073709551615"),
        ),
        case(
            "integers as numbers",
            column("x", Arc::new(Int64Array::from(vec![Some(-7), None]))),
            "numeric=x",
            Rows("1¦x#-7§1¦x?"),
        ),
        case(
            "booleans",
            column("x", Arc::new(BooleanArray::from(vec![Some(true), None]))),
            "",
            Rows("1¦x=true§1¦x="),
        ),
    ]
}

fn times() -> Vec<Case> {
    let column = |of: &str, column: ArrayRef| self::of(of, column);
    let times = TimestampMicrosecondArray::from(vec![Some(0), Some(1_500_000), None]);
    vec![
        case(
            "times",
            column("x", Arc::new(times.clone())),
            "",
            Rows("1¦x=1970-01-01 00:00:00§1¦x=1970-01-01 00:00:01.500§1¦x="),
        ),
        case(
            "times as numbers",
            column("x", Arc::new(times)),
            "numeric=x",
            Error(&["\"x\" has type Timestamp", "only be categorical"]),
        ),
        case(
            "dates",
            column("x", Arc::new(Date32Array::from(vec![-1, 20_784]))),
            "",
            Rows("1¦x=1969-12-31§1¦x=2026-11-27"),
        ),
        case(
            "infinite dates, and one beyond the calendar",
            column("x", Arc::new(Date32Array::from(vec![i32::MAX, -i32::MAX, 2_000_000_000]))),
            "",
            Rows("1¦x=infinity§1¦x=-infinity§1¦x=2000000000"),
        ),
        case(
            "infinite times",
            column("x", Arc::new(TimestampMicrosecondArray::from(vec![i64::MAX, i64::MIN]))),
            "",
            Rows("1¦x=infinity§1¦x=-infinity"),
        ),
    ]
}

fn odd_types() -> Vec<Case> {
    [of_bytes(), by_column()].into_iter().flatten().collect()
}

fn of_bytes() -> Vec<Case> {
    let column = |of: &str, column: ArrayRef| self::of(of, column);
    let binary = BinaryArray::from(vec![&b"\xff"[..], b"x"]);
    vec![
        case(
            "bytes",
            column("x", Arc::new(binary.clone())),
            "",
            Error(&["\"x\" has type Binary", "--ignore x"]),
        ),
        case(
            "nothing but bytes, left out",
            column("x", Arc::new(binary)),
            "ignore=x",
            Error(&["no feature columns"]),
        ),
        case(
            "floats that are numbers and categories",
            column("x", Arc::new(Float64Array::from(vec![Some(5.0), None, Some(0.5)]))),
            "both=x",
            Rows("1¦x=5¦x#5§1¦x=¦x?§1¦x=0.5¦x#0.5"),
        ),
        case("nulls alone", column("x", Arc::new(NullArray::new(2))), "", Rows("1¦x=§1¦x=")),
        case(
            "text as numbers",
            column("x", strings(&[Some("1"), Some("low")])),
            "numeric=x",
            Error(&["row 1", "a number", "\"x\""]),
        ),
        case(
            "numbers in text",
            column("x", strings(&[Some(" 1.5 "), Some("NA"), None])),
            "numeric=x",
            Rows("1¦x#1.5§1¦x?§1¦x?"),
        ),
        case(
            "a name with a dot, a quote and a blank",
            column("a.\"b c", strings(&[Some("v")])),
            "",
            Rows("1¦a.\"b c=v"),
        ),
        case("a name that is empty", column("", strings(&[Some("v")])), "", Error(&["no feature columns"])),
    ]
}

fn by_column() -> Vec<Case> {
    let int96 = |column: &mut parquet::file::writer::SerializedColumnWriter<'_>| {
        let mut value = Int96::new();
        value.set_data(0, 0, 2_440_588);
        column.typed::<Int96Type>().write_batch(&[value], None, None).unwrap();
    };
    let fixed = |column: &mut parquet::file::writer::SerializedColumnWriter<'_>| {
        let value = FixedLenByteArray::from(ByteArray::from(vec![7u8; 16]));
        column.typed::<FixedLenByteArrayType>().write_batch(&[value], None, None).unwrap();
    };
    let not_text = |column: &mut parquet::file::writer::SerializedColumnWriter<'_>| {
        column
            .typed::<ByteArrayType>()
            .write_batch(&[ByteArray::from(vec![0xffu8, 0xfe])], None, None)
            .unwrap();
    };
    vec![
        with(
            "int96 of Spark",
            "a.parquet",
            by_hand("required int96 x;", 1, int96),
            "",
            Rows("1¦x=1970-01-01 00:00:00"),
        ),
        with(
            "a UUID",
            "a.parquet",
            by_hand("required fixed_len_byte_array(16) x;", 1, fixed),
            "",
            Error(&["\"x\" has type FixedSizeBinary"]),
        ),
        with(
            "a string that is not UTF-8",
            "a.parquet",
            by_hand("required binary x (UTF8);", 1, not_text),
            "",
            Error(&["row group 0", "\"x\"", "cannot be read"]),
        ),
    ]
}

fn nested() -> Vec<Case> {
    let lists = |rows: &[Option<Vec<Option<i32>>>]| {
        Arc::new(ListArray::from_iter_primitive::<Int32Type, _, _>(rows.to_vec())) as ArrayRef
    };
    let field = |name: &str| Arc::new(Field::new(name, DataType::Utf8, true));
    let inner: ArrayRef = strings(&[Some("a")]);
    let object = StructArray::from(vec![(field("b"), inner.clone()), (field("c"), inner)]);
    let mut map = MapBuilder::new(None, StringBuilder::new(), StringBuilder::new());
    map.keys().append_value("k");
    map.values().append_value("v");
    map.append(true).unwrap();
    let mut twice = ListBuilder::new(ListBuilder::new(StringBuilder::new()));
    twice.values().values().append_value("x");
    twice.values().append(true);
    twice.append(true);
    let objects = StructArray::from(vec![(field("b"), strings(&[Some("x"), Some("y")]))]);
    let offsets = arrow_array::ArrayRef::from(Arc::new(objects.clone()) as ArrayRef);
    let element = Arc::new(Field::new("item", objects.data_type().clone(), true));
    let objects = FixedSizeListArray::new(element, 2, offsets, None);
    vec![
        case(
            "lists",
            of("x", lists(&[Some(vec![Some(1), None, Some(2)]), None, Some(vec![])])),
            "",
            Rows("1¦x=1¦x=¦x=2§1¦x=§1"),
        ),
        case(
            "lists as numbers",
            of("x", lists(&[Some(vec![Some(1)])])),
            "numeric=x",
            Error(&["\"x\" has type a list of Int32", "only be categorical"]),
        ),
        case(
            "lists of floats",
            of("x", Arc::new(ListArray::from_iter_primitive::<Float32Type, _, _>([Some([Some(1.5)])]))),
            "",
            Error(&["\"x\" has type a list of Float32", "categories are integers or strings", "--ignore x"]),
        ),
        case(
            "a struct",
            of("x", Arc::new(object.clone())),
            "",
            Error(&["\"x\" has type Struct", "--ignore x"]),
        ),
        case("a map", of("x", Arc::new(map.finish())), "", Error(&["\"x\" has type Map"])),
        case(
            "lists of lists",
            of("x", Arc::new(twice.finish())),
            "",
            Error(&["\"x\" has type a list of List"]),
        ),
        case("lists of structs", of("x", Arc::new(objects)), "", Error(&["\"x\" has type a list of Struct"])),
        with(
            "a struct that is left out",
            "a.parquet",
            {
                let labels: ArrayRef = Arc::new(Int8Array::from(vec![1]));
                let columns =
                    [("label", labels), ("x", Arc::new(object) as ArrayRef), ("y", strings(&[Some("v")]))];
                plain(RecordBatch::try_from_iter(columns).unwrap())
            },
            "ignore=x",
            Rows("1¦y=v"),
        ),
    ]
}

fn forms() -> Vec<Case> {
    [packings(), parts(), labels_of()].into_iter().flatten().collect()
}

fn packings() -> Vec<Case> {
    let one = || of("x", strings(&[Some("a"), Some("b"), Some("a")]));
    let as_is = |name: &'static str, compression: Compression| {
        let properties = WriterProperties::builder().set_compression(compression).build();
        text(
            name,
            "a.parquet",
            written(&[one(), one()], properties),
            Rows("1¦x=a§1¦x=b§1¦x=a§1¦x=a§1¦x=b§1¦x=a"),
        )
    };
    let pages = WriterProperties::builder()
        .set_writer_version(WriterVersion::PARQUET_2_0)
        .set_dictionary_enabled(false)
        .set_column_encoding("x".into(), Encoding::DELTA_BYTE_ARRAY)
        .set_data_page_row_count_limit(1)
        .build();
    vec![
        as_is("snappy", Compression::SNAPPY),
        as_is("gzip", Compression::GZIP(Default::default())),
        as_is("zstd", Compression::ZSTD(ZstdLevel::default())),
        as_is("lz4", Compression::LZ4_RAW),
        text(
            "pages of version 2, a row each",
            "a.parquet",
            written(&[one()], pages),
            Rows("1¦x=a§1¦x=b§1¦x=a"),
        ),
    ]
}

fn parts() -> Vec<Case> {
    let one = || of("x", strings(&[Some("a"), Some("b"), Some("a")]));
    let no_group = {
        let mut bytes = Vec::new();
        ArrowWriter::try_new(&mut bytes, one().schema(), None).unwrap().close().unwrap();
        bytes
    };
    let no_column = {
        let schema = Arc::new(parse_message_type("message m { }").unwrap());
        let mut bytes = Vec::new();
        SerializedFileWriter::new(&mut bytes, schema, Arc::default()).unwrap().close().unwrap();
        bytes
    };
    let schema = Arc::new(Schema::new(vec![
        Field::new("label", DataType::Int8, false),
        Field::new("x", DataType::Utf8, true),
        Field::new("x", DataType::Utf8, true),
    ]));
    let columns =
        vec![Arc::new(Int8Array::from(vec![1])) as ArrayRef, strings(&[Some("a")]), strings(&[Some("b")])];
    let twice = RecordBatch::try_new(schema, columns).unwrap();
    vec![
        text("no row group", "a.parquet", no_group, Error(&["no examples in it"])),
        text("no column", "a.parquet", no_column, Error(&["a.parquet"])),
        text("a name without an extension", "data", plain(one()), Count(3)),
        text("a name that says text", "data.csv", plain(one()), Count(3)),
        text("a column twice", "a.parquet", plain(twice), Error(&["twice"])),
    ]
}

fn labels_of() -> Vec<Case> {
    let one = || of("x", strings(&[Some("a"), Some("b"), Some("a")]));
    let nulls = RecordBatch::try_from_iter([
        ("label", Arc::new(Int8Array::from(vec![Some(1), None])) as ArrayRef),
        ("x", strings(&[Some("a"), Some("b")])),
    ]);
    let nulls = nulls.unwrap();
    let words = RecordBatch::try_from_iter([
        ("label", strings(&[Some("yes"), Some("no")])),
        ("x", strings(&[Some("a"), None])),
    ]);
    let words = words.unwrap();
    let packed: ArrayRef = Arc::new(
        vec![Some("a"), None, Some("a"), Some("b")].into_iter().collect::<DictionaryArray<Int32Type>>(),
    );
    vec![
        case("a label that is null", nulls.clone(), "", Error(&["row 1", "label"])),
        case(
            "a column of categories that is missing",
            one(),
            "categorical=z",
            Error(&["no column \"z\"", "label, x"]),
        ),
        case("labels that are words", words.clone(), "positive=yes", Rows("1¦x=a§0¦x=")),
        case("labels that are words, unsaid", words, "signs", Error(&["row 0", "yes"])),
        case("a dictionary", of("x", packed), "", Rows("1¦x=a§1¦x=§1¦x=a§1¦x=b")),
        with("text for JSON", "a.parquet", plain(one()), "format=json", Error(&["a.parquet"])),
    ]
}

fn damage() -> Vec<Case> {
    let texts: Vec<String> = (0..500).map(|at| format!("value {at}")).collect();
    let many = of("x", Arc::new(StringArray::from(texts)));
    let no_dictionary = WriterProperties::builder().set_dictionary_enabled(false).build();
    let good = written(&[many], no_dictionary);
    let length = good.len();
    let changed = |what: &dyn Fn(&mut Vec<u8>)| {
        let mut bytes = good.clone();
        what(&mut bytes);
        bytes
    };
    let footer = u32::from_le_bytes(good[length - 8..length - 4].try_into().unwrap()) as usize;
    let refused = |what, bytes: Vec<u8>| {
        text(what, "a.parquet", bytes, Error(&["cannot be read", "fetch or write the file again"]))
    };
    let length_of_footer =
        |bytes: &mut Vec<u8>, value: u32| bytes[length - 8..length - 4].copy_from_slice(&value.to_le_bytes());
    vec![
        refused("the first magic alone", b"PAR1".to_vec()),
        refused("both magics alone", b"PAR1PAR1".to_vec()),
        refused("both magics and a length", b"PAR1\0\0\0\0PAR1".to_vec()),
        refused("another magic at the end", changed(&|bytes| bytes[length - 4..].copy_from_slice(b"PAR2"))),
        text(
            "an encrypted description",
            "a.parquet",
            changed(&|bytes| bytes[length - 4..].copy_from_slice(b"PARE")),
            Error(&["cannot be read", "decrypt it"]),
        ),
        text(
            "Parquet in gzip",
            "a.parquet.gz",
            super::packed_files::gzip(&good),
            Error(&["is a Parquet file; packed as a whole"]),
        ),
        refused("without its last byte", good[..length - 1].to_vec()),
        refused("the first half", good[..length / 2].to_vec()),
        refused("without its first half", [b"PAR1\x15", &good[length / 2..]].concat()),
        refused(
            "a description longer than the file",
            changed(&|bytes| length_of_footer(bytes, length as u32)),
        ),
        refused("a description of 4 GiB", changed(&|bytes| length_of_footer(bytes, u32::MAX))),
        refused("an empty description", changed(&|bytes| length_of_footer(bytes, 0))),
        refused("a description of zeros", changed(&|bytes| bytes[length - 8 - footer..length - 8].fill(0))),
        refused("a description of ones", changed(&|bytes| bytes[length - 8 - footer..length - 8].fill(0xff))),
        refused("text between the magics", b"PAR1\x15label,x\n1,a\n\x09\0\0\0PAR1".to_vec()),
        refused("pages of zeros", changed(&|bytes| bytes[4..length / 2].fill(0))),
        refused("pages of ones", changed(&|bytes| bytes[4..length / 2].fill(0xff))),
        refused("bytes behind the end", [&good[..], b"\n"].concat()),
        text("an empty file called .parquet", "a.parquet", "", Error(&["a.parquet"])),
        text("text called .parquet", "a.parquet", "label,x\n1,a\n", Rows("1¦x=a")),
        text(
            "an encrypted file",
            "a.parquet",
            b"PARE\x15\0\0\0\0\0\0\0PARE",
            Error(&["a.parquet", "decrypt it"]),
        ),
        text("ORC", "a.orc", b"ORC\x0a\x03\x00\x00ORC", Error(&["a.orc"])),
        text("Avro", "a.avro", b"Obj\x01\x04\x16avro.schema", Error(&["a.avro"])),
    ]
}
