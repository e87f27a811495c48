//! Blocks lent to transfers, which direct driver copies play.

use freehold::{Error, ExternalAccess};
use freehold_driver::cuda::{CUdeviceptr, CUstream, DriverError, context, copy, stream};

use super::{Known, Program, Wrong, below, values};

/// A block, or a part of one, that was lent, and what the access does: write values, or compare them.
pub(super) struct Loan {
    lent: ExternalAccess,
    writes: bool,
    values: Vec<u32>,
}

impl Program {
    /// Lends a part of a block. What is put in from now on comes after the transfer, which has not begun.
    pub(super) fn lend(&mut self) -> Result<(), Wrong> {
        let (index, number, writes) = (self.block(), self.stream(), below(&mut self.random, 2) == 0);
        let len = self.blocks[index].values.len();
        let start = below(&mut self.random, len);
        let end = start + 1 + below(&mut self.random, len - start);
        let new = values(&mut self.random, end - start);
        let Known { block, values } = &mut self.blocks[index];
        let stream = &self.streams[number].0;
        let (lent, values) = if writes {
            let lent = stream.lend_mut(&mut block.view_mut(start..end)?)?;
            values[start..end].copy_from_slice(&new);
            (lent, new)
        } else {
            (stream.lend(&block.view(start..end)?)?, values[start..end].to_vec())
        };
        self.loans.push_back(Loan { lent, writes, values });
        if self.loans.len() > self.loans_max { self.end_a_loan() } else { Ok(()) }
    }

    /// Carries out the transfer that was lent to first: what it waits for waits for none that was lent to later.
    pub(super) fn end_a_loan(&mut self) -> Result<(), Wrong> {
        let Some(Loan { lent, writes, values }) = self.loans.pop_front() else { return Ok(()) };
        lent.wait()?;
        let found = self.transfer(&lent, writes, &values).map_err(Error::from)?;
        lent.done();
        self.compare(&found, &values)
    }

    pub(super) fn end_all_loans(&mut self) -> Result<(), Wrong> {
        while !self.loans.is_empty() {
            self.end_a_loan()?;
        }
        Ok(())
    }

    /// What is there afterwards, as the transfer knows it.
    fn transfer(&self, lent: &ExternalAccess, writes: bool, values: &[u32]) -> Result<Vec<u32>, DriverError> {
        // SAFETY: it is called with memory that is lent.
        let api = unsafe { self.device.api() }.expect("the program runs on a CUDA driver");
        let mut bytes: Vec<u8> = values.iter().flat_map(|value| value.to_ne_bytes()).collect();
        context::push_current(api, self.primary)?;
        if writes {
            copy::host_to_device(api, CUdeviceptr(lent.address()), &bytes)?;
            // The driver has read what it copies, and may be on its way with it.
            stream::synchronize(api, CUstream::NULL)?;
        } else {
            copy::device_to_host(api, &mut bytes, CUdeviceptr(lent.address()))?;
        }
        context::pop_current(api)?;
        let (words, _) = bytes.as_chunks::<4>();
        Ok(words.iter().map(|&word| u32::from_ne_bytes(word)).collect())
    }
}
