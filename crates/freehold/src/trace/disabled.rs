//! Replaces the timeline without the feature `timeline`: no recording is ever running, and every call is empty.

use std::panic::Location;
use std::time::Duration;

use freehold_driver::{Backend, CallError};

use super::allocation::Allocation;
use crate::base::pool_stats::PoolStats;
use crate::ledger::ContextId;
use crate::ordering::context_state::ContextState;
use crate::ordering::stream_state::StreamState;

#[derive(Debug, Default)]
pub(crate) struct Timeline {}

/// No use is ever begun.
#[derive(Debug)]
pub(crate) enum Begun {}

impl Timeline {
    #[inline]
    pub(crate) fn is_on(&self) -> bool {
        false
    }

    pub(crate) fn allocated(&self, _: Allocation<'_>, _: &StreamState, _: Duration, _: PoolStats) {}

    pub(crate) fn released(
        &self,
        _: u64,
        _: Option<&'static Location<'static>>,
        _: Duration,
        _: Duration,
        _: PoolStats,
    ) {
    }

    pub(crate) fn resized(&self, _: u64, _: u64, _: u64, _: Duration, _: Duration, _: PoolStats) {}

    pub(crate) fn of_module(&self, _: &'static str, _: u64, _: Duration, _: Duration) {}

    pub(crate) fn begin_use(&self, _: &ContextState, _: &StreamState, _: Duration) -> Result<Option<Begun>, CallError> {
        Ok(None)
    }

    pub(crate) fn end_use(
        &self,
        _: &dyn Backend,
        begun: Begun,
        _: &StreamState,
        _: (&str, &[u64]),
        _: Duration,
    ) -> Result<(), CallError> {
        match begun {}
    }

    pub(crate) fn cancel_use(&self, begun: Begun, _: ContextId) {
        match begun {}
    }

    pub(crate) fn poll(&self, _: &dyn Backend) -> Result<(), CallError> {
        Ok(())
    }

    pub(crate) fn forget_context(&self, _: &dyn Backend, _: ContextId) -> Result<(), CallError> {
        Ok(())
    }
}
