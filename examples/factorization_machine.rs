//! A factorization machine (Rendle 2010) over a server: each feature's row holds a wide weight, learned by FTRL, beside a
//! factor vector, learned by AdaGrad: two segments of one table. Every fifth flight is held out; the wide part alone, a
//! table of one segment trained beside it, is what it has to beat.
use gannet::train::{Batch, Batcher, Data, Reader, Share, log_loss, sigmoid};
use gannet::{
    AdaGrad, Ftrl, Init, Read, Rule, Schema, Segment, Server, ServerConfig, Shaping, TableId, Wires, Worker,
    WorkerConfig, Write,
};

type Failed = Box<dyn std::error::Error>;

/// The schemas: wide and factors, and the wide part alone.
fn schemas() -> [Schema; 2] {
    let wide = Schema::scalar("wide", Rule::Ftrl(Ftrl { alpha: 0.05, beta: 1.0, l1: 0.0, l2: 1.0 }));
    let factors = Segment {
        dim: 8,
        rule: Rule::AdaGrad(AdaGrad { lr: 0.05, eps: 1e-8, initial_accumulator: 0.1 }),
        shaping: Shaping::NONE,
        init: Init::Normal { mean: 0.0, deviation: 0.05 },
    };
    [Schema { name: "fm".into(), more: vec![factors], seed: 1, ..wide.clone() }, wide]
}

/// A model's table, and its held-out log loss so far.
struct Model {
    table: TableId,
    /// Floats of a row: the wide weight, then the factors.
    width: usize,
    sums: Vec<f32>,
    held_out: (u64, f64),
}

impl Model {
    /// w x + the sum over pairs of <v_i, v_j> x_i x_j, which is half of (sum v x)^2 - sum (v x)^2; leaves the sums.
    fn margin(&mut self, features: &[(usize, f32)], rows: &[f32]) -> f32 {
        self.sums.fill(0.0);
        let (mut linear, mut squares) = (0.0, 0.0);
        for &(at, x) in features {
            let row = &rows[at * self.width..][..self.width];
            linear += row[0] * x;
            for (sum, v) in self.sums.iter_mut().zip(&row[1..]) {
                *sum += v * x;
                squares += v * x * v * x;
            }
        }
        linear + 0.5 * (self.sums.iter().map(|s| s * s).sum::<f32>() - squares)
    }

    /// Pulls the batch's rows, scores every fifth example, and pushes the gradients of the others, summed.
    fn learn(&mut self, worker: &mut Worker<Wires>, batch: &Batch, first: usize) -> Result<(), Failed> {
        let mut rows = vec![0.0; batch.keys.len() * self.width];
        worker.pull(self.table, &batch.keys, Read::Weights, &mut rows)?;
        let mut gradients = vec![0.0; rows.len()];
        for (i, &label) in batch.block.labels.iter().enumerate() {
            let range = batch.block.range(i);
            let places = batch.local[range.clone()].iter().map(|&at| at as usize);
            let features: Vec<_> = places.zip(batch.block.values[range].iter().copied()).collect();
            let margin = self.margin(&features, &rows);
            if (first + i).is_multiple_of(5) {
                self.held_out = (self.held_out.0 + 1, self.held_out.1 + log_loss(margin, label));
                continue;
            }
            let error = sigmoid(margin) - label;
            for &(at, x) in &features {
                let range = at * self.width..(at + 1) * self.width;
                let (row, gradient) = (&rows[range.clone()], &mut gradients[range]);
                gradient[0] += error * x;
                for ((g, v), sum) in gradient[1..].iter_mut().zip(&row[1..]).zip(&self.sums) {
                    *g += error * x * (sum - v * x);
                }
            }
        }
        Ok(worker.push(self.table, &batch.keys, Write::Gradient, &gradients)?)
    }
}

/// Trains both for `passes` passes over the first `examples` of a file; their log losses on the held-out ones in the last
/// pass (which never learns them).
pub fn train(path: &str, examples: usize, passes: usize) -> Result<[f64; 2], Failed> {
    let server = Server::start(Wires::new(), ServerConfig::new("127.0.0.1:0"))?;
    let mut worker = Worker::connect(Wires::new(), WorkerConfig::new([server.addr()], 1, 1))?;
    let schemas = schemas();
    let mut models = Vec::new();
    for schema in &schemas {
        let (table, width) = (worker.open_table(schema)?, schema.weights());
        models.push(Model { table, width, sums: vec![0.0; width - 1], held_out: (0, 0.0) });
    }
    for _ in 0..passes {
        let mut reader = Reader::open(&Data::new(path), 64, Share::ALL)?;
        let mut batcher = Batcher::new(schemas[0].shards, 0);
        let (mut batch, mut seen) = (Batch::default(), 0);
        models.iter_mut().for_each(|model| model.held_out = (0, 0.0));
        while seen < examples && reader.next(&mut batch.block)? {
            batcher.complete(&mut batch);
            for model in &mut models {
                model.learn(&mut worker, &batch, seen)?;
            }
            seen += batch.block.len();
        }
    }
    drop(worker);
    server.stop()?;
    Ok([0, 1].map(|i| models[i].held_out.1 / models[i].held_out.0 as f64))
}

#[allow(dead_code, reason = "a test calls `train` itself")]
fn main() -> Result<(), Failed> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/data/flights.csv.gz");
    let [fm, wide] = train(path, usize::MAX, 2)?;
    println!("held-out log loss: factorization machine {fm:.5}, its wide part alone {wide:.5}");
    Ok(())
}
