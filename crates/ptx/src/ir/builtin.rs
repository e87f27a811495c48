//! The built-in functions that a text may call.

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Builtin {
    /// `vprintf(format, arguments)`
    Printf,
    /// `__assertfail(message, file, line, function, character size)`
    AssertFail,
    Malloc,
    Free,
}

impl Builtin {
    pub(crate) fn from_name(name: &str) -> Option<Self> {
        match name {
            "vprintf" => Some(Self::Printf),
            "__assertfail" => Some(Self::AssertFail),
            "malloc" => Some(Self::Malloc),
            "free" => Some(Self::Free),
            _ => None,
        }
    }

    /// Returns the sizes of the parameters and of the result.
    pub(crate) fn signature(self) -> (&'static [u32], &'static [u32]) {
        match self {
            Self::Printf => (&[8, 8], &[4]),
            Self::AssertFail => (&[8, 8, 4, 8, 8], &[]),
            Self::Malloc => (&[8], &[8]),
            Self::Free => (&[8], &[]),
        }
    }
}
