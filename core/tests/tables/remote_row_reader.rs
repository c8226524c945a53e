//! Rows read only through the addresses that the shards list, as a device would, beside what their owner answers. The
//! device is /proc/self/mem. remote_row_reader.rs enumerates the orders in which a real device may read.

use gannet_core::*;
use gannet_optim::{AdaGrad, Adam, Add, Float16, Ftrl, GradientTransform, GroupFtrl, Rule};
use std::fs::File;
use std::os::unix::fs::FileExt;

fn schemas() -> Vec<Schema> {
    let (alpha, beta, l1, l2) = (0.1, 1.0, 0.01, 0.5);
    let ftrl = Rule::Ftrl(Ftrl { alpha, beta, l1, l2 });
    let adagrad = Rule::AdaGrad(AdaGrad { lr: 0.1, eps: 1e-8, initial_accumulator: 0.1 });
    let group = Rule::GroupFtrl(GroupFtrl { alpha, beta, l1, l2, l21: 0.02 });
    let adam = Rule::Adam(Adam { lr: 0.1, beta1: 0.9, beta2: 0.99, eps: 1e-8, decay: 0.0 });
    let init = Init::Uniform { low: -1.0, high: 1.0 };
    let one = |rule, dim| Schema { dim, init, shards: 2, ..Schema::scalar("t", rule) };
    let more = vec![Segment { dim: 5, rule: adagrad, shaping: GradientTransform::NONE, init }];
    vec![
        one(Rule::Add(Add), 1),
        one(Rule::Add(Add), 16),
        one(adagrad, 16),
        one(ftrl, 1),
        one(ftrl, 9),
        one(group, 8),
        one(adam, 3),
        one(adam.with_packed_weights(Float16::Bf16).unwrap(), 3),
        one(adam.with_packed_weights(Float16::F16).unwrap(), 21),
        one(adagrad.with_packed_weights(Float16::F16).unwrap(), 16),
        Schema { more, ..one(ftrl, 1) },
    ]
}

struct Device {
    memory: File,
    readable: Vec<ReadableShard>,
}

impl Device {
    fn read(&self, addr: usize, bytes: usize) -> Vec<u8> {
        let mut read = vec![0; bytes];
        self.memory.read_exact_at(&mut read, addr as u64).unwrap();
        read
    }

    /// `None`: the bytes are not in one stretch.
    fn row(&self, shard: u32, offset: u64, bytes: usize) -> Option<Vec<u8>> {
        let rows = &self.readable.iter().find(|readable| readable.shard == shard).unwrap().rows;
        let at = rows.iter().rfind(|stretch| stretch.offset <= offset)?;
        let within = (offset - at.offset) as usize;
        (within + bytes <= at.bytes).then(|| self.read(at.addr + within, bytes))
    }
}

#[test]
fn rows_are_read_by_address_alone() {
    for schema in schemas() {
        let mut table = Shards::open(&Store::memory(), &schema, 0..2).unwrap();
        let mut keys: Vec<u64> = (0..3000).collect();
        keys.sort_by_key(|&key| shard_of(hash(key), 2));
        let values: Vec<f32> = (0..keys.len() * schema.weights()).map(|i| (i % 23) as f32 - 11.0).collect();
        let name = PushName { pusher: 1, incarnation: 1, seq: 1, row: 0 };
        table.push(&name, Write::Gradient, &keys, None, &values).unwrap();
        let readable = table.readable(&table.set().clone());
        let device = Device { memory: File::open("/proc/self/mem").unwrap(), readable };
        for readable in &device.readable {
            let line = device.read(readable.header.addr + HEADER_LINE_AT, HEADER_LINE_BYTES);
            assert!(is_served(&line, readable.incarnation) && !is_served(&line, readable.incarnation + 1));
        }
        let chosen: &[Segments] = match schema.more.len() {
            0 => &[Segments::ALL],
            _ => &[Segments::ALL, Segments::only(&[0]), Segments::only(&[1])],
        };
        for (read, &segments) in
            [Read::Weights, Read::State].iter().flat_map(|r| chosen.iter().map(move |s| (*r, s)))
        {
            let mut reader = RemoteRowReader::new(&schema, read, segments).unwrap();
            let floats = reader.floats();
            let (mut want, mut slots) = (vec![0.0; keys.len() * floats], Vec::new());
            table.pull_segments(&keys, read, segments, &mut want, Some(&mut slots)).unwrap();
            let (mut one_line, mut across) = (0, 0);
            for ((&key, &slot), want) in keys.iter().zip(&slots).zip(want.chunks(floats)) {
                let shard = shard_of(hash(key), 2);
                let Some(row) = device.row(shard, reader.offset(slot), reader.bytes()) else {
                    across += 1;
                    continue;
                };
                let version = device.row(shard, reader.offset(slot), VERSION_BYTES).unwrap();
                let mut out = vec![f32::NAN; floats];
                assert!(reader.is_row(key, &version, &row, &version, &mut out));
                assert_eq!(out, want, "key {key}");
                if reader.is_one_line(slot) {
                    one_line += 1;
                    out.fill(f32::NAN);
                    assert!(reader.is_line(key, &row, &mut out));
                    assert_eq!(out, want, "key {key}");
                }
                // Another key's row, one that is being written, one that was freed, and bytes that are cut off.
                let mut other = row.clone();
                assert!(!reader.is_line(key + 1, &row, &mut out));
                other[0] |= 1;
                assert!(!reader.is_line(key, &other, &mut out));
                other[0] &= !3;
                assert!(!reader.is_line(key, &other, &mut out));
                other[0] = row[0] ^ 4;
                assert!(!reader.is_row(key, &version, &row, &other, &mut out));
                assert!(!reader.is_line(key, &row[..row.len() - 1], &mut out));
            }
            assert!(across < keys.len() / 100);
            assert!(one_line > 0 || reader.bytes() > 48, "{} bytes", reader.bytes());
        }
        let (key, mut out) = (keys[0], vec![0.0; schema.read_floats(Read::State)]);
        let mut slots = Vec::new();
        table.pull(&[key], Read::State, &mut out, Some(&mut slots)).unwrap();
        let mut reader = RemoteRowReader::new(&schema, Read::State, Segments::ALL).unwrap();
        table.free(key);
        table.stop_serving();
        let row = device.row(shard_of(hash(key), 2), reader.offset(slots[0]), reader.bytes()).unwrap();
        assert!(!reader.is_line(key, &row, &mut out), "a freed row is read");
        let header = &device.readable[0].header;
        let line = device.read(header.addr + HEADER_LINE_AT, HEADER_LINE_BYTES);
        assert!(!is_served(&line, device.readable[0].incarnation));
    }
}
