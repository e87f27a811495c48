//! Links: PTX texts that are added one by one and become one image.

use std::collections::HashSet;
use std::sync::Mutex;

use freehold_driver::cuda::CUerror;
use freehold_ptx::{Image, LinkError, Unit};

use super::image::{LoadError, compile, encode_linked, ptx_in};
use super::jit::JitOptions;
use crate::base::sync::lock;

#[derive(Debug)]
pub(crate) struct Link {
    /// The options of the call that created the link. Their logs are those of the link.
    pub(crate) options: JitOptions,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    texts: Vec<String>,
    units: Vec<Unit>,
    /// Symbols that the texts define, each of which may be defined once.
    defined: HashSet<String>,
    /// Whether texts were found not to link. The link then yields no image.
    is_broken: bool,
    /// The finished image. It keeps its address until the link is destroyed, because the program holds it.
    image: Option<Box<[u8]>>,
}

impl Link {
    pub(crate) fn new(options: JitOptions) -> Self {
        Self { options, state: Mutex::default() }
    }

    /// Adds the texts of an image.
    pub(crate) fn add(&self, image: &[u8]) -> Result<(), LoadError> {
        let texts = ptx_in(image)?;
        let units = texts.iter().map(|text| compile(text)).collect::<Result<Vec<_>, _>>()?;
        let mut state = lock(&self.state);
        if state.image.is_some() {
            return Err(CUerror::INVALID_VALUE.into());
        }
        for name in units.iter().flat_map(Unit::definitions) {
            if !state.defined.insert(name.to_owned()) {
                state.is_broken = true;
                return Err(link_error(LinkError::Duplicate { name: name.to_owned() }));
            }
        }
        state.texts.extend(texts);
        state.units.extend(units);
        Ok(())
    }

    /// Builds the image, and returns its address and length.
    pub(crate) fn complete(&self) -> Result<(usize, usize), LoadError> {
        let mut guard = lock(&self.state);
        let state = &mut *guard;
        if state.image.is_some() {
            return Err(CUerror::INVALID_HANDLE.into());
        }
        if state.is_broken {
            return Err(CUerror::INVALID_SOURCE.into());
        }
        Image::link(std::mem::take(&mut state.units)).map_err(|error| {
            state.is_broken = true;
            link_error(error)
        })?;
        let image = state.image.insert(encode_linked(&state.texts).into());
        Ok((image.as_ptr() as usize, image.len()))
    }
}

/// Converts a link error, whose code differs from that of a compile error.
fn link_error(error: LinkError) -> LoadError {
    LoadError { code: CUerror::INVALID_SOURCE, ..error.into() }
}
