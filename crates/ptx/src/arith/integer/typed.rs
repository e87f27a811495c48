//! What depends on an integer's type: a module for each, made by one macro. Operands and results are raw bits.

/// The functions that every type has. `$number` is the type of the numbers, `$raw` of the bits, `$wide` of a product.
macro_rules! arithmetic {
    ($number:ty, $raw:ty, $wide:ty) => {
        const WIDTH: u32 = <$raw>::BITS;

        #[inline]
        pub(crate) fn mul_hi(a: $raw, b: $raw) -> $raw {
            ((a as $number as $wide).wrapping_mul(b as $number as $wide) >> WIDTH) as $raw
        }

        /// By zero: all ones. The document leaves it open; ptxas's routine for the hardware ends so.
        #[inline]
        pub(crate) fn div(a: $raw, b: $raw) -> $raw {
            if b == 0 { <$raw>::MAX } else { (a as $number).wrapping_div(b as $number) as $raw }
        }

        /// By zero: all ones, as the quotient.
        #[inline]
        pub(crate) fn rem(a: $raw, b: $raw) -> $raw {
            if b == 0 { <$raw>::MAX } else { (a as $number).wrapping_rem(b as $number) as $raw }
        }

        /// The distance of `a` and `b`, added to `c`.
        #[inline]
        pub(crate) fn sad(a: $raw, b: $raw, c: $raw) -> $raw {
            c.wrapping_add((a as $number).abs_diff(b as $number) as $raw)
        }
    };
}

/// What signed types of 32 and 64 bits have.
macro_rules! signs {
    ($number:ty, $raw:ty) => {
        /// The lowest number, which has no counterpart, stays.
        #[inline]
        pub(crate) fn abs(a: $raw) -> $raw {
            (a as $number).wrapping_abs() as $raw
        }

        #[inline]
        pub(crate) fn neg(a: $raw) -> $raw {
            a.wrapping_neg()
        }
    };
}

/// What types of 32 and 64 bits have; numbers of 16 bits are extended to 32. `$counts` is 0xff where the hardware has an
/// instruction for fields; for 64 bits the assembler makes shifts of them.
macro_rules! fields {
    ($number:ty, $raw:ty, $counts:expr) => {
        #[inline]
        pub(crate) fn min(a: $raw, b: $raw) -> $raw {
            (a as $number).min(b as $number) as $raw
        }

        #[inline]
        pub(crate) fn max(a: $raw, b: $raw) -> $raw {
            (a as $number).max(b as $number) as $raw
        }

        /// An amount beyond the width counts as the width: what comes in is the sign, or zeros.
        #[inline]
        pub(crate) fn shr(a: $raw, amount: u32) -> $raw {
            let half = amount.min(WIDTH) / 2;
            ((a as $number) >> half >> (amount.min(WIDTH) - half)) as $raw
        }

        /// `length` bits of `a` from `start` on, extended by the highest of them if the type is signed. Of both the
        /// bits of `$counts` count; bits beyond the width are the sign, too.
        #[inline]
        pub(crate) fn bfe(a: $raw, start: u32, length: u32) -> $raw {
            let (start, length) = (start & $counts, length & $counts);
            if length == 0 {
                return 0;
            }
            let shifted = shr(a, start);
            if length >= WIDTH {
                return shifted;
            }
            ((shifted << (WIDTH - length)) as $number >> (WIDTH - length)) as $raw
        }

        /// The position of the highest bit that is not the sign, `u32::MAX` if there is none.
        #[inline]
        pub(crate) fn bfind(a: $raw) -> u32 {
            #[allow(unused_comparisons, reason = "the unsigned types are never negative")]
            let magnitude = if (a as $number) < 0 { !a } else { a };
            (WIDTH - 1).wrapping_sub(magnitude.leading_zeros())
        }

        /// By how much to shift left so that the bit found is the highest, `u32::MAX` if there is none.
        #[inline]
        pub(crate) fn bfind_shiftamt(a: $raw) -> u32 {
            match bfind(a) {
                u32::MAX => u32::MAX,
                position => WIDTH - 1 - position,
            }
        }
    };
}

/// What the types of 32 bits have.
macro_rules! factors_of_24_bits {
    ($number:ty) => {
        #[inline]
        fn product24(a: u32, b: u32) -> u64 {
            let factor = |bits: u32| i64::from((bits << 8) as $number >> 8);
            factor(a).wrapping_mul(factor(b)) as u64
        }

        /// The lower 32 of the product's 48 bits.
        #[inline]
        pub(crate) fn mul24_lo(a: u32, b: u32) -> u32 {
            product24(a, b) as u32
        }

        /// The upper 32 of the product's 48 bits.
        #[inline]
        pub(crate) fn mul24_hi(a: u32, b: u32) -> u32 {
            (product24(a, b) >> 16) as u32
        }

        #[inline]
        pub(crate) fn mad24_lo(a: u32, b: u32, c: u32) -> u32 {
            mul24_lo(a, b).wrapping_add(c)
        }

        #[inline]
        pub(crate) fn mad24_hi(a: u32, b: u32, c: u32) -> u32 {
            mul24_hi(a, b).wrapping_add(c)
        }
    };
}

pub(crate) mod u16 {
    arithmetic!(u16, u16, u32);

    #[inline]
    pub(crate) fn mul_wide(a: u16, b: u16) -> u32 {
        u32::from(a) * u32::from(b)
    }
}

pub(crate) mod s16 {
    arithmetic!(i16, u16, i32);

    #[inline]
    pub(crate) fn mul_wide(a: u16, b: u16) -> u32 {
        (i32::from(a as i16) * i32::from(b as i16)) as u32
    }
}

pub(crate) mod u32 {
    arithmetic!(u32, u32, u64);
    fields!(u32, u32, 0xff);
    factors_of_24_bits!(u32);

    /// An amount beyond the width counts as the width.
    #[inline]
    pub(crate) fn shl(a: u32, amount: u32) -> u32 {
        if amount >= WIDTH { 0 } else { a << amount }
    }

    #[inline]
    pub(crate) fn mul_wide(a: u32, b: u32) -> u64 {
        u64::from(a) * u64::from(b)
    }
}

pub(crate) mod s32 {
    arithmetic!(i32, u32, i64);
    signs!(i32, u32);
    fields!(i32, u32, 0xff);
    factors_of_24_bits!(i32);

    #[inline]
    pub(crate) fn mul_wide(a: u32, b: u32) -> u64 {
        (i64::from(a as i32) * i64::from(b as i32)) as u64
    }

    #[inline]
    pub(crate) fn min_relu(a: u32, b: u32) -> u32 {
        (a as i32).min(b as i32).max(0) as u32
    }

    #[inline]
    pub(crate) fn max_relu(a: u32, b: u32) -> u32 {
        (a as i32).max(b as i32).max(0) as u32
    }

    /// `mad.hi.sat.s32`
    #[inline]
    pub(crate) fn mad_hi_sat(a: u32, b: u32, c: u32) -> u32 {
        (mul_hi(a, b) as i32).saturating_add(c as i32) as u32
    }

    /// `mad24.hi.sat.s32`
    #[inline]
    pub(crate) fn mad24_hi_sat(a: u32, b: u32, c: u32) -> u32 {
        (mul24_hi(a, b) as i32).saturating_add(c as i32) as u32
    }
}

pub(crate) mod u64 {
    arithmetic!(u64, u64, u128);
    fields!(u64, u64, u32::MAX);

    /// An amount beyond the width counts as the width.
    #[inline]
    pub(crate) fn shl(a: u64, amount: u32) -> u64 {
        if amount >= WIDTH { 0 } else { a << amount }
    }
}

pub(crate) mod s64 {
    arithmetic!(i64, u64, i128);
    signs!(i64, u64);
    fields!(i64, u64, u32::MAX);
}
