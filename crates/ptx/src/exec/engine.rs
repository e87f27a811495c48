//! Chooses the compilation of the loop over steps, among those that the processor can execute.

/// A compilation of the loop. One of kind `Avx2` or `Avx512` proves that the processor has the instructions: only
/// `available` makes one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Engine(Kind);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// One instruction at a time, without the compact form: the reference that the others are compared with.
    #[cfg(test)]
    Reference,
    Portable,
    #[cfg(target_arch = "x86_64")]
    Avx2,
    #[cfg(target_arch = "x86_64")]
    Avx512,
}

impl Engine {
    #[cfg(test)]
    pub(crate) const REFERENCE: Self = Self(Kind::Reference);

    pub(super) fn kind(self) -> Kind {
        self.0
    }

    /// Returns the fastest one that this processor can run.
    pub(crate) fn detect() -> Self {
        Self::available().pop().expect("one runs everywhere")
    }

    /// Returns those that this processor can run, the fastest last.
    pub(crate) fn available() -> Vec<Self> {
        #[cfg(target_arch = "x86_64")]
        {
            let has_avx2 = is_x86_feature_detected!("avx2")
                && is_x86_feature_detected!("fma")
                && is_x86_feature_detected!("bmi1")
                && is_x86_feature_detected!("bmi2")
                && is_x86_feature_detected!("lzcnt")
                && is_x86_feature_detected!("popcnt");
            let has_avx512 = has_avx2
                && is_x86_feature_detected!("avx512f")
                && is_x86_feature_detected!("avx512bw")
                && is_x86_feature_detected!("avx512cd")
                && is_x86_feature_detected!("avx512dq")
                && is_x86_feature_detected!("avx512vl");
            let kinds = [(Kind::Portable, true), (Kind::Avx2, has_avx2), (Kind::Avx512, has_avx512)];
            kinds.into_iter().filter(|(_, has)| *has).map(|(kind, _)| Self(kind)).collect()
        }
        #[cfg(not(target_arch = "x86_64"))]
        vec![Self(Kind::Portable)]
    }
}
