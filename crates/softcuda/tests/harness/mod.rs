//! The parts of the kernel test: a kernel's description, the content of its buffers, its recorded output, and its run.
//!
//! Schedules and processes belong to the test, not to this module.

pub(crate) mod content;
pub(crate) mod describe;
pub(crate) mod element;
pub(crate) mod record;
pub(crate) mod run;

/// A kernel of the data folder.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Kernel {
    pub(crate) name: &'static str,
    /// The extension of its source file.
    pub(crate) extension: &'static str,
    /// Its first lines describe the launch.
    pub(crate) source: &'static str,
    pub(crate) ptx: &'static str,
    /// The output of an H200.
    pub(crate) out: &'static str,
}

impl Kernel {
    /// Returns the name of a launched kernel in the PTX: the same, or the compiler's mangled name.
    pub(crate) fn entry(&self, function: &str) -> Result<&'static str, String> {
        let ends = |c: char| !(c.is_ascii_alphanumeric() || c == '_' || c == '$');
        let names =
            self.ptx.split(".entry").skip(1).map(|text| text.trim_start().split(ends).next().unwrap_or_default());
        let names: Vec<_> = names.collect();
        let same = names.iter().find(|name| **name == function);
        let made = || names.iter().find(|name| name.contains(function));
        same.or_else(made).copied().ok_or_else(|| format!("there is no kernel {function} among {names:?}"))
    }
}
