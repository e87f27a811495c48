//! A lowered text, in which references to other texts are unresolved.

use std::sync::Arc;

use crate::ir::{Code, Kernel, Signature, SymbolIndex};
use crate::syntax::tree::Linkage;

/// One lowered text.
#[derive(Debug)]
pub(crate) struct LoweredUnit {
    pub(crate) symbols: Vec<Symbol>,
    pub(crate) functions: Vec<Arc<Code>>,
    /// Kernels, each with the index of its code.
    pub(crate) kernels: Vec<(Kernel, usize)>,
}

#[derive(Debug)]
pub(crate) struct Symbol {
    pub(crate) name: String,
    pub(crate) linkage: Linkage,
    pub(crate) kind: SymbolKind,
}

#[derive(Debug)]
pub(crate) enum SymbolKind {
    Function {
        signature: Signature,
        code: Option<usize>,
    },
    Variable(Variable),
    /// An alias of a function.
    Alias(SymbolIndex),
}

#[derive(Debug)]
pub(crate) struct Variable {
    pub(crate) space: VariableSpace,
    pub(crate) bytes: u64,
    pub(crate) align: u64,
    /// Whether the host accesses it too.
    pub(crate) managed: bool,
    pub(crate) defined: bool,
    pub(crate) initial: Data,
}

/// The memory that a variable of the unit is in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum VariableSpace {
    Global,
    Const,
    Shared,
    /// Shared memory whose size the launch states.
    DynamicShared,
}

/// The initial bytes of a variable. The rest is zero.
#[derive(Debug, Default)]
pub(crate) struct Data {
    pub(crate) bytes: Vec<u8>,
    pub(crate) relocations: Vec<Relocation>,
}

/// The address of a symbol to write into a variable.
#[derive(Debug)]
pub(crate) struct Relocation {
    pub(crate) offset: u64,
    /// The number of bytes to write.
    pub(crate) bytes: u32,
    pub(crate) symbol: SymbolIndex,
    pub(crate) addend: i64,
    /// A mask of the byte of the address to write; zero for all.
    pub(crate) mask: u64,
}
