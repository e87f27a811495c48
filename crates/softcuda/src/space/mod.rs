//! What lies at an address, and who may reach it.

pub(crate) mod address_space;
pub(crate) mod block_lookup;
pub(crate) mod imports;
pub(crate) mod kernel_memory;
pub(crate) mod launch_env;
pub(crate) mod span;
