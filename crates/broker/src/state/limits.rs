//! How much may be had, by all, by a user, by a tenant. Knows nothing of who has what.

/// How much may be had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Limits {
    pub(crate) budget_bytes: u64,
    /// Of one user, unless it was given a quota of its own.
    pub(crate) user_bytes: u64,
    /// Zeroed memory up to this is kept for whoever comes next. The rest goes back to the driver.
    pub(crate) kept_bytes: u64,
    pub(crate) tenants: usize,
    /// Connections of one user.
    pub(crate) user_tenants: usize,
    /// Leases of one tenant.
    pub(crate) tenant_leases: usize,
    pub(crate) blocks: usize,
    pub(crate) segments: usize,
    /// Names of one user, and of all.
    pub(crate) user_names: usize,
    pub(crate) names: usize,
    /// Leases, memory of the host, attachments and quotas of all.
    pub(crate) leases: usize,
    pub(crate) hosts: usize,
    pub(crate) attachments: usize,
    pub(crate) quotas: usize,
}

impl Limits {
    pub(crate) fn new(budget_bytes: u64) -> Self {
        Self {
            budget_bytes,
            user_bytes: budget_bytes,
            kept_bytes: (budget_bytes / 8).min(256 << 20),
            tenants: 1024,
            user_tenants: 256,
            tenant_leases: 1 << 14,
            blocks: 1 << 16,
            segments: 1 << 14,
            user_names: 1 << 12,
            names: 1 << 13,
            leases: 1 << 16,
            hosts: 1 << 10,
            attachments: 1 << 16,
            quotas: 1 << 8,
        }
    }
}
