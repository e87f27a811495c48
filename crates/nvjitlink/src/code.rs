//! Results and kinds of input, by the numbers of `nvJitLink.h`.

/// What a function returns.
#[repr(transparent)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Code(pub(crate) i32);

impl Code {
    pub(crate) const SUCCESS: Self = Self(0);
    pub(crate) const UNRECOGNIZED_OPTION: Self = Self(1);
    pub(crate) const MISSING_ARCH: Self = Self(2);
    pub(crate) const INVALID_INPUT: Self = Self(3);
    pub(crate) const PTX_COMPILE: Self = Self(4);
    pub(crate) const NVVM_COMPILE: Self = Self(5);
    pub(crate) const INTERNAL: Self = Self(6);
    pub(crate) const UNRECOGNIZED_INPUT: Self = Self(8);
    pub(crate) const NULL_INPUT: Self = Self(10);
    pub(crate) const INCOMPATIBLE_OPTIONS: Self = Self(11);
    pub(crate) const INCORRECT_INPUT_TYPE: Self = Self(12);
    pub(crate) const UNRECOGNIZED_ARCH: Self = Self(16);
    pub(crate) const UNSUPPORTED_ARCH: Self = Self(17);
    pub(crate) const LTO_NOT_ENABLED: Self = Self(18);
}

/// The kind of an input.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Cubin,
    Ptx,
    LtoIr,
    Fatbin,
    Object,
    Library,
}

impl Kind {
    /// Returns the kind with a number, found in the contents if the program leaves it open.
    pub(crate) fn of(number: i32, contents: &[u8]) -> Result<Self, Code> {
        let matches = |kind: Self| {
            if kind.matches(contents) { Ok(kind) } else { Err(Code::INCORRECT_INPUT_TYPE) }
        };
        match number {
            1 => matches(Self::Cubin),
            2 => matches(Self::Ptx),
            3 => matches(Self::LtoIr),
            4 => matches(Self::Fatbin),
            5 => matches(Self::Object),
            6 => matches(Self::Library),
            10 => {
                let all = [Self::Cubin, Self::LtoIr, Self::Fatbin, Self::Object, Self::Library, Self::Ptx];
                all.into_iter().find(|kind| kind.matches(contents)).ok_or(Code::UNRECOGNIZED_INPUT)
            }
            _ => Err(Code::INCORRECT_INPUT_TYPE),
        }
    }

    /// Returns whether contents begin as those of this kind do.
    fn matches(self, contents: &[u8]) -> bool {
        const ELF: &[u8] = b"\x7fELF";
        // The machines of an ELF header: an x86-64 and an Arm host.
        let is_host = || matches!(contents.get(18..20), Some([62 | 183, 0]));
        match self {
            Self::Cubin => contents.starts_with(ELF) && !is_host(),
            Self::Object => contents.starts_with(ELF) && is_host(),
            Self::LtoIr => contents.starts_with(b"\xedCN\x7f"),
            Self::Fatbin => contents.starts_with(&0xba55_ed50_u32.to_le_bytes()),
            Self::Library => contents.starts_with(b"!<arch>\n"),
            Self::Ptx => contents.windows(8).any(|word| word == b".version"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kind_of_an_input_is_checked_or_found_in_its_contents() {
        let ptx = b"// text\n.version 8.0\n";
        let cubin = [b"\x7fELF".as_slice(), &[0; 14], &[190, 0]].concat();
        let object = [b"\x7fELF".as_slice(), &[0; 14], &[62, 0]].concat();
        assert_eq!(Kind::of(2, ptx), Ok(Kind::Ptx));
        assert_eq!(Kind::of(10, ptx), Ok(Kind::Ptx));
        assert_eq!(Kind::of(10, &cubin), Ok(Kind::Cubin));
        assert_eq!(Kind::of(10, &object), Ok(Kind::Object));
        assert_eq!(Kind::of(10, b"\xedCN\x7f\x01"), Ok(Kind::LtoIr));
        assert_eq!(Kind::of(10, b"!<arch>\n"), Ok(Kind::Library));
        assert_eq!(Kind::of(1, ptx), Err(Code::INCORRECT_INPUT_TYPE));
        assert_eq!(Kind::of(2, b"hello"), Err(Code::INCORRECT_INPUT_TYPE));
        assert_eq!(Kind::of(0, ptx), Err(Code::INCORRECT_INPUT_TYPE));
        assert_eq!(Kind::of(10, b"hello"), Err(Code::UNRECOGNIZED_INPUT));
    }
}
