//! Kernel signatures from a module's PTX: names and parameters. Launches, calls through a broker and the command line
//! check arguments against them. Calls no driver.

use std::fmt;
use std::sync::Arc;

use freehold_ptx::syntax::tree::{
    Function, FunctionKind, Initial, Item, Parameter as Declared, Space, Statement, Type, Variable,
};
use freehold_ptx::syntax::{self};

/// The kind of a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// `u8` to `u64`.
    Unsigned,
    /// `i8` to `i64`.
    Signed,
    /// `f32` and `f64`.
    Float,
    /// Untyped bits: any number of that size.
    Bits,
    /// A structure, as its bytes.
    Bytes,
    /// The address of memory, if the text says so (`.ptr`). A number is not accepted for it.
    Pointer,
}

/// A parameter of a kernel: its kind and its size in bytes. Without `.ptr`, an address cannot be distinguished from a
/// number of 8 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parameter {
    /// Its kind.
    pub kind: Kind,
    /// Its size in bytes.
    pub bytes: u32,
}

impl Parameter {
    /// Whether it accepts a number or a structure of that kind. Signed and unsigned are interchangeable, because
    /// compilers write unsigned for signed.
    pub fn takes(&self, given: &Self) -> bool {
        let is_integer = |kind| matches!(kind, Kind::Unsigned | Kind::Signed);
        let is_kind = self.kind == given.kind
            || self.kind == Kind::Bits && given.kind != Kind::Bytes
            || is_integer(self.kind) && is_integer(given.kind);
        is_kind && given.kind != Kind::Pointer && self.bytes == given.bytes
    }

    /// Whether it can hold an address.
    pub fn takes_address(&self) -> bool {
        self.bytes == 8 && matches!(self.kind, Kind::Unsigned | Kind::Signed | Kind::Bits | Kind::Pointer)
    }
}

impl fmt::Display for Parameter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bits = 8 * self.bytes;
        match self.kind {
            Kind::Unsigned => write!(f, "u{bits}"),
            Kind::Signed => write!(f, "i{bits}"),
            Kind::Float => write!(f, "f{bits}"),
            Kind::Bits => write!(f, "b{bits}"),
            Kind::Bytes => write!(f, "{} bytes", self.bytes),
            Kind::Pointer => f.write_str("memory"),
        }
    }
}

/// A kernel's declaration in its module's text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Signature {
    /// Its name.
    pub name: Arc<str>,
    /// Its parameters, in order.
    pub parameters: Arc<[Parameter]>,
}

/// Prints, for example, `scale(u64, f32, u32)`.
impl fmt::Display for Signature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}(", self.name)?;
        for (index, parameter) in self.parameters.iter().enumerate() {
            let comma = if index == 0 { "" } else { ", " };
            write!(f, "{comma}{parameter}")?;
        }
        f.write_str(")")
    }
}

/// Returns the kernels of a text, in order.
///
/// # Errors
/// If the text cannot be parsed.
pub fn kernels(text: &str) -> Result<Vec<Signature>, freehold_ptx::Error> {
    let module = syntax::parse(text)?;
    let is_kernel = |function: &&Function<'_>| function.kind == FunctionKind::Kernel && function.body.is_some();
    let functions = module.items.iter().filter_map(|item| match item {
        Item::Function(function) => Some(function),
        Item::Variable(_) | Item::Alias { .. } => None,
    });
    Ok(functions.filter(is_kernel).map(signature).collect())
}

/// Returns how much device memory a text needs: an upper bound for its variables in `.global` and `.const`, including
/// those in functions, each rounded up as a driver does. All texts together need no more than that and one page of 2
/// MiB.
///
/// # Errors
/// If the text cannot be parsed.
pub fn device_bytes(text: &str) -> Result<u64, freehold_ptx::Error> {
    let module = syntax::parse(text)?;
    let of_item = |item: &Item<'_>| match item {
        Item::Variable(variable) => kept_bytes(variable),
        Item::Function(function) => function.body.as_deref().map_or(0, body_bytes),
        Item::Alias { .. } => 0,
    };
    Ok(module.items.iter().map(of_item).fold(0, u64::saturating_add))
}

/// Returns how many bytes the variables in a function's body need while its module is loaded.
fn body_bytes(body: &[Statement<'_>]) -> u64 {
    let of_statement = |statement: &Statement<'_>| match statement {
        Statement::Variable(variable) => kept_bytes(variable),
        Statement::Block(inner) => body_bytes(inner),
        _ => 0,
    };
    body.iter().map(of_statement).fold(0, u64::saturating_add)
}

fn kept_bytes(variable: &Variable<'_>) -> u64 {
    if !matches!(variable.space, Space::Global | Space::Const) {
        return 0;
    }
    let align = u64::from(variable.align.unwrap_or(1)).max(GRAIN_BYTES);
    let bytes = variable_bytes(variable).max(1).checked_next_multiple_of(align).unwrap_or(u64::MAX);
    if bytes > SHARED_BYTES_MAX {
        return bytes.checked_next_multiple_of(PAGE_BYTES).unwrap_or(u64::MAX);
    }
    // Its share of a page with only such variables: what is left is too short for one more.
    PAGE_BYTES.div_ceil(PAGE_BYTES / bytes)
}

// How a driver places variables. On an H200 a variable of a byte takes 256 bytes and one of 257 takes 512; pages of 2
// MiB hold those of up to 1 MiB, and larger ones have pages of their own, whatever their module. The software device
// aligns each to 512 bytes.
const GRAIN_BYTES: u64 = 512;
const SHARED_BYTES_MAX: u64 = 1 << 20;
const PAGE_BYTES: u64 = 2 << 20;

fn variable_bytes(variable: &Variable<'_>) -> u64 {
    // Without a length, it is that of the initial values.
    let given = match &variable.initial {
        Some(Initial::List(values)) => values.len() as u64,
        _ => 0,
    };
    let elements = variable
        .dimensions
        .iter()
        .fold(u64::from(variable.vector), |elements, length| elements.saturating_mul(length.unwrap_or(given)));
    elements.saturating_mul(u64::from(scalar(variable.ty).bytes))
}

fn signature(function: &Function<'_>) -> Signature {
    let parameters = function.parameters.iter().map(|declared| match declared {
        Declared::Param(variable) => parameter(variable),
        Declared::Register { ty, .. } => scalar(*ty),
    });
    Signature { name: function.name.into(), parameters: parameters.collect() }
}

fn parameter(variable: &Variable<'_>) -> Parameter {
    let one = scalar(variable.ty);
    if variable.vector == 1 && variable.dimensions.is_empty() {
        let kind = if variable.is_pointer && one.takes_address() { Kind::Pointer } else { one.kind };
        return Parameter { kind, ..one };
    }
    let elements = variable
        .dimensions
        .iter()
        .fold(u64::from(variable.vector), |elements, length| elements.saturating_mul(length.unwrap_or(0)));
    let bytes = elements.saturating_mul(u64::from(one.bytes));
    Parameter { kind: Kind::Bytes, bytes: u32::try_from(bytes).unwrap_or(u32::MAX) }
}

fn scalar(ty: Type) -> Parameter {
    let (kind, bytes) = match ty {
        Type::Pred | Type::B8 => (Kind::Bits, 1),
        Type::B16 => (Kind::Bits, 2),
        Type::B32 => (Kind::Bits, 4),
        Type::B64 => (Kind::Bits, 8),
        Type::B128 => (Kind::Bytes, 16),
        Type::U8 => (Kind::Unsigned, 1),
        Type::U16 => (Kind::Unsigned, 2),
        Type::U32 => (Kind::Unsigned, 4),
        Type::U64 => (Kind::Unsigned, 8),
        Type::S8 => (Kind::Signed, 1),
        Type::S16 => (Kind::Signed, 2),
        Type::S32 => (Kind::Signed, 4),
        Type::S64 => (Kind::Signed, 8),
        Type::F16 | Type::Bf16 => (Kind::Bits, 2),
        Type::F16x2 | Type::Bf16x2 => (Kind::Bits, 4),
        Type::F32 => (Kind::Float, 4),
        Type::F64 => (Kind::Float, 8),
    };
    Parameter { kind, bytes }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "
        .version 8.0
        .target sm_80
        .address_size 64
        .func helper(.param .u32 a) { ret; }
        .visible .entry saxpy(
            .param .u64 y, .param .u64 x, .param .f32 a, .param .u32 n, .param .align 8 .b8 rest[16]
        ) { ret; }
        .visible .entry empty() { ret; }
    ";

    #[test]
    fn kernels_are_read_with_their_parameters() {
        let found = kernels(TEXT).unwrap();
        let names: Vec<&str> = found.iter().map(|kernel| &*kernel.name).collect();
        assert_eq!(names, ["saxpy", "empty"]);
        let told: Vec<String> = found[0].parameters.iter().map(ToString::to_string).collect();
        assert_eq!(told, ["u64", "u64", "f32", "u32", "16 bytes"]);
        assert!(found[1].parameters.is_empty());
        assert_eq!(found[0].to_string(), "saxpy(u64, u64, f32, u32, 16 bytes)");
    }

    #[test]
    fn device_bytes_are_those_of_global_and_constant_variables() {
        let text = TEXT.replace(
            ".func helper",
            ".global .align 8 .b8 a[1000];\n.const .f32 b[4][5];\n.global .v4 .u32 c;\n.global .u16 d[] = {1, 2, 3};\n\
             .shared .b8 e[4096];\n.func helper",
        );
        assert_eq!(device_bytes(&text).unwrap(), 1024 + 512 + 512 + 512);
        assert_eq!(device_bytes(TEXT).unwrap(), 0);
        let within =
            TEXT.replace("empty() {", "empty() { .global .b8 a[70]; { .const .align 64 .u32 b; } .local .b8 c[9];");
        assert_eq!(device_bytes(&within).unwrap(), 512 + 512, "variables within functions stay as long as others");
    }

    #[test]
    fn a_variable_counts_as_what_a_driver_rounds_it_up_to() {
        let counted = |variable: &str| {
            device_bytes(&TEXT.replace(".func helper", &format!("{variable};\n.func helper"))).unwrap()
        };
        let of = |bytes: u64| counted(&format!(".global .b8 a[{bytes}]"));
        assert_eq!([1, 512, 513].map(of), [512, 512, 1024]);
        assert_eq!(counted(".global .align 4096 .b8 a[1]"), 4096);
        // Ten and three of them fill a page, and two do.
        assert_eq!([200_000, 600_000, 700_000, 1 << 20].map(of), [209_716, 699_051, 1 << 20, 1 << 20]);
        assert_eq!([(1 << 20) + 1, 2 << 20, (2 << 20) + 1].map(of), [2 << 20, 2 << 20, 4 << 20]);
        assert_eq!(of(1 << 50), 1 << 50);
    }

    #[test]
    fn a_signed_number_goes_for_an_unsigned_one_and_a_fraction_for_none() {
        let [u32, i32, f32, b32] =
            [Kind::Unsigned, Kind::Signed, Kind::Float, Kind::Bits].map(|kind| Parameter { kind, bytes: 4 });
        assert!(u32.takes(&i32) && i32.takes(&u32) && b32.takes(&f32) && b32.takes(&u32));
        assert!(!u32.takes(&f32) && !f32.takes(&u32) && !f32.takes(&b32));
        assert!(!u32.takes(&Parameter { bytes: 8, ..u32 }));
        assert!(!u32.takes_address() && Parameter { bytes: 8, ..u32 }.takes_address());
    }

    #[test]
    fn a_pointer_takes_addresses_and_no_number() {
        let text = TEXT.replace(".param .u64 x", ".param .u64 .ptr .global .align 4 x");
        let saxpy = kernels(&text).unwrap().swap_remove(0);
        assert_eq!(saxpy.to_string(), "saxpy(u64, memory, f32, u32, 16 bytes)");
        let [y, x] = [saxpy.parameters[0], saxpy.parameters[1]];
        assert!(x.takes_address() && y.takes_address() && y.takes(&y));
        let numbers = [Kind::Unsigned, Kind::Signed, Kind::Float, Kind::Bits, Kind::Bytes, Kind::Pointer];
        assert!(!numbers.iter().any(|&kind| x.takes(&Parameter { kind, bytes: 8 })));
    }

    #[test]
    fn an_invalid_text_is_an_error_with_its_line() {
        assert_eq!(kernels(".version 8.0\n.target sm_80\nfoo").unwrap_err().at.line, 3);
    }
}
