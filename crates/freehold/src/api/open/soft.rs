//! The software driver, where it is built in: the feature `soft`.

use freehold_driver::cuda::Api;
#[cfg(feature = "soft")]
use freehold_driver::cuda::driver;
#[cfg(feature = "soft")]
use freehold_softcuda::config::{self, Config};

use crate::error::open_error::{Absence, OpenError};

/// Returns its function table. No function in it has been called yet.
#[cfg(feature = "soft")]
pub(super) fn table() -> Result<Api, Absence> {
    // SAFETY: what this crate calls of it names what it made itself; others that are given the table guarantee the
    // rest.
    Ok(unsafe { freehold_softcuda::api() })
}

/// Checks its environment variables, and that they define a device with this number. Starts nothing.
#[cfg(feature = "soft")]
pub(super) fn check(ordinal: i32) -> Result<(), OpenError> {
    let count = Config::from_env()?.devices;
    let is_there = usize::try_from(ordinal).is_ok_and(|ordinal| ordinal < count);
    if is_there { Ok(()) } else { Err(OpenError::BeyondSoft { ordinal, count }) }
}

/// Initializes the driver and returns its function table. Fails if there is no device with this number.
#[cfg(feature = "soft")]
pub(super) fn started(ordinal: i32) -> Result<Api, OpenError> {
    check(ordinal)?;
    // The selector names one of all devices.
    config::show_all_devices();
    let api = table().expect("it is built in");
    driver::init(&api, 0).map_err(OpenError::SoftRefused)?;
    Ok(api)
}

#[cfg(not(feature = "soft"))]
pub(super) fn table() -> Result<Api, Absence> {
    Err(Absence::NotBuilt)
}

#[cfg(not(feature = "soft"))]
pub(super) fn check(_ordinal: i32) -> Result<(), OpenError> {
    Err(not_built())
}

#[cfg(not(feature = "soft"))]
pub(super) fn started(_ordinal: i32) -> Result<Api, OpenError> {
    Err(not_built())
}

#[cfg(not(feature = "soft"))]
fn not_built() -> OpenError {
    OpenError::NotBuilt { selector: "soft".to_owned(), feature: "soft" }
}
