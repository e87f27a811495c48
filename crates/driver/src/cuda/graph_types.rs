//! The types of graphs and of the captures that make them.

#![allow(missing_docs, reason = "NVIDIA documents what cuda.h declares")]
#![allow(non_camel_case_types, reason = "the types are named as C names them")]

use std::ffi::c_void;
use std::fmt;

use super::types::{c_enums, handles};

handles! {
    /// A set of operations and their dependencies, launched as one.
    CUgraph;
    /// A graph that can be launched.
    CUgraphExec;
    /// One operation of a graph.
    CUgraphNode;
}

c_enums! {
    /// Which calls are prohibited during a capture.
    CUstreamCaptureMode {
        GLOBAL = 0,
        THREAD_LOCAL = 1,
        RELAXED = 2,
    }
}

/// Flags of `cuGraphInstantiateWithFlags`.
pub mod graph_flags {
    pub const AUTO_FREE_ON_LAUNCH: u64 = 1;
    pub const UPLOAD: u64 = 2;
    pub const DEVICE_LAUNCH: u64 = 4;
    pub const USE_NODE_PRIORITY: u64 = 8;
}

/// Flags of `cuStreamWaitEvent` and of `cuEventRecordWithFlags`.
pub mod event_wait_flags {
    pub const DEFAULT: u32 = 0;
    /// In a capture: a node of the graph, which waits for the event or records it whenever the graph runs.
    pub const EXTERNAL: u32 = 1;
}
