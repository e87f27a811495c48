//! Frees of memory by the process that owns it, while another process has it open. The owner tells the others in a file.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::finding::Location;

/// A call of another process.
#[derive(Clone, Debug)]
pub struct Foreign {
    pub(crate) location: Arc<Location>,
    pub(crate) process: u32,
}

/// A free of memory that other processes may have open.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SharedFree {
    /// What the processes call the block: the memory that it is in, its offset there, and the number that its owner gave it.
    pub block: (u64, u64, u64),
    /// Where the owner freed it.
    pub location: Location,
    /// The owner.
    pub process: u32,
}

impl SharedFree {
    /// Describes a free by this process.
    pub fn new(block: (u64, u64, u64), location: Location) -> Self {
        Self { block, location, process: std::process::id() }
    }

    /// Returns it as a line of a file, with the line's end.
    pub fn to_line(&self) -> String {
        let mut line = serde_json::to_string(self).expect("a free has nothing that JSON cannot hold");
        line.push('\n');
        line
    }

    /// Reads a line. `None` if it is of another version.
    pub fn from_line(line: &str) -> Option<Self> {
        serde_json::from_str(line).ok()
    }

    /// Returns the call.
    pub fn call(&self) -> Foreign {
        Foreign { location: Arc::new(self.location.clone()), process: self.process }
    }
}
