//! The limit with which `gannet bench` compares itself, measured in the same run: the rate of one server thread if
//! look-ups, framing and system calls were free.
//!
//! `1 / (seconds a row of a gather (pull) or scatter-SGD (push) on one core + wire bytes a row / loopback bytes/s)`.
//! The rows are random, at known places in huge pages, and take 8 + 4 x dim bytes a row on the wire.

use memmap2::{Advice, MmapMut};
use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

/// The size of the work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size {
    /// Rows of the table.
    pub rows: u64,
    /// Unique keys of a batch.
    pub batch: usize,
}

impl Size {
    /// The canonical work.
    pub const CANONICAL: Size = Size { rows: 4_000_000, batch: 65_536 };

    /// The number of different batches. Together they have a million keys, or as many keys as there are rows, so that
    /// small batches do not stay in the cache.
    pub(super) fn batches(self) -> usize {
        (self.rows.min(1 << 20) as usize / self.batch).max(4)
    }
}

const AHEAD: usize = 16;

/// The limit at one dimension.
#[derive(Clone, Copy, Debug)]
pub struct Limit {
    /// Rows a second gathered by one core.
    pub gather_rows_per_s: f64,
    /// Rows a second of SGD by one core.
    pub scatter_rows_per_s: f64,
    /// Bytes a second over loopback TCP, one stream.
    pub loopback_bytes_per_s: f64,
    /// The limit of pulls.
    pub tcp_pull_keys_per_s: f64,
    /// The limit of pushes.
    pub tcp_push_keys_per_s: f64,
}

/// Measures gather and scatter for `size.rows` rows of `dim` floats. The loopback rate was measured before.
///
/// # Errors
/// No memory for the rows.
pub fn limit(dim: usize, size: Size, loopback_bytes_per_s: f64) -> io::Result<Limit> {
    let (gather, scatter) = match dim {
        1 => memory::<1>(size)?,
        16 => memory::<16>(size)?,
        64 => memory::<64>(size)?,
        _ => memory_of(dim, size)?,
    };
    let wire = (8 + 4 * dim) as f64 / loopback_bytes_per_s;
    Ok(Limit {
        gather_rows_per_s: 1.0 / gather,
        scatter_rows_per_s: 1.0 / scatter,
        loopback_bytes_per_s,
        tcp_pull_keys_per_s: 1.0 / (gather + wire),
        tcp_push_keys_per_s: 1.0 / (scatter + wire),
    })
}

fn memory<const D: usize>(size: Size) -> io::Result<(f64, f64)> {
    rates(D, size, |out, row| out[..D].copy_from_slice(&row[..D]), |row, g| sgd(&mut row[..D], &g[..D]))
}

fn memory_of(dim: usize, size: Size) -> io::Result<(f64, f64)> {
    rates(dim, size, |out, row| out.copy_from_slice(&row[..out.len()]), |row, g| sgd(&mut row[..g.len()], g))
}

#[inline(always)]
fn sgd(row: &mut [f32], gradient: &[f32]) {
    for (w, g) in row.iter_mut().zip(gradient) {
        *w -= 0.01 * g;
    }
}

/// Seconds a row of gathering and of scattering: medians of seven rounds over all batches.
#[inline(always)]
fn rates(
    dim: usize,
    size: Size,
    copy: impl Fn(&mut [f32], &[f32]),
    apply: impl Fn(&mut [f32], &[f32]),
) -> io::Result<(f64, f64)> {
    let stride = (16 + 4 * dim).next_multiple_of(8) / 4; // a row as core has it, in floats
    let mut memory = MmapMut::map_anon(size.rows as usize * stride * 4 + (2 << 20))?;
    let _ = memory.advise(Advice::HugePage); // a kernel without huge pages gives a lower limit
    let start = memory.as_ptr().align_offset(2 << 20);
    let rows: &mut [f32] =
        bytemuck::cast_slice_mut(&mut memory[start..start + size.rows as usize * stride * 4]);
    rows.fill(0.5);
    let mut random = 88_172_645_463_325_252u64;
    let batches: Vec<Vec<usize>> = (0..size.batches())
        .map(|_| {
            let mut next = || {
                random = gannet_core::mix(random);
                (random % size.rows) as usize * stride + 4
            };
            (0..size.batch).map(|_| next()).collect()
        })
        .collect();
    let mut out = vec![0f32; size.batch * dim];
    let gather = median(7, || {
        for batch in &batches {
            for (i, answer) in out.chunks_exact_mut(dim).enumerate() {
                prefetch_ahead(rows, batch, i, stride);
                copy(answer, &rows[batch[i]..batch[i] + dim]);
            }
        }
    });
    let scatter = median(7, || {
        for batch in &batches {
            for (i, gradient) in out.chunks_exact(dim).enumerate() {
                prefetch_ahead(rows, batch, i, stride);
                apply(&mut rows[batch[i]..batch[i] + dim], gradient);
            }
        }
    });
    let n = (size.batches() * size.batch) as f64;
    Ok((gather / n, scatter / n))
}

/// Prefetches the row that comes `AHEAD` rows later.
#[inline(always)]
fn prefetch_ahead(rows: &[f32], batch: &[usize], i: usize, stride: usize) {
    if let Some(&at) = batch.get(i + AHEAD) {
        let first = rows.as_ptr().wrapping_add(at - 4);
        let mut line = 0;
        while line < stride {
            gannet_core::prefetch(first.wrapping_add(line).cast());
            line += 16;
        }
        gannet_core::prefetch(first.wrapping_add(stride - 1).cast());
    }
}

fn median(rounds: usize, mut f: impl FnMut()) -> f64 {
    let mut seconds: Vec<f64> = (0..rounds)
        .map(|_| {
            let start = Instant::now();
            f();
            start.elapsed().as_secs_f64()
        })
        .collect();
    seconds.sort_by(f64::total_cmp);
    seconds[rounds / 2]
}

const WRITE_BYTES: usize = 1 << 20;
const LOOPBACK_SECONDS: f64 = 1.0;
/// The most time for the other process, on a busy or emulated machine.
const PATIENCE: Duration = Duration::from_secs(30);

/// The sending side: connects to `addr` and writes for a second in 1 MiB writes. It runs in its own process.
///
/// # Errors
/// The receiver is gone.
pub fn loopback_send(addr: &str) -> io::Result<()> {
    let mut stream = TcpStream::connect(addr)?;
    let block = vec![7u8; WRITE_BYTES];
    let start = Instant::now();
    while start.elapsed().as_secs_f64() < LOOPBACK_SECONDS {
        stream.write_all(&block)?;
    }
    Ok(())
}

/// The receiving side: bytes a second until the sender ends.
///
/// # Errors
/// No sender connected within half a minute, or it stopped in the middle.
pub fn loopback_receive(listener: &TcpListener) -> io::Result<f64> {
    listener.set_nonblocking(true)?;
    let waiting = Instant::now();
    let mut stream = loop {
        match listener.accept() {
            Ok((stream, _)) => break stream,
            Err(e) if e.kind() == io::ErrorKind::WouldBlock && waiting.elapsed() < PATIENCE => {
                std::thread::sleep(Duration::from_millis(1));
            }
            Err(e) => return Err(e),
        }
    };
    stream.set_nonblocking(false)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let mut block = vec![0u8; WRITE_BYTES];
    let (mut bytes, start) = (0usize, Instant::now());
    loop {
        match stream.read(&mut block)? {
            0 => return Ok(bytes as f64 / start.elapsed().as_secs_f64()),
            n => bytes += n,
        }
    }
}
