//! Real processes: keeper, broker, cleaner and tenants, started and killed.
fn main() {}
