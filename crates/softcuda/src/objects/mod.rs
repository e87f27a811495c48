//! Devices, pools, contexts, streams, events and graphs, without the tables that name them.

pub(crate) mod attributes;
pub(crate) mod capture;
pub(crate) mod context;
pub(crate) mod device;
pub(crate) mod event;
pub(crate) mod event_state;
pub(crate) mod graph;
pub(crate) mod graph_exec;
pub(crate) mod pool;
pub(crate) mod stream;
pub(crate) mod stream_ref;
