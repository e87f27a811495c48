//! `freehold bench share`: memory handed between processes, next to a socket and a copy.
//!
//! Starts its own broker and partner process.

pub(super) mod fixture;
mod measure;
pub(crate) mod partner;
pub(super) mod report;

use self::fixture::BrokerFixture;
use self::measure::{FULL, QUICK};
use super::error::Result;
use super::options::MeasureOptions;
use crate::output::table::TableStyle;
use crate::output::text::json;

pub(super) fn run(arguments: &MeasureOptions) -> Result<String> {
    let effort = if arguments.quick { QUICK } else { FULL };
    let device = arguments.device.as_deref();
    // One broker spins during all measurements; the other sleeps as usual.
    let (awake, sleepy) = (BrokerFixture::new(device, "10000")?, BrokerFixture::new(device, "50")?);
    let report = measure::all(&awake, &sleepy, device, effort)?;
    Ok(if arguments.json { json(&report) } else { report.table(TableStyle::for_stdout()) })
}
