//! The arithmetic of PTX instructions, as pure functions on the raw bits of registers.
//!
//! Results follow the PTX ISA. Where it leaves bits open (the payload of a NaN, a quotient by zero), the result is that
//! of an sm_90 GPU, and a comment says so. Nothing here knows instructions, registers or lanes.

pub(crate) mod approximate;
pub(crate) mod convert;
pub(crate) mod double;
pub(crate) mod half;
#[cfg(test)]
mod hardware;
pub(crate) mod integer;
pub(crate) mod packed;
#[cfg(test)]
mod random;
pub(crate) mod single;
pub(crate) mod softfloat;
pub(crate) mod video;

/// The rounding mode of an inexact result.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Rounding {
    /// `.rn`: ties to even.
    Nearest,
    /// `.rz`
    Zero,
    /// `.rm`: toward negative infinity.
    Down,
    /// `.rp`: toward positive infinity.
    Up,
    /// `.rna`: ties away from zero.
    NearestAway,
}

/// The modifiers of an arithmetic instruction on floats.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Mode {
    pub(crate) rounding: Rounding,
    /// Flushes subnormal inputs and results to zeros of the same sign.
    pub(crate) ftz: bool,
    /// Clamps the result to [0, 1]; NaN becomes +0.
    pub(crate) sat: bool,
}

impl Mode {
    pub(crate) const NEAREST: Mode = Mode { rounding: Rounding::Nearest, ftz: false, sat: false };
    pub(crate) const NEAREST_FTZ: Mode = Mode { rounding: Rounding::Nearest, ftz: true, sat: false };
}

/// The modifiers of `min` and `max` on floats.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub(crate) struct MinMax {
    pub(crate) ftz: bool,
    /// `.NaN`: the result is NaN if either operand is.
    pub(crate) nan: bool,
    /// The magnitudes are compared; the sign of the result is the product of the signs.
    pub(crate) xorsign_abs: bool,
}

/// The classes of floats that `testp` distinguishes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Property {
    Finite,
    Infinite,
    Number,
    NotANumber,
    /// Includes zero, as the PTX ISA states.
    Normal,
    Subnormal,
}
