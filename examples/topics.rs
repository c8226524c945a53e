//! Topics of documents (LDA), in one process: a few invented documents about the sea and the mountains. `gannet train
//! --model lda` does the same with articles of Reuters (docs/data.md).
use gannet::storage::Store;
use gannet::train::models::Lda;
use gannet::train::{Data, Labels, LocalTables, Options};
use std::fmt::Write as _;
use std::sync::atomic::AtomicBool;

const WORDS: [&str; 12] =
    ["sea", "fish", "wave", "gannet", "salt", "boat", "peak", "snow", "goat", "rock", "climb", "hut"];

/// LDA-C, which is a form of libsvm: the number of different words, then word:count. Two thirds of a document's words
/// are about its subject.
fn documents(n: u64) -> String {
    (0..n).fold(String::new(), |mut text, document| {
        let mut counts = [0; WORDS.len()];
        for token in 0..30 {
            let chance = gannet::table::mix(document * 64 + token);
            let subject = (document + u64::from(token % 3 == 0)) % 2;
            counts[(subject * 6 + chance % 6) as usize] += 1;
        }
        let _ = write!(text, "{}", counts.iter().filter(|n| **n > 0).count());
        for (word, n) in counts.iter().enumerate().filter(|(_, n)| **n > 0) {
            let _ = write!(text, " {word}:{n}");
        }
        text + "\n"
    })
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let path = std::env::temp_dir().join(format!("gannet-documents-{}.ldac", std::process::id()));
    std::fs::write(&path, documents(100))?;
    let model = Lda { topics: 2, document_prior: 0.5, word_prior: 0.01, seed: 1 };
    let data = Data { labels: Labels::Numbers, intercept: false, ..Data::new(&path.to_string_lossy()) };
    let options = Options { epochs: 200, ..Options::new(data) };
    let mut tables = LocalTables::new(Store::memory(), 1);
    let sampled = model.sample(&options, &mut tables, &AtomicBool::new(false), &mut |_| {})?;
    let topics = model.topics(&mut tables, 1, sampled.words, 6)?;
    println!("log likelihood {:.1}", topics.log_likelihood);
    for (tokens, words) in topics.topics {
        let words: Vec<&str> = words.iter().map(|&(word, _)| WORDS[word as usize]).collect();
        println!("{tokens} tokens: {}", words.join(" "));
    }
    std::fs::remove_file(path)?;
    Ok(())
}
