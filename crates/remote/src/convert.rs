//! Conversions between enums of the broker and enums of the protocol.

use freehold_broker::{Access, Kind, Policy};

use crate::proto;

pub(crate) fn kind_to_proto(kind: Kind) -> proto::Kind {
    match kind {
        // The worker distinguishes them.
        Kind::Unsigned | Kind::Pointer => proto::Kind::Unsigned,
        Kind::Signed => proto::Kind::Signed,
        Kind::Float => proto::Kind::Float,
        Kind::Bits => proto::Kind::Bits,
        Kind::Bytes => proto::Kind::Bytes,
    }
}

pub(crate) fn kind_from_proto(kind: proto::Kind) -> Kind {
    match kind {
        proto::Kind::Unsigned => Kind::Unsigned,
        proto::Kind::Signed => Kind::Signed,
        proto::Kind::Float => Kind::Float,
        proto::Kind::Bits => Kind::Bits,
        proto::Kind::Bytes => Kind::Bytes,
    }
}

pub(crate) fn access_to_proto(access: Access) -> proto::Access {
    match access {
        Access::Read => proto::Access::Read,
        Access::Write => proto::Access::Write,
    }
}

pub(crate) fn policy_to_proto(policy: Policy) -> proto::Policy {
    match policy {
        Policy::Restore => proto::Policy::Restore,
        Policy::Drop => proto::Policy::Drop,
        Policy::Open => proto::Policy::Open,
    }
}

pub(crate) fn policy_from_proto(policy: proto::Policy) -> Policy {
    match policy {
        proto::Policy::Restore => Policy::Restore,
        proto::Policy::Drop => Policy::Drop,
        proto::Policy::Open => Policy::Open,
    }
}
