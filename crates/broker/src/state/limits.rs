//! The limits of the broker: total, per user, per tenant. Does not know the usage.

/// Limits. Those of a user apply to all of its connections together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Limits {
    pub(crate) budget_bytes: u64,
    /// Of one user, unless it has a quota of its own.
    pub(crate) user_bytes: u64,
    pub(crate) tenant_bytes: u64,
    /// Zeroed memory up to this is kept for the next tenants. The rest goes back to the driver.
    pub(crate) cached_bytes: u64,
    /// Connections.
    pub(crate) tenants: usize,
    pub(crate) user_tenants: usize,
    pub(crate) leases: usize,
    pub(crate) user_leases: usize,
    pub(crate) tenant_leases: usize,
    pub(crate) segments: usize,
    pub(crate) user_segments: usize,
    pub(crate) blocks: usize,
    pub(crate) names: usize,
    pub(crate) user_names: usize,
    pub(crate) attachments: usize,
    pub(crate) user_attachments: usize,
    /// Requests of one user that wait for the driver. A tenant has at most one.
    pub(crate) user_waiting: usize,
    /// Named host memory.
    pub(crate) hosts: usize,
    pub(crate) user_hosts: usize,
    pub(crate) user_host_bytes: u64,
    pub(crate) quotas: usize,
    pub(crate) modules: usize,
    pub(crate) user_modules: usize,
    pub(crate) user_module_bytes: u64,
    /// Loaded modules, counted once for each worker.
    pub(crate) loads: usize,
    pub(crate) user_loads: usize,
}

impl Limits {
    /// Default limits: of anything but memory, a user gets at most half.
    pub(crate) fn new(budget_bytes: u64) -> Self {
        Self {
            budget_bytes,
            user_bytes: budget_bytes,
            tenant_bytes: budget_bytes,
            cached_bytes: (budget_bytes / 8).min(256 << 20),
            tenants: 1024,
            user_tenants: 256,
            leases: 1 << 16,
            user_leases: 1 << 15,
            tenant_leases: 1 << 14,
            segments: 1 << 14,
            user_segments: 1 << 13,
            blocks: 1 << 16,
            names: 1 << 13,
            user_names: 1 << 12,
            attachments: 1 << 16,
            user_attachments: 1 << 15,
            user_waiting: 256,
            hosts: 1 << 10,
            user_hosts: 1 << 9,
            user_host_bytes: 1 << 36,
            quotas: 1 << 8,
            modules: 1 << 10,
            user_modules: 1 << 9,
            user_module_bytes: 256 << 20,
            loads: 1 << 12,
            user_loads: 1 << 11,
        }
    }
}
