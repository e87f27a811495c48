//! The software driver, where it is built in: the feature `soft`.

use freehold_driver::cuda::Api;
#[cfg(feature = "soft")]
use freehold_driver::cuda::driver;
#[cfg(feature = "soft")]
use freehold_softcuda::config::Config;

use crate::error::open_error::{Absence, OpenError};

/// Its table. Nothing was called of it yet.
#[cfg(feature = "soft")]
pub(super) fn table() -> Result<Api, Absence> {
    // SAFETY: what this crate calls of it names what it made itself; others that are given the table guarantee the
    // rest.
    Ok(unsafe { freehold_softcuda::api() })
}

/// Looks whether its variables make sense, and starts nothing.
#[cfg(feature = "soft")]
pub(super) fn check_variables() -> Result<(), OpenError> {
    Config::from_env()?;
    Ok(())
}

/// Its table, initialized.
#[cfg(feature = "soft")]
pub(super) fn started() -> Result<Api, OpenError> {
    check_variables()?;
    let api = table().expect("it is built in");
    driver::init(&api, 0).map_err(OpenError::SoftRefused)?;
    Ok(api)
}

#[cfg(not(feature = "soft"))]
pub(super) fn table() -> Result<Api, Absence> {
    Err(Absence::NotBuilt)
}

#[cfg(not(feature = "soft"))]
pub(super) fn check_variables() -> Result<(), OpenError> {
    Err(not_built())
}

#[cfg(not(feature = "soft"))]
pub(super) fn started() -> Result<Api, OpenError> {
    Err(not_built())
}

#[cfg(not(feature = "soft"))]
fn not_built() -> OpenError {
    OpenError::NotBuilt { selector: "soft".to_owned(), feature: "soft" }
}
