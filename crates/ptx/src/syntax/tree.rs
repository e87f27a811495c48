//! The syntax tree: the structure of a PTX text, with names that are not resolved yet.
//!
//! It borrows from the text. Instructions are kept as words: only the lowering knows which words make an instruction.

/// A position in the text, counted from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Position {
    pub line: u32,
    /// In bytes.
    pub column: u32,
}

/// A whole text.
#[derive(Debug, Clone, PartialEq)]
pub struct Module<'a> {
    /// Major and minor.
    pub version: (u32, u32),
    /// The target: 90 for `sm_90`.
    pub target: u32,
    pub items: Vec<Item<'a>>,
}

#[derive(Debug, Clone, PartialEq)]
pub enum Item<'a> {
    Variable(Variable<'a>),
    Function(Function<'a>),
    /// `.alias name, of;`
    Alias {
        at: Position,
        name: &'a str,
        of: &'a str,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Linkage {
    /// Visible only in this text.
    #[default]
    Local,
    Visible,
    Extern,
    Weak,
    Common,
}

/// The space of a variable or of an access.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Space {
    Register,
    Const,
    Global,
    Local,
    Param,
    Shared,
}

/// The fundamental types.
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

/// A variable outside registers, or a parameter of a function.
#[derive(Debug, Clone, PartialEq)]
pub struct Variable<'a> {
    pub at: Position,
    pub linkage: Linkage,
    pub space: Space,
    /// In bytes, if stated.
    pub align: Option<u32>,
    pub ty: Type,
    /// Elements of a vector type: 1, 2 or 4 (8 from version 8.8 on).
    pub vector: u32,
    /// Whether it is declared as the address of device memory: `.ptr` or `.ptr .global`.
    pub is_pointer: bool,
    pub name: &'a str,
    /// Lengths of the dimensions, outermost first; `None` for empty brackets.
    pub dimensions: Vec<Option<u64>>,
    pub initial: Option<Initial<'a>>,
}

/// An initial value.
#[derive(Debug, Clone, PartialEq)]
pub enum Initial<'a> {
    Integer(u64),
    /// The bits of a `0f` or `0d` literal, or of a decimal one (as `f64`).
    Single(u32),
    Double(u64),
    /// `name`, `name+8`, `generic(name)+8`; `mask` as in `0xff00(name)`, zero if there is none.
    Address {
        at: Position,
        name: &'a str,
        generic: bool,
        addend: i64,
        mask: u64,
    },
    List(Vec<Initial<'a>>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FunctionKind {
    /// `.entry`
    Kernel,
    /// `.func`
    Device,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Function<'a> {
    pub at: Position,
    pub linkage: Linkage,
    pub kind: FunctionKind,
    pub name: &'a str,
    pub returns: Vec<Parameter<'a>>,
    pub parameters: Vec<Parameter<'a>>,
    pub noreturn: bool,
    /// `.maxntid`, with 1 for omitted values.
    pub max_threads: Option<[u32; 3]>,
    /// `.reqntid`
    pub required_threads: Option<[u32; 3]>,
    /// `.minnctapersm`
    pub min_blocks: Option<u32>,
    /// `.maxnreg`
    pub max_registers: Option<u32>,
    /// `None` for a declaration.
    pub body: Option<Vec<Statement<'a>>>,
}

/// A parameter: a variable in param space, or a register.
#[derive(Debug, Clone, PartialEq)]
pub enum Parameter<'a> {
    Param(Variable<'a>),
    Register { at: Position, ty: Type, name: &'a str },
}

#[derive(Debug, Clone, PartialEq)]
pub enum Statement<'a> {
    Label {
        at: Position,
        name: &'a str,
    },
    /// `.reg .b32 %r<5>;` with `count` 5, or `.reg .b32 x;` without one.
    Registers {
        at: Position,
        ty: Type,
        vector: u32,
        names: Vec<(&'a str, Option<u32>)>,
    },
    /// `.local`, `.shared`, `.param`, and also `.global` or `.const` in a function.
    Variable(Variable<'a>),
    /// `{ ... }`: names inside hide those outside.
    Block(Vec<Statement<'a>>),
    Instruction(Instruction<'a>),
    /// `label: .branchtargets a, b, c;`, and likewise `.calltargets`.
    Targets {
        at: Position,
        name: &'a str,
        targets: Vec<&'a str>,
    },
    /// `label: .callprototype (ret) _ (params);`
    Prototype {
        at: Position,
        name: &'a str,
        returns: Vec<Parameter<'a>>,
        parameters: Vec<Parameter<'a>>,
    },
}

#[derive(Debug, Clone, PartialEq)]
pub struct Instruction<'a> {
    pub at: Position,
    /// `@p` and `@!p`.
    pub guard: Option<Guard<'a>>,
    /// `ld` of `ld.global.v2.f32`.
    pub opcode: &'a str,
    /// `global`, `v2`, `f32`: without the dots; a qualifier with colons is one word (`L1::evict_last`).
    pub modifiers: Vec<&'a str>,
    pub operands: Vec<Operand<'a>>,
    /// From the guard to before the semicolon, as written.
    pub text: &'a str,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Guard<'a> {
    pub register: &'a str,
    pub negated: bool,
}

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
    /// `[base+offset]`, `[base]`, `[0x10]`; some instructions have more than one element: `[a, {x, y}]`.
    Address { base: Base<'a>, offset: i64 },
    /// `{a, b}`
    Vector(Vec<Operand<'a>>),
    /// `a|b`: two destinations.
    Pair(Box<(Operand<'a>, Operand<'a>)>),
    /// `(a, b)`: the arguments and results of a call.
    List(Vec<Operand<'a>>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Base<'a> {
    Name(&'a str),
    Integer(u64),
}
