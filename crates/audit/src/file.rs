//! What the file of an object says of kernels and of a CUDA runtime.

use std::collections::HashMap;
use std::fs::File;
use std::ops::Range;
use std::path::Path;
use std::{ptr, slice};

use object::Endianness;
use object::elf::{FileHeader64, PF_X, PT_LOAD, SHT_DYNSYM, SHT_SYMTAB, STT_FUNC, SectionType, Sym64};
use object::read::elf::{FileHeader, ProgramHeader, SectionTable, Sym, SymbolTable};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

/// The function with which each object registers its kernels.
const REGISTER: &[u8] = b"__cudaRegisterFatBinary";
/// The section with the kernels.
const KERNELS: &[u8] = b".nv_fatbin";

type Header = FileHeader64<Endianness>;
type Symbol = Sym64<Endianness>;

/// A mapped file.
#[derive(Debug)]
pub(crate) struct Mapped {
    start: *mut u8,
    bytes: usize,
}

impl Mapped {
    /// Returns `None` for a file that cannot be read.
    pub(crate) fn open(path: &Path) -> Option<Self> {
        let file = File::open(path).ok()?;
        let bytes = usize::try_from(file.metadata().ok()?.len()).ok().filter(|bytes| *bytes > 0)?;
        // SAFETY: the kernel chooses an address that nothing uses.
        let start = unsafe { mmap(ptr::null_mut(), bytes, ProtFlags::READ, MapFlags::PRIVATE, &file, 0) };
        Some(Self { start: start.ok()?.cast(), bytes })
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        // SAFETY: the range is mapped for as long as `self` lives. The file of a loaded object is replaced, not written.
        unsafe { slice::from_raw_parts(self.start, self.bytes) }
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        // SAFETY: the range is this mapping, and no reference to it is left.
        let unmapped = unsafe { munmap(self.start.cast(), self.bytes) };
        debug_assert!(unmapped.is_ok());
    }
}

/// A function of an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Function {
    pub(crate) name: Vec<u8>,
    /// Its address, relative to where the object is loaded.
    pub(crate) address: u64,
    /// The number of bytes up to the next function.
    pub(crate) room: u64,
}

/// What an object has to do with CUDA.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Contents {
    /// Nothing, or it uses the runtime of another object.
    NoRuntime,
    /// It has a runtime: functions whose names begin like those of the interface, and the segments with code.
    Runtime { functions: Vec<Function>, code: Vec<Range<u64>> },
    /// It registers kernels with a runtime of its own, and has no symbols.
    Stripped,
}

impl Contents {
    /// Reads the file of an object.
    pub(crate) fn of(data: &[u8]) -> Self {
        let Some(elf) = Elf::parse(data) else { return Self::NoRuntime };
        let symbols = elf.symbols(SHT_SYMTAB);
        if symbols.iter().any(|symbol| elf.is_function(symbol) && elf.name(&symbols, symbol) == REGISTER) {
            return Self::Runtime { functions: elf.functions(&symbols, is_like_interface), code: elf.code() };
        }
        if elf.has_section(KERNELS) && !elf.imports_runtime() { Self::Stripped } else { Self::NoRuntime }
    }
}

/// Returns the functions that a library exports with names like those of the interface, and their addresses, relative to
/// where it is loaded.
pub(crate) fn exports(data: &[u8]) -> HashMap<Vec<u8>, u64> {
    exports_named(data, is_like_interface)
}

/// Returns the functions that a library exports and `is_wanted` accepts by their names, with their addresses.
pub(crate) fn exports_named(data: &[u8], is_wanted: impl Fn(&[u8]) -> bool) -> HashMap<Vec<u8>, u64> {
    let Some(elf) = Elf::parse(data) else { return HashMap::new() };
    let functions = elf.functions(&elf.symbols(SHT_DYNSYM), is_wanted);
    functions.into_iter().map(|function| (function.name, function.address)).collect()
}

/// Returns the functions that a runtime of ours exports for calls of the driver with a prefix, by the driver's names.
pub(crate) fn counterparts(data: &[u8], prefix: &[u8]) -> HashMap<Vec<u8>, u64> {
    let exports = exports_named(data, |name| name.starts_with(prefix));
    exports.into_iter().map(|(name, address)| (name[prefix.len()..].to_vec(), address)).collect()
}

/// A file in ELF form, of 64 bits.
struct Elf<'a> {
    data: &'a [u8],
    header: &'a Header,
    endian: Endianness,
    sections: SectionTable<'a, Header>,
}

impl<'a> Elf<'a> {
    fn parse(data: &'a [u8]) -> Option<Self> {
        let header = Header::parse(data).ok()?;
        let endian = header.endian().ok()?;
        let sections = header.sections(endian, data).ok()?;
        Some(Self { data, header, endian, sections })
    }

    /// Returns a symbol table, which is empty if the file has none.
    fn symbols(&self, table: SectionType) -> SymbolTable<'a, Header> {
        self.sections.symbols(self.endian, self.data, table).unwrap_or_default()
    }

    fn name(&self, symbols: &SymbolTable<'a, Header>, symbol: &Symbol) -> &'a [u8] {
        symbol.name(self.endian, symbols.strings()).unwrap_or_default()
    }

    /// Returns whether a symbol is a function of this object.
    fn is_function(&self, symbol: &Symbol) -> bool {
        symbol.st_type() == STT_FUNC && !symbol.is_undefined(self.endian)
    }

    /// Returns the functions with names that are wanted.
    fn functions(&self, symbols: &SymbolTable<'a, Header>, is_wanted: impl Fn(&[u8]) -> bool) -> Vec<Function> {
        let all = || symbols.iter().filter(|symbol| self.is_function(symbol));
        let mut starts: Vec<u64> = all().map(|symbol| symbol.st_value(self.endian)).collect();
        starts.sort_unstable();
        let named = all().filter_map(|symbol| {
            let name = self.name(symbols, symbol);
            let address = symbol.st_value(self.endian);
            let next = starts.get(starts.partition_point(|start| *start <= address));
            let room = next.map_or(u64::MAX, |next| next - address);
            is_wanted(name).then(|| Function { name: name.to_vec(), address, room })
        });
        named.collect()
    }

    /// Returns the address ranges of the segments with code.
    fn code(&self) -> Vec<Range<u64>> {
        let segments = self.header.program_headers(self.endian, self.data).unwrap_or_default();
        let code = segments
            .iter()
            .filter(|segment| segment.p_type(self.endian) == PT_LOAD && segment.p_flags(self.endian).0 & PF_X.0 != 0);
        code.map(|segment| {
            let start = segment.p_vaddr(self.endian);
            start..start.saturating_add(segment.p_filesz(self.endian))
        })
        .collect()
    }

    fn has_section(&self, name: &[u8]) -> bool {
        self.sections.section_by_name(self.endian, name).is_some()
    }

    /// Returns whether another object must have the runtime.
    fn imports_runtime(&self) -> bool {
        let symbols = self.symbols(SHT_DYNSYM);
        symbols.iter().any(|symbol| symbol.is_undefined(self.endian) && self.name(&symbols, symbol) == REGISTER)
    }
}

/// Returns whether a name begins like those of the interface.
fn is_like_interface(name: &[u8]) -> bool {
    name.starts_with(b"cuda") || name.starts_with(b"__cuda")
}
