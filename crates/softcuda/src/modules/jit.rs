//! JIT options of a load or a link: log buffers, wall time, and options that have no effect here.

use std::time::Duration;

use freehold_driver::cuda::{CUerror, CUjit_option, CUresult};

use super::image::LoadError;
use crate::ffi::args::{InArray, WordArray};
use crate::memory::mem_ref::MemRef;

/// The last valid option.
const OPTION_LAST: CUjit_option = CUjit_option::SPLIT_COMPILE;

/// Maximum number of options in a call, which is more than there are.
const OPTIONS_MAX: u32 = 64;

/// The options of one call. The program keeps the memory that they point to valid during the call, or until the link is
/// destroyed.
#[derive(Debug)]
pub(crate) struct JitOptions {
    values: WordArray,
    info: LogBuffer,
    errors: LogBuffer,
    /// The index of the value that receives the elapsed time.
    wall_time: Option<usize>,
}

/// A log buffer of the program.
#[derive(Debug, Default)]
struct LogBuffer {
    address: u64,
    bytes: usize,
    /// The index of the value that is the buffer's length and receives the written length.
    length: Option<usize>,
}

impl JitOptions {
    pub(crate) fn read(count: u32, names: &InArray<CUjit_option>, values: WordArray) -> Result<Self, CUerror> {
        if count > OPTIONS_MAX || count > 0 && values.is_null() {
            return Err(CUerror::INVALID_VALUE);
        }
        let mut options = Self { values, info: LogBuffer::default(), errors: LogBuffer::default(), wall_time: None };
        for (index, name) in names.read(count as usize)?.into_iter().enumerate() {
            let value = values.read(index)?;
            match name {
                CUjit_option::INFO_LOG_BUFFER => options.info.address = value,
                CUjit_option::ERROR_LOG_BUFFER => options.errors.address = value,
                CUjit_option::INFO_LOG_BUFFER_SIZE_BYTES => options.info.set_size(value, index),
                CUjit_option::ERROR_LOG_BUFFER_SIZE_BYTES => options.errors.set_size(value, index),
                CUjit_option::WALL_TIME => options.wall_time = Some(index),
                CUjit_option(other) if other > OPTION_LAST.0 => return Err(CUerror::INVALID_VALUE),
                _ => {}
            }
        }
        if options.info.lacks_size() || options.errors.lacks_size() {
            return Err(CUerror::INVALID_VALUE);
        }
        Ok(options)
    }

    /// Writes the logs of an operation, and returns its result.
    pub(crate) fn write_logs<T>(&self, outcome: Result<T, LoadError>, took: Duration) -> Result<T, CUerror> {
        let log = outcome.as_ref().err().map_or("", |error| &error.log);
        self.info.write(self.values, "")?;
        self.errors.write(self.values, log)?;
        if let Some(index) = self.wall_time {
            let milliseconds = took.as_secs_f32() * 1e3;
            self.values.write(index, milliseconds.to_bits().into())?;
        }
        outcome.map_err(|error| error.code)
    }
}

impl LogBuffer {
    fn set_size(&mut self, bytes: u64, index: usize) {
        // The option is an `unsigned int`.
        self.bytes = bytes as u32 as usize;
        self.length = Some(index);
    }

    fn lacks_size(&self) -> bool {
        self.address != 0 && self.bytes == 0
    }

    /// Writes as much of a text as fits with a terminating NUL, and stores the written length: without the NUL if the
    /// whole text fits, with it if the buffer is full.
    fn write(&self, values: WordArray, text: &str) -> CUresult {
        let Some(length) = self.length else { return Ok(()) };
        let written = text.len().min(self.bytes.saturating_sub(1));
        if self.address != 0 && self.bytes > 0 {
            let bytes: Vec<_> = text.bytes().take(written).chain([0]).collect();
            MemRef::host(self.address).write(0, &bytes).map_err(|_| CUerror::INVALID_VALUE)?;
        }
        values.write(length, text.len().min(self.bytes) as u64)
    }
}
