//! The syntax tree: the structure of a PTX text, with names that are not resolved yet.
//!
//! It borrows from the text. Instructions are kept as words: only the lowering knows which words make an instruction.

pub use crate::error::Position;

/// A whole text.
#[derive(Debug, Clone, PartialEq)]
pub struct Module<'a> {
    /// Major and minor.
    pub version: (u32, u32),
    /// The target: 90 for `sm_90`.
    pub target: u32,
    /// Its declarations, in order.
    pub items: Vec<Item<'a>>,
    /// The source files: their numbers and names.
    pub files: Vec<(u32, &'a str)>,
    /// Where the instructions come from, in the order of the text.
    pub locations: Vec<Location>,
}

/// The source of the instructions after a line of the text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Location {
    /// The line of the text.
    pub at: u32,
    /// The number of the source file; zero at the start of a function, where it is not known yet.
    pub file: u32,
    /// The line of the source file.
    pub line: u32,
    /// Of an inlined function, the number of the file and the line of the call.
    pub inlined_at: Option<(u32, u32)>,
}

/// A declaration of a text.
#[derive(Debug, Clone, PartialEq)]
pub enum Item<'a> {
    /// A variable.
    Variable(Variable<'a>),
    /// A function or a kernel.
    Function(Function<'a>),
    /// `.alias name, of;`
    Alias {
        /// Where it stands.
        at: Position,
        /// The new name.
        name: &'a str,
        /// The function that it stands for.
        of: &'a str,
    },
}

/// Where a name is visible.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Linkage {
    /// Visible only in this text.
    #[default]
    Local,
    /// `.visible`: all texts.
    Visible,
    /// `.extern`: another text defines it.
    Extern,
    /// `.weak`: another text may define it instead.
    Weak,
    /// `.common`: all definitions are one.
    Common,
}

/// The space of a variable or of an access.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Space {
    /// `.reg`
    Register,
    /// `.const`
    Const,
    /// `.global`
    Global,
    /// `.local`
    Local,
    /// `.param`
    Param,
    /// `.shared`
    Shared,
}

/// The fundamental types: each variant is the type of that name.
#[allow(missing_docs, reason = "PTX names them so")]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Type {
    B8,
    B16,
    B32,
    B64,
    B128,
    U8,
    U16,
    U32,
    U64,
    S8,
    S16,
    S32,
    S64,
    F16,
    F16x2,
    Bf16,
    Bf16x2,
    F32,
    F64,
    Pred,
}

impl Type {
    /// Returns the width of a value in bits; 1 for a predicate.
    pub(crate) fn bits(self) -> u32 {
        match self {
            Self::Pred => 1,
            Self::B8 | Self::U8 | Self::S8 => 8,
            Self::B16 | Self::U16 | Self::S16 | Self::F16 | Self::Bf16 => 16,
            Self::B32 | Self::U32 | Self::S32 | Self::F32 | Self::F16x2 | Self::Bf16x2 => 32,
            Self::B64 | Self::U64 | Self::S64 | Self::F64 => 64,
            Self::B128 => 128,
        }
    }

    /// Returns the size of a value in memory.
    pub(crate) fn bytes(self) -> u32 {
        self.bits().div_ceil(8)
    }
}

/// A variable outside registers, or a parameter of a function.
#[derive(Debug, Clone, PartialEq)]
pub struct Variable<'a> {
    /// Where it stands.
    pub at: Position,
    /// Where it is visible.
    pub linkage: Linkage,
    /// Where it lives.
    pub space: Space,
    /// In bytes, if stated.
    pub align: Option<u32>,
    /// The type of an element.
    pub ty: Type,
    /// Elements of a vector type: 1, 2 or 4 (8 from version 8.8 on).
    pub vector: u32,
    /// Whether the host accesses it too: `.attribute(.managed)`.
    pub is_managed: bool,
    /// Whether it is declared as the address of device memory: `.ptr` or `.ptr .global`.
    pub is_pointer: bool,
    /// Its name.
    pub name: &'a str,
    /// Lengths of the dimensions, outermost first; `None` for empty brackets.
    pub dimensions: Vec<Option<u64>>,
    /// Its initial value; zeros if there is none.
    pub initial: Option<Initial<'a>>,
}

/// An initial value.
#[derive(Debug, Clone, PartialEq)]
pub enum Initial<'a> {
    /// An integer.
    Integer(u64),
    /// The bits of a `0f` or `0d` literal, or of a decimal one (as `f64`).
    Single(u32),
    /// Like [`Single`](Self::Single), of 64 bits.
    Double(u64),
    /// `name`, `name+8`, `generic(name)+8`; `mask` as in `0xff00(name)`, zero if there is none.
    Address {
        /// Where it stands.
        at: Position,
        /// The variable or function.
        name: &'a str,
        /// Whether the address is one of the generic space.
        generic: bool,
        /// The number that is added to the address.
        addend: i64,
        /// Which byte of the address is meant.
        mask: u64,
    },
    /// `{a, b}`
    List(Vec<Initial<'a>>),
}

/// The kind of a function.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FunctionKind {
    /// `.entry`
    Kernel,
    /// `.func`
    Device,
}

/// A function or a kernel.
#[derive(Debug, Clone, PartialEq)]
pub struct Function<'a> {
    /// Where it stands.
    pub at: Position,
    /// Where it is visible.
    pub linkage: Linkage,
    /// Whether it is a kernel.
    pub kind: FunctionKind,
    /// Its name.
    pub name: &'a str,
    /// Its results.
    pub returns: Vec<Parameter<'a>>,
    /// Its parameters.
    pub parameters: Vec<Parameter<'a>>,
    /// `.noreturn`
    pub noreturn: bool,
    /// `.maxntid`, with 1 for omitted values.
    pub max_threads: Option<[u32; 3]>,
    /// `.reqntid`
    pub required_threads: Option<[u32; 3]>,
    /// `.minnctapersm`
    pub min_blocks: Option<u32>,
    /// `.reqnctapercluster`, with 1 for omitted values.
    pub required_cluster: Option<[u32; 3]>,
    /// `.maxclusterrank`
    pub max_cluster_rank: Option<u32>,
    /// `.explicitcluster`
    pub is_cluster_explicit: bool,
    /// `.blocksareclusters`
    pub blocks_are_clusters: bool,
    /// `.maxnreg`
    pub max_registers: Option<u32>,
    /// `None` for a declaration.
    pub body: Option<Vec<Statement<'a>>>,
}

/// A parameter: a variable in param space, or a register.
#[derive(Debug, Clone, PartialEq)]
pub enum Parameter<'a> {
    /// A variable of `.param`.
    Param(Variable<'a>),
    /// A register.
    Register {
        /// Where it stands.
        at: Position,
        /// Its type.
        ty: Type,
        /// Its name.
        name: &'a str,
    },
}

/// A line of a function.
#[derive(Debug, Clone, PartialEq)]
pub enum Statement<'a> {
    /// `name:`
    Label {
        /// Where it stands.
        at: Position,
        /// Its name.
        name: &'a str,
    },
    /// `.reg .b32 %r<5>;` with `count` 5, or `.reg .b32 x;` without one.
    Registers {
        /// Where it stands.
        at: Position,
        /// The type of each.
        ty: Type,
        /// Elements of a vector type.
        vector: u32,
        /// The names, each with its count.
        names: Vec<(&'a str, Option<u32>)>,
    },
    /// `.local`, `.shared`, `.param`, and also `.global` or `.const` in a function.
    Variable(Variable<'a>),
    /// `{ ... }`: names inside hide those outside.
    Block(Vec<Statement<'a>>),
    /// An instruction.
    Instruction(Instruction<'a>),
    /// `label: .branchtargets a, b, c;`, and likewise `.calltargets`.
    Targets {
        /// Where it stands.
        at: Position,
        /// The label.
        name: &'a str,
        /// The labels or functions that may be meant.
        targets: Vec<&'a str>,
    },
    /// `label: .callprototype (ret) _ (params);`
    Prototype {
        /// Where it stands.
        at: Position,
        /// The label.
        name: &'a str,
        /// The results of the function.
        returns: Vec<Parameter<'a>>,
        /// Its parameters.
        parameters: Vec<Parameter<'a>>,
    },
}

/// An instruction, as words.
#[derive(Debug, Clone, PartialEq)]
pub struct Instruction<'a> {
    /// Where it stands.
    pub at: Position,
    /// `@p` and `@!p`.
    pub guard: Option<Guard<'a>>,
    /// `ld` of `ld.global.v2.f32`.
    pub opcode: &'a str,
    /// `global`, `v2`, `f32`: without the dots; a qualifier with colons is one word (`L1::evict_last`).
    pub modifiers: Vec<&'a str>,
    /// Its operands, in the order of the text.
    pub operands: Vec<Operand<'a>>,
    /// From the guard to before the semicolon, as written.
    pub text: &'a str,
}

/// The predicate that an instruction depends on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Guard<'a> {
    /// The register.
    pub register: &'a str,
    /// Whether it has to be false.
    pub negated: bool,
}

/// An operand of an instruction.
#[derive(Debug, Clone, PartialEq)]
pub enum Operand<'a> {
    /// A register, a variable, a label, a function, a special register (`%tid.x` is one name).
    Name(&'a str),
    /// `!p`
    Not(&'a str),
    /// `name+8`, `name-8`
    Sum(&'a str, i64),
    /// An integer literal or constant expression, as its 64 bits.
    Integer(u64),
    /// `0f3f800000`
    Single(u32),
    /// `0d...`, and decimal literals with a point or an exponent.
    Double(u64),
    /// `_`
    Sink,
    /// `[base+offset]`, `[base]`, `[0x10]`
    Address {
        /// Its base.
        base: Base<'a>,
        /// The offset from the base.
        offset: i64,
    },
    /// `[texture, {x, y}]`, and `[map, {x, y}]` of a tensor map.
    Texel {
        /// The texture, the surface, or the register with the address of the tensor map.
        base: &'a str,
        /// Bytes added to the address of a tensor map.
        offset: i64,
        /// A vector, or a name.
        coordinates: Box<Operand<'a>>,
    },
    /// `{a, b}`
    Vector(Vec<Operand<'a>>),
    /// `a|b`: two destinations.
    Pair(Box<(Operand<'a>, Operand<'a>)>),
    /// `(a, b)`: the arguments and results of a call.
    List(Vec<Operand<'a>>),
}

/// The base of an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Base<'a> {
    /// A register or a variable.
    Name(&'a str),
    /// A number.
    Integer(u64),
}
