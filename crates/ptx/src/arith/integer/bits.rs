//! Bit operations: fields, masks, permutations.

/// How an amount or a position of 32 and more is treated: as 32, or modulo 32.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum FunnelMode {
    Clamp,
    Wrap,
}

/// The modes of `prmt` in which the two lowest bits of the selector choose one of four permutations.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Permutation {
    /// `.f4e`: four consecutive bytes, ascending.
    Forward,
    /// `.b4e`: four consecutive bytes, descending.
    Backward,
    /// `.rc8`: one byte, repeated.
    ReplicateByte,
    /// `.ecl`: the bytes below the chosen one are replaced by it.
    ClampLeft,
    /// `.ecr`: the bytes above the chosen one are replaced by it.
    ClampRight,
    /// `.rc16`: one half, repeated.
    ReplicateHalf,
}

fn amount(mode: FunnelMode, amount: u32) -> u32 {
    match mode {
        FunnelMode::Clamp => amount.min(32),
        FunnelMode::Wrap => amount & 31,
    }
}

/// Returns the upper 32 bits of `upper:lower`, shifted left.
#[inline]
pub(crate) fn shf_left(lower: u32, upper: u32, shift: u32, mode: FunnelMode) -> u32 {
    let both = u64::from(upper) << 32 | u64::from(lower);
    (both << amount(mode, shift) >> 32) as u32
}

/// Returns the lower 32 bits of `upper:lower`, shifted right.
#[inline]
pub(crate) fn shf_right(lower: u32, upper: u32, shift: u32, mode: FunnelMode) -> u32 {
    let both = u64::from(upper) << 32 | u64::from(lower);
    (both >> amount(mode, shift)) as u32
}

/// Replaces `length` bits of `target` from `start` on by the lowest of `a`. Only the lowest byte of both is used.
#[inline]
pub(crate) fn bfi32(a: u32, target: u32, start: u32, length: u32) -> u32 {
    // A field that begins inside the word and ends beyond it is truncated.
    let (start, length) = (start & 0xff, length & 0xff);
    if start >= 32 {
        return target;
    }
    bfi64(a.into(), target.into(), start, length) as u32
}

/// Like [`bfi32`], but all bits of both are used: the assembler turns it into shifts.
#[inline]
pub(crate) fn bfi64(a: u64, target: u64, start: u32, length: u32) -> u64 {
    if start >= 64 || length == 0 {
        return target;
    }
    let mask = (u64::MAX >> (64 - length.min(64))) << start;
    target & !mask | a << start & mask
}

/// Applies `table` to the three operands bit by bit: the bit of `a` has weight 4, that of `b` 2, that of `c` 1.
#[inline]
pub(crate) fn lop3(a: u32, b: u32, c: u32, table: u8) -> u32 {
    let mut result = 0;
    for row in 0..8 {
        let pick = |bits: u32, weight: u8| if row & weight != 0 { bits } else { !bits };
        let chosen = if table >> row & 1 == 1 { u32::MAX } else { 0 };
        result |= chosen & pick(a, 4) & pick(b, 2) & pick(c, 1);
    }
    result
}

/// Each of the selector's four lowest nibbles chooses one of eight bytes or, if its highest bit is set, that byte's
/// sign bit eight times.
#[inline]
pub(crate) fn prmt(a: u32, b: u32, selector: u32) -> u32 {
    let bytes = u64::from(b) << 32 | u64::from(a);
    (0..4).fold(0, |result, i| {
        let nibble = selector >> (4 * i) & 0xf;
        let byte = (bytes >> (8 * (nibble & 7))) as u8;
        let byte = if nibble & 8 != 0 { ((byte as i8) >> 7) as u8 } else { byte };
        result | u32::from(byte) << (8 * i)
    })
}

#[inline]
pub(crate) fn prmt_mode(a: u32, b: u32, selector: u32, mode: Permutation) -> u32 {
    let chosen = selector & 3;
    let nibble = |i: u32| match mode {
        Permutation::Forward => chosen + i,
        Permutation::Backward => chosen.wrapping_sub(i) & 7,
        Permutation::ReplicateByte => chosen,
        Permutation::ClampLeft => chosen.max(i),
        Permutation::ClampRight => chosen.min(i),
        Permutation::ReplicateHalf => (chosen & 1) * 2 + (i & 1),
    };
    prmt(a, b, (0..4).fold(0, |selector, i| selector | nibble(i) << (4 * i)))
}

/// Returns `length` ones from bit `start` on.
#[inline]
pub(crate) fn bmsk(start: u32, length: u32, mode: FunnelMode) -> u32 {
    let (start, length) = (amount(mode, start), amount(mode, length));
    let ones = |count: u32| ((1u64 << count.min(32)) - 1) as u32;
    ones(start + length) & !ones(start)
}

/// Returns the lowest `width` bits of `a`.
#[inline]
pub(crate) fn szext_u32(a: u32, width: u32, mode: FunnelMode) -> u32 {
    (u64::from(a) & ((1 << amount(mode, width)) - 1)) as u32
}

/// Returns the lowest `width` bits of `a`, sign-extended.
#[inline]
pub(crate) fn szext_s32(a: u32, width: u32, mode: FunnelMode) -> u32 {
    let unused = 64 - amount(mode, width);
    if unused == 64 { 0 } else { ((i64::from(a) << unused) >> unused) as u32 }
}

/// Returns the position of the `offset`-th set bit of `mask`, counted from `base`: upward from 1, or downward from -1;
/// `base` itself counts. An offset of 0 tests `base` only. `u32::MAX` if there is none.
pub(crate) fn fns(mask: u32, base: u32, offset: i32) -> u32 {
    let is_set = |position: &u32| mask >> position & 1 == 1;
    if base >= 32 {
        return u32::MAX;
    }
    // Its magnitude overflows the type: the assembler's routine returns immediately.
    if offset == i32::MIN {
        return 0;
    }
    let nth = offset.unsigned_abs().saturating_sub(1) as usize;
    let found = match offset {
        0 => Some(base).filter(is_set),
        1.. => (base..32).filter(is_set).nth(nth),
        _ => (0..=base).rev().filter(is_set).nth(nth),
    };
    found.unwrap_or(u32::MAX)
}
