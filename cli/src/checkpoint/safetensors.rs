//! safetensors: 8 bytes of length, a head in JSON, the tensors. The crate reads and checks the head; the tensors move
//! as streams.

use crate::checkpoint::arrays::{ArrayFiles, ArrayHead, ArrayRows, dimensions, unreadable};
use crate::failure::Failure;
use safetensors::tensor::{Dtype, Metadata, TensorInfo};
use std::fs::File;
use std::io::{self, BufReader, BufWriter, Read, Seek, SeekFrom, Write};
use std::path::Path;

/// The most bytes of a head. The crate has the same limit.
const HEAD_BYTES_MAX: u64 = 100 << 20;

/// Writes a file with both tensors.
pub fn write(mut out: &File, mut arrays: ArrayFiles) -> io::Result<()> {
    let (rows, width) = (arrays.rows as usize, arrays.width);
    let (middle, end) = (rows * 8, rows * 8 + rows * width * 4);
    let keys = TensorInfo { dtype: Dtype::U64, shape: vec![rows], data_offsets: (0, middle) };
    let values = TensorInfo { dtype: Dtype::F32, shape: vec![rows, width], data_offsets: (middle, end) };
    let head = Metadata::new(None, vec![("keys".into(), keys), ("values".into(), values)]);
    let mut head = serde_json::to_string(&head.map_err(|error| io::Error::other(format!("{error:?}")))?)?;
    // The tensors begin at a multiple of 8 bytes.
    while !head.len().is_multiple_of(8) {
        head.push(' ');
    }
    let mut out = BufWriter::with_capacity(1 << 20, &mut out);
    out.write_all(&(head.len() as u64).to_le_bytes())?;
    out.write_all(head.as_bytes())?;
    io::copy(&mut arrays.keys, &mut out)?;
    io::copy(&mut arrays.values, &mut out)?;
    out.flush()
}

/// Reads both tensors. `take` gets them as streams.
pub fn read_safetensors<T>(
    path: &Path,
    take: impl FnOnce(ArrayRows<'_>) -> Result<T, Failure>,
) -> Result<T, Failure> {
    let bad = |what: String| Failure::input(format!("{}: {what}", path.display()));
    let failed = |error: io::Error| unreadable(path, &error);
    let mut file = File::open(path).map_err(failed)?;
    let bytes = file.metadata().map_err(failed)?.len();
    let mut length = [0; 8];
    file.read_exact(&mut length).map_err(failed)?;
    let length = u64::from_le_bytes(length);
    if length > HEAD_BYTES_MAX || length + 8 > bytes {
        return Err(bad(format!("this is no safetensors file: its head would have {length} bytes")));
    }
    let mut head = vec![0; length as usize];
    file.read_exact(&mut head).map_err(failed)?;
    let head: Metadata = serde_json::from_slice(&head)
        .map_err(|error| bad(format!("this is no safetensors file: its head is not valid: {error}")))?;
    let start = 8 + length;
    if bytes - start != head.data_len() as u64 {
        let (found, said) = (bytes - start, head.data_len());
        return Err(bad(format!(
            "its tensors have {found} bytes, but its head says {said}: the file is torn"
        )));
    }
    let tensor = |name: &str| {
        let info = head
            .info(name)
            .ok_or_else(|| bad(format!("no tensor `{name}`: `keys` and `values` are read")))?;
        let shape = info.shape.iter().map(|n| *n as u64).collect();
        Ok::<_, Failure>((ArrayHead { dtype: format!("{:?}", info.dtype), shape }, info.data_offsets))
    };
    let ((keys, keys_at), (values, values_at)) = (tensor("keys")?, tensor("values")?);
    let (rows, width) = dimensions(path, (&keys, &["U64", "I64"]), (&values, "F32"))?;
    let stream = |(from, to): (usize, usize)| {
        let mut file = File::open(path)?;
        file.seek(SeekFrom::Start(start + from as u64))?;
        Ok(BufReader::with_capacity(1 << 20, file.take((to - from) as u64)))
    };
    let mut keys = stream(keys_at).map_err(failed)?;
    let mut values = stream(values_at).map_err(failed)?;
    take(ArrayRows { rows, width, keys: &mut keys, values: &mut values })
}
