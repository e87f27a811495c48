//! GPU memory that has an owner.
//!
//! | to | here |
//! |---|---|
//! | choose the driver of an NVIDIA GPU or the software one | [`open::open`] |
//! | know who owns which device memory | [`ledger::Ledger`] |

#[forbid(unsafe_code)]
pub mod ledger;
pub mod open;
