//! Rows of a table become the examples that the same table makes as a CSV file, bit for bit.

use gannet_train::{
    Block, ColumnChoice, ColumnKeys, Data, Format, Labels, ReadError, Reader, Role, Share, TableRows,
};
use proptest::prelude::*;

/// A row: its label, a text, a number, a text and a number that may be missing.
type Row = (bool, String, f32, Option<String>, Option<f32>);

const HEADER: [&str; 5] = ["city", "height", "clicked", "note", "age"];

fn rows() -> impl Strategy<Value = Vec<Row>> {
    let number = || any::<f32>().prop_filter("finite", |number| number.is_finite());
    let text = || "[a-c,\" é]{0,10}";
    let row = (any::<bool>(), text(), number(), prop::option::of(text()), prop::option::of(number()));
    prop::collection::vec(row, 1..60)
}

fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('"', "\"\""))
}

fn csv(rows: &[Row]) -> String {
    let line = |(label, city, height, note, age): &Row| {
        let note = note.as_deref().map(quoted).unwrap_or_default();
        let age = age.map(|age| age.to_string()).unwrap_or_default();
        format!("{},{height},{},{note},{age}\n", quoted(city), u8::from(*label))
    };
    format!("{}\n{}", HEADER.join(","), rows.iter().map(line).collect::<String>())
}

fn choice() -> ColumnChoice {
    let numeric = vec!["height".into(), "age".into()];
    ColumnChoice { label: Some("clicked".into()), numeric, ..ColumnChoice::default() }
}

fn table(choice: &ColumnChoice, labels: Labels) -> Result<TableRows, ReadError> {
    TableRows::new("the table", &HEADER.map(String::from), choice, labels, false)
}

/// Appends the rows, a column after the other.
fn append(table: &mut TableRows, block: &mut Block, rows: &[Row], intercept: bool) -> Result<(), ReadError> {
    let [city, note] = ["city", "note"].map(ColumnKeys::new);
    table.append(block, rows.len(), intercept, |new| {
        for (at, row) in rows.iter().enumerate() {
            new.number(4, at, row.4)?;
        }
        for (at, row) in rows.iter().enumerate() {
            new.category(3, at, note.categorical(row.3.as_deref().unwrap_or_default().as_bytes()));
            new.category(0, at, city.categorical(row.1.as_bytes()));
            new.number_of_text(1, at, row.2.to_string().as_bytes())?;
            new.label(at, Some(if row.0 { b"1" } else { b" 0" }))?;
        }
        Ok(())
    })
}

proptest! {
    #[test]
    fn rows_are_the_lines_of_a_csv_file(rows in rows(), parts in 1usize..9, batch in 1usize..70, intercept: bool) {
        let data = Data { format: Format::Csv, columns: choice(), intercept, ..Data::new("the file") };
        let bytes = std::io::Cursor::new(csv(&rows).into_bytes());
        let mut reader = Reader::over(&data, Box::new(bytes), batch, Share::ALL).unwrap();
        let mut table = table(&choice(), Labels::Signs).unwrap();
        prop_assert_eq!(Some(table.columns()), reader.columns());
        prop_assert!(matches!(table.roles(), [Role::Categorical(_), Role::Numeric(..), Role::Label, ..]));
        let mut want = Block::default();
        for chunk in rows.chunks(batch) {
            prop_assert!(reader.next(&mut want).unwrap());
            let mut got = Block::default();
            got.clear();
            for part in chunk.chunks(parts) {
                append(&mut table, &mut got, part, intercept).unwrap();
            }
            let bits = |block: &Block| block.values.iter().map(|value| value.to_bits()).collect::<Vec<_>>();
            prop_assert_eq!(bits(&got), bits(&want));
            prop_assert_eq!(got, want.clone());
        }
        prop_assert!(!reader.next(&mut want).unwrap());
    }
}

#[test]
fn wrong_rows_are_named_and_leave_the_block_as_it_was() {
    let row = |age| (true, "Kiel".to_owned(), 1.5, None, Some(age));
    let mut table = table(&choice(), Labels::Signs).unwrap();
    let mut block = Block::default();
    block.clear();
    append(&mut table, &mut block, &[row(7.0), row(8.0)], true).unwrap();
    table.skip(10);
    let before = block.clone();
    let error =
        append(&mut table, &mut block, &[row(9.0), row(f32::INFINITY)], true).unwrap_err().to_string();
    assert_eq!(block, before);
    for part in ["the table: row 13 ", "\"age\"", "null"] {
        assert!(error.contains(part), "{error}");
    }
    for (label, part) in [
        (Some(&b"yes"[..]), "which is not 0, 1 or -1: say which value means 1 with --positive yes"),
        (None, "column \"clicked\" is null"),
        (Some(b"NA"), "the line has no label"),
    ] {
        let error = table.append(&mut block, 1, true, |new| new.label(0, label)).unwrap_err().to_string();
        assert!(error.contains(part), "{error}");
        assert_eq!(block, before);
    }
    let text = table.append(&mut block, 1, false, |new| new.number_of_text(1, 0, b"tall"));
    assert!(text.unwrap_err().to_string().contains("expected a number, or nothing or NA"));
}

#[test]
fn labels_are_not_a_mixture_of_0_and_minus_1() {
    let mut table = table(&choice(), Labels::Signs).unwrap();
    let mut block = Block::default();
    block.clear();
    let mut add = |labels: &[&str]| {
        table.append(&mut block, labels.len(), false, |new| {
            labels.iter().enumerate().try_for_each(|(row, label)| new.label(row, Some(label.as_bytes())))
        })
    };
    add(&["1", "-1", "1"]).unwrap();
    let error = add(&["1", "0"]).unwrap_err().to_string();
    assert!(error.contains("row 4 ") && error.contains("a mixture of -1, 0 and 1"), "{error}");
    assert_eq!(block.labels, [1.0, 0.0, 1.0]);
}

#[test]
fn columns_that_are_not_there_are_named() {
    let none = ColumnChoice { numeric: vec!["weight".into()], ..choice() };
    let error = table(&none, Labels::Signs).unwrap_err().to_string();
    assert!(error.contains("no column \"weight\"") && error.contains("city, height, clicked"), "{error}");
}
