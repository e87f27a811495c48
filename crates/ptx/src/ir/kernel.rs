//! The properties of a kernel that the host needs.

/// The properties of a kernel that the host needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kernel {
    /// Its name.
    pub name: String,
    /// Its parameters, in order.
    pub parameters: Vec<KernelParameter>,
    /// The size of all parameters, with padding.
    pub parameter_bytes: u64,
    /// Static shared memory.
    pub shared_bytes: u64,
    /// Local variables of one thread.
    pub local_bytes: u64,
    /// An estimate of the 32-bit registers of one thread.
    pub registers: u32,
    /// `.maxntid`
    pub max_threads: Option<[u32; 3]>,
    /// `.reqntid`
    pub required_threads: Option<[u32; 3]>,
    /// `.minnctapersm`
    pub min_blocks: Option<u32>,
    /// `.reqnctapercluster`
    pub required_cluster: Option<[u32; 3]>,
    /// `.maxclusterrank`
    pub max_cluster_rank: Option<u32>,
    /// `.explicitcluster`: a launch must state the size of its clusters.
    pub is_cluster_explicit: bool,
    /// `.blocksareclusters`: a launch states the number of clusters as its grid.
    pub blocks_are_clusters: bool,
    /// `.maxnreg`
    pub max_registers: Option<u32>,
    /// The version of the text: 86 for 8.6.
    pub ptx_version: u32,
    /// The target: 90 for `sm_90`.
    pub target: u32,
}

/// The place of a parameter among those of its kernel, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KernelParameter {
    /// Where it begins.
    pub offset: u64,
    /// Length in bytes.
    pub bytes: u64,
}
