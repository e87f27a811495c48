//! Links: PTX texts that are added one by one and become one image.

use std::collections::HashSet;
use std::sync::Mutex;

use freehold_driver::cuda::CUerror;
use freehold_ptx::{Image, LinkError, Unit};

use super::image::{LoadError, Source, compile, encode_linked, ptx_in};
use super::jit::JitOptions;
use crate::base::sync::lock;

/// A link of the driver interface: its state is shared, and its image keeps its address until the link is destroyed.
#[derive(Debug)]
pub(crate) struct Link {
    /// The options of the call that created the link. Their logs are those of the link.
    pub(crate) options: JitOptions,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    linker: Linker,
    image: Option<Box<[u8]>>,
}

impl Link {
    pub(crate) fn new(options: JitOptions) -> Self {
        Self { options, state: Mutex::default() }
    }

    /// Adds the texts of an image.
    pub(crate) fn add(&self, image: &[u8]) -> Result<(), LoadError> {
        let mut state = lock(&self.state);
        if state.image.is_some() {
            return Err(CUerror::INVALID_VALUE.into());
        }
        state.linker.add(image)
    }

    /// Builds the image, and returns its address and length.
    pub(crate) fn complete(&self) -> Result<(usize, usize), LoadError> {
        let mut state = lock(&self.state);
        if state.image.is_some() {
            return Err(CUerror::INVALID_HANDLE.into());
        }
        let image = state.linker.link()?;
        let image = state.image.insert(image.into());
        Ok((image.as_ptr() as usize, image.len()))
    }
}

/// Links PTX into an image that the driver loads, without a device.
#[derive(Debug, Default)]
pub struct Linker {
    sources: Vec<Source>,
    units: Vec<Unit>,
    /// Symbols that the texts define, each of which may be defined once.
    defined: HashSet<String>,
    /// Whether texts were found not to link. The link then yields no image.
    is_broken: bool,
}

impl Linker {
    /// Adds the PTX of an image: a text, a fat binary with PTX, or the output of a linker like this one.
    ///
    /// # Errors
    /// The image contains no PTX, the PTX does not compile, or it defines a symbol for the second time.
    pub fn add(&mut self, image: &[u8]) -> Result<(), LoadError> {
        let sources = ptx_in(image)?;
        let units = sources.iter().map(compile).collect::<Result<Vec<_>, _>>()?;
        for name in units.iter().flat_map(Unit::definitions) {
            if !self.defined.insert(name.to_owned()) {
                self.is_broken = true;
                return Err(link_error(LinkError::Duplicate { name: name.to_owned() }));
            }
        }
        self.sources.extend(sources);
        self.units.extend(units);
        Ok(())
    }

    /// Returns the image.
    ///
    /// # Errors
    /// A symbol is used and not defined, or is declared and defined differently, or an addition failed for such a reason.
    pub fn link(&mut self) -> Result<Vec<u8>, LoadError> {
        if self.is_broken {
            return Err(CUerror::INVALID_SOURCE.into());
        }
        Image::link(std::mem::take(&mut self.units)).map_err(|error| {
            self.is_broken = true;
            link_error(error)
        })?;
        Ok(encode_linked(&self.sources))
    }
}

/// Converts a link error, whose code differs from that of a compile error.
fn link_error(error: LinkError) -> LoadError {
    LoadError { code: CUerror::INVALID_SOURCE, ..error.into() }
}
