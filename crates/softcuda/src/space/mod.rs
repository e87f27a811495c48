//! Address look-up: the memory at each address, and the accesses that are allowed.

pub(crate) mod address_space;
pub(crate) mod block_lookup;
mod checked_block;
pub(crate) mod imports;
pub(crate) mod kernel_memory;
pub(crate) mod launch_env;
pub(crate) mod object_table;
mod racing;
pub(crate) mod span;
