//! Built-in functions: device `printf`, `assert`, `malloc` and `free`.

use super::call::{copy_in, copy_out};
use super::frame::lanes_of;
use super::print;
use super::run::{LaneFault, Run};
use super::warp::Warp;
use crate::fault::FaultKind;
use crate::ir::{Builtin, Call, MemorySpace};
use crate::memory::{LANES, Width};

/// The maximum length of a string; a longer one is truncated.
const TEXT_BYTES_MAX: usize = 4096;

impl Run<'_> {
    pub(super) fn builtin(
        &mut self,
        warp: &mut Warp,
        frame: usize,
        builtin: Builtin,
        call: &Call,
        lanes: u32,
    ) -> Result<(), LaneFault> {
        let base = warp.frame(frame).local_end();
        warp.grow_local(lanes, base + call.signature.bytes);
        for (argument, formal) in call.arguments.iter().zip(&call.signature.parameters) {
            copy_in(warp, frame, lanes, base, *argument, *formal);
        }
        for lane in lanes_of(lanes) {
            let argument = |warp: &Warp, index: usize| {
                let formal = call.signature.parameters[index];
                let start = (base + formal.offset) as usize;
                let mut word = [0; 8];
                word[..formal.bytes as usize].copy_from_slice(&warp.local[lane][start..start + formal.bytes as usize]);
                u64::from_le_bytes(word)
            };
            let result = match builtin {
                Builtin::Printf => {
                    let (format, arguments) = (argument(warp, 0), argument(warp, 1));
                    let format = self.text(warp, frame, lane, format)?;
                    let mut source = Arguments { run: self, warp, frame, lane, at: arguments, fault: None };
                    let (text, count) = print::format(&format, &mut source);
                    if let Some(fault) = source.fault {
                        return Err(fault);
                    }
                    self.printed.extend_from_slice(&text);
                    u64::from(count)
                }
                Builtin::AssertFail => {
                    let text = |run: &mut Self, index| {
                        let bytes = run.text(warp, frame, lane, argument(warp, index))?;
                        Ok::<_, LaneFault>(String::from_utf8_lossy(&bytes).into_owned())
                    };
                    let (message, file) = (text(self, 0)?, text(self, 1)?);
                    let (line, function) = (argument(warp, 2), text(self, 3)?);
                    let message = format!("{file}:{line}: {function}: assertion `{message}` failed");
                    return Err((lane, FaultKind::Assert { message }));
                }
                Builtin::Malloc => self.memory.allocate(argument(warp, 0)),
                Builtin::Free => {
                    let address = argument(warp, 0);
                    if address != 0 && !self.memory.release(address) {
                        let what = self.memory.describe(address);
                        let kind = FaultKind::Address { space: "global", address, bytes: 0, write: true, what };
                        return Err((lane, kind));
                    }
                    0
                }
            };
            if let Some(formal) = call.signature.returns.first() {
                let start = (base + formal.offset) as usize;
                let bytes = formal.bytes.min(8) as usize;
                warp.local[lane][start..start + bytes].copy_from_slice(&result.to_le_bytes()[..bytes]);
            }
        }
        for (result, formal) in call.results.iter().zip(&call.signature.returns) {
            copy_out(warp, frame, lanes, base, *result, *formal);
        }
        Ok(())
    }

    /// Reads a C string, which ends in a NUL.
    fn text(&mut self, warp: &Warp, frame: usize, lane: usize, mut at: u64) -> Result<Vec<u8>, LaneFault> {
        let mut text = Vec::new();
        while text.len() < TEXT_BYTES_MAX {
            match self.word(warp, frame, lane, at, Width::One)? as u8 {
                0 => break,
                byte => text.push(byte),
            }
            at = at.wrapping_add(1);
        }
        Ok(text)
    }

    fn word(&mut self, warp: &Warp, frame: usize, lane: usize, at: u64, width: Width) -> Result<u64, LaneFault> {
        let values = self.load(warp, frame, MemorySpace::Generic, width, &[at; LANES], 1 << lane, width.bytes())?;
        Ok(values[lane])
    }
}

/// The arguments of a `printf`: consecutive values, each aligned to its size.
struct Arguments<'a, 'r> {
    run: &'a mut Run<'r>,
    warp: &'a Warp,
    frame: usize,
    lane: usize,
    at: u64,
    /// The first access that failed.
    fault: Option<LaneFault>,
}

impl Arguments<'_, '_> {
    fn take(&mut self, width: Width) -> u64 {
        let bytes = width.bytes();
        // An address at the end of the space wraps around, to where nothing can be read.
        let at = self.at.wrapping_add(bytes - 1) & !(bytes - 1);
        self.at = at.wrapping_add(bytes);
        match self.run.word(self.warp, self.frame, self.lane, at, width) {
            Ok(value) => value,
            Err(fault) => {
                self.fault.get_or_insert(fault);
                0
            }
        }
    }
}

impl print::ArgumentSource for Arguments<'_, '_> {
    fn word(&mut self) -> u32 {
        self.take(Width::Four) as u32
    }

    fn long(&mut self) -> u64 {
        self.take(Width::Eight)
    }

    fn text(&mut self, at: u64) -> Vec<u8> {
        match self.run.text(self.warp, self.frame, self.lane, at) {
            Ok(text) => text,
            Err(fault) => {
                self.fault.get_or_insert(fault);
                Vec::new()
            }
        }
    }
}
