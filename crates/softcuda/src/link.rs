//! Links: texts that are added one after the other and become one image.

use std::sync::Mutex;

use freehold_driver::cuda::CUerror;
use freehold_ptx::{Image, Unit};

use crate::image::{Refusal, compile, linked, texts_of};
use crate::jit::Options;
use crate::world::lock;

#[derive(Debug)]
pub(crate) struct Link {
    /// Of the call that began it; its logs are those of the link.
    pub(crate) options: Options,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    texts: Vec<String>,
    units: Vec<Unit>,
    /// What was made of them. It stays where it is until the link ends, since the program has its address.
    image: Option<Box<[u8]>>,
}

impl Link {
    pub(crate) fn new(options: Options) -> Self {
        Self { options, state: Mutex::default() }
    }

    /// Adds the texts of an image.
    pub(crate) fn add(&self, image: &[u8]) -> Result<(), Refusal> {
        let texts = texts_of(image)?;
        let units = texts.iter().map(|text| compile(text)).collect::<Result<Vec<_>, _>>()?;
        let mut state = lock(&self.state);
        if state.image.is_some() {
            return Err(CUerror::INVALID_VALUE.into());
        }
        state.texts.extend(texts);
        state.units.extend(units);
        Ok(())
    }

    /// Makes the image, and says where it lies and how long it is.
    pub(crate) fn complete(&self) -> Result<(usize, usize), Refusal> {
        let mut guard = lock(&self.state);
        let state = &mut *guard;
        if state.image.is_none() {
            Image::link(std::mem::take(&mut state.units))?;
            state.image = Some(linked(&state.texts).into());
        }
        Ok(state.image.as_ref().map_or((0, 0), |image| (image.as_ptr() as usize, image.len())))
    }
}
