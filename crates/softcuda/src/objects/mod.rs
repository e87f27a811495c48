//! Devices, pools, contexts, streams, events and graphs. Their handle tables are in `state`, except that of graphs, to which
//! captures add nodes.

pub(crate) mod array;
pub(crate) mod attributes;
pub(crate) mod capture;
pub(crate) mod context;
pub(crate) mod device;
pub(crate) mod event;
pub(crate) mod event_state;
pub(crate) mod graph;
pub(crate) mod graph_allocation;
pub(crate) mod graph_exec;
pub(crate) mod graph_table;
pub(crate) mod graph_update;
pub(crate) mod operation;
pub(crate) mod pool;
pub(crate) mod stream;
pub(crate) mod stream_ref;
pub(crate) mod texture;
pub(crate) mod user_object;
