//! GPU memory that has an owner.
