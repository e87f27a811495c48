//! A unit that is being lowered: its symbols, and the sizes and layouts of its declarations.

use std::collections::{HashMap, HashSet};

use super::unit::{self, Symbol, SymbolKind, Variable, VariableSpace};
use crate::error::{Error, ErrorKind};
use crate::ir::{FormalParameter, Kernel, KernelParameter, Signature, SlotSharing, SymbolIndex};
use crate::syntax::tree::{
    Function, FunctionKind, Item, Linkage, Module, Parameter, Position, Space, Type, Variable as Declared,
};

/// The maximum size of a kernel's parameters.
const PARAMETER_BYTES_MAX: u64 = 32_764;
/// The maximum shared memory of a thread block.
const SHARED_BYTES_MAX: u64 = 227 << 10;

/// The maximum size of all constants.
const CONSTANT_BYTES_MAX: u64 = 64 << 10;
/// The maximum size of a variable.
const VARIABLE_BYTES_MAX: u64 = 1 << 40;

/// A unit that is being lowered.
#[derive(Debug)]
pub(super) struct Lowering<'m> {
    pub(super) module: &'m Module<'m>,
    pub(super) sharing: SlotSharing,
    pub(super) symbols: Vec<Symbol>,
    pub(super) names: HashMap<&'m str, SymbolIndex>,
    /// The names of the kernels, which no function may call.
    pub(super) kernels: HashSet<&'m str>,
    /// The size of the constants so far.
    pub(super) constant_bytes: u64,
}

pub(super) fn semantic_error(at: Position, message: impl Into<String>) -> Error {
    Error::new(at, ErrorKind::Semantic, message)
}

impl<'m> Lowering<'m> {
    pub(super) fn declare_all(&mut self) -> Result<(), Error> {
        let module = self.module;
        for item in &module.items {
            match item {
                Item::Variable(variable) => {
                    let symbol = self.variable(variable)?;
                    self.declare(variable.at, variable.name, symbol)?;
                }
                Item::Function(function) => {
                    let signature = match function.kind {
                        FunctionKind::Kernel => {
                            self.kernels.insert(function.name);
                            Signature::default()
                        }
                        FunctionKind::Device => signature(&function.returns, &function.parameters)?,
                    };
                    let kind = SymbolKind::Function { signature, code: None };
                    let symbol = Symbol { name: function.name.to_owned(), linkage: function.linkage, kind };
                    self.declare(function.at, function.name, symbol)?;
                }
                Item::Alias { .. } => {}
            }
        }
        for item in &module.items {
            if let Item::Alias { at, name, of } = item {
                let target = *self.names.get(of).ok_or_else(|| semantic_error(*at, format!("unknown name '{of}'")))?;
                if !matches!(self.symbols[target as usize].kind, SymbolKind::Function { .. }) {
                    return Err(semantic_error(*at, format!("'{of}' is not a function")));
                }
                match self.names.get(name) {
                    Some(&declared) if declared == target => {
                        return Err(semantic_error(*at, format!("'{name}' is an alias of itself")));
                    }
                    Some(&declared) => self.symbols[declared as usize].kind = SymbolKind::Alias(target),
                    None => {
                        let symbol = Symbol {
                            name: (*name).to_owned(),
                            linkage: Linkage::Visible,
                            kind: SymbolKind::Alias(target),
                        };
                        self.declare(*at, name, symbol)?;
                    }
                }
            }
        }
        self.check_single_definition()
    }

    pub(super) fn check_single_definition(&self) -> Result<(), Error> {
        let mut seen = HashMap::new();
        for item in &self.module.items {
            if let Item::Function(function) = item
                && function.body.is_some()
                && seen.insert(function.name, ()).is_some()
            {
                return Err(semantic_error(function.at, format!("'{}' is defined twice", function.name)));
            }
        }
        Ok(())
    }

    /// Adds a symbol; a declaration and a definition of the same name are merged.
    pub(super) fn declare(&mut self, at: Position, name: &'m str, symbol: Symbol) -> Result<(), Error> {
        let Some(&index) = self.names.get(name) else {
            self.names.insert(name, self.symbols.len() as SymbolIndex);
            self.symbols.push(symbol);
            return Ok(());
        };
        let before = &mut self.symbols[index as usize];
        match (&mut before.kind, symbol.kind) {
            (SymbolKind::Function { signature: first, .. }, SymbolKind::Function { signature: second, .. }) => {
                if *first != second {
                    return Err(semantic_error(at, format!("'{name}' was declared with different parameters")));
                }
            }
            (SymbolKind::Variable(first), SymbolKind::Variable(second)) => {
                if first.defined && second.defined {
                    return Err(semantic_error(at, format!("'{name}' is defined twice")));
                }
                if second.defined {
                    *first = second;
                }
            }
            _ => return Err(semantic_error(at, format!("'{name}' is already defined as something else"))),
        }
        if before.linkage == Linkage::Extern || before.linkage == Linkage::Local {
            before.linkage = symbol.linkage;
        }
        Ok(())
    }

    /// Lowers a variable of the unit, which may be declared inside a function.
    pub(super) fn variable(&mut self, variable: &Declared<'m>) -> Result<Symbol, Error> {
        let (bytes, align) = size(variable)?;
        let home = match variable.space {
            Space::Global => VariableSpace::Global,
            Space::Const => VariableSpace::Const,
            Space::Shared if variable.linkage == Linkage::Extern => VariableSpace::DynamicShared,
            Space::Shared => VariableSpace::Shared,
            Space::Register | Space::Local | Space::Param => {
                return Err(semantic_error(
                    variable.at,
                    format!("'{}' is not allowed outside a function", variable.name),
                ));
            }
        };
        if home == VariableSpace::Shared && bytes > SHARED_BYTES_MAX {
            return Err(semantic_error(
                variable.at,
                format!("{bytes} bytes of shared memory exceed the maximum of {SHARED_BYTES_MAX}"),
            ));
        }
        if home == VariableSpace::Const && variable.linkage != Linkage::Extern {
            self.constant_bytes += bytes;
            if self.constant_bytes > CONSTANT_BYTES_MAX {
                return Err(semantic_error(
                    variable.at,
                    format!(
                        "the constants need {} bytes up to here, but a module has at most {CONSTANT_BYTES_MAX}",
                        self.constant_bytes
                    ),
                ));
            }
        }
        let defined = variable.linkage != Linkage::Extern || home == VariableSpace::DynamicShared;
        let kind = SymbolKind::Variable(Variable {
            space: home,
            bytes,
            align,
            managed: variable.is_managed,
            defined,
            initial: unit::Data::default(),
        });
        Ok(Symbol { name: variable.name.to_owned(), linkage: variable.linkage, kind })
    }

    pub(super) fn kernel(&self, function: &Function<'_>) -> Result<Kernel, Error> {
        if function.blocks_are_clusters {
            let missing = match () {
                () if self.module.version < (9, 0) => Some("'.version 9.0' or higher"),
                () if function.required_threads.is_none() => Some("'.reqntid'"),
                () if function.required_cluster.is_none() => Some("'.reqnctapercluster'"),
                () => None,
            };
            if let Some(missing) = missing {
                return Err(semantic_error(function.at, format!("'.blocksareclusters' needs {missing}")));
            }
        }
        let mut parameters = Vec::new();
        let mut end = 0u64;
        for parameter in &function.parameters {
            let Parameter::Param(variable) = parameter else {
                return Err(semantic_error(function.at, "the parameters of a kernel must be in .param space"));
            };
            let (bytes, align) = size(variable)?;
            let offset = end.next_multiple_of(align);
            parameters.push(KernelParameter { offset, bytes });
            end = offset + bytes;
            if end > PARAMETER_BYTES_MAX {
                return Err(semantic_error(
                    variable.at,
                    format!("more than {PARAMETER_BYTES_MAX} bytes of parameters"),
                ));
            }
        }
        let (major, minor) = self.module.version;
        Ok(Kernel {
            name: function.name.to_owned(),
            parameters,
            parameter_bytes: end,
            shared_bytes: 0,
            local_bytes: 0,
            registers: 0,
            max_threads: function.max_threads,
            required_threads: function.required_threads,
            min_blocks: function.min_blocks,
            required_cluster: function.required_cluster,
            max_cluster_rank: function.max_cluster_rank,
            is_cluster_explicit: function.is_cluster_explicit,
            blocks_are_clusters: function.blocks_are_clusters,
            max_registers: function.max_registers,
            ptx_version: major * 10 + minor,
            target: self.module.target,
        })
    }
}

/// Returns the size and the alignment of a variable.
pub(super) fn size(variable: &Declared<'_>) -> Result<(u64, u64), Error> {
    if variable.ty == Type::Pred {
        return Err(semantic_error(
            variable.at,
            format!("'{}' is a predicate, which cannot be in memory", variable.name),
        ));
    }
    let element = u64::from(variable.ty.bytes()) * u64::from(variable.vector);
    let too_large =
        || semantic_error(variable.at, format!("'{}' is larger than {VARIABLE_BYTES_MAX} bytes", variable.name));
    let mut elements = 1u64;
    for (index, dimension) in variable.dimensions.iter().enumerate() {
        let length = match (dimension, &variable.initial) {
            (Some(length), _) => *length,
            (None, Some(crate::syntax::tree::Initial::List(list))) if index == 0 => list.len() as u64,
            (None, _) => 0,
        };
        elements = elements.checked_mul(length).ok_or_else(too_large)?;
    }
    let bytes = elements.checked_mul(element).filter(|&bytes| bytes <= VARIABLE_BYTES_MAX).ok_or_else(too_large)?;
    let natural = element.next_power_of_two();
    let align = variable.align.map_or(natural, |align| u64::from(align).max(natural));
    if !align.is_power_of_two() || align > 1 << 20 {
        return Err(semantic_error(
            variable.at,
            format!("an alignment of {align} is not a power of two up to 1048576"),
        ));
    }
    Ok((bytes, align))
}

/// Returns the layout of a function's results and parameters in its frame.
pub(super) fn signature(returns: &[Parameter<'_>], parameters: &[Parameter<'_>]) -> Result<Signature, Error> {
    let mut end = 0u64;
    let mut reg = |parameter: &Parameter<'_>| {
        let (at, (bytes, align)) = match parameter {
            Parameter::Param(variable) => (variable.at, size(variable)?),
            Parameter::Register { at, ty, .. } => (*at, (u64::from(ty.bytes()), u64::from(ty.bytes()))),
        };
        let offset = end.next_multiple_of(align);
        end = offset + bytes;
        if end > PARAMETER_BYTES_MAX {
            return Err(semantic_error(at, format!("more than {PARAMETER_BYTES_MAX} bytes of parameters")));
        }
        Ok(FormalParameter { offset: offset as u32, bytes: bytes as u32 })
    };
    let returns = returns.iter().map(&mut reg).collect::<Result<_, _>>()?;
    let parameters = parameters.iter().map(&mut reg).collect::<Result<_, _>>()?;
    Ok(Signature { returns, parameters, bytes: end as u32 })
}
