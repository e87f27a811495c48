//! A lowered text, in which references to other texts are unresolved.

use std::sync::Arc;

use crate::ir::{Code, Kernel, Signature, SymbolIndex};
use crate::syntax::tree::{Linkage, Location, Module};

/// One lowered text.
#[derive(Debug)]
pub(crate) struct LoweredUnit {
    pub(crate) symbols: Vec<Symbol>,
    pub(crate) functions: Vec<Arc<Code>>,
    /// Kernels, each with the index of its code.
    pub(crate) kernels: Vec<(Kernel, usize)>,
    pub(crate) sources: Sources,
}

/// Where the lines of a text come from.
#[derive(Debug, Default)]
pub(crate) struct Sources {
    files: Vec<(u32, String)>,
    /// In ascending order of the lines of the text.
    locations: Vec<Location>,
}

impl Sources {
    pub(crate) fn new(module: &Module<'_>) -> Self {
        if module.files.is_empty() {
            return Self::default();
        }
        let files = module.files.iter().map(|&(number, name)| (number, name.to_owned())).collect();
        Self { files, locations: module.locations.clone() }
    }

    /// Returns the file and its line that a line of the text comes from.
    pub(crate) fn find(&self, line: u32) -> Option<(&str, u32)> {
        let index = self.locations.partition_point(|location| location.at <= line).checked_sub(1)?;
        let Location { file, line, inlined_at, .. } = self.locations[index];
        let name = |file| self.files.iter().find(|(number, _)| *number == file).map(|(_, name)| name.as_str());
        let inner = name(file)?;
        // Of a function in a header of the compiler, the call says more.
        let outer =
            inlined_at.filter(|_| inner.contains("/include/")).and_then(|(file, line)| Some((name(file)?, line)));
        Some(outer.unwrap_or((inner, line))).filter(|(_, line)| *line != 0)
    }
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
