//! Images of kernels: PTX, OpenCL C, SPIR-V, or a binary for a GPU. An image is ours from the moment it is made.

use std::io;
use std::path::Path;
use std::sync::Arc;

use freehold_driver::ImageKind;

use crate::error::{Error, Result};

/// The first bytes of a binary for a GPU, which is a file of the ELF format, and of several of them in one.
const ELF: &[u8] = b"\x7fELF";
const FAT: &[u8] = &[0x50, 0xed, 0x55, 0xba];

/// The first word of SPIR-V, all of which is words of 32 bits.
const SPIRV: &[u8] = &0x0723_0203_u32.to_le_bytes();
const SPIRV_WORD_BYTES: usize = 4;

/// Sizes within an ELF file of 64 bits.
const ELF_HEADER_BYTES: usize = 64;
const SECTION_NOBITS: u32 = 8;

/// An image, checked as far as the driver trusts it: a text ends in a NUL, a binary is as long as its headers say.
///
/// ```
/// use freehold::Image;
///
/// let image = Image::ptx(include_str!("../examples/kernels.ptx"))?;
/// assert!(freehold::open()?.module(&image)?.kernels()?.iter().any(|name| name == "scale"));
/// assert!(Image::new(b"neither text nor a binary\xff").is_err());
/// # Ok::<(), freehold::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Image {
    kind: ImageKind,
    bytes: Arc<[u8]>,
}

impl Image {
    /// The text of a PTX program.
    ///
    /// ```
    /// use freehold::{Error, Image};
    ///
    /// let image = Image::ptx(include_str!("../examples/kernels.ptx"))?;
    /// assert!(matches!(Image::ptx(""), Err(Error::NotAnImage)));
    /// # drop(image);
    /// # Ok::<(), freehold::Error>(())
    /// ```
    pub fn ptx(text: &str) -> Result<Self> {
        Self::text(ImageKind::Ptx, text)
    }

    /// The text of a program in OpenCL C.
    pub fn opencl(text: &str) -> Result<Self> {
        Self::text(ImageKind::OpenCl, text)
    }

    fn text(kind: ImageKind, text: &str) -> Result<Self> {
        // What comes after a NUL would silently not be there.
        if text.trim_start().is_empty() || text.contains('\0') {
            return Err(Error::NotAnImage);
        }
        Ok(Self { kind, bytes: text.bytes().chain([0]).collect() })
    }

    /// PTX, SPIR-V, a cubin or a fat binary, told apart by their first bytes.
    pub fn new(bytes: &[u8]) -> Result<Self> {
        if bytes.starts_with(SPIRV) {
            let wanted_bytes = bytes.len().next_multiple_of(SPIRV_WORD_BYTES);
            if wanted_bytes > bytes.len() {
                return Err(Error::ImageCutShort { bytes: bytes.len(), wanted_bytes: wanted_bytes as u64 });
            }
            return Ok(Self { kind: ImageKind::SpirV, bytes: bytes.into() });
        }
        let wanted_bytes = if bytes.starts_with(ELF) {
            elf_bytes(bytes)
        } else if bytes.starts_with(FAT) {
            fat_bytes(bytes)
        } else {
            let text = bytes.strip_suffix(b"\0").unwrap_or(bytes);
            return Self::ptx(std::str::from_utf8(text).map_err(|_| Error::NotAnImage)?);
        };
        match wanted_bytes {
            Some(wanted_bytes) if wanted_bytes <= bytes.len() as u64 => {
                Ok(Self { kind: ImageKind::Binary, bytes: bytes.into() })
            }
            wanted => {
                let wanted_bytes = wanted.unwrap_or(ELF_HEADER_BYTES as u64);
                Err(Error::ImageCutShort { bytes: bytes.len(), wanted_bytes })
            }
        }
    }

    /// The image in a file. One whose name ends in `.cl` is OpenCL C.
    ///
    /// ```
    /// use freehold::Image;
    ///
    /// let path = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/kernels.ptx");
    /// let image = Image::file(path.as_ref())?; // PTX, a cubin, SPIR-V or OpenCL C
    /// # drop(image);
    /// assert!(Image::file("/absent.ptx".as_ref()).is_err());
    /// # Ok::<(), freehold::Error>(())
    /// ```
    pub fn file(path: &Path) -> Result<Self> {
        let failed = |error: io::Error| Error::File { path: path.to_owned(), kind: error.kind() };
        let bytes = std::fs::read(path).map_err(failed)?;
        if path.extension().is_some_and(|extension| extension == "cl") {
            return Self::opencl(std::str::from_utf8(&bytes).map_err(|_| Error::NotAnImage)?);
        }
        Self::new(&bytes)
    }

    pub(crate) fn kind(&self) -> ImageKind {
        self.kind
    }

    /// The image, with a NUL behind a text.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}

/// How long the headers of a binary say it is; `None` where the first of them is not whole.
fn elf_bytes(bytes: &[u8]) -> Option<u64> {
    let header = bytes.get(..ELF_HEADER_BYTES)?;
    let table =
        |offset: u64, entry_bytes: u16, count: u16| offset.saturating_add(u64::from(entry_bytes) * u64::from(count));
    let sections = word(header, 40)?;
    let (section_bytes, section_count) = (half(header, 58)?, half(header, 60)?);
    let programs = table(word(header, 32)?, half(header, 54)?, half(header, 56)?);
    let mut end = table(sections, section_bytes, section_count).max(programs).max(ELF_HEADER_BYTES as u64);
    if end > bytes.len() as u64 {
        return Some(end);
    }
    for index in 0..section_count {
        let start = usize::try_from(table(sections, section_bytes, index)).ok()?;
        let section = bytes.get(start..)?;
        if quarter(section, 4)? != SECTION_NOBITS {
            end = end.max(word(section, 24)?.saturating_add(word(section, 32)?));
        }
    }
    Some(end)
}

/// As [`elf_bytes`], of a fat binary: a header that says how long it is and what follows it.
fn fat_bytes(bytes: &[u8]) -> Option<u64> {
    Some(u64::from(half(bytes, 6)?).saturating_add(word(bytes, 8)?))
}

fn half(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_le_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

fn quarter(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

fn word(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_gets_a_nul_behind_it() {
        assert_eq!(Image::new(b".version 8.0").unwrap().bytes(), b".version 8.0\0");
        assert_eq!(Image::new(b".version 8.0\0").unwrap().bytes(), b".version 8.0\0");
    }

    #[test]
    fn an_image_is_of_the_kind_that_its_first_bytes_or_its_maker_say() {
        assert_eq!(Image::new(b".version 8.0").unwrap().kind(), ImageKind::Ptx);
        assert_eq!(Image::opencl("__kernel void f(void) {}").unwrap().kind(), ImageKind::OpenCl);
        let spirv = [3, 2, 0x23, 7, 0, 0, 1, 0];
        assert_eq!(Image::new(&spirv).unwrap().kind(), ImageKind::SpirV);
        assert!(matches!(Image::new(&spirv[..7]), Err(Error::ImageCutShort { bytes: 7, wanted_bytes: 8 })));
        assert!(matches!(Image::opencl(" "), Err(Error::NotAnImage)));
    }

    #[test]
    fn what_is_no_text_and_no_binary_is_refused() {
        assert!(matches!(Image::new(&[0xff, 0xfe]), Err(Error::NotAnImage)));
        assert!(matches!(Image::new(b""), Err(Error::NotAnImage)));
        assert!(matches!(Image::new(b".version\0 8.0"), Err(Error::NotAnImage)));
    }

    #[test]
    fn a_binary_that_ends_early_is_refused() {
        let mut elf = vec![0; 128];
        elf[..4].copy_from_slice(ELF);
        elf[40..48].copy_from_slice(&64_u64.to_le_bytes());
        elf[58..60].copy_from_slice(&64_u16.to_le_bytes());
        elf[60..62].copy_from_slice(&1_u16.to_le_bytes());
        elf[64 + 24..64 + 32].copy_from_slice(&100_u64.to_le_bytes());
        elf[64 + 32..64 + 40].copy_from_slice(&28_u64.to_le_bytes());
        assert!(Image::new(&elf).is_ok());
        let cut = Image::new(&elf[..127]).unwrap_err();
        assert_eq!(cut.to_string(), "the image ends early: 127 bytes, where its headers speak of 128");
        elf[64 + 32] = 29;
        assert!(matches!(Image::new(&elf), Err(Error::ImageCutShort { wanted_bytes: 129, .. })));
        assert!(matches!(Image::new(&elf[..10]), Err(Error::ImageCutShort { .. })));
    }

    #[test]
    fn a_fat_binary_that_ends_early_is_refused() {
        let mut fat = vec![0; 40];
        fat[..4].copy_from_slice(FAT);
        fat[6] = 16;
        fat[8] = 24;
        assert!(Image::new(&fat).is_ok());
        assert!(matches!(Image::new(&fat[..39]), Err(Error::ImageCutShort { bytes: 39, wanted_bytes: 40 })));
    }
}
