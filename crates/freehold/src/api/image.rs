//! Images of kernels: PTX, OpenCL C, SPIR-V, or a GPU binary. An image is a copy of the bytes it is made from.

use std::fmt;
use std::io;
use std::path::Path;
use std::sync::Arc;

use freehold_driver::ImageKind;

use crate::error::{Error, Result};

/// The first bytes of a GPU binary, which is an ELF file, and of a fat binary.
const ELF: &[u8] = b"\x7fELF";
const FAT: &[u8] = &[0x50, 0xed, 0x55, 0xba];

/// The first word of SPIR-V, which consists of 32-bit words.
const SPIRV: &[u8] = &0x0723_0203_u32.to_le_bytes();
const SPIRV_WORD_BYTES: usize = 4;

/// Sizes and numbers in a 64-bit ELF file.
const ELF_HEADER_BYTES: usize = 64;
const ELF_CLASS_64: u8 = 2;
const SECTION_BYTES: u64 = 64;
const SECTION_NULL: u32 = 0;
const SECTION_NOBITS: u32 = 8;
const SEGMENT_BYTES: u64 = 56;
const SEGMENT_NULL: u32 = 0;
/// A segment count with this value means that the first section header has the actual count.
const SEGMENTS_ELSEWHERE: u64 = 0xffff;

/// The size of an entry's header in a fat binary. The header has its own length and that of the data after it.
const FAT_ENTRY_BYTES: u64 = 64;

/// An image. Text, which the driver's compiler reads, is safe to load. A driver trusts a binary, so the caller that
/// makes the image guarantees that it is valid ([`binary`](Self::binary)).
///
/// ```
/// use freehold::Image;
///
/// let image = Image::ptx(include_str!("../../examples/kernels.ptx"))?;
/// assert!(freehold::open()?.module(&image)?.kernels()?.iter().any(|name| name == "scale"));
/// assert!(Image::new(b"neither PTX nor a binary").is_err());
/// # Ok::<(), freehold::Error>(())
/// ```
#[derive(Clone)]
pub struct Image {
    kind: ImageKind,
    bytes: Arc<[u8]>,
}

impl fmt::Debug for Image {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Image").field("kind", &self.kind).field("bytes", &self.bytes.len()).finish()
    }
}

impl Image {
    /// Makes an image of the text of a PTX program.
    ///
    /// ```
    /// use freehold::{Error, Image};
    ///
    /// let image = Image::ptx(include_str!("../../examples/kernels.ptx"))?;
    /// assert!(matches!(Image::ptx("__global__ void scale()"), Err(Error::NotPtx)));
    /// # drop(image);
    /// # Ok::<(), freehold::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::NotPtx`] if the text does not begin with a `.version`.
    pub fn ptx(text: &str) -> Result<Self> {
        if !without_comments(text).starts_with(".version") {
            return Err(Error::NotPtx);
        }
        Self::text(ImageKind::Ptx, text)
    }

    /// Makes an image of the text of an OpenCL C program.
    pub fn opencl(text: &str) -> Result<Self> {
        Self::text(ImageKind::OpenCl, text)
    }

    /// Returns the text, if it is PTX.
    pub(crate) fn ptx_text(&self) -> Option<&str> {
        let text = self.bytes.strip_suffix(b"\0").filter(|_| self.kind == ImageKind::Ptx)?;
        std::str::from_utf8(text).ok()
    }

    fn text(kind: ImageKind, text: &str) -> Result<Self> {
        // Text after a NUL would silently be ignored.
        if text.trim_start().is_empty() || text.contains('\0') {
            return Err(Error::NotAnImage);
        }
        Ok(Self { kind, bytes: text.bytes().chain([0]).collect() })
    }

    /// Makes an image of PTX, with or without a trailing NUL.
    ///
    /// # Errors
    /// [`Error::BinaryImage`] for SPIR-V, a cubin or a fat binary: [`binary`](Self::binary) takes those.
    pub fn new(bytes: &[u8]) -> Result<Self> {
        if [SPIRV, ELF, FAT].iter().any(|first| bytes.starts_with(first)) {
            return Err(Error::BinaryImage);
        }
        let text = bytes.strip_suffix(b"\0").unwrap_or(bytes);
        Self::ptx(std::str::from_utf8(text).map_err(|_| Error::NotAnImage)?)
    }

    /// Makes an image of SPIR-V, a cubin or a fat binary, distinguished by their first bytes.
    ///
    /// # Safety
    /// The bytes are the unchanged output of a compiler or linker for GPUs. Only their length is checked, against their
    /// headers; a driver trusts the rest. Of 96 cubins with two changed bytes, 5 ended the process within NVIDIA's
    /// driver.
    pub unsafe fn binary(bytes: &[u8]) -> Result<Self> {
        Self::whole(bytes)
    }

    /// Makes an image of a binary that is as long as its headers say.
    fn whole(bytes: &[u8]) -> Result<Self> {
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
            return Err(Error::NotAnImage);
        };
        let wanted_bytes = wanted_bytes?;
        if wanted_bytes > bytes.len() as u64 {
            return Err(Error::ImageCutShort { bytes: bytes.len(), wanted_bytes });
        }
        Ok(Self { kind: ImageKind::Binary, bytes: bytes.into() })
    }

    /// Reads text from a file: PTX, or OpenCL C if its name ends in `.cl`.
    ///
    /// ```
    /// use freehold::Image;
    ///
    /// let path = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/kernels.ptx");
    /// let image = Image::file(path.as_ref())?; // PTX or OpenCL C
    /// # drop(image);
    /// assert!(Image::file("/absent.ptx".as_ref()).is_err());
    /// # Ok::<(), freehold::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::BinaryImage`] for SPIR-V, a cubin or a fat binary: [`file_binary`](Self::file_binary) takes those.
    pub fn file(path: &Path) -> Result<Self> {
        let bytes = read(path)?;
        if path.extension().is_some_and(|extension| extension == "cl") {
            return Self::opencl(std::str::from_utf8(&bytes).map_err(|_| Error::NotAnImage)?);
        }
        Self::new(&bytes)
    }

    /// Reads a binary from a file: SPIR-V, a cubin or a fat binary.
    ///
    /// # Safety
    /// As for [`binary`](Self::binary).
    pub unsafe fn file_binary(path: &Path) -> Result<Self> {
        Self::whole(&read(path)?)
    }

    pub(crate) fn kind(&self) -> ImageKind {
        self.kind
    }

    /// Returns the image's bytes; text has a trailing NUL.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}

/// Returns a text without its leading white space and comments.
fn without_comments(text: &str) -> &str {
    let mut rest = text.trim_start();
    loop {
        let after = match rest.get(..2) {
            Some("//") => rest.split_once('\n').map(|(_, after)| after),
            Some("/*") => rest[2..].split_once("*/").map(|(_, after)| after),
            _ => return rest,
        };
        rest = after.unwrap_or_default().trim_start();
    }
}

fn read(path: &Path) -> Result<Vec<u8>> {
    std::fs::read(path).map_err(|error: io::Error| Error::File { path: path.to_owned(), kind: error.kind() })
}

/// Returns the length that a binary's headers specify or, if a header is missing, the length up to its end.
fn elf_bytes(bytes: &[u8]) -> Result<u64> {
    let Some(header) = bytes.get(..ELF_HEADER_BYTES) else { return Ok(ELF_HEADER_BYTES as u64) };
    if header[4] != ELF_CLASS_64 {
        return Err(Error::NotAnImage);
    }
    let (sections_at, segments_at) = (word(header, 40), word(header, 32));
    let (mut section_count, mut segment_count) = (half(header, 60).into(), half(header, 56).into());
    // Counts that are too large for the header are in the first section.
    if sections_at > 0 && (section_count == 0 || segment_count == SEGMENTS_ELSEWHERE) {
        let Some(first) = part(bytes, sections_at, SECTION_BYTES) else {
            return Ok(sections_at.saturating_add(SECTION_BYTES));
        };
        section_count = if section_count == 0 { word(first, 32) } else { section_count };
        segment_count = if segment_count == SEGMENTS_ELSEWHERE { quarter(first, 44).into() } else { segment_count };
    }
    let sections = Headers::new(sections_at, half(header, 58), section_count, SECTION_BYTES)?;
    let segments = Headers::new(segments_at, half(header, 54), segment_count, SEGMENT_BYTES)?;
    let mut end = sections.end().max(segments.end()).max(ELF_HEADER_BYTES as u64);
    if end > bytes.len() as u64 {
        return Ok(end);
    }
    for section in sections.each(bytes) {
        if ![SECTION_NULL, SECTION_NOBITS].contains(&quarter(section, 4)) {
            end = end.max(word(section, 24).saturating_add(word(section, 32)));
        }
    }
    for segment in segments.each(bytes) {
        if quarter(segment, 0) != SEGMENT_NULL {
            end = end.max(word(segment, 8).saturating_add(word(segment, 32)));
        }
    }
    Ok(end)
}

/// Headers of one kind, one after the other.
struct Headers {
    start: u64,
    entry_bytes: u64,
    count: u64,
}

impl Headers {
    /// Fails if an entry is too short for the fields that are read.
    fn new(start: u64, entry_bytes: u16, count: u64, bytes_min: u64) -> Result<Self> {
        let entry_bytes = u64::from(entry_bytes);
        if count > 0 && entry_bytes < bytes_min {
            Err(Error::NotAnImage)
        } else {
            Ok(Self { start, entry_bytes, count })
        }
    }

    fn end(&self) -> u64 {
        if self.count == 0 { 0 } else { self.start.saturating_add(self.count.saturating_mul(self.entry_bytes)) }
    }

    /// Iterates over all of them; `bytes` is long enough.
    fn each<'a>(&self, bytes: &'a [u8]) -> impl Iterator<Item = &'a [u8]> {
        let (start, entry_bytes) = (self.start, self.entry_bytes);
        (0..self.count).filter_map(move |index| part(bytes, start + index * entry_bytes, entry_bytes))
    }
}

/// Like [`elf_bytes`], for a fat binary: its header and its entries have lengths. Uncompressed binaries in it end
/// within their entries.
fn fat_bytes(bytes: &[u8]) -> Result<u64> {
    let Some(header) = part(bytes, 0, 16) else { return Ok(16) };
    let (mut entry, body_bytes) = (u64::from(half(header, 6)), word(header, 8));
    let end = entry.saturating_add(body_bytes);
    if end > bytes.len() as u64 {
        return Ok(end);
    }
    while entry + FAT_ENTRY_BYTES <= end
        && let Some(head) = part(bytes, entry, FAT_ENTRY_BYTES)
    {
        let start = entry + u64::from(quarter(head, 4));
        let next = start.saturating_add(word(head, 8));
        if next > end {
            return Err(Error::ImageCutShort { bytes: end as usize, wanted_bytes: next });
        }
        if next == entry {
            return Err(Error::NotAnImage);
        }
        let held = part(bytes, start, next - start).unwrap_or_default();
        let held_bytes = if held.starts_with(ELF) { elf_bytes(held)? } else { 0 };
        if held_bytes > held.len() as u64 {
            return Err(Error::ImageCutShort { bytes: held.len(), wanted_bytes: held_bytes });
        }
        entry = next;
    }
    Ok(end)
}

/// Returns `len` bytes from `at` on, if they are there.
fn part(bytes: &[u8], at: u64, len: u64) -> Option<&[u8]> {
    bytes.get(usize::try_from(at).ok()?..usize::try_from(at.checked_add(len)?).ok()?)
}

fn half(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes(number(bytes, at))
}

fn quarter(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(number(bytes, at))
}

fn word(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(number(bytes, at))
}

/// Reads the bytes of a number in a header that is present.
fn number<const BYTES: usize>(bytes: &[u8], at: usize) -> [u8; BYTES] {
    bytes[at..at + BYTES].try_into().expect("the slice has this length")
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
        assert_eq!(Image::whole(&spirv).unwrap().kind(), ImageKind::SpirV);
        assert!(matches!(Image::whole(&spirv[..7]), Err(Error::ImageCutShort { bytes: 7, wanted_bytes: 8 })));
        assert!(matches!(Image::opencl(" "), Err(Error::NotAnImage)));
    }

    #[test]
    fn ptx_begins_with_its_version_after_any_comments() {
        for text in [".version 8.0", "\n//\n// nvcc\n/* a\n .b */ .version 8.0"] {
            assert_eq!(Image::ptx(text).unwrap().kind(), ImageKind::Ptx, "{text}");
        }
        for text in ["garbage", "", " \n", "// .version 8.0", "/* .version 8.0", "\u{e9}.version", "version 8.0"] {
            let refused = Image::ptx(text).unwrap_err();
            assert!(matches!(refused, Error::NotPtx), "{text}: {refused}");
        }
    }

    #[test]
    fn a_file_that_is_not_there_is_named() {
        let refused = |path: &str| Image::file(path.as_ref()).unwrap_err().to_string();
        assert_eq!(refused("/absent.ptx"), "/absent.ptx: no such file or folder");
        assert_eq!(refused("/"), "/: is a folder, not a file");
    }

    #[test]
    fn a_binary_is_taken_by_unsafe_calls_alone_which_the_error_names() {
        for first in [ELF, FAT, SPIRV] {
            let refused = Image::new(first).unwrap_err();
            assert!(matches!(refused, Error::BinaryImage), "{refused}");
            assert_eq!(
                refused.to_string(),
                "the image is a binary, which drivers trust: expected PTX, or a call to the unsafe Image::binary or Image::file_binary"
            );
        }
        let path = std::env::temp_dir().join(format!("freehold-image-{}.cubin", std::process::id()));
        std::fs::write(&path, elf(64)).unwrap();
        let (refused, taken) = (Image::file(&path), Image::whole(&read(&path).unwrap()));
        std::fs::remove_file(&path).unwrap();
        assert!(matches!(refused, Err(Error::BinaryImage)), "{refused:?}");
        assert_eq!(taken.unwrap().kind(), ImageKind::Binary);
        assert!(matches!(Image::whole(b".version 8.0"), Err(Error::NotAnImage)));
    }

    #[test]
    fn an_image_that_is_neither_text_nor_binary_is_refused() {
        assert!(matches!(Image::new(&[0xff, 0xfe]), Err(Error::NotAnImage)));
        assert!(matches!(Image::new(b""), Err(Error::NotPtx)));
        assert!(matches!(Image::new(b".version\0 8.0"), Err(Error::NotAnImage)));
    }

    /// The header of a binary without sections and segments.
    fn elf(bytes: usize) -> Vec<u8> {
        let mut elf = vec![0; bytes];
        elf[..4].copy_from_slice(ELF);
        elf[4] = ELF_CLASS_64;
        elf
    }

    fn set(bytes: &mut [u8], at: usize, value: u64, len: usize) {
        bytes[at..at + len].copy_from_slice(&value.to_le_bytes()[..len]);
    }

    /// Returns the length that the headers of a truncated image say.
    #[track_caller]
    fn wanted(bytes: &[u8]) -> u64 {
        match Image::whole(bytes) {
            Err(Error::ImageCutShort { wanted_bytes, .. }) => wanted_bytes,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_binary_that_ends_early_is_refused() {
        let mut elf = elf(128);
        set(&mut elf, 40, 64, 8);
        set(&mut elf, 58, 64, 2);
        set(&mut elf, 60, 1, 2);
        set(&mut elf, 64 + 4, 1, 4);
        set(&mut elf, 64 + 24, 100, 8);
        set(&mut elf, 64 + 32, 28, 8);
        assert!(Image::whole(&elf).is_ok());
        let cut = Image::whole(&elf[..127]).unwrap_err();
        assert_eq!(cut.to_string(), "the image is truncated: 127 bytes, but its headers say 128");
        elf[64 + 32] = 29;
        assert_eq!(wanted(&elf), 129);
        assert_eq!(wanted(&elf[..10]), 64);
        // A section without bytes in the file takes no space there.
        set(&mut elf, 64 + 4, SECTION_NOBITS.into(), 4);
        assert!(Image::whole(&elf).is_ok());
    }

    #[test]
    fn sections_that_the_header_does_not_count_are_counted_by_the_first_one() {
        let mut elf = elf(192);
        set(&mut elf, 40, 64, 8);
        set(&mut elf, 58, 64, 2);
        set(&mut elf, 64 + 32, 2, 8);
        assert!(Image::whole(&elf).is_ok());
        set(&mut elf, 64 + 32, 3, 8);
        assert_eq!(wanted(&elf), 256, "the third header is not there");
        set(&mut elf, 64 + 32, 2, 8);
        set(&mut elf, 128 + 4, 1, 4);
        set(&mut elf, 128 + 24, 1000, 8);
        assert_eq!(wanted(&elf), 1000, "the second section is not there");
        set(&mut elf, 128 + 24, 0, 8);
        set(&mut elf, 64 + 32, u64::MAX, 8);
        assert_eq!(wanted(&elf), u64::MAX);
        set(&mut elf, 40, 150, 8);
        assert_eq!(wanted(&elf), 214, "the first section is not there");
        set(&mut elf, 40, u64::MAX, 8);
        assert_eq!(wanted(&elf), u64::MAX);
    }

    #[test]
    fn segments_end_within_a_binary() {
        let mut elf = elf(240);
        set(&mut elf, 32, 64, 8);
        set(&mut elf, 54, 56, 2);
        set(&mut elf, 56, 2, 2);
        set(&mut elf, 120, 1, 4);
        set(&mut elf, 120 + 8, 200, 8);
        set(&mut elf, 120 + 32, 40, 8);
        assert!(Image::whole(&elf).is_ok());
        set(&mut elf, 120 + 32, 41, 8);
        assert_eq!(wanted(&elf), 241);
        set(&mut elf, 120 + 8, u64::MAX, 8);
        assert_eq!(wanted(&elf), u64::MAX);
        // An unused one has no effect.
        set(&mut elf, 120, 0, 4);
        assert!(Image::whole(&elf).is_ok());
        // More than the header can count.
        set(&mut elf, 56, SEGMENTS_ELSEWHERE, 2);
        set(&mut elf, 40, 176, 8);
        set(&mut elf, 58, 64, 2);
        set(&mut elf, 60, 1, 2);
        set(&mut elf, 176 + 44, 4, 4);
        assert_eq!(wanted(&elf), 64 + 4 * 56);
    }

    #[test]
    fn a_binary_of_32_bits_and_headers_that_are_too_short_are_refused() {
        let mut elf = elf(256);
        elf[4] = 1;
        assert!(matches!(Image::whole(&elf), Err(Error::NotAnImage)));
        elf[4] = ELF_CLASS_64;
        set(&mut elf, 56, 1, 2);
        assert!(matches!(Image::whole(&elf), Err(Error::NotAnImage)), "segments of no bytes");
        set(&mut elf, 56, 0, 2);
        set(&mut elf, 60, 1, 2);
        assert!(matches!(Image::whole(&elf), Err(Error::NotAnImage)), "sections of no bytes");
    }

    #[test]
    fn a_fat_binary_that_ends_early_is_refused() {
        let mut fat = vec![0; 40];
        fat[..4].copy_from_slice(FAT);
        fat[6] = 16;
        fat[8] = 24;
        assert!(Image::whole(&fat).is_ok());
        assert!(matches!(Image::whole(&fat[..39]), Err(Error::ImageCutShort { bytes: 39, wanted_bytes: 40 })));
        assert_eq!(wanted(&fat[..15]), 16);
    }

    #[test]
    fn a_binary_within_a_fat_one_ends_within_its_entry() {
        let mut held = elf(128);
        set(&mut held, 40, 64, 8);
        set(&mut held, 58, 64, 2);
        set(&mut held, 60, 1, 2);
        set(&mut held, 64 + 4, 1, 4);
        set(&mut held, 64 + 32, 128, 8);
        let fat = |first: &[u8], second: &[u8]| {
            let mut fat = vec![0; 16];
            fat[..4].copy_from_slice(FAT);
            fat[6] = 16;
            for held in [first, second] {
                let mut head = [0; FAT_ENTRY_BYTES as usize];
                set(&mut head, 0, 2, 2);
                set(&mut head, 4, FAT_ENTRY_BYTES, 4);
                set(&mut head, 8, held.len() as u64, 8);
                fat.extend(head);
                fat.extend(held);
            }
            let body_bytes = fat.len() as u64 - 16;
            set(&mut fat, 8, body_bytes, 8);
            fat
        };
        assert!(Image::whole(&fat(b".version 8.0\0\0\0\0", &held)).is_ok());
        let compressed = [0x28, 0xb5, 0x2f, 0xfd, 0, 0, 0, 0];
        assert!(Image::whole(&fat(&compressed, &held)).is_ok());
        // The last byte of its section is the first of the next entry.
        let mut longer = held.clone();
        set(&mut longer, 64 + 32, 129, 8);
        assert_eq!(wanted(&fat(&longer, &held)), 129);
        let mut endless = fat(&held, &held);
        set(&mut endless, 16 + 8, u64::MAX, 8);
        assert_eq!(wanted(&endless), u64::MAX);
        set(&mut endless, 16 + 4, 0, 4);
        set(&mut endless, 16 + 8, 0, 8);
        assert!(matches!(Image::whole(&endless), Err(Error::NotAnImage)), "an entry of no bytes");
    }
}
