//! A tensor of a request.

use super::binary;
use super::datum::Datum;
use crate::error::RequestError;
use crate::limits::ELEMENTS_MAX;

/// A named tensor.
#[derive(Debug)]
pub struct Tensor {
    /// Its name.
    pub name: String,
    /// Its dimensions.
    pub shape: Vec<u64>,
    /// Its elements in row-major order: as many as the shape says.
    pub elements: Vec<Datum>,
}

impl Tensor {
    /// A tensor whose elements have its type.
    ///
    /// # Errors
    /// The shape says another number of elements, or too many.
    pub fn new(
        name: String,
        datatype: String,
        shape: Vec<u64>,
        elements: Vec<Datum>,
    ) -> Result<Tensor, RequestError> {
        let most = ELEMENTS_MAX as u64;
        let count = shape.iter().try_fold(1u64, |count, &dim| count.checked_mul(dim));
        let is_small = |count: &u64| *count <= most && shape.iter().all(|dim| *dim <= most);
        let count = count.filter(is_small).ok_or_else(|| {
            RequestError::Bad(format!("input {name:?}: {shape:?} has more than {ELEMENTS_MAX} elements"))
        })?;
        if count != elements.len() as u64 {
            return Err(RequestError::Bad(format!(
                "input {name:?} ({datatype}): its shape {shape:?} has {count} elements, and its data {}",
                elements.len()
            )));
        }
        Ok(Tensor { name, shape, elements })
    }

    /// A tensor from JSON, whose numbers become those of its type.
    ///
    /// # Errors
    /// An element is not of the type, the type is not known, or as for [`new`](Self::new).
    pub fn of_json(
        name: String,
        datatype: String,
        shape: Vec<u64>,
        mut elements: Vec<Datum>,
    ) -> Result<Tensor, RequestError> {
        for (at, element) in elements.iter_mut().enumerate() {
            let given = std::mem::replace(element, Datum::Missing);
            *element =
                typed(&datatype, given).ok_or_else(|| match binary::elements(&name, &datatype, &[]) {
                    Err(unknown) => unknown,
                    Ok(_) => RequestError::Bad(format!("input {name:?}: element {at} is no {datatype}")),
                })?;
        }
        Tensor::new(name, datatype, shape, elements)
    }

    /// The number of examples, if this tensor has one element for each: shape `[n]` or `[n, 1]`.
    pub fn column(&self) -> Option<usize> {
        match self.shape[..] {
            [n] | [n, 1] => Some(n as usize),
            _ => None,
        }
    }
}

/// The element as one of this type. `None`: it is of another.
fn typed(datatype: &str, datum: Datum) -> Option<Datum> {
    let is_whole = |least: i64, most: u64| match &datum {
        Datum::Signed(x) => *x >= least && (*x < 0 || *x as u64 <= most),
        Datum::Unsigned(x) => *x <= most,
        _ => false,
    };
    let is_of = match datatype {
        _ if datum == Datum::Missing => true,
        "BYTES" => matches!(datum, Datum::Text(_)),
        "BOOL" => matches!(datum, Datum::Bool(_)),
        "INT8" => is_whole(i8::MIN.into(), i8::MAX as u64),
        "INT16" => is_whole(i16::MIN.into(), i16::MAX as u64),
        "INT32" => is_whole(i32::MIN.into(), i32::MAX as u64),
        "INT64" => is_whole(i64::MIN, i64::MAX as u64),
        "UINT8" => is_whole(0, u8::MAX.into()),
        "UINT16" => is_whole(0, u16::MAX.into()),
        "UINT32" => is_whole(0, u32::MAX.into()),
        "UINT64" => is_whole(0, u64::MAX),
        "FP32" | "FP64" => {
            let number = match datum {
                Datum::Signed(x) => x as f64,
                Datum::Unsigned(x) => x as f64,
                Datum::Double(x) => x,
                _ => return None,
            };
            let single = || Datum::Single(number as f32);
            return Some(if datatype == "FP32" { single() } else { Datum::Double(number) });
        }
        _ => false,
    };
    is_of.then_some(datum)
}
