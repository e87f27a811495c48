//! Images that the program passes: PTX text, a fat binary that contains PTX, or the output of this driver's linker.
//!
//! They are read through system calls, up to the length that they declare, so that a wild address gives an error code.

use freehold_driver::cuda::CUerror;
use freehold_ptx::syntax::VERSION_MAX;
use freehold_ptx::{Error, ErrorKind, Image, LinkError, Unit};

use super::fatbin::{self, FatbinError, Target};
use crate::base::config::compute_capability;
use crate::memory::mem_ref::MemRef;

const ELF_MAGIC: &[u8] = b"\x7fELF";
const ELF_HEADER_BYTES: u64 = 64;
const ELF_SECTION_BYTES: u64 = 64;

/// The start of an image from this driver's linker: an ELF identification with our own padding, which no tool takes for
/// machine code.
const LINKED_MAGIC: &[u8; 16] = b"\x7fELF\x02\x01\x01FREEHOLD\0";

/// The magic number of the structure that points to a fat binary in a compiled program.
const FATBIN_WRAPPER_MAGIC: u32 = 0x4662_43b1;

/// An image that declares a greater length is invalid.
const IMAGE_BYTES_MAX: u64 = 1 << 30;

/// A PTX text of an image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Source {
    pub(crate) text: String,
    /// The compute capability of the device that its target must run on. `None` stands for a text that is used whatever its
    /// target: a linker has checked it, or it stands in for machine code that runs on the device.
    device: Option<u32>,
}

/// The reason why an image cannot be used, and the text for the program's error log.
#[non_exhaustive]
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoadError {
    /// The code that the driver returns.
    pub code: CUerror,
    /// One line or several, each with its end, or nothing.
    pub log: String,
}

impl From<CUerror> for LoadError {
    fn from(code: CUerror) -> Self {
        Self { code, log: String::new() }
    }
}

impl LoadError {
    fn from_ptx(error: &Error, text: &str) -> Self {
        let is_newer = error.kind == ErrorKind::Version && version(text).is_some_and(|own| own > VERSION_MAX);
        let code = if is_newer { CUerror::UNSUPPORTED_PTX_VERSION } else { CUerror::INVALID_PTX };
        let mut log = format!("ptxas application ptx input, line {}; error   : {}", error.at.line, error.message);
        if error.instruction.is_empty() {
            log += &format!(" (column {})\n", error.at.column);
        } else {
            log += &format!(" (column {}: {})\n", error.at.column, error.instruction);
        }
        Self { code, log: log + "ptxas fatal   : Ptx assembly aborted due to errors\n" }
    }
}

impl From<LinkError> for LoadError {
    fn from(error: LinkError) -> Self {
        Self { code: CUerror::INVALID_PTX, log: format!("ptxas fatal   : {error}\n") }
    }
}

impl From<FatbinError> for LoadError {
    fn from(error: FatbinError) -> Self {
        let code = match error {
            FatbinError::Malformed | FatbinError::NoPtx { .. } => CUerror::NO_BINARY_FOR_GPU,
            FatbinError::Compression => CUerror::INVALID_IMAGE,
        };
        Self { code, log: format!("{error}\n") }
    }
}

/// Returns the PTX texts of an image at an address of the program.
pub(crate) fn ptx_at(address: u64) -> Result<Vec<Source>, LoadError> {
    if address == 0 {
        return Err(CUerror::INVALID_VALUE.into());
    }
    let image = MemRef::host(address);
    let first = read_word(&image, 0).unwrap_or(0) as u32;
    if first == FATBIN_WRAPPER_MAGIC {
        let inner = read_word(&image, 8)?;
        return ptx_in(&read_fatbin(&MemRef::host(inner))?);
    }
    if first == fatbin::MAGIC {
        return ptx_in(&read_fatbin(&image)?);
    }
    if first.to_le_bytes() == ELF_MAGIC {
        return ptx_in(&read_elf(&image)?);
    }
    ptx_in(&read_text(address)?)
}

/// Returns the PTX texts of an image.
pub(crate) fn ptx_in(image: &[u8]) -> Result<Vec<Source>, LoadError> {
    if image.starts_with(LINKED_MAGIC) {
        return decode_linked(image).ok_or(CUerror::INVALID_IMAGE.into());
    }
    if image.starts_with(ELF_MAGIC) {
        return Err(machine_code_error(image));
    }
    let device = compute_capability();
    if !image.starts_with(&fatbin::MAGIC.to_le_bytes()) {
        return Ok(vec![Source { text: ptx_text(image)?, device: Some(device) }]);
    }
    let (text, is_own) = fatbin::best_ptx(image, Target::device(device))?;
    Ok(vec![Source { text: ptx_text(&text)?, device: is_own.then_some(device) }])
}

/// Returns a text up to its NUL.
fn ptx_text(image: &[u8]) -> Result<String, CUerror> {
    let end = image.iter().position(|&byte| byte == 0).unwrap_or(image.len());
    // Invalid UTF-8 is invalid PTX too, and the compiler reports where.
    let text = String::from_utf8_lossy(&image[..end]);
    version(&text).map(|_| text.into_owned()).ok_or(CUerror::INVALID_IMAGE)
}

/// Returns the error for an ELF image: it is not for a GPU, it is malformed, or it is machine code, which this device
/// does not execute.
fn machine_code_error(image: &[u8]) -> LoadError {
    const MACHINE_CUDA: u64 = 190;
    let at = |offset| read_uint(image, offset, 2).unwrap_or(0);
    let (machine, header_bytes, section_bytes, sections) = (at(18), at(52), at(58), at(60));
    if machine != MACHINE_CUDA {
        return CUerror::INVALID_IMAGE.into();
    }
    if header_bytes != ELF_HEADER_BYTES || section_bytes != ELF_SECTION_BYTES || sections == 0 {
        return CUerror::UNKNOWN.into();
    }
    let log = "the image is machine code, and this device runs PTX: compile to PTX, as with nvcc -ptx\n".to_owned();
    LoadError { code: CUerror::NO_BINARY_FOR_GPU, log }
}

/// Returns whether an image is in ELF form, as machine code and the output of a link are.
pub(crate) fn is_binary(image: &[u8]) -> bool {
    image.starts_with(ELF_MAGIC)
}

/// Compiles and links PTX texts.
pub(crate) fn build(sources: &[Source]) -> Result<Image, LoadError> {
    let units = sources.iter().map(compile).collect::<Result<Vec<_>, _>>()?;
    Ok(Image::link(units)?)
}

pub(crate) fn compile(source: &Source) -> Result<Unit, LoadError> {
    Unit::compile_for(&source.text, source.device).map_err(|error| LoadError::from_ptx(&error, &source.text))
}

/// Encodes linked PTX texts as an image that the program can load.
pub(crate) fn encode_linked(sources: &[Source]) -> Vec<u8> {
    let texts = || sources.iter().map(|source| &source.text);
    let bytes: usize = texts().map(|text| text.len() + 1).sum();
    let mut image = LINKED_MAGIC.to_vec();
    image.extend((image.len() as u64 + 8 + bytes as u64).to_le_bytes());
    for text in texts() {
        image.extend(text.bytes());
        image.push(0);
    }
    image
}

fn decode_linked(image: &[u8]) -> Option<Vec<Source>> {
    let bytes = usize::try_from(read_uint(image, LINKED_MAGIC.len(), 8)?).ok()?;
    let texts = image.get(LINKED_MAGIC.len() + 8..bytes)?.strip_suffix(&[0])?;
    let source = |text: &[u8]| Some(Source { text: String::from_utf8(text.to_vec()).ok()?, device: None });
    texts.split(|&byte| byte == 0).map(source).collect()
}

/// Returns the PTX version of a text, major and minor.
fn version(text: &str) -> Option<(u32, u32)> {
    let (_, after) = text.split_once(".version")?;
    let (major, minor) = after.split_whitespace().next()?.split_once('.')?;
    let minor: String = minor.chars().take_while(char::is_ascii_digit).collect();
    Some((major.parse().ok()?, minor.parse().ok()?))
}

fn read_uint(image: &[u8], offset: usize, bytes: usize) -> Option<u64> {
    let part = image.get(offset..offset.checked_add(bytes)?)?;
    Some(part.iter().rev().fold(0, |number, &byte| number << 8 | u64::from(byte)))
}

fn read_word(image: &MemRef, offset: u64) -> Result<u64, CUerror> {
    let mut bytes = [0; 8];
    image.read(offset, &mut bytes).map_err(|_| CUerror::INVALID_IMAGE)?;
    Ok(u64::from_le_bytes(bytes))
}

fn read_bytes(image: &MemRef, bytes: u64) -> Result<Vec<u8>, CUerror> {
    if bytes > IMAGE_BYTES_MAX {
        return Err(CUerror::INVALID_IMAGE);
    }
    let mut copy = vec![0; bytes as usize];
    image.read(0, &mut copy).map_err(|_| CUerror::INVALID_IMAGE)?;
    Ok(copy)
}

fn read_fatbin(image: &MemRef) -> Result<Vec<u8>, CUerror> {
    let header = read_word(image, 0)? >> 48;
    read_bytes(image, header.saturating_add(read_word(image, 8)?))
}

/// Reads all of an image from this driver's linker, or up to the header of another ELF image.
fn read_elf(image: &MemRef) -> Result<Vec<u8>, CUerror> {
    let head = read_bytes(image, LINKED_MAGIC.len() as u64 + 8)?;
    match read_uint(&head, LINKED_MAGIC.len(), 8) {
        Some(bytes) if head.starts_with(LINKED_MAGIC) => read_bytes(image, bytes),
        _ => Ok(read_bytes(image, ELF_HEADER_BYTES).unwrap_or(head)),
    }
}

/// Reads a text up to its NUL, page by page.
fn read_text(address: u64) -> Result<Vec<u8>, CUerror> {
    const PAGE: u64 = 4096;
    let mut text = Vec::new();
    let mut at = address;
    while (text.len() as u64) < IMAGE_BYTES_MAX {
        let part = PAGE - at % PAGE;
        let start = text.len();
        text.resize(start + part as usize, 0);
        MemRef::host(at).read(0, &mut text[start..]).map_err(|_| CUerror::INVALID_IMAGE)?;
        if let Some(end) = text[start..].iter().position(|&byte| byte == 0) {
            text.truncate(start + end);
            return Ok(text);
        }
        at = at.checked_add(part).ok_or(CUerror::INVALID_IMAGE)?;
    }
    Err(CUerror::INVALID_IMAGE)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::modules::fatbin::tests::plain_container;

    const TEXT: &str = ".version 8.0\n.target sm_80\n.address_size 64\n";

    fn texts(sources: Result<Vec<Source>, LoadError>) -> Result<Vec<String>, LoadError> {
        sources.map(|sources| sources.into_iter().map(|source| source.text).collect())
    }

    fn code<T>(result: Result<T, LoadError>) -> CUerror {
        result.err().expect("the image is refused").code
    }

    #[test]
    fn a_text_is_found_where_it_lies_and_ends_at_its_nul() {
        let image = format!("{TEXT}\0behind it");
        assert_eq!(texts(ptx_at(image.as_ptr() as u64)), Ok(vec![TEXT.to_owned()]));
    }

    #[test]
    fn bytes_that_are_not_text_are_an_invalid_image() {
        for garbage in ["", "not an image", "\u{1}\u{2}\u{3}\u{4}"] {
            let image = format!("{garbage}\0");
            assert_eq!(code(ptx_at(image.as_ptr() as u64)), CUerror::INVALID_IMAGE, "{garbage:?}");
        }
        assert_eq!(code(ptx_at(0)), CUerror::INVALID_VALUE);
        assert_eq!(code(ptx_at(8)), CUerror::INVALID_IMAGE);
        assert_eq!(code(ptx_at(u64::MAX)), CUerror::INVALID_IMAGE);
    }

    #[test]
    fn machine_code_has_no_binary_for_this_device() {
        let mut image = [ELF_MAGIC, &[0; 64]].concat();
        let mut refusal_with = |offset: usize, byte| {
            image[offset] = byte;
            code(ptx_at(image.as_ptr() as u64))
        };
        assert_eq!(refusal_with(18, 62), CUerror::INVALID_IMAGE);
        assert_eq!(refusal_with(18, 190), CUerror::UNKNOWN);
        assert_eq!(refusal_with(52, 64), CUerror::UNKNOWN);
        assert_eq!(refusal_with(58, 64), CUerror::UNKNOWN);
        assert_eq!(refusal_with(60, 1), CUerror::NO_BINARY_FOR_GPU);
    }

    #[test]
    fn a_linked_image_gives_its_texts_back() {
        let sources = [TEXT.to_owned(), TEXT.replace("80", "90")].map(|text| Source { text, device: None });
        let image = encode_linked(&sources);
        assert_eq!(ptx_at(image.as_ptr() as u64), Ok(sources.to_vec()));
        assert_eq!(code(ptx_in(&image[..40])), CUerror::INVALID_IMAGE);
    }

    #[test]
    fn a_fat_binary_is_found_where_it_lies_and_through_its_wrapper() {
        let image = plain_container(TEXT.as_bytes());
        assert_eq!(texts(ptx_at(image.as_ptr() as u64)), Ok(vec![TEXT.to_owned()]));
        let wrapper = [u64::from(FATBIN_WRAPPER_MAGIC) | 1 << 32, image.as_ptr() as u64];
        assert_eq!(texts(ptx_at(wrapper.as_ptr() as u64)), Ok(vec![TEXT.to_owned()]));
        let inner = plain_container(&plain_container(TEXT.as_bytes()));
        assert_eq!(code(ptx_in(&inner)), CUerror::INVALID_IMAGE);
    }

    #[test]
    fn a_version_is_the_number_after_its_directive() {
        assert_eq!(version("// a comment\n.version 8.6\n"), Some((8, 6)));
        assert_eq!(version(".version 9.1"), Some((9, 1)));
        assert_eq!(version(".version"), None);
        assert_eq!(version(".target sm_90"), None);
    }
}
