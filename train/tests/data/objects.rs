//! Data in objects of a web server gives the examples of the same files, also where the server fails now and then. What
//! cannot be read ends by name.

use crate::columns::{Row, choice, examples, of_csv};
use crate::web_server::WebServer;
use flate2::Compression;
use flate2::write::GzEncoder;
use gannet_train::{Block, Data, FileFingerprint, Reader, Share, files};
use std::io::Write;
use std::sync::atomic::Ordering::SeqCst;

/// Libsvm lines of about so many bytes.
fn lines(bytes: usize) -> String {
    let line = |i: usize| format!("{} {}:1 {}:0.5 {}:2\n", i % 2, i % 1000, 1000 + i % 777, 2000 + i % 13);
    let mut text = String::new();
    for i in 0.. {
        if text.len() >= bytes {
            break;
        }
        text += &line(i);
    }
    text
}

fn packed(text: &[u8]) -> Vec<u8> {
    let mut packer = GzEncoder::new(Vec::new(), Compression::fast());
    packer.write_all(text).unwrap();
    packer.finish().unwrap()
}

/// All examples, or the error.
fn read(urls: &[String]) -> Result<Vec<Block>, String> {
    let files = files(urls).map_err(|error| error.to_string())?;
    let mut reader = Reader::open(&Data::of(files), 1000, Share::ALL).map_err(|error| error.to_string())?;
    let (mut all, mut block) = (Vec::new(), Block::default());
    while reader.next(&mut block).map_err(|error| error.to_string())? {
        all.push(block.clone());
    }
    Ok(all)
}

fn on_disk(bytes: &[u8]) -> Vec<Block> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("data");
    std::fs::write(&path, bytes).unwrap();
    read(&[path.display().to_string()]).unwrap()
}

/// Both kinds of server: one sends parts, the other one only whole files.
fn servers() -> [WebServer; 2] {
    let servers = [WebServer::start(), WebServer::start()];
    servers[1].state.whole_only.store(true, SeqCst);
    servers
}

#[test]
fn objects_have_the_examples_of_the_files() {
    let text = lines(3 << 20);
    let want = on_disk(text.as_bytes());
    for server in servers() {
        let plain = server.put("a.svm", text.as_bytes(), "1");
        assert!(read(&[plain]).unwrap() == want);
        let gzip = server.put("a.svm.gz", &packed(text.as_bytes()), "1");
        assert!(read(&[format!("{gzip}?signature=a/b")]).unwrap() == want);
        let empty = server.put("empty.svm", b"", "1");
        let error = read(&[empty]).unwrap_err();
        assert!(error.contains("empty.svm: no examples in it"), "{error}");
    }
}

/// A body that ended early was the end of the file, or an error of the whole training.
#[test]
fn an_answer_that_is_cut_or_refused_for_a_while_costs_no_example() {
    let text = lines(2 << 20);
    let want = on_disk(text.as_bytes());
    for server in servers() {
        let url = server.put("a.svm", text.as_bytes(), "1");
        server.state.busy.store(2, SeqCst);
        let whole_only = server.state.whole_only.load(SeqCst);
        server.state.cut_after.store(300 << 10, SeqCst);
        if whole_only {
            // Each answer begins at the first byte, so each must come further.
            let state = server.state.clone();
            std::thread::spawn(move || {
                while std::sync::Arc::strong_count(&state) > 1 {
                    let further = state.requests.load(SeqCst) * (300 << 10);
                    state.cut_after.store(further.max(300 << 10), SeqCst);
                    std::thread::sleep(std::time::Duration::from_millis(1));
                }
            });
        }
        assert!(read(&[url]).unwrap() == want);
        let cuts = server.state.cuts.load(SeqCst);
        assert!(cuts >= 2, "{cuts} answers were cut");
    }
}

#[test]
fn an_answer_that_is_cut_without_a_version_ends_by_name() {
    let server = WebServer::start();
    server.state.whole_only.store(true, SeqCst);
    let url = server.put("a.svm", lines(1 << 20).as_bytes(), "");
    server.state.cut_after.store(300 << 10, SeqCst);
    let error = read(&[url]).unwrap_err();
    assert!(error.contains("/a.svm: cannot read: ") && error.contains("download the object"), "{error}");
}

/// Lines of a part that nobody had asked for were trained twice, and others never.
#[test]
fn a_part_that_begins_elsewhere_is_refused_by_name() {
    let server = WebServer::start();
    let url = server.put("a.svm", lines(2 << 20).as_bytes(), "1");
    server.state.early.store(7, SeqCst);
    let error = read(&[url]).unwrap_err();
    assert!(error.contains("/a.svm: ") && error.contains("and says that it sends those from"), "{error}");
}

/// Parts of two versions became one file.
#[test]
fn an_object_that_changes_while_it_is_read_is_refused_by_name() {
    for server in servers() {
        let text = lines(8 << 20);
        let url = server.put("a.svm", text.as_bytes(), "1");
        let files = files(&[url]).unwrap();
        let fingerprint = FileFingerprint::of(&files[0]).unwrap();
        assert_eq!(fingerprint.packed, server.state.whole_only.load(SeqCst));
        fingerprint.check(&files[0]).unwrap();
        let mut reader = Reader::open(&Data::of(files.clone()), 100, Share::ALL).unwrap();
        let mut block = Block::default();
        assert!(reader.next(&mut block).unwrap());
        // Of the same length.
        server.put("a.svm", text.replace("0.5", "0.7").as_bytes(), "2");
        let error = fingerprint.check(&files[0]).unwrap_err().to_string();
        assert!(error.contains("has changed since the training began"), "{error}");
        if server.state.whole_only.load(SeqCst) {
            continue;
        }
        let error = loop {
            match reader.next(&mut block) {
                Ok(more) => assert!(more, "the end of a file of two versions"),
                Err(error) => break error.to_string(),
            }
        };
        assert!(error.contains("/a.svm: ") && error.contains("has changed since"), "{error}");
    }
}

#[test]
fn what_a_server_refuses_is_named_with_a_remedy() {
    let server = WebServer::start();
    for (name, expected) in [
        ("absent.svm", "404 Not Found; correct the URL"),
        ("secret.svm", "403 Forbidden; a signed URL may have run out"),
        ("part-*.svm", "a web server cannot list its files"),
    ] {
        let error = read(&[format!("{}/{name}", server.url)]).unwrap_err();
        assert!(error.contains(&format!("{}/{name}: ", server.url)) && error.contains(expected), "{error}");
    }
    let error = read(&["s3:///part-*.svm".into()]).unwrap_err();
    assert!(error.contains("it names no bucket"), "{error}");
    let url = server.put("a.svm", b"1 2:1\n", "1");
    let error = read(&[url.clone(), url]).unwrap_err();
    assert!(error.contains("a.svm: named twice"), "{error}");
}

#[cfg(feature = "parquet")]
#[test]
fn tables_in_objects_have_the_examples_of_the_table() {
    use crate::table_files::{batch, write_arrow, write_parquet, write_stream};
    let folder = tempfile::tempdir().unwrap();
    let row = |at: i64| -> Row {
        let city = format!("city {}", at.wrapping_mul(0x9E37_79B9) % 5000);
        (at % 3 == 0, Some(city), Some(at as f32), at, at % 2 == 0)
    };
    let rows: Vec<Row> = (0..20_000).map(row).collect();
    let want = of_csv(&rows, &folder);
    let batches: Vec<_> = rows.chunks(7000).map(|rows| batch(rows, false)).collect();
    let path = |name: &str| folder.path().join(name);
    write_parquet(&path("a.parquet"), &batches, parquet::basic::Compression::SNAPPY);
    write_arrow(&path("b.arrow"), &batches);
    write_stream(&path("c.arrows"), &batches);
    let server = WebServer::start();
    server.state.cut_after.store(50 << 10, SeqCst);
    for name in ["a.parquet", "b.arrow", "c.arrows"] {
        let url = server.put(name, &std::fs::read(path(name)).unwrap(), "1");
        let data = Data { columns: choice(), ..Data::of(files(&[url]).unwrap()) };
        assert!(examples(&data) == want, "{name}");
    }
    // The columns that are not needed stay at the server.
    let bytes = std::fs::metadata(path("a.parquet")).unwrap().len() as usize;
    server.state.cut_after.store(0, SeqCst);
    let url = server.put("d.parquet", &std::fs::read(path("a.parquet")).unwrap(), "1");
    let only = gannet_train::ColumnChoice {
        categorical: vec!["is_new".into()],
        label: choice().label,
        ..Default::default()
    };
    let data = Data { columns: only, ..Data::of(files(&[url]).unwrap()) };
    let before = server.state.sent.load(SeqCst);
    assert_eq!(examples(&data).len(), rows.len());
    let sent = server.state.sent.load(SeqCst) - before;
    assert!(sent < bytes / 2, "{sent} of {bytes} bytes were sent");
}
