//! Compiled and linked texts: a module before and after its variables have addresses.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::Arc;

use crate::error::Error;
use crate::fault::SourceLine;
use crate::ir::{Builtin, Code, FUNCTION_BYTES, FUNCTION_WINDOW, Kernel, Signature, SlotSharing};
use crate::lower::{self, LoweredUnit, Sources, Symbol, SymbolKind, VariableSpace};
use crate::syntax;
use crate::syntax::tree::Linkage;

/// The maximum static shared memory of a kernel.
const SHARED_BYTES_MAX: u64 = 48 << 10;

/// Functions that are part of every image that declares them and does not define them.
const LIBRARY: &str = include_str!("library.ptx");
const LIBRARY_NAMES: &[&str] = &["cudaCGGetIntrinsicHandle", "cudaCGSynchronize"];

/// One compiled text. References to names of other texts are unresolved.
#[derive(Debug)]
pub struct Unit {
    lowered: LoweredUnit,
}

impl Unit {
    /// Compiles a text for a device of compute capability 9.0.
    ///
    /// # Errors
    /// Returns the first error in the text.
    pub fn compile(text: &str) -> Result<Self, Error> {
        Self::compile_for(text, Some(syntax::DEVICE_DEFAULT))
    }

    /// Compiles a text for a device with a compute capability, as 90 for 9.0, or with any target if there is none.
    ///
    /// # Errors
    /// Returns the first error in the text, which may be that its target does not run on the device.
    pub fn compile_for(text: &str, device: Option<u32>) -> Result<Self, Error> {
        let module = syntax::parse_for(text, device)?;
        Ok(Self { lowered: lower::lower(&module, SlotSharing::Shared)? })
    }

    /// Compiles a text twice: so that each register has a slot of its own, and as [`compile`](Self::compile) does.
    #[cfg(test)]
    pub(crate) fn compile_both(text: &str) -> Result<[Self; 2], Error> {
        let module = syntax::parse_for(text, Some(syntax::DEVICE_DEFAULT))?;
        let unit = |sharing| Ok(Self { lowered: lower::lower(&module, sharing)? });
        Ok([unit(SlotSharing::Apart)?, unit(SlotSharing::Shared)?])
    }

    /// Returns the code of its functions.
    #[cfg(test)]
    pub(crate) fn functions(&self) -> &[Arc<Code>] {
        &self.lowered.functions
    }

    /// Returns the names that no other text may define.
    pub fn definitions(&self) -> impl Iterator<Item = &str> {
        let defined = |symbol: &&Symbol| symbol.linkage == Linkage::Visible && is_defined(symbol);
        self.lowered.symbols.iter().filter(defined).map(|symbol| symbol.name.as_str())
    }
}

/// Why texts cannot be linked.
#[non_exhaustive]
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LinkError {
    /// Declared and used, but not defined.
    Undefined {
        /// The name.
        name: String,
    },
    /// Defined twice.
    Duplicate {
        /// The name.
        name: String,
    },
    /// Declared in one text and defined in another with a different kind or type.
    Mismatch {
        /// The name.
        name: String,
    },
    /// A kernel with more static shared memory than a thread block can have.
    SharedMemory {
        /// The kernel.
        kernel: String,
        /// How much it has.
        bytes: u64,
    },
}

impl fmt::Display for LinkError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Undefined { name } => write!(f, "undefined reference to '{name}'"),
            Self::Duplicate { name } => write!(f, "'{name}' is defined more than once"),
            Self::Mismatch { name } => write!(f, "'{name}' is declared and defined with different types"),
            Self::SharedMemory { kernel, bytes } => {
                write!(f, "kernel '{kernel}' has {bytes} bytes of shared memory, more than {SHARED_BYTES_MAX}")
            }
        }
    }
}

impl std::error::Error for LinkError {}

/// A variable of global or constant memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GlobalVariable {
    /// Its name.
    pub name: String,
    /// Length in bytes.
    pub bytes: u64,
    /// Its address is a multiple of this.
    pub align: u64,
    /// In constant memory: kernels do not write it.
    pub constant: bool,
    /// In memory that the host accesses too.
    pub managed: bool,
}

/// Several texts linked into one. Its variables have no addresses yet.
#[derive(Debug)]
pub struct Image {
    linked: Arc<Linked>,
    variables: Vec<GlobalVariable>,
    /// The initial contents of each variable.
    data: Vec<InitialData>,
}

/// The bytes of a variable, and the addresses to write into them.
#[derive(Debug, Default)]
struct InitialData {
    bytes: Vec<u8>,
    unit: usize,
    relocations: Vec<lower::Relocation>,
}

/// The part of an image that does not depend on addresses.
#[derive(Debug)]
pub(crate) struct Linked {
    pub(crate) functions: Vec<LinkedFunction>,
    /// What each unit's symbols resolve to.
    pub(crate) units: Vec<Vec<Resolved>>,
    pub(crate) code: Vec<KernelCode>,
    kernels: Vec<Kernel>,
    /// Variables of constant memory and their sizes.
    constants: Vec<(usize, u64)>,
    /// Where the lines of each unit come from.
    sources: Vec<Arc<Sources>>,
}

#[derive(Debug)]
pub(crate) struct LinkedFunction {
    pub(crate) code: Arc<Code>,
    pub(crate) unit: usize,
}

/// What a symbol of a unit resolves to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Resolved {
    Function(usize),
    Builtin(Builtin),
    /// An index into the variables of the image.
    Global(usize),
    /// An index into the shared variables.
    Shared(usize),
    DynamicShared,
    /// Declared, but neither defined nor used.
    Unused,
}

/// A kernel's entry point and the layout of its shared memory.
#[derive(Debug)]
pub(crate) struct KernelCode {
    pub(crate) function: usize,
    /// The offset of each shared variable that the kernel can access.
    pub(crate) shared: Vec<u32>,
    /// The offset of dynamic shared memory, which is also the size of the variables before it.
    pub(crate) dynamic_shared: u32,
    /// Whether it, or a function that it may call, waits at the barrier of its cluster.
    pub(crate) uses_cluster_barrier: bool,
}

impl Image {
    /// # Errors
    /// Returns an error if the texts cannot be linked.
    pub fn link(units: Vec<Unit>) -> Result<Self, LinkError> {
        let mut units: Vec<_> = units.into_iter().map(|unit| unit.lowered).collect();
        if units.iter().any(needs_library) {
            units.push(Unit::compile(LIBRARY).expect("the library is valid PTX").lowered);
        }
        let mut linker = Linker::new(units);
        linker.define()?;
        linker.resolve()?;
        linker.check_references()?;
        linker.finish()
    }

    /// Its variables, in the order in which they are given addresses.
    pub fn variables(&self) -> &[GlobalVariable] {
        &self.variables
    }

    /// Its kernels; a [`Launch`](crate::Launch) names one by its index.
    pub fn kernels(&self) -> &[Kernel] {
        &self.linked.kernels
    }

    /// Assigns addresses to the variables, in the order of [`variables`](Self::variables). Returns the program and the
    /// initial bytes of each variable; the rest of a variable is zero. The same image may be relocated many times.
    pub fn relocate(&self, addresses: &[u64]) -> (Arc<Program>, Vec<Vec<u8>>) {
        assert_eq!(addresses.len(), self.variables.len(), "there must be one address per variable");
        let initial = self.data.iter().map(|initial| {
            let mut bytes = initial.bytes.clone();
            for relocation in &initial.relocations {
                let address = match self.linked.units[initial.unit][relocation.symbol as usize] {
                    Resolved::Function(function) => FUNCTION_WINDOW + function as u64 * FUNCTION_BYTES,
                    Resolved::Global(variable) => addresses[variable],
                    _ => 0,
                };
                let address = address.wrapping_add_signed(relocation.addend);
                let value = match relocation.mask {
                    0 => address,
                    mask => (address & mask) >> mask.trailing_zeros(),
                };
                let start = relocation.offset as usize;
                let count = relocation.bytes as usize;
                bytes[start..start + count].copy_from_slice(&value.to_le_bytes()[..count]);
            }
            bytes
        });
        let initial = initial.collect();
        (Arc::new(Program { linked: Arc::clone(&self.linked), addresses: addresses.to_vec() }), initial)
    }
}

/// Where the lines of the PTX of a kernel come from.
#[derive(Debug, Clone)]
pub struct KernelSources(Arc<Sources>);

impl KernelSources {
    /// Returns where a line comes from, if the text says so.
    pub fn find(&self, line: u32) -> Option<SourceLine> {
        Self::find_in(&self.0, line)
    }

    fn find_in(sources: &Sources, line: u32) -> Option<SourceLine> {
        let (file, line) = sources.find(line)?;
        Some(SourceLine { file: file.to_owned(), line })
    }
}

/// A program ready to run.
#[derive(Debug)]
pub struct Program {
    pub(crate) linked: Arc<Linked>,
    /// The addresses of the variables.
    pub(crate) addresses: Vec<u64>,
}

impl Program {
    /// Returns the kernels, in the order of the image's.
    pub fn kernels(&self) -> &[Kernel] {
        &self.linked.kernels
    }

    /// Returns the offsets, in bytes, of the words of a kernel's arguments that the addresses of its accesses are
    /// derived from.
    pub fn pointer_words(&self, kernel: usize) -> &[u32] {
        &self.kernel_code(kernel).provenance.words
    }

    /// Returns where a line of a function's PTX comes from, if the text says so. The function is that of a
    /// [`Place`](crate::Place).
    pub fn source(&self, function: u32, line: u32) -> Option<SourceLine> {
        let unit = self.linked.functions.get(function as usize)?.unit;
        KernelSources::find_in(&self.linked.sources[unit], line)
    }

    /// Returns where the lines of the PTX of a kernel come from. It keeps nothing else of the program.
    pub fn kernel_sources(&self, kernel: usize) -> KernelSources {
        let unit = self.linked.functions[self.linked.code[kernel].function].unit;
        KernelSources(Arc::clone(&self.linked.sources[unit]))
    }

    pub(crate) fn kernel_code(&self, kernel: usize) -> &Code {
        &self.linked.functions[self.linked.code[kernel].function].code
    }

    /// Returns whether an address is in a variable of constant memory.
    pub(crate) fn is_constant(&self, address: u64) -> bool {
        let within = |&(variable, bytes): &(usize, u64)| address.wrapping_sub(self.addresses[variable]) < bytes;
        self.linked.constants.iter().any(within)
    }
}

/// Where a name is defined: the unit and the symbol there.
type Definition = (usize, usize);

#[derive(Debug)]
struct Linker {
    units: Vec<LoweredUnit>,
    /// Names that are visible to other units.
    names: HashMap<String, Definition>,
    resolved: Vec<Vec<Resolved>>,
    /// The index of each unit's first function in the list of all.
    first_function: Vec<usize>,
    variables: Vec<GlobalVariable>,
    data: Vec<InitialData>,
    /// Size and alignment of each shared variable.
    shared: Vec<(u64, u64)>,
    dynamic_align: u64,
}

impl Linker {
    fn new(units: Vec<LoweredUnit>) -> Self {
        let mut first_function = Vec::new();
        let mut functions = 0;
        for unit in &units {
            first_function.push(functions);
            functions += unit.functions.len();
        }
        Self {
            units,
            names: HashMap::new(),
            resolved: Vec::new(),
            first_function,
            variables: Vec::new(),
            data: Vec::new(),
            shared: Vec::new(),
            dynamic_align: 16,
        }
    }

    /// Chooses the definition of each name that is visible to other units.
    fn define(&mut self) -> Result<(), LinkError> {
        for (unit, lowered) in self.units.iter().enumerate() {
            for (index, symbol) in lowered.symbols.iter().enumerate() {
                if symbol.linkage == Linkage::Local || !is_defined(symbol) {
                    continue;
                }
                let Some(&(other, before)) = self.names.get(&symbol.name) else {
                    self.names.insert(symbol.name.clone(), (unit, index));
                    continue;
                };
                let first = &self.units[other].symbols[before];
                match (first.linkage, symbol.linkage) {
                    (_, Linkage::Weak) => {}
                    (Linkage::Weak, _) => {
                        self.names.insert(symbol.name.clone(), (unit, index));
                    }
                    (Linkage::Common, Linkage::Common) => {
                        if bytes_of(symbol) > bytes_of(first) {
                            self.names.insert(symbol.name.clone(), (unit, index));
                        }
                    }
                    (Linkage::Common, _) => {
                        self.names.insert(symbol.name.clone(), (unit, index));
                    }
                    (_, Linkage::Common) => {}
                    _ => return Err(LinkError::Duplicate { name: symbol.name.clone() }),
                }
            }
        }
        Ok(())
    }

    fn resolve(&mut self) -> Result<(), LinkError> {
        let mut places: HashMap<Definition, Resolved> = HashMap::new();
        for unit in 0..self.units.len() {
            let mut all = Vec::new();
            for index in 0..self.units[unit].symbols.len() {
                let symbol = &self.units[unit].symbols[index];
                let own = symbol.linkage == Linkage::Local;
                let definition = match self.names.get(&symbol.name) {
                    Some(&definition) if !own => Some(definition),
                    _ => is_defined(symbol).then_some((unit, index)),
                };
                let Some(definition) = definition else {
                    all.push(undefined(symbol)?);
                    continue;
                };
                if !matches_declaration(symbol, self.resolve_alias(definition)) {
                    return Err(LinkError::Mismatch { name: symbol.name.clone() });
                }
                let place = match places.get(&definition) {
                    Some(&place) => place,
                    None => {
                        let place = self.assign_storage(definition);
                        places.insert(definition, place);
                        place
                    }
                };
                all.push(place);
            }
            self.resolved.push(all);
        }
        Ok(())
    }

    /// Returns a definition, or the function that it is an alias of.
    fn resolve_alias(&self, (unit, index): Definition) -> &Symbol {
        let symbol = &self.units[unit].symbols[index];
        match symbol.kind {
            SymbolKind::Alias(target) => self.resolve_alias((unit, target as usize)),
            _ => symbol,
        }
    }

    fn assign_storage(&mut self, (unit, index): Definition) -> Resolved {
        let first_function = self.first_function[unit];
        let symbol = &mut self.units[unit].symbols[index];
        match &mut symbol.kind {
            SymbolKind::Function { code: Some(code), .. } => Resolved::Function(first_function + *code),
            SymbolKind::Function { code: None, .. } => Resolved::Unused,
            SymbolKind::Alias(target) => {
                let target = *target as usize;
                self.assign_storage((unit, target))
            }
            SymbolKind::Variable(variable) => match variable.space {
                VariableSpace::Global | VariableSpace::Const => {
                    let data = std::mem::take(&mut variable.initial);
                    self.variables.push(GlobalVariable {
                        name: symbol.name.clone(),
                        bytes: variable.bytes,
                        align: variable.align,
                        constant: variable.space == VariableSpace::Const,
                        managed: variable.managed,
                    });
                    self.data.push(InitialData { bytes: data.bytes, unit, relocations: data.relocations });
                    Resolved::Global(self.variables.len() - 1)
                }
                VariableSpace::Shared => {
                    self.shared.push((variable.bytes, variable.align));
                    Resolved::Shared(self.shared.len() - 1)
                }
                VariableSpace::DynamicShared => {
                    self.dynamic_align = self.dynamic_align.max(variable.align);
                    Resolved::DynamicShared
                }
            },
        }
    }

    /// Checks that everything that is used is defined.
    fn check_references(&self) -> Result<(), LinkError> {
        for (unit, lowered) in self.units.iter().enumerate() {
            let from_code = lowered.functions.iter().flat_map(|code| code.mentions.iter().copied());
            for symbol in from_code {
                if self.resolved[unit][symbol as usize] == Resolved::Unused {
                    return Err(LinkError::Undefined { name: lowered.symbols[symbol as usize].name.clone() });
                }
            }
        }
        for initial in &self.data {
            for relocation in &initial.relocations {
                if self.resolved[initial.unit][relocation.symbol as usize] == Resolved::Unused {
                    let name = &self.units[initial.unit].symbols[relocation.symbol as usize].name;
                    return Err(LinkError::Undefined { name: name.clone() });
                }
            }
        }
        Ok(())
    }

    fn finish(mut self) -> Result<Image, LinkError> {
        let mut functions = Vec::new();
        let mut kernels: Vec<(Kernel, usize)> = Vec::new();
        let mut names = HashSet::new();
        for (unit, lowered) in self.units.iter().enumerate() {
            let code = lowered.functions.iter().map(|code| LinkedFunction { code: Arc::clone(code), unit });
            functions.extend(code);
            for (kernel, code) in &lowered.kernels {
                if names.insert(kernel.name.clone()) {
                    kernels.push((kernel.clone(), self.first_function[unit] + code));
                }
            }
        }
        let mut code = Vec::new();
        for (kernel, function) in &mut kernels {
            let (layout, shared_bytes) = self.layout_shared(*function, &functions);
            if shared_bytes > SHARED_BYTES_MAX {
                return Err(LinkError::SharedMemory { kernel: kernel.name.clone(), bytes: shared_bytes });
            }
            kernel.shared_bytes = shared_bytes;
            code.push(layout);
        }
        let kernels = kernels.into_iter().map(|(kernel, _)| kernel).collect();
        let constants = self.variables.iter().enumerate().filter(|(_, variable)| variable.constant);
        let constants = constants.map(|(index, variable)| (index, variable.bytes)).collect();
        let sources = self.units.iter_mut().map(|unit| Arc::new(std::mem::take(&mut unit.sources))).collect();
        let linked = Linked { functions, units: self.resolved, code, kernels, constants, sources };
        Ok(Image { linked: Arc::new(linked), variables: self.variables, data: self.data })
    }

    /// Lays out the shared variables that a kernel can access.
    fn layout_shared(&self, kernel: usize, functions: &[LinkedFunction]) -> (KernelCode, u64) {
        let mut reached: HashSet<usize> = HashSet::from([kernel]);
        let mut ahead = vec![kernel];
        let mut used = vec![false; self.shared.len()];
        let (mut has_dynamic, mut uses_cluster_barrier) = (false, false);
        while let Some(function) = ahead.pop() {
            let LinkedFunction { code, unit } = &functions[function];
            uses_cluster_barrier |= code.uses_cluster_barrier;
            for &symbol in &code.mentions {
                match self.resolved[*unit][symbol as usize] {
                    Resolved::Function(callee) if reached.insert(callee) => ahead.push(callee),
                    Resolved::Shared(variable) => used[variable] = true,
                    Resolved::DynamicShared => has_dynamic = true,
                    _ => {}
                }
            }
            if code.calls_indirectly {
                // Any function whose address is taken may be called.
                ahead.extend((0..functions.len()).filter(|&other| reached.insert(other)));
            }
        }
        let mut end = 0u64;
        let shared = self.shared.iter().zip(used).map(|(&(bytes, align), used)| {
            if !used {
                return 0;
            }
            let start = end.next_multiple_of(align);
            end = start.saturating_add(bytes).min(u64::from(u32::MAX));
            start as u32
        });
        let shared = shared.collect();
        let dynamic = if has_dynamic { end.next_multiple_of(self.dynamic_align) } else { end };
        let dynamic_shared = dynamic.min(u64::from(u32::MAX)) as u32;
        (KernelCode { function: kernel, shared, dynamic_shared, uses_cluster_barrier }, end)
    }
}

fn is_defined(symbol: &Symbol) -> bool {
    match &symbol.kind {
        SymbolKind::Function { code, .. } => code.is_some(),
        SymbolKind::Variable(variable) => variable.defined,
        SymbolKind::Alias(_) => true,
    }
}

/// Returns whether a unit declares a function of the library. Its own definition is used instead, if it has one.
fn needs_library(unit: &LoweredUnit) -> bool {
    let is_library = |symbol: &Symbol| LIBRARY_NAMES.contains(&symbol.name.as_str());
    unit.symbols.iter().any(|symbol| is_library(symbol) && !is_defined(symbol))
}

fn bytes_of(symbol: &Symbol) -> u64 {
    match &symbol.kind {
        SymbolKind::Variable(variable) => variable.bytes,
        _ => 0,
    }
}

fn matches_declaration(declared: &Symbol, defined: &Symbol) -> bool {
    match (&declared.kind, &defined.kind) {
        (SymbolKind::Function { signature: a, .. }, SymbolKind::Function { signature: b, .. }) => a == b,
        (SymbolKind::Variable(a), SymbolKind::Variable(b)) => {
            a.space == b.space && (a.defined || a.bytes == 0 || a.bytes == b.bytes)
        }
        // An alias here stands for its function.
        (SymbolKind::Alias(_), SymbolKind::Function { .. }) => true,
        _ => false,
    }
}

/// Resolves a name without a definition: a built-in function, or unresolved.
fn undefined(symbol: &Symbol) -> Result<Resolved, LinkError> {
    let SymbolKind::Function { signature, .. } = &symbol.kind else { return Ok(Resolved::Unused) };
    let Some(builtin) = Builtin::from_name(&symbol.name) else { return Ok(Resolved::Unused) };
    let bytes = |signature: &Signature| {
        let parameters: Vec<u32> = signature.parameters.iter().map(|formal| formal.bytes).collect();
        let returns: Vec<u32> = signature.returns.iter().map(|formal| formal.bytes).collect();
        (parameters, returns)
    };
    let (parameters, returns) = bytes(signature);
    match builtin.signature() == (&parameters, &returns) {
        true => Ok(Resolved::Builtin(builtin)),
        false => Err(LinkError::Mismatch { name: symbol.name.clone() }),
    }
}
