//! One link: inputs, the image or the PTX that they become, and the log of errors.

use std::ffi::CString;

use freehold_softcuda::{Linker, LoadError};
use object::read::archive::ArchiveFile;
use object::{Object, ObjectSection};

use crate::code::{Code, Kind};
use crate::options::Options;
use crate::vendor::{VendorError, vendor};

/// Sections of a host object with device code: of programs, and of parts that are linked later.
const FATBIN_SECTIONS: &[&str] = &[".nv_fatbin", "__nv_relfatbin"];

/// What a host without NVIDIA's library says of LTO-IR.
const NO_VENDOR: &str = "LTO-IR can be linked only by NVIDIA's libnvJitLink.so, which was not found: compile to PTX\n";

#[derive(Debug)]
pub(crate) struct Link {
    options: Options,
    linker: Linker,
    lto_ir: Vec<(Vec<u8>, CString)>,
    /// Whether an input was added that is not LTO-IR.
    has_code: bool,
    output: Output,
    pub(crate) error_log: String,
}

#[derive(Debug, PartialEq, Eq)]
enum Output {
    /// Inputs are being added.
    Open,
    Image(Vec<u8>),
    Ptx(Vec<u8>),
    Failed(Code),
}

impl Link {
    pub(crate) fn new(options: Options) -> Self {
        let (linker, lto_ir, output) = (Linker::default(), Vec::new(), Output::Open);
        Self { options, linker, lto_ir, has_code: false, output, error_log: String::new() }
    }

    /// Adds an input whose kind is the number `kind`.
    pub(crate) fn add(&mut self, kind: i32, data: &[u8], name: CString) -> Result<(), Code> {
        if self.output != Output::Open {
            return Err(Code::INTERNAL);
        }
        let kind = Kind::of(kind, data).map_err(|code| self.fail(code, format!("wrong type of input: {name:?}\n")))?;
        self.has_code |= kind != Kind::LtoIr;
        match kind {
            Kind::LtoIr if !self.options.lto => {
                Err(self.fail(Code::LTO_NOT_ENABLED, "LTO-IR needs the option -lto\n".to_owned()))
            }
            Kind::LtoIr => {
                self.lto_ir.push((data.to_vec(), name));
                Ok(())
            }
            // It is refused when the link is completed.
            _ if self.options.ptx => Ok(()),
            Kind::Ptx | Kind::Cubin | Kind::Fatbin => self.add_image(data),
            Kind::Object => self.add_object(data),
            Kind::Library => self.add_library(data),
        }
    }

    /// Makes the image, or the PTX. A link that failed fails again with the same code.
    pub(crate) fn complete(&mut self) -> Result<(), Code> {
        match self.output {
            Output::Open => {}
            Output::Failed(code) => return Err(code),
            Output::Image(_) | Output::Ptx(_) => return Err(Code::INTERNAL),
        }
        let linked = self.link();
        self.output = linked.unwrap_or_else(Output::Failed);
        match self.output {
            Output::Failed(code) => Err(code),
            _ => Ok(()),
        }
    }

    fn link(&mut self) -> Result<Output, Code> {
        if self.options.ptx && self.has_code {
            return Err(self.fail(Code::INCORRECT_INPUT_TYPE, "-ptx needs inputs of LTO-IR\n".to_owned()));
        }
        if self.options.lto && self.lto_ir.is_empty() {
            return Err(self.fail(Code::NVVM_COMPILE, "-lto needs an input of LTO-IR\n".to_owned()));
        }
        if self.options.lto {
            let text = self.lto_ptx()?;
            if self.options.ptx {
                return Ok(Output::Ptx(text));
            }
            self.add_image(&text)?;
        }
        let image = self.linker.link().map_err(|error| self.fail(Code::INTERNAL, error.log))?;
        Ok(Output::Image(image))
    }

    pub(crate) fn image(&self) -> Result<&[u8], Code> {
        match &self.output {
            Output::Image(image) => Ok(image),
            _ => Err(Code::INTERNAL),
        }
    }

    pub(crate) fn ptx(&self) -> Result<&[u8], Code> {
        match &self.output {
            Output::Ptx(text) => Ok(text),
            _ if self.options.ptx => Err(Code::INTERNAL),
            _ => Err(Code::INVALID_INPUT),
        }
    }

    /// Returns why there is no LTO-IR: it was not asked for, or NVIDIA's library keeps it.
    pub(crate) fn lto_ir_error(&self) -> Code {
        if self.options.lto { Code::INTERNAL } else { Code::INVALID_INPUT }
    }

    fn add_image(&mut self, data: &[u8]) -> Result<(), Code> {
        self.linker.add(data).map_err(|LoadError { log, .. }| self.fail(Code::PTX_COMPILE, log))
    }

    /// Adds the PTX in a host object.
    fn add_object(&mut self, data: &[u8]) -> Result<(), Code> {
        match fatbins(data) {
            Some(fatbins) if !fatbins.is_empty() => fatbins.into_iter().try_for_each(|image| self.add_image(image)),
            _ => Err(self.fail(Code::INVALID_INPUT, "the object contains no device code\n".to_owned())),
        }
    }

    /// Adds the PTX of those members of an archive that have it and that link by themselves. The device runtime of NVIDIA
    /// does not: it calls functions of NVIDIA's driver, and the software driver has its own. Whatever is left out stays
    /// undefined, and is an error if it is used.
    fn add_library(&mut self, data: &[u8]) -> Result<(), Code> {
        let archive = ArchiveFile::parse(data)
            .map_err(|error| self.fail(Code::INVALID_INPUT, format!("malformed library: {error}\n")))?;
        for member in archive.members() {
            let member = member.and_then(|member| member.data(data));
            let member =
                member.map_err(|error| self.fail(Code::INVALID_INPUT, format!("malformed library: {error}\n")))?;
            for image in fatbins(member).unwrap_or_default() {
                let mut alone = Linker::default();
                if alone.add(image).and_then(|()| alone.link()).is_ok() {
                    self.add_image(image)?;
                }
            }
        }
        Ok(())
    }

    /// Turns the LTO-IR into PTX.
    fn lto_ptx(&mut self) -> Result<Vec<u8>, Code> {
        let Some(vendor) = vendor() else { return Err(self.fail(Code::NVVM_COMPILE, NO_VENDOR.to_owned())) };
        let inputs = self.lto_ir.iter().map(|(data, name)| (data.as_slice(), name.as_c_str()));
        let linked = vendor.to_ptx(&self.options.for_ptx(), inputs);
        linked.map_err(|VendorError { code, log }| self.fail(code, log))
    }

    /// Notes the reason of a failure.
    fn fail(&mut self, code: Code, log: String) -> Code {
        self.error_log += &log;
        code
    }
}

/// Returns the fat binaries of a host object, or `None` if it is not one.
fn fatbins(data: &[u8]) -> Option<Vec<&[u8]>> {
    let file = object::File::parse(data).ok()?;
    let is_ours = |name: &str| FATBIN_SECTIONS.contains(&name);
    let sections = file.sections().filter(|section| section.name().is_ok_and(is_ours));
    sections.map(|section| section.data().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const CALLER: &str = ".version 8.0\n.target sm_80\n.address_size 64\n.extern .func f;\n\
        .visible .entry k() { call f; ret; }\n";
    const CALLEE: &str = ".version 8.0\n.target sm_80\n.address_size 64\n.visible .func f { ret; }\n";

    fn link(options: &str) -> Link {
        Link::new(Options::parse(options.split(' ').map(str::to_owned).collect()).expect("the options are valid"))
    }

    fn add(link: &mut Link, text: &str) -> Result<(), Code> {
        link.add(2, text.as_bytes(), c"input".into())
    }

    #[test]
    fn texts_become_one_image_that_can_be_linked_again() {
        let mut first = link("-arch=sm_90");
        add(&mut first, CALLER).expect("the text is valid");
        add(&mut first, CALLEE).expect("the text is valid");
        assert_eq!(first.image(), Err(Code::INTERNAL));
        first.complete().expect("all is defined");
        let mut second = link("-arch=sm_90");
        let image = first.image().expect("it is complete").to_vec();
        second.add(1, &image, c"image".into()).expect("the image is a cubin here");
        second.complete().expect("all is defined");
        assert_eq!(second.image(), Ok(image.as_slice()));
        assert_eq!(second.complete(), Err(Code::INTERNAL));
        assert_eq!(add(&mut second, CALLEE), Err(Code::INTERNAL));
        assert_eq!(second.ptx(), Err(Code::INVALID_INPUT));
    }

    #[test]
    fn what_is_not_defined_is_named_in_the_log() {
        let mut link = link("-arch=sm_90");
        add(&mut link, CALLER).expect("the text is valid");
        assert_eq!(link.complete(), Err(Code::INTERNAL));
        assert_eq!(link.error_log, "ptxas fatal   : undefined reference to 'f'\n");
        assert_eq!(link.complete(), Err(Code::INTERNAL));
        assert_eq!(link.image(), Err(Code::INTERNAL));
    }

    #[test]
    fn wrong_ptx_is_refused_when_it_is_added() {
        let mut link = link("-arch=sm_90");
        assert_eq!(add(&mut link, &CALLEE.replace("ret", "rettt")), Err(Code::PTX_COMPILE));
        assert!(link.error_log.starts_with("ptxas application ptx input, line 4; error"), "{}", link.error_log);
    }

    #[test]
    fn lto_ir_needs_its_option_and_the_library_of_nvidia() {
        let data = b"\xedCN\x7f";
        assert_eq!(link("-arch=sm_90").add(3, data, c"a".into()), Err(Code::LTO_NOT_ENABLED));
        let mut link = link("-arch=sm_90 -lto");
        link.add(3, data, c"a".into()).expect("it is stored");
        assert_eq!(link.complete(), Err(Code::NVVM_COMPILE));
        assert_eq!(link.error_log, NO_VENDOR);
    }

    #[test]
    fn link_time_optimization_without_lto_ir_makes_neither_ptx_nor_an_image() {
        for (options, has_text) in
            [("-arch=sm_90 -lto", false), ("-arch=sm_90 -lto", true), ("-arch=sm_90 -lto -ptx", false)]
        {
            let mut link = link(options);
            if has_text {
                add(&mut link, CALLEE).expect("the text is valid");
            }
            assert_eq!(link.complete(), Err(Code::NVVM_COMPILE), "{options}");
            assert_eq!(link.error_log, "-lto needs an input of LTO-IR\n", "{options}");
            assert_eq!(link.complete(), Err(Code::NVVM_COMPILE), "{options}");
            assert_eq!(link.image(), Err(Code::INTERNAL), "{options}");
        }
    }

    #[test]
    fn ptx_is_made_of_lto_ir_alone() {
        let mut link = link("-arch=sm_90 -lto -ptx");
        assert_eq!(link.ptx(), Err(Code::INTERNAL));
        add(&mut link, CALLEE).expect("the end of the link decides");
        assert_eq!(link.complete(), Err(Code::INCORRECT_INPUT_TYPE));
        assert_eq!(link.error_log, "-ptx needs inputs of LTO-IR\n");
        assert_eq!(link.ptx(), Err(Code::INTERNAL));
    }

    #[test]
    fn an_object_without_device_code_is_refused() {
        let program = std::fs::read("/proc/self/exe").expect("this program can be read");
        assert_eq!(link("-arch=sm_90").add(5, &program, c"a".into()), Err(Code::INVALID_INPUT));
    }
}
