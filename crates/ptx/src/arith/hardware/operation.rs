//! Evaluates an operation by its PTX name: the types of its operands, and its result.

use std::cmp::Ordering;

use crate::arith::convert::{Convert, Format, convert};
use crate::arith::half::{Half, HalfMode, pairs};
use crate::arith::integer::{self, FunnelMode, Permutation};
use crate::arith::packed::{Fp8, pack_fp8, pack_fp8_from_halves, pack_halves, tf32, unpack_fp8};
use crate::arith::{MinMax, Mode, Property, Rounding, approximate, double, single};

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Single,
    Double,
    Half(Half),
    Integer(u32),
}

impl Kind {
    /// Returns the bits of the exponent and of the fraction; an integer has only a fraction.
    pub(super) fn bits(self) -> (u32, u32) {
        match self {
            Kind::Single => (8, 23),
            Kind::Double => (11, 52),
            Kind::Half(Half::F16) => (5, 10),
            Kind::Half(Half::Bf16) => (8, 7),
            Kind::Integer(width) => (0, width),
        }
    }
}

/// A parsed name.
struct Name<'a> {
    verb: &'a str,
    parts: Vec<&'a str>,
}

impl<'a> Name<'a> {
    fn new(name: &'a str) -> Self {
        let mut parts = name.split('.');
        let verb = parts.next().unwrap_or("");
        Name { verb, parts: parts.collect() }
    }

    fn has(&self, part: &str) -> bool {
        self.parts.contains(&part)
    }

    fn last(&self) -> &'a str {
        self.parts.last().copied().unwrap_or("")
    }

    fn rounding(&self) -> Option<Rounding> {
        self.parts.iter().find_map(|part| match *part {
            "rn" | "rni" => Some(Rounding::Nearest),
            "rz" | "rzi" => Some(Rounding::Zero),
            "rm" | "rmi" => Some(Rounding::Down),
            "rp" | "rpi" => Some(Rounding::Up),
            "rna" => Some(Rounding::NearestAway),
            _ => None,
        })
    }

    fn mode(&self) -> Mode {
        Mode { rounding: self.rounding().unwrap_or(Rounding::Nearest), ftz: self.has("ftz"), sat: self.has("sat") }
    }

    fn min_max(&self) -> MinMax {
        MinMax { ftz: self.has("ftz"), nan: self.has("NaN"), xorsign_abs: self.has("xorsign") }
    }

    fn funnel(&self) -> FunnelMode {
        if self.has("clamp") { FunnelMode::Clamp } else { FunnelMode::Wrap }
    }
}

pub(super) fn operands(name: &str) -> Option<[Kind; 3]> {
    let name = Name::new(name);
    let word = Kind::Integer(32);
    Some(match (name.verb, name.last()) {
        ("cvt", "e4m3x2" | "e5m2x2") => [Kind::Integer(16); 3],
        ("cvt", "u8" | "s8" | "f16x2") => [word; 3],
        ("shl" | "shr" | "bfe", last) => [kind(last)?, word, word],
        ("bfi", last) => [kind(last)?, kind(last)?, word],
        ("addc64" | "subc64", _) => [Kind::Integer(64); 3],
        ("addc" | "subc" | "prmt" | "lop3", _) => [word; 3],
        (_, last) => [kind(last)?; 3],
    })
}

fn kind(part: &str) -> Option<Kind> {
    Some(match part {
        "f32" => Kind::Single,
        "f64" => Kind::Double,
        "f16" => Kind::Half(Half::F16),
        "bf16" => Kind::Half(Half::Bf16),
        "u16" | "s16" | "b16" => Kind::Integer(16),
        "u32" | "s32" | "b32" | "u16x2" | "s16x2" => Kind::Integer(32),
        "u64" | "s64" | "b64" => Kind::Integer(64),
        _ => return None,
    })
}

/// Returns the result as in the destination register: 16, 32 or 64 bits, 32 for 8-bit types.
pub(super) fn evaluate(name: &str, values: [u64; 3]) -> Option<u64> {
    let name = Name::new(name);
    match name.verb {
        "cvt" => conversion(&name, values),
        "setp" => comparison(&name, values),
        _ => match name.last() {
            "f32" => eval_f32(&name, values),
            "f64" => eval_f64(&name, values),
            "f16" => eval_half(&name, Half::F16, values),
            "bf16" => eval_half(&name, Half::Bf16, values),
            _ => eval_integer(&name, values),
        },
    }
}

fn property(name: &Name) -> Option<Property> {
    Some(match *name.parts.first()? {
        "finite" => Property::Finite,
        "infinite" => Property::Infinite,
        "number" => Property::Number,
        "notanumber" => Property::NotANumber,
        "normal" => Property::Normal,
        "subnormal" => Property::Subnormal,
        _ => return None,
    })
}

fn comparison(name: &Name, [a, b, _]: [u64; 3]) -> Option<u64> {
    let ftz = name.has("ftz");
    let order = match name.last() {
        "f32" => single::compare(a as u32, b as u32, ftz),
        "f64" => double::compare(a, b),
        "f16" => Half::F16.compare(a as u16, b as u16, ftz),
        _ => Half::Bf16.compare(a as u16, b as u16, ftz),
    };
    let wanted = name.parts.first()?;
    let ordered = match wanted.trim_end_matches('u') {
        "eq" => order == Some(Ordering::Equal),
        "ne" => order.is_some_and(|order| order != Ordering::Equal),
        "lt" => order == Some(Ordering::Less),
        "le" => order.is_some_and(Ordering::is_le),
        "gt" => order == Some(Ordering::Greater),
        "ge" => order.is_some_and(Ordering::is_ge),
        "num" => order.is_some(),
        "nan" => order.is_none(),
        _ => return None,
    };
    Some((ordered || wanted.ends_with('u') && order.is_none()).into())
}

fn eval_f32(name: &Name, values: [u64; 3]) -> Option<u64> {
    let [a, b, c] = values.map(|value| value as u32);
    let (mode, ftz) = (name.mode(), name.has("ftz"));
    let result = match (name.verb, name.has("approx")) {
        ("add", _) => single::add(a, b, mode),
        ("sub", _) => single::sub(a, b, mode),
        ("mul", _) => single::mul(a, b, mode),
        ("fma", _) => single::fma(a, b, c, mode),
        ("div", true) => approximate::div_approx(a, b, ftz),
        ("div", false) if name.has("full") => approximate::div_full(a, b, ftz),
        ("div", false) => single::div(a, b, mode),
        ("rcp", true) => approximate::rcp_approx(a, ftz),
        ("rcp", false) => single::rcp(a, mode),
        ("sqrt", true) => approximate::sqrt_approx(a, ftz),
        ("sqrt", false) => single::sqrt(a, mode),
        ("rsqrt", _) => approximate::rsqrt_approx(a, ftz),
        ("sin", _) => approximate::sin_approx(a, ftz),
        ("cos", _) => approximate::cos_approx(a, ftz),
        ("ex2", _) => approximate::ex2_approx(a, ftz),
        ("lg2", _) => approximate::lg2_approx(a, ftz),
        ("tanh", _) => approximate::tanh_approx(a),
        ("min", _) => single::min(a, b, name.min_max()),
        ("max", _) => single::max(a, b, name.min_max()),
        ("abs", _) => single::abs(a, ftz),
        ("neg", _) => single::neg(a, ftz),
        ("copysign", _) => single::copysign(a, b),
        ("testp", _) => single::testp(property(name)?, a).into(),
        _ => return None,
    };
    Some(result.into())
}

fn eval_f64(name: &Name, [a, b, c]: [u64; 3]) -> Option<u64> {
    let rounding = name.rounding().unwrap_or(Rounding::Nearest);
    Some(match (name.verb, name.has("approx")) {
        ("add", _) => double::add(a, b, rounding),
        ("sub", _) => double::sub(a, b, rounding),
        ("mul", _) => double::mul(a, b, rounding),
        ("fma", _) => double::fma(a, b, c, rounding),
        ("div", _) => double::div(a, b, rounding),
        ("rcp", true) => double::rcp_approx_ftz(a),
        ("rcp", false) => double::rcp(a, rounding),
        ("sqrt", _) => double::sqrt(a, rounding),
        ("rsqrt", _) if name.has("ftz") => double::rsqrt_approx_ftz(a),
        ("rsqrt", _) => double::rsqrt_approx(a),
        ("min", _) => double::min(a, b),
        ("max", _) => double::max(a, b),
        ("abs", _) => double::abs(a),
        ("neg", _) => double::neg(a),
        ("copysign", _) => double::copysign(a, b),
        ("testp", _) => double::testp(property(name)?, a).into(),
        _ => return None,
    })
}

fn eval_half(name: &Name, half: Half, values: [u64; 3]) -> Option<u64> {
    let [a, b, c] = values.map(|value| value as u16);
    let ftz = name.has("ftz");
    let mode = HalfMode { ftz, sat: name.has("sat"), relu: name.has("relu") };
    let result = match name.verb {
        "add" => half.add(a, b, mode),
        "sub" => half.sub(a, b, mode),
        "mul" => half.mul(a, b, mode),
        "fma" => half.fma(a, b, c, mode),
        "min" => half.min(a, b, name.min_max()),
        "max" => half.max(a, b, name.min_max()),
        "abs" => half.abs(a, ftz),
        "neg" => half.neg(a, ftz),
        "ex2" => half.ex2_approx(a, ftz),
        "tanh" => half.tanh_approx(a),
        _ => return None,
    };
    Some(result.into())
}

fn format(part: &str) -> Option<Format> {
    Some(match part {
        "u8" => Format::U8,
        "u16" => Format::U16,
        "u32" => Format::U32,
        "u64" => Format::U64,
        "s8" => Format::S8,
        "s16" => Format::S16,
        "s32" => Format::S32,
        "s64" => Format::S64,
        "f16" => Format::F16,
        "bf16" => Format::Bf16,
        "f32" => Format::F32,
        "f64" => Format::F64,
        _ => return None,
    })
}

fn conversion(name: &Name, [a, b, _]: [u64; 3]) -> Option<u64> {
    let [.., to, from] = name.parts[..] else { return None };
    let how = Convert {
        rounding: name.rounding(),
        integral: name.parts.iter().any(|part| part.len() == 3 && part.starts_with('r') && part.ends_with('i')),
        ftz: name.has("ftz"),
        sat: name.has("sat"),
        finite: name.has("satfinite"),
        relu: name.has("relu"),
    };
    let eighth = |part| if part == "e4m3x2" { Fp8::E4m3 } else { Fp8::E5m2 };
    Some(match (to, from) {
        ("tf32", _) => tf32(a as u32, how).into(),
        ("e4m3x2" | "e5m2x2", "f32") => pack_fp8(eighth(to), a as u32, b as u32, how.relu).into(),
        ("e4m3x2" | "e5m2x2", _) => pack_fp8_from_halves(eighth(to), a as u32, how.relu).into(),
        (_, "e4m3x2" | "e5m2x2") => unpack_fp8(eighth(from), a as u16, how.relu).into(),
        ("f16x2", _) => pack_halves(Format::F16, a as u32, b as u32, how).into(),
        ("bf16x2", _) => pack_halves(Format::Bf16, a as u32, b as u32, how).into(),
        _ => {
            let result = convert(format(to)?, format(from)?, a, how);
            match to {
                "u64" | "s64" | "f64" => result,
                "u16" | "s16" | "f16" | "bf16" => result & 0xffff,
                _ => result & 0xffff_ffff,
            }
        }
    })
}

fn eval_integer(name: &Name, values: [u64; 3]) -> Option<u64> {
    let [a, b, c] = values.map(|value| value as u32);
    let signed = |index: usize| name.parts[name.parts.len() - index].starts_with('s');
    let both = |operation: fn(u16, u16) -> u16| pairs([a, b], |[x, y]| operation(x, y));
    let result = match name.verb {
        "shf" if name.has("l") => integer::shf_left(a, b, c, name.funnel()),
        "shf" => integer::shf_right(a, b, c, name.funnel()),
        "bmsk" => integer::bmsk(a, b, name.funnel()),
        "szext" if signed(1) => integer::szext_s32(a, b, name.funnel()),
        "szext" => integer::szext_u32(a, b, name.funnel()),
        "prmt" => match permutation(name.last()) {
            Some(mode) => integer::prmt_mode(a, b, c, mode),
            None => integer::prmt(a, b, c),
        },
        "fns" => integer::fns(a, b & 31, c as i32),
        "lop3" => integer::lop3(a, b, c, u8::from_str_radix(name.last(), 16).ok()?),
        "dp4a" => integer::dp4a(a, signed(2), b, signed(1), c),
        "dp2a" => integer::dp2a(a, signed(2), b, signed(1), name.has("hi"), c),
        "addc" => c.wrapping_add(integer::add_carry32(a, b, false).1.into()),
        "subc" => c.wrapping_sub(integer::sub_borrow32(a, b, false).1.into()),
        "addc64" => return Some(values[2].wrapping_add(integer::add_carry64(values[0], values[1], false).1.into())),
        "subc64" => return Some(values[2].wrapping_sub(integer::sub_borrow64(values[0], values[1], false).1.into())),
        "bfi" if name.has("b64") => return Some(integer::bfi64(values[0], values[1], c, c >> 8 & 0xff)),
        "bfi" => integer::bfi32(a, b, c, c >> 8 & 0xff),
        "add" if name.has("sat") => integer::add_sat(a, b),
        "sub" if name.has("sat") => integer::sub_sat(a, b),
        "add" => both(u16::wrapping_add),
        "min" if name.has("s16x2") => both(|a, b| (a as i16).min(b as i16) as u16),
        "max" if name.has("s16x2") => both(|a, b| (a as i16).max(b as i16) as u16),
        "min" if name.has("u16x2") => both(u16::min),
        "max" if name.has("u16x2") => both(u16::max),
        "mad" if name.has("sat") => integer::s32::mad_hi_sat(a, b, c),
        "mad24" if name.has("sat") => integer::s32::mad24_hi_sat(a, b, c),
        _ => return eval_typed(name, values),
    };
    Some(result.into())
}

fn permutation(part: &str) -> Option<Permutation> {
    Some(match part {
        "f4e" => Permutation::Forward,
        "b4e" => Permutation::Backward,
        "rc8" => Permutation::ReplicateByte,
        "ecl" => Permutation::ClampLeft,
        "ecr" => Permutation::ClampRight,
        "rc16" => Permutation::ReplicateHalf,
        _ => return None,
    })
}

/// The operations of every type.
macro_rules! common {
    ($module:ident, $raw:ty, $name:expr, $values:expr) => {{
        use integer::$module as of;
        let [a, b, c] = $values.map(|value| value as $raw);
        let result = match ($name.verb, $name.parts[0]) {
            ("mul", "lo") => a.wrapping_mul(b),
            ("mul", "hi") => of::mul_hi(a, b),
            ("div", _) => of::div(a, b),
            ("rem", _) => of::rem(a, b),
            ("sad", _) => of::sad(a, b, c),
            ("mad", "lo") => a.wrapping_mul(b).wrapping_add(c),
            ("mad", "hi") => of::mul_hi(a, b).wrapping_add(c),
            ("brev", _) => a.reverse_bits(),
            ("clz", _) => a.leading_zeros() as $raw,
            ("popc", _) => a.count_ones() as $raw,
            _ => 0,
        };
        let known = ["mul", "div", "rem", "sad", "mad", "brev", "clz", "popc"];
        (known.contains(&$name.verb) && !$name.has("wide")).then_some(u64::from(result))
    }};
}

/// The additional operations of signed types.
macro_rules! signs {
    ($module:ident, $raw:ty, $name:expr, $values:expr) => {{
        use integer::$module as of;
        let a = $values[0] as $raw;
        match $name.verb {
            "abs" => Some(u64::from(of::abs(a))),
            "neg" => Some(of::neg(a).into()),
            _ => None,
        }
    }};
}

/// The additional operations of 32-bit and 64-bit types.
macro_rules! fields {
    ($module:ident, $unsigned:ident, $name:expr, $values:expr) => {{
        use integer::$module as of;
        let [a, b, _] = $values.map(|value| value as $unsigned);
        match $name.verb {
            "min" => Some(u64::from(of::min(a, b))),
            "max" => Some(of::max(a, b).into()),
            "shl" => Some(integer::$unsigned::shl(a, $values[1] as u32).into()),
            "shr" => Some(of::shr(a, $values[1] as u32).into()),
            "bfe" => Some(of::bfe(a, $values[1] as u32, $values[2] as u32).into()),
            "bfind" if $name.has("shiftamt") => Some(of::bfind_shiftamt(a).into()),
            "bfind" => Some(of::bfind(a).into()),
            _ => None,
        }
    }};
}

/// The additional operations of 32-bit types.
macro_rules! factors {
    ($module:ident, $name:expr, $values:expr) => {{
        use integer::$module as of;
        let [a, b, c] = $values.map(|value| value as u32);
        match ($name.verb, $name.parts[0]) {
            ("mul", "wide") => Some(of::mul_wide(a, b)),
            ("mul24", "lo") => Some(of::mul24_lo(a, b).into()),
            ("mul24", "hi") => Some(of::mul24_hi(a, b).into()),
            ("mad24", "lo") => Some(of::mad24_lo(a, b, c).into()),
            ("mad24", "hi") => Some(of::mad24_hi(a, b, c).into()),
            _ => None,
        }
    }};
}

/// 16-bit operations without an implementation of their own use 32 bits.
fn eval_typed(name: &Name, values: [u64; 3]) -> Option<u64> {
    let [a, b, _] = values.map(|value| value as u16);
    let is_shift = matches!(name.verb, "shl" | "shr");
    let extended = |to_wide: fn(u16) -> u64| [to_wide(a), if is_shift { values[1] } else { to_wide(b) }, 0];
    let low = |result: u64| result & 0xffff;
    match name.last() {
        "u16" | "b16" if name.has("wide") => Some(integer::u16::mul_wide(a, b).into()),
        "u16" | "b16" => {
            common!(u16, u16, name, values).or_else(|| eval_typed_as(name, "u32", extended(u64::from)).map(low))
        }
        "s16" if name.has("wide") => Some(integer::s16::mul_wide(a, b).into()),
        "s16" => common!(s16, u16, name, values)
            .or_else(|| eval_typed_as(name, "s32", extended(|value| i64::from(value as i16) as u64)).map(low)),
        other => eval_typed_as(name, other, values),
    }
}

fn eval_typed_as(name: &Name, type_name: &str, values: [u64; 3]) -> Option<u64> {
    let [a, b, _] = values.map(|value| value as u32);
    match (type_name, name.verb) {
        ("s32", "min") if name.has("relu") => Some(integer::s32::min_relu(a, b).into()),
        ("s32", "max") if name.has("relu") => Some(integer::s32::max_relu(a, b).into()),
        ("u32" | "b32", _) => factors!(u32, name, values)
            .or_else(|| fields!(u32, u32, name, values))
            .or_else(|| common!(u32, u32, name, values)),
        ("s32", _) => factors!(s32, name, values)
            .or_else(|| fields!(s32, u32, name, values))
            .or_else(|| signs!(s32, u32, name, values))
            .or_else(|| common!(s32, u32, name, values)),
        ("u64" | "b64", _) => fields!(u64, u64, name, values).or_else(|| common!(u64, u64, name, values)),
        ("s64", _) => fields!(s64, u64, name, values)
            .or_else(|| signs!(s64, u64, name, values))
            .or_else(|| common!(s64, u64, name, values)),
        _ => None,
    }
}

/// The tolerance between two approximations: twice the bound that the PTX ISA states for one.
pub(super) struct Tolerance {
    relative: f64,
    absolute: f64,
}

pub(super) fn tolerance(name: &str) -> Option<Tolerance> {
    let name = Name::new(name);
    let of = |relative: f64, absolute: f64| Some(Tolerance { relative: relative.exp2(), absolute: absolute.exp2() });
    match (name.verb, name.last()) {
        ("rcp" | "rsqrt", "f64") if name.has("ftz") => of(-18.0, -1074.0),
        ("rsqrt", "f64") => of(-50.0, -1074.0),
        ("div", "f32") if name.has("approx") || name.has("full") => of(-21.0, -149.0),
        ("rcp" | "sqrt", "f32") if name.has("approx") => of(-22.0, -149.0),
        ("rsqrt" | "ex2", "f32") => of(-21.0, -149.0),
        ("sin" | "cos", "f32") => of(-149.0, -19.5),
        ("lg2", "f32") => of(-21.0, -21.6),
        ("tanh", "f32") => of(-10.0, -149.0),
        ("tanh", "f16") => of(-11.0, -9.9),
        ("ex2", "f16") => of(-8.9, -24.0),
        ("ex2" | "tanh", "bf16") => of(-6.0, -133.0),
        _ => None,
    }
}

impl Tolerance {
    /// Special values must be equal; the PTX ISA states no bound for the sine of an angle beyond a turn.
    pub(super) fn holds(&self, name: &str, values: [u64; 3], a: u64, b: u64) -> bool {
        let name = Name::new(name);
        let value = |bits: u64| match name.last() {
            "f64" => f64::from_bits(bits),
            "f16" => Half::F16.value(bits as u16),
            "bf16" => Half::Bf16.value(bits as u16),
            _ => f64::from(f32::from_bits(bits as u32)),
        };
        let far = matches!(name.verb, "sin" | "cos") && value(values[0]).abs() > std::f64::consts::TAU;
        let (a, b) = (value(a), value(b));
        if !a.is_finite() || !b.is_finite() {
            return false;
        }
        far || (a - b).abs() <= self.relative * b.abs() + self.absolute
    }
}
