//! Element types, as DLPack, `__cuda_array_interface__` and the libraries name them.

use pyo3::exceptions::{PyBufferError, PyTypeError};
use pyo3::prelude::*;

/// The type of an array's elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DType {
    pub(crate) name: &'static str,
    /// DLPack's code.
    pub(crate) code: u8,
    pub(crate) bits: u8,
    /// NumPy's, unless NumPy has no such type.
    pub(crate) typestr: Option<&'static str>,
}

const fn dtype(name: &'static str, code: u8, bits: u8, typestr: &'static str) -> DType {
    DType { name, code, bits, typestr: Some(typestr) }
}

/// A type that NumPy lacks.
const fn foreign(name: &'static str, code: u8, bits: u8) -> DType {
    DType { name, code, bits, typestr: None }
}

pub(crate) const BYTE: DType = dtype("uint8", 1, 8, "|u1");

const ALL: &[DType] = &[
    BYTE,
    dtype("uint16", 1, 16, "<u2"),
    dtype("uint32", 1, 32, "<u4"),
    dtype("uint64", 1, 64, "<u8"),
    dtype("int8", 0, 8, "|i1"),
    dtype("int16", 0, 16, "<i2"),
    dtype("int32", 0, 32, "<i4"),
    dtype("int64", 0, 64, "<i8"),
    dtype("float16", 2, 16, "<f2"),
    dtype("float32", 2, 32, "<f4"),
    dtype("float64", 2, 64, "<f8"),
    dtype("complex64", 5, 64, "<c8"),
    dtype("complex128", 5, 128, "<c16"),
    dtype("bool", 6, 8, "|b1"),
    foreign("bfloat16", 4, 16),
    foreign("float8_e4m3fn", 10, 8),
    foreign("float8_e4m3fnuz", 11, 8),
    foreign("float8_e5m2", 12, 8),
    foreign("float8_e5m2fnuz", 13, 8),
    foreign("float8_e8m0fnu", 14, 8),
];

impl DType {
    pub(crate) fn bytes(self) -> usize {
        usize::from(self.bits / 8)
    }

    /// Returns the type that DLPack describes.
    pub(crate) fn of_dlpack(code: u8, bits: u8, lanes: u16) -> PyResult<Self> {
        let found = ALL.iter().copied().find(|known| (known.code, known.bits) == (code, bits) && lanes == 1);
        found.ok_or_else(|| {
            PyBufferError::new_err(format!(
                "elements of DLPack type {code} with {bits} bits and {lanes} lanes are not supported"
            ))
        })
    }

    /// Returns the type with a name or a typestr.
    fn named(text: &str) -> Option<Self> {
        let text = text.strip_prefix("torch.").unwrap_or(text);
        // Bytes have no order.
        let native = text.strip_prefix(['=', '|', '<']);
        ALL.iter().copied().find(|known| {
            let short = known.typestr.map(|typestr| &typestr[1..]);
            known.name == text || (native.is_some() && short == native)
        })
    }
}

impl<'py> FromPyObject<'_, 'py> for DType {
    type Error = PyErr;

    /// Accepts a name, a typestr, and the types of NumPy, CuPy and PyTorch.
    fn extract(object: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        let text = match object.extract::<String>() {
            Ok(text) => text,
            // numpy.dtype("f4"), numpy.float32, torch.float32.
            Err(_) => match object.getattr("name").or_else(|_| object.getattr("__name__")) {
                Ok(name) => name.extract()?,
                Err(_) => object.str()?.extract()?,
            },
        };
        Self::named(&text).ok_or_else(|| {
            let known: Vec<_> = ALL.iter().map(|known| known.name).collect();
            PyTypeError::new_err(format!("{text} is not an element type: expected one of {}", known.join(", ")))
        })
    }
}
