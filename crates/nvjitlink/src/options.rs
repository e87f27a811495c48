//! The options of a link. Those that direct code generation are checked and have no effect here, except in NVIDIA's library.

use std::ffi::CString;

use crate::code::Code;

const FLAGS: &[&str] = &[
    "-time",
    "-verbose",
    "-lto",
    "-dlto",
    "-ptx",
    "-g",
    "-lineinfo",
    "-O0",
    "-O3",
    "-optimize-unused-variables",
    "-nvvm-latest",
    "-no-cache",
    "-device-stack-protector",
    "-r",
    "-relocatable-device-code",
];

const VALUES: &[&str] = &[
    "-arch",
    "-maxrregcount",
    "-Ofc",
    "-ftz",
    "-prec-div",
    "-prec-sqrt",
    "-fma",
    "-kernels-used",
    "-variables-used",
    "-Xptxas",
    "-Xnvvm",
    "-split-compile",
    "-split-compile-extended",
    "-jump-table-density",
];

/// The architectures of CUDA 12 and 13.
const ARCHITECTURES: &[u32] =
    &[50, 52, 53, 60, 61, 62, 70, 72, 75, 80, 86, 87, 88, 89, 90, 100, 101, 103, 110, 120, 121];

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Options {
    words: Vec<String>,
    pub(crate) lto: bool,
    /// Whether the program wants PTX, not an image.
    pub(crate) ptx: bool,
}

impl Options {
    pub(crate) fn parse(words: Vec<String>) -> Result<Self, Code> {
        let mut arch = None;
        for word in &words {
            match word.split_once('=') {
                Some((name, value)) if VALUES.contains(&name) => {
                    if name == "-arch" {
                        arch = Some(value);
                    }
                }
                None if FLAGS.contains(&word.as_str()) => {}
                _ => return Err(Code::UNRECOGNIZED_OPTION),
            }
        }
        let has = |flag: &str| words.iter().any(|word| word == flag);
        let (lto, ptx) = (has("-lto") || has("-dlto"), has("-ptx"));
        let (kind, number) = arch.ok_or(Code::MISSING_ARCH)?.split_once('_').ok_or(Code::UNRECOGNIZED_ARCH)?;
        let is_virtual = match kind {
            "sm" => false,
            "compute" => true,
            _ => return Err(Code::UNRECOGNIZED_ARCH),
        };
        check_architecture(number)?;
        // A virtual architecture has PTX, not machine code.
        if is_virtual && !ptx {
            return Err(Code::INCOMPATIBLE_OPTIONS);
        }
        if ptx && !lto {
            return Err(Code::INCOMPATIBLE_OPTIONS);
        }
        Ok(Self { words, lto, ptx })
    }

    /// Returns the options with which NVIDIA's library turns LTO-IR into PTX.
    pub(crate) fn for_ptx(&self) -> Vec<CString> {
        let added = if self.ptx { None } else { Some("-ptx") };
        let words = self.words.iter().map(String::as_str).chain(added);
        words.map(|word| CString::new(word).expect("it was a C string")).collect()
    }
}

/// Checks the number of an architecture, as `90a`.
fn check_architecture(number: &str) -> Result<(), Code> {
    let digits = number.strip_suffix(['a', 'f']).unwrap_or(number);
    match digits.parse() {
        Ok(number) if ARCHITECTURES.contains(&number) => Ok(()),
        Ok(10..50) => Err(Code::UNSUPPORTED_ARCH),
        _ => Err(Code::UNRECOGNIZED_ARCH),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Options, Code> {
        Options::parse(text.split_whitespace().map(str::to_owned).collect())
    }

    #[test]
    fn an_architecture_is_needed() {
        assert_eq!(parse("-lto"), Err(Code::MISSING_ARCH));
        assert_eq!(parse("-arch=sm_90a").map(|options| options.lto), Ok(false));
        for unknown in ["hopper", "sm_99", "sm_900", "sm_", "sm_9 0", "gfx_90"] {
            assert_eq!(Options::parse(vec![format!("-arch={unknown}")]), Err(Code::UNRECOGNIZED_ARCH), "{unknown}");
        }
        assert_eq!(parse("-arch=sm_35"), Err(Code::UNSUPPORTED_ARCH));
        assert_eq!(parse("-arch=compute_90"), Err(Code::INCOMPATIBLE_OPTIONS));
    }

    #[test]
    fn an_unknown_option_is_refused() {
        assert_eq!(parse("-arch=sm_90 -foo"), Err(Code::UNRECOGNIZED_OPTION));
        assert_eq!(parse("-arch=sm_90 -time=1"), Err(Code::UNRECOGNIZED_OPTION));
        assert_eq!(parse("-arch=sm_90 -maxrregcount"), Err(Code::UNRECOGNIZED_OPTION));
        assert!(parse("-arch=sm_90 -maxrregcount=32 -lineinfo -Xptxas=-v").is_ok());
    }

    #[test]
    fn ptx_needs_link_time_optimization() {
        assert_eq!(parse("-arch=sm_90 -ptx"), Err(Code::INCOMPATIBLE_OPTIONS));
        let options = parse("-arch=sm_90 -lto").expect("the options are valid");
        assert_eq!(options.for_ptx(), [c"-arch=sm_90".into(), c"-lto".into(), CString::from(c"-ptx")]);
        assert_eq!(parse("-arch=sm_90 -dlto -ptx").map(|options| options.lto), Ok(true));
        let options = parse("-arch=compute_90 -lto -ptx").expect("the options are valid");
        assert_eq!(options.for_ptx().len(), 3);
    }
}
