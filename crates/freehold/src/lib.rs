//! GPU memory that has an owner.
//!
//! | to | here |
//! |---|---|
//! | choose the driver of an NVIDIA GPU or the software one | [`open::open`] |

pub mod open;
