//! `--plots`: the ROC curve and the reliability diagram of predictions, as SVG.

use crate::failure::{Failure, SYSTEM};
use gannet::storage::own_files;
use gannet::train::Quality;
use std::fmt::Write as _;
use std::path::Path;

/// How a plot begins.
const BEGINNING: &[u8] = b"<!-- a plot of gannet -->\n";

/// The side of the square with the curve, and the space around it for words. In pixels.
const SIDE: f64 = 360.0;
const LEFT: f64 = 64.0;
const TOP: f64 = 40.0;

/// A square of both axes from 0 to `most`, in which the diagonal is drawn.
struct Square {
    svg: String,
    most: f64,
}

impl Square {
    fn new(title: &str, (x, y): (&str, &str), most: f64) -> Square {
        let (width, height) = (LEFT + SIDE + 24.0, TOP + SIDE + 56.0);
        let mut svg = String::from_utf8_lossy(BEGINNING).into_owned();
        let _ = write!(
            svg,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" \
             height=\"{height}\" role=\"img\" aria-label=\"{title}\" font-family=\"sans-serif\" font-size=\"12\">\n\
             <title>{title}</title>\n<rect width=\"{width}\" height=\"{height}\" fill=\"white\"/>\n"
        );
        let middle = LEFT + SIDE / 2.0;
        let _ = writeln!(
            svg,
            "<text x=\"{middle}\" y=\"24\" text-anchor=\"middle\" font-size=\"14\">{title}</text>"
        );
        let mut square = Square { svg, most };
        for at in 0..=4 {
            let value = most * f64::from(at) / 4.0;
            let ((x, _), (_, y)) = (square.at(value, 0.0), square.at(0.0, value));
            let (bottom, right) = (TOP + SIDE, LEFT + SIDE);
            let text = short(value);
            let _ = writeln!(
                square.svg,
                "<path d=\"M{x} {TOP}V{bottom}M{LEFT} {y}H{right}\" stroke=\"#ddd\"/>\
                 <text x=\"{x}\" y=\"{}\" text-anchor=\"middle\">{text}</text>\
                 <text x=\"{}\" y=\"{}\" text-anchor=\"end\">{text}</text>",
                bottom + 18.0,
                LEFT - 8.0,
                y + 4.0
            );
        }
        square.line(&[(0.0, 0.0), (most, most)], "#999", "stroke-dasharray=\"4 4\"");
        let center = TOP + SIDE / 2.0;
        let _ = writeln!(
            square.svg,
            "<text x=\"{middle}\" y=\"{}\" text-anchor=\"middle\">{x}</text>\
             <text transform=\"translate(16 {center}) rotate(-90)\" text-anchor=\"middle\">{y}</text>",
            TOP + SIDE + 42.0
        );
        square
    }

    /// The pixel of a point.
    fn at(&self, x: f64, y: f64) -> (f64, f64) {
        let place = |value: f64| (value / self.most).clamp(0.0, 1.0) * SIDE;
        let round = |pixel: f64| (pixel * 10.0).round() / 10.0;
        (round(LEFT + place(x)), round(TOP + SIDE - place(y)))
    }

    fn line(&mut self, points: &[(f64, f64)], color: &str, more: &str) {
        let pixels: Vec<String> =
            points.iter().map(|&(x, y)| self.at(x, y)).map(|(x, y)| format!("{x},{y}")).collect();
        let _ = writeln!(
            self.svg,
            "<polyline points=\"{}\" fill=\"none\" stroke=\"{color}\" stroke-width=\"2\" {more}/>",
            pixels.join(" ")
        );
    }

    /// A dot whose area grows with the share of examples that it stands for.
    fn dot(&mut self, (x, y): (f64, f64), share: f64, words: &str) {
        let ((x, y), radius) = (self.at(x, y), 3.0 + 12.0 * share.sqrt());
        let _ = writeln!(
            self.svg,
            "<circle cx=\"{x}\" cy=\"{y}\" r=\"{radius:.1}\" fill=\"#1f77b4\" fill-opacity=\"0.7\"><title>{words}</title></circle>"
        );
    }

    /// Writes the file in place of an earlier plot. A file that Gannet has not written stays, and is an error.
    fn write(self, path: &Path) -> Result<(), Failure> {
        let svg = self.svg + "</svg>\n";
        own_files::replace(path, BEGINNING, svg.as_bytes()).map_err(|error| {
            Failure::new(
                SYSTEM,
                format!("writing {}: {error}; name another folder (--plots)", path.display()),
            )
        })
    }
}

/// A number of an axis.
fn short(value: f64) -> String {
    let text = format!("{value:.4}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// Makes the folder of the plots.
pub fn may_write(folder: &Path) -> Result<(), Failure> {
    std::fs::create_dir_all(folder).map_err(|error| {
        Failure::new(SYSTEM, format!("--plots {}: {error}; name another folder", folder.display()))
    })
}

/// Writes both diagrams into a folder.
pub fn write(folder: &Path, of: &Quality) -> Result<(), Failure> {
    let auc = of.auc.map_or("-".to_owned(), |auc| format!("{auc:.4}"));
    let axes = ("share of the negatives above the threshold", "share of the positives above it");
    let mut roc = Square::new(&format!("ROC curve, AUC {auc}"), axes, 1.0);
    roc.line(&of.roc, "#1f77b4", "");
    roc.write(&folder.join("roc.svg"))?;
    let bins: Vec<_> = of.reliability.iter().filter(|bin| bin.examples > 0).collect();
    let (n, all) = (|bin: &gannet::train::Bin| bin.examples as f64, of.examples as f64);
    let points: Vec<(f64, f64)> =
        bins.iter().map(|bin| (bin.predicted / n(bin), bin.positive as f64 / n(bin))).collect();
    // Of rare labels most of the square would be empty.
    let most = points.iter().map(|&(x, y)| x.max(y)).fold(0.0, f64::max);
    let most = [0.001, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5].into_iter().find(|&side| side >= most).unwrap_or(1.0);
    let axes = ("mean prediction", "share of positives");
    let mut reliability = Square::new(&format!("Reliability, log loss {:.5}", of.log_loss), axes, most);
    reliability.line(&points, "#1f77b4", "stroke-opacity=\"0.5\"");
    for (bin, &point) in bins.iter().zip(&points) {
        let words = format!("{} examples: predicted {:.4}, were {:.4}", bin.examples, point.0, point.1);
        reliability.dot(point, n(bin) / all, &words);
    }
    reliability.write(&folder.join("reliability.svg"))
}
