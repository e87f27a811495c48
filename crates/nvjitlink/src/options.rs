//! The options of a link. Those that direct code generation are checked and have no effect here, except in NVIDIA's library.

use std::ffi::CString;

use crate::code::Code;

const FLAGS: &[&str] = &[
    "-time",
    "-verbose",
    "-lto",
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
        let (lto, ptx) = (has("-lto"), has("-ptx"));
        let arch = arch.ok_or(Code::MISSING_ARCH)?;
        let is_number = |number: &str| {
            let digits = number.strip_suffix(['a', 'f']).unwrap_or(number);
            matches!(digits.len(), 2 | 3) && digits.bytes().all(|byte| byte.is_ascii_digit())
        };
        match arch.split_once('_') {
            Some(("sm", number)) if is_number(number) => {}
            // A virtual architecture has PTX, not machine code.
            Some(("compute", number)) if is_number(number) && ptx => {}
            Some(("compute", number)) if is_number(number) => return Err(Code::INCOMPATIBLE_OPTIONS),
            _ => return Err(Code::UNRECOGNIZED_ARCH),
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
        assert_eq!(parse("-arch=hopper"), Err(Code::UNRECOGNIZED_ARCH));
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
        let options = parse("-arch=compute_90 -lto -ptx").expect("the options are valid");
        assert_eq!(options.for_ptx().len(), 3);
    }
}
