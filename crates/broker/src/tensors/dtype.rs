//! Element types, under the names that NumPy, PyTorch and the Python package use.

use std::fmt;

macro_rules! dtypes {
    ($($variant:ident, $name:literal, $bytes:literal;)*) => {
        /// The type of a tensor's elements.
        #[non_exhaustive]
        #[allow(missing_docs, reason = "the names are those of NumPy and PyTorch")]
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Dtype {
            $($variant,)*
        }

        impl Dtype {
            /// All types.
            pub const ALL: &[Self] = &[$(Self::$variant,)*];

            /// Returns its name, such as `float32`.
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)*
                }
            }

            /// Returns the size of an element in bytes.
            pub fn bytes(self) -> u64 {
                match self {
                    $(Self::$variant => $bytes,)*
                }
            }
        }
    };
}

dtypes! {
    Bool, "bool", 1;
    Uint8, "uint8", 1;
    Uint16, "uint16", 2;
    Uint32, "uint32", 4;
    Uint64, "uint64", 8;
    Int8, "int8", 1;
    Int16, "int16", 2;
    Int32, "int32", 4;
    Int64, "int64", 8;
    Float16, "float16", 2;
    Bfloat16, "bfloat16", 2;
    Float32, "float32", 4;
    Float64, "float64", 8;
    Complex64, "complex64", 8;
    Complex128, "complex128", 16;
    Float8E4m3fn, "float8_e4m3fn", 1;
    Float8E4m3fnuz, "float8_e4m3fnuz", 1;
    Float8E5m2, "float8_e5m2", 1;
    Float8E5m2fnuz, "float8_e5m2fnuz", 1;
    Float8E8m0fnu, "float8_e8m0fnu", 1;
}

impl Dtype {
    /// Returns the type with a name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|dtype| dtype.name() == name)
    }
}

impl fmt::Display for Dtype {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
