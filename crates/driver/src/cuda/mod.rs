//! The CUDA driver API: its types, the one list of its functions, and a safe call for each noun.

pub mod api;
pub mod call;
pub mod code;
pub mod load;
pub mod types;

pub use api::{Api, Function};
pub use call::CallError;
pub use code::{CUerror, CUresult};
pub use types::*;
