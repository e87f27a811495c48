//! Fat binaries: containers of images of one program for several targets. The best PTX for this device is selected.
//!
//! A container is a header of 16 bytes (magic, version, size of the header, size of the entries) and entries, each of them a
//! header and a payload. An entry's header gives its kind, both sizes, its target, and whether the payload is compressed.
//! Every header field is checked before it is used: memory use is proportional to the length of the container, plus a
//! constant.

use std::borrow::Cow;
use std::fmt;
use std::io::Read;

use crate::base::config::parse_capability;
use ruzstd::decoding::{FrameDecoder, StreamingDecoder};

/// The magic number of a container.
pub(super) const MAGIC: u32 = 0xba55_ed50;

const ENTRY_HEADER_BYTES: usize = 64;

/// The kinds of entries that are told apart.
const KIND_PTX: u16 = 1;
const KIND_MACHINE_CODE: u16 = 2;

/// Flags of an entry: how its payload is compressed, and where code for its target runs.
const COMPRESSION: u64 = 0xf000;
const LZ4: u64 = 0x2000;
const ZSTD: u64 = 0x8000;
const ARCHITECTURE_SPECIFIC: u64 = 0x10_0000;
const FAMILY_SPECIFIC: u64 = 0x20_0000;

/// No decompressed text may be longer than this.
const RAW_BYTES_MAX: u64 = 1 << 30;

/// LZ4 cannot compress by more than this.
const LZ4_RATIO_MAX: u64 = 255;

/// A text with zstd may be longer than its payload this many times. PTX is compressed by 10 to 50; an initializer that is
/// mostly zero, by 10,000, which a text of up to [`ZSTD_BYTES_ANY`] may be.
const ZSTD_RATIO_MAX: u64 = 1024;
const ZSTD_BYTES_ANY: u64 = 64 << 20;

/// The window that every decoder of zstd should support, as its format recommends.
const WINDOW_BYTES_MIN: u64 = 8 << 20;

/// Why a fat binary cannot be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum FatbinError {
    /// A size in a header is wrong.
    Malformed,
    /// It has no PTX that this device runs.
    NoPtx { device: Target, ptx: Vec<Target>, machine_code: Vec<Target> },
    /// The payload with the PTX is not what its header says.
    Compression,
}

impl fmt::Display for FatbinError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Malformed => f.write_str("the fat binary is malformed"),
            Self::Compression => f.write_str("the PTX in the fat binary cannot be decompressed"),
            Self::NoPtx { device, ptx, machine_code } => {
                let (content, targets) = match (ptx.is_empty(), machine_code.is_empty()) {
                    (false, _) => ("PTX only for", ptx),
                    (true, false) => ("machine code only, for", machine_code),
                    (true, true) => return f.write_str("the fat binary contains no code"),
                };
                write!(f, "the fat binary contains {content}")?;
                for (index, target) in targets.iter().enumerate() {
                    write!(f, "{} {target}", if index == 0 { "" } else { "," })?;
                }
                write!(
                    f,
                    ", and this device runs PTX for {device} and older: compile with -arch=compute_75 or add \
                     -gencode arch=compute_75,code=compute_75"
                )?;
                let newer = ptx.iter().filter(|target| target.number > device.number);
                let capabilities =
                    newer.map(|target| (target, format!("{}.{}", target.number / 10, target.number % 10)));
                let known = capabilities.filter(|(_, capability)| parse_capability(capability).is_some());
                known.min().map_or(Ok(()), |(target, capability)| {
                    write!(f, ", or set FREEHOLD_SOFT_CC={capability} for a device that runs {target}")
                })
            }
        }
    }
}

/// A target, in the order of preference.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Target {
    /// The compute capability, as 90 for 9.0.
    number: u32,
    feature_set: FeatureSet,
}

/// Where code for a target runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum FeatureSet {
    /// There and on every newer device.
    Baseline,
    /// There and on newer devices with the same major number: `sm_100f`.
    FamilySpecific,
    /// Only there: `sm_90a`.
    ArchitectureSpecific,
}

impl Target {
    /// A device with a compute capability, as 90 for 9.0.
    pub(super) const fn device(number: u32) -> Self {
        Self { number, feature_set: FeatureSet::Baseline }
    }

    fn runs_on(self, device: Self) -> bool {
        match self.feature_set {
            FeatureSet::Baseline => self.number <= device.number,
            FeatureSet::FamilySpecific => self.number <= device.number && self.number / 10 == device.number / 10,
            FeatureSet::ArchitectureSpecific => self.number == device.number,
        }
    }
}

impl Target {
    /// Returns whether machine code for this target runs on a device: only within one major number.
    fn code_runs_on(self, device: Self) -> bool {
        self.runs_on(device) && self.number / 10 == device.number / 10
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let suffix = match self.feature_set {
            FeatureSet::Baseline => "",
            FeatureSet::FamilySpecific => "f",
            FeatureSet::ArchitectureSpecific => "a",
        };
        write!(f, "sm_{}{suffix}", self.number)
    }
}

struct Entry<'a> {
    kind: u16,
    target: Target,
    flags: u64,
    payload: &'a [u8],
    /// The part of the payload that is compressed data, and its length when it is decompressed.
    compressed_bytes: u64,
    raw_bytes: u64,
}

/// Returns the PTX of a container for the newest target that the device runs, and true. Of two for the same target, the later
/// one.
///
/// A container with machine code for the device, and PTX only for newer ones, is made for the device too. The PTX of the
/// oldest of these, which is compiled from the same source, then stands in for the machine code, with false.
pub(super) fn best_ptx(container: &[u8], device: Target) -> Result<(Cow<'_, [u8]>, bool), FatbinError> {
    let entries = entries(container)?;
    let ptx = entries.iter().filter(|entry| entry.kind == KIND_PTX);
    let usable = ptx.clone().filter(|entry| entry.target.runs_on(device));
    if let Some(best) = usable.max_by_key(|entry| entry.target) {
        return Ok((best.text()?, true));
    }
    let machine_code = entries.iter().filter(|entry| entry.kind == KIND_MACHINE_CODE);
    if machine_code.clone().any(|entry| entry.target.code_runs_on(device)) {
        let newer = ptx.clone().filter(|entry| entry.target.feature_set == FeatureSet::Baseline);
        if let Some(stand_in) = newer.min_by_key(|entry| entry.target) {
            return Ok((stand_in.text()?, false));
        }
    }
    Err(FatbinError::NoPtx {
        device,
        ptx: ptx.map(|entry| entry.target).collect(),
        machine_code: machine_code.map(|entry| entry.target).collect(),
    })
}

fn entries(container: &[u8]) -> Result<Vec<Entry<'_>>, FatbinError> {
    let header_bytes = uint(container, 6, 2)?;
    let end = header_bytes.checked_add(uint(container, 8, 8)?).ok_or(FatbinError::Malformed)?;
    let end = usize::try_from(end).map_err(|_| FatbinError::Malformed)?;
    let mut rest = container.get(header_bytes as usize..end).ok_or(FatbinError::Malformed)?;
    let mut found = Vec::new();
    while rest.len() >= ENTRY_HEADER_BYTES {
        let (entry, bytes) = entry(rest)?;
        found.push(entry);
        rest = &rest[bytes..];
    }
    Ok(found)
}

/// Returns the first entry of a list, and its length.
fn entry(list: &[u8]) -> Result<(Entry<'_>, usize), FatbinError> {
    let header_bytes = usize::try_from(uint(list, 4, 4)?).map_err(|_| FatbinError::Malformed)?;
    let payload_bytes = usize::try_from(uint(list, 8, 8)?).map_err(|_| FatbinError::Malformed)?;
    let end = header_bytes.checked_add(payload_bytes).ok_or(FatbinError::Malformed)?;
    if header_bytes < ENTRY_HEADER_BYTES {
        return Err(FatbinError::Malformed);
    }
    let payload = list.get(header_bytes..end).ok_or(FatbinError::Malformed)?;
    let flags = uint(list, 40, 8)?;
    let feature_set = match flags {
        flags if flags & ARCHITECTURE_SPECIFIC != 0 => FeatureSet::ArchitectureSpecific,
        flags if flags & FAMILY_SPECIFIC != 0 => FeatureSet::FamilySpecific,
        _ => FeatureSet::Baseline,
    };
    let entry = Entry {
        kind: uint(list, 0, 2)? as u16,
        target: Target { number: uint(list, 28, 4)? as u32, feature_set },
        flags,
        payload,
        compressed_bytes: uint(list, 16, 4)?,
        raw_bytes: uint(list, 56, 8)?,
    };
    Ok((entry, end))
}

impl<'a> Entry<'a> {
    /// Returns the payload as it was before its compression.
    fn text(&self) -> Result<Cow<'a, [u8]>, FatbinError> {
        let compression = self.flags & COMPRESSION;
        if compression == 0 {
            return Ok(Cow::Borrowed(self.payload));
        }
        let compressed = usize::try_from(self.compressed_bytes).ok().and_then(|bytes| self.payload.get(..bytes));
        let compressed = compressed.ok_or(FatbinError::Compression)?;
        let longest = match compression {
            LZ4 => LZ4_RATIO_MAX * compressed.len() as u64,
            _ => ZSTD_BYTES_ANY.max(ZSTD_RATIO_MAX * compressed.len() as u64),
        };
        if self.raw_bytes > RAW_BYTES_MAX.min(longest) {
            return Err(FatbinError::Compression);
        }
        let raw_bytes = self.raw_bytes as usize;
        let text = match compression {
            LZ4 => lz4_flex::block::decompress(compressed, raw_bytes).ok(),
            ZSTD => zstd(compressed, raw_bytes),
            _ => None,
        };
        text.filter(|text| text.len() == raw_bytes).map(Cow::Owned).ok_or(FatbinError::Compression)
    }
}

/// Decompresses a frame of zstd, up to one byte more than its length should be.
fn zstd(compressed: &[u8], raw_bytes: usize) -> Option<Vec<u8>> {
    // The decoder keeps as much as a window. A compressor that knows the length needs none that is longer than the next
    // power of two; others use a fixed one.
    let mut decoder = FrameDecoder::new();
    decoder.set_max_window_size((raw_bytes as u64).next_power_of_two().max(WINDOW_BYTES_MIN));
    let stream = StreamingDecoder::new_with_decoder(compressed, decoder).ok()?;
    let mut text = Vec::new();
    stream.take(raw_bytes as u64 + 1).read_to_end(&mut text).ok()?;
    Some(text)
}

fn uint(bytes: &[u8], offset: usize, length: usize) -> Result<u64, FatbinError> {
    let part = bytes.get(offset..offset + length).ok_or(FatbinError::Malformed)?;
    Ok(part.iter().rev().fold(0, |number, &byte| number << 8 | u64::from(byte)))
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    use ruzstd::encoding::{CompressionLevel, compress_to_vec};

    const TEXT: &[u8] =
        b".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry a() { ret; ret; ret; ret; ret; }\n";
    const DEVICE: Target = Target::device(90);

    /// An entry as a compiler writes it.
    #[derive(Clone)]
    struct Source {
        kind: u16,
        arch: u32,
        flags: u64,
        header_bytes: u32,
        payload: Vec<u8>,
        compressed_bytes: u32,
        raw_bytes: u64,
    }

    fn plain(arch: u32, text: &[u8]) -> Source {
        let payload = text.to_vec();
        Source { kind: KIND_PTX, arch, flags: 0x11, header_bytes: 64, payload, compressed_bytes: 0, raw_bytes: 0 }
    }

    /// Compressed data is followed by padding.
    fn compressed(flags: u64, data: Vec<u8>, raw_bytes: usize) -> Source {
        let compressed_bytes = data.len() as u32;
        let payload = [data, vec![0; 5]].concat();
        Source { flags, payload, compressed_bytes, raw_bytes: raw_bytes as u64, ..plain(90, b"") }
    }

    fn lz4(text: &[u8]) -> Source {
        compressed(LZ4, lz4_flex::block::compress(text), text.len())
    }

    fn zstd(text: &[u8]) -> Source {
        compressed(ZSTD, compress_to_vec(text, CompressionLevel::Fastest), text.len())
    }

    fn container(sources: &[Source]) -> Vec<u8> {
        let mut body = Vec::new();
        for source in sources {
            let start = body.len();
            body.resize(start + source.header_bytes as usize, 0);
            let header = &mut body[start..];
            header[..2].copy_from_slice(&source.kind.to_le_bytes());
            header[4..8].copy_from_slice(&source.header_bytes.to_le_bytes());
            header[8..16].copy_from_slice(&(source.payload.len() as u64).to_le_bytes());
            header[16..20].copy_from_slice(&source.compressed_bytes.to_le_bytes());
            header[28..32].copy_from_slice(&source.arch.to_le_bytes());
            header[40..48].copy_from_slice(&source.flags.to_le_bytes());
            header[56..64].copy_from_slice(&source.raw_bytes.to_le_bytes());
            body.extend(&source.payload);
        }
        let mut container = MAGIC.to_le_bytes().to_vec();
        container.extend(1u16.to_le_bytes());
        container.extend(16u16.to_le_bytes());
        container.extend((body.len() as u64).to_le_bytes());
        container.extend(body);
        container
    }

    /// Returns a container with one text.
    pub(in crate::modules) fn plain_container(text: &[u8]) -> Vec<u8> {
        container(&[plain(80, text)])
    }

    fn best(sources: &[Source], device: u32) -> Result<String, FatbinError> {
        let container = container(sources);
        best_ptx(&container, Target::device(device)).map(|(text, _)| String::from_utf8_lossy(&text).into_owned())
    }

    #[test]
    fn the_newest_target_that_the_device_runs_is_chosen() {
        let named = |arch, flags| Source { flags, ..plain(arch, format!("{arch} {flags:x}").as_bytes()) };
        let sources = [
            named(100, 0),
            named(90, 0),
            named(75, 0),
            named(90, ARCHITECTURE_SPECIFIC),
            named(100, FAMILY_SPECIFIC),
            named(120, ARCHITECTURE_SPECIFIC),
            Source { header_bytes: 112, ..named(80, 0) },
            Source { kind: KIND_MACHINE_CODE, ..named(90, 0) },
        ];
        let expected = [
            (75, "75 0"),
            (89, "80 0"),
            (90, "90 100000"),
            (100, "100 200000"),
            (103, "100 200000"),
            (120, "120 100000"),
            (121, "100 0"),
        ];
        for (device, text) in expected {
            assert_eq!(best(&sources, device).as_deref(), Ok(text), "sm_{device}");
        }
    }

    #[test]
    fn newer_ptx_stands_in_for_machine_code_of_the_device_alone() {
        let code = |arch| Source { kind: KIND_MACHINE_CODE, ..plain(arch, b"code") };
        let chosen = |sources: &[Source]| {
            let container = container(sources);
            let chosen = best_ptx(&container, DEVICE).ok();
            chosen.map(|(text, is_own)| (String::from_utf8_lossy(&text).into_owned(), is_own))
        };
        let newer = [plain(120, b"120"), plain(100, b"100")];
        let [first, second] = newer.clone();
        assert_eq!(chosen(&[code(90), first, second]), Some(("100".to_owned(), false)));
        let [first, second] = newer.clone();
        assert_eq!(chosen(&[code(90), plain(80, b"80"), first, second]), Some(("80".to_owned(), true)));
        // Machine code does not run on another major number, and PTX of one architecture stands in for nothing else.
        let [first, second] = newer;
        assert_eq!(chosen(&[code(80), code(100), first, second]), None);
        assert_eq!(chosen(&[code(90), Source { flags: ARCHITECTURE_SPECIFIC, ..plain(120, b"120a") }]), None);
    }

    #[test]
    fn the_later_of_two_texts_for_a_target_is_chosen() {
        assert_eq!(best(&[plain(80, b"one"), plain(80, b"two")], 90).as_deref(), Ok("two"));
    }

    #[test]
    fn the_message_names_the_targets_and_the_option_that_helps() {
        let code = |arch| Source { kind: KIND_MACHINE_CODE, ..plain(arch, b"code") };
        let specific = Source { flags: ARCHITECTURE_SPECIFIC, ..code(90) };
        let told = best(&[code(80), specific], 90).expect_err("there is no PTX").to_string();
        let start = "the fat binary contains machine code only, for sm_80, sm_90a, and this device runs PTX for sm_90";
        assert!(told.starts_with(start), "{told}");
        assert!(told.contains("-arch=compute_75"), "{told}");
        let family = Source { flags: FAMILY_SPECIFIC, ..plain(100, b"text") };
        let told = best(&[code(80), family], 90).expect_err("no PTX is for this device").to_string();
        assert!(told.starts_with("the fat binary contains PTX only for sm_100f, and"), "{told}");
        assert!(told.ends_with(", or set FREEHOLD_SOFT_CC=10.0 for a device that runs sm_100f"), "{told}");
        let told = best(&[plain(121, b"text"), plain(120, b"text")], 90).expect_err("both are newer").to_string();
        assert!(told.ends_with(", or set FREEHOLD_SOFT_CC=12.0 for a device that runs sm_120"), "{told}");
        let older = Source { flags: ARCHITECTURE_SPECIFIC, ..plain(80, b"text") };
        let told = best(&[older], 90).expect_err("it is for another device").to_string();
        assert!(!told.contains("FREEHOLD_SOFT_CC"), "{told}");
        let told = best(&[], 90).expect_err("there is nothing").to_string();
        assert_eq!(told, "the fat binary contains no code");
    }

    #[test]
    fn compressed_texts_are_decompressed() {
        let long: Vec<u8> = TEXT.iter().copied().cycle().take(3 << 20).collect();
        for text in [TEXT, &long] {
            let expected = Ok(String::from_utf8_lossy(text).into_owned());
            assert!(best(&[lz4(text)], 90) == expected, "LZ4, {} bytes", text.len());
            assert!(best(&[zstd(text)], 90) == expected, "zstd, {} bytes", text.len());
        }
    }

    #[test]
    fn an_initializer_of_zeros_may_be_compressed_by_any_factor() {
        let text = [TEXT, &vec![b'0'; 12 << 20]].concat();
        let source = zstd(&text);
        assert!(source.payload.len() * 8192 < text.len(), "{} bytes", source.payload.len());
        assert!(best(&[source], 90).is_ok_and(|found| found.as_bytes() == text), "another text");
    }

    #[test]
    fn a_decompression_bomb_is_refused() {
        let refused = |source: Source, raw_bytes: u64| {
            assert_eq!(best(&[Source { raw_bytes, ..source }], 90), Err(FatbinError::Compression), "{raw_bytes}");
        };
        // Zeros that fill four bytes for each 128 KiB.
        let zeros = vec![b'0'; (ZSTD_BYTES_ANY + 1) as usize];
        refused(zstd(&zeros), ZSTD_BYTES_ANY + 1);
        // The window is reserved before anything is decompressed, so a length that is only stated counts too.
        let single_segment = [&[0x28, 0xb5, 0x2f, 0xfd, 0xe0][..], &RAW_BYTES_MAX.to_le_bytes(), &[1, 0, 0]].concat();
        refused(compressed(ZSTD, single_segment, 0), RAW_BYTES_MAX);
        refused(lz4(&zeros[..1 << 20]), 255 * lz4(&zeros[..1 << 20]).payload.len() as u64);
    }

    #[test]
    fn a_text_that_is_longer_or_shorter_than_its_header_says_is_refused() {
        for source in [lz4(TEXT), zstd(TEXT)] {
            for raw_bytes in [0, 1, source.raw_bytes - 1, source.raw_bytes + 1, 100_000, u64::MAX] {
                let lying = Source { raw_bytes, ..source.clone() };
                assert_eq!(best(&[lying], 90), Err(FatbinError::Compression), "{raw_bytes}");
            }
            for compressed_bytes in [0, 1, source.compressed_bytes - 1, source.compressed_bytes + 9, u32::MAX] {
                let lying = Source { compressed_bytes, ..source.clone() };
                assert_eq!(best(&[lying], 90), Err(FatbinError::Compression), "{compressed_bytes}");
            }
        }
        let unknown = Source { flags: 0x1000, ..lz4(TEXT) };
        assert_eq!(best(&[unknown], 90), Err(FatbinError::Compression));
    }

    #[test]
    fn no_changed_byte_and_no_cut_causes_a_panic() {
        let whole = container(&[plain(75, TEXT), lz4(TEXT), zstd(TEXT)]);
        for index in 0..whole.len() {
            let _cut = best_ptx(&whole[..index], DEVICE);
            for change in [1, 0x80, 0xff] {
                let mut changed = whole.clone();
                changed[index] ^= change;
                let _changed = best_ptx(&changed, DEVICE);
            }
        }
    }

    #[test]
    fn a_container_without_its_last_entries_is_malformed() {
        let whole = container(&[plain(75, b"75"), plain(80, b"80")]);
        let first = whole.len() - ENTRY_HEADER_BYTES - 2;
        assert_eq!(best_ptx(&whole[..first], DEVICE).err(), Some(FatbinError::Malformed));
        let followed = [whole, vec![0xff; 100]].concat();
        assert_eq!(best_ptx(&followed, DEVICE).map(|(text, _)| text.into_owned()).as_deref(), Ok(&b"80"[..]));
    }

    #[test]
    fn sizes_that_exceed_the_container_are_malformed() {
        let whole = container(&[plain(80, TEXT)]);
        let with = |offset: usize, bytes: &[u8]| {
            let mut changed = whole.clone();
            changed[offset..offset + bytes.len()].copy_from_slice(bytes);
            best_ptx(&changed, DEVICE).map(|(text, _)| text.into_owned())
        };
        assert_eq!(with(0, &[]).as_deref(), Ok(TEXT));
        // The size of the container's header, of all entries, of the entry's header, and of its payload.
        for (offset, bytes) in
            [(6, &[0xff; 2][..]), (8, &[0xff; 8]), (20, &[0xff; 4]), (20, &[63, 0, 0, 0]), (24, &[0xff; 8])]
        {
            assert_eq!(with(offset, bytes), Err(FatbinError::Malformed), "{bytes:?} at {offset}");
        }
    }
}
