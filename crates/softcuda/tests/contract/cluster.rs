//! Launches with clusters of thread blocks.

use std::ffi::CStr;

use crate::common;

use common::kernels::pointers;
use common::{Context, Refused};
use freehold_driver::cuda::launch::LaunchConfig;
use freehold_driver::cuda::{
    CUerror, CUfunction, CUfunction_attribute, CUlaunchAttribute, CUlaunchAttributeID, CUlaunchConfig, CUstream,
    DriverError, function, launch, occupancy,
};

/// `ranks` stores, for each block of a line, its rank in the cluster plus ten times the size of the cluster.
const TEXT: &CStr = c"
.version 8.0
.target sm_90
.address_size 64

.visible .entry ranks(.param .u64 to)
{
    .reg .b64 %rd<4>;
    .reg .b32 %r<6>;
    ld.param.u64 %rd1, [to];
    mov.u32 %r1, %ctaid.x;
    mov.u32 %r2, %cluster_ctarank;
    mov.u32 %r3, %cluster_nctarank;
    mad.lo.u32 %r4, %r3, 10, %r2;
    mad.wide.u32 %rd2, %r1, 4, %rd1;
    st.global.u32 [%rd2], %r4;
    ret;
}

.visible .entry pairs(.param .u64 to) .reqnctapercluster 2, 1, 1
{
    .reg .b64 %rd<4>;
    .reg .b32 %r<6>;
    ld.param.u64 %rd1, [to];
    mov.u32 %r1, %ctaid.x;
    mov.u32 %r2, %cluster_ctarank;
    mad.wide.u32 %rd2, %r1, 4, %rd1;
    st.global.u32 [%rd2], %r2;
    ret;
}
";

struct Rig {
    own: Context,
    ranks: CUfunction,
    pairs: CUfunction,
}

impl Rig {
    fn new() -> Self {
        let own = Context::create();
        let module = own.load(TEXT).unwrap();
        let (ranks, pairs) = (own.function(module, c"ranks"), own.function(module, c"pairs"));
        Self { own, ranks, pairs }
    }

    /// Launches blocks of one thread, with clusters if there is a size, and returns what they store.
    fn run(&self, kernel: CUfunction, blocks: u32, cluster: Option<[u32; 3]>) -> Result<Vec<u32>, DriverError> {
        let of = |words| CUlaunchAttribute::of_words(CUlaunchAttributeID::CLUSTER_DIMENSION, words);
        let mut attributes: Vec<_> = cluster.into_iter().map(of).collect();
        let to = self.own.block(4 * blocks as usize);
        let (shape, mut arguments) = (LaunchConfig::linear(blocks, 1), [to.0.into()]);
        let mut arguments = pointers(&mut arguments);
        let api = &self.own.api;
        // SAFETY: the argument is the one that the kernel has.
        unsafe { launch::with_attributes(api, kernel, shape, CUstream::NULL, &mut attributes, &mut arguments) }?;
        self.own.finish(CUstream::NULL);
        let bytes = self.own.read(to, 4 * blocks as usize);
        Ok(bytes.chunks(4).map(|word| u32::from_le_bytes(word.try_into().unwrap())).collect())
    }

    fn set(&self, attribute: CUfunction_attribute, value: i32) -> Result<(), DriverError> {
        function::set_attribute(&self.own.api, self.ranks, attribute, value)
    }
}

#[test]
fn a_launch_states_the_size_of_its_clusters() {
    let rig = Rig::new();
    assert_eq!(rig.run(rig.ranks, 4, None).unwrap(), [10, 10, 10, 10]);
    assert_eq!(rig.run(rig.ranks, 4, Some([1, 1, 1])).unwrap(), [10, 10, 10, 10]);
    assert_eq!(rig.run(rig.ranks, 6, Some([3, 1, 1])).unwrap(), [30, 31, 32, 30, 31, 32]);
    assert_eq!(rig.run(rig.ranks, 8, Some([8, 1, 1])).unwrap(), [80, 81, 82, 83, 84, 85, 86, 87]);
}

#[test]
fn clusters_that_do_not_fill_the_grid_or_are_too_large_are_invalid() {
    let rig = Rig::new();
    let refused = |blocks, cluster| rig.run(rig.ranks, blocks, Some(cluster)).code();
    assert_eq!(refused(4, [3, 1, 1]), CUerror::INVALID_CLUSTER_SIZE);
    assert_eq!(refused(4, [0, 1, 1]), CUerror::INVALID_CLUSTER_SIZE);
    assert_eq!(refused(4, [2, 2, 1]), CUerror::INVALID_CLUSTER_SIZE);
    assert_eq!(refused(16, [16, 1, 1]), CUerror::INVALID_CLUSTER_SIZE);
}

#[test]
fn more_than_eight_blocks_need_an_opt_in() {
    let rig = Rig::new();
    rig.set(CUfunction_attribute::NON_PORTABLE_CLUSTER_SIZE_ALLOWED, 1).unwrap();
    assert_eq!(rig.run(rig.ranks, 16, Some([16, 1, 1])).unwrap()[15], 175);
    assert_eq!(rig.run(rig.ranks, 32, Some([32, 1, 1])).code(), CUerror::INVALID_CLUSTER_SIZE);
}

#[test]
fn a_kernel_can_require_a_size() {
    let rig = Rig::new();
    let get = |attribute| function::attribute(&rig.own.api, rig.pairs, attribute).unwrap();
    assert_eq!(get(CUfunction_attribute::REQUIRED_CLUSTER_WIDTH), 2);
    assert_eq!(get(CUfunction_attribute::REQUIRED_CLUSTER_DEPTH), 1);
    assert_eq!(rig.run(rig.pairs, 4, None).unwrap(), [0, 1, 0, 1]);
    assert_eq!(rig.run(rig.pairs, 4, Some([2, 1, 1])).unwrap(), [0, 1, 0, 1]);
    assert_eq!(rig.run(rig.pairs, 3, None).code(), CUerror::INVALID_CLUSTER_SIZE);
    assert_eq!(rig.run(rig.pairs, 4, Some([4, 1, 1])).code(), CUerror::INVALID_CLUSTER_SIZE);
}

#[test]
fn occupancy_counts_clusters() {
    let rig = Rig::new();
    let mut attribute = CUlaunchAttribute::of_words(CUlaunchAttributeID::CLUSTER_DIMENSION, [16, 1, 1]);
    let config = CUlaunchConfig {
        gridDimX: 48,
        gridDimY: 1,
        gridDimZ: 1,
        blockDimX: 1024,
        blockDimY: 1,
        blockDimZ: 1,
        sharedMemBytes: 0,
        hStream: CUstream::NULL,
        attrs: &raw mut attribute,
        numAttrs: 1,
    };
    // SAFETY: there is one attribute.
    let size = unsafe { occupancy::cluster_size(&rig.own.api, rig.ranks, &config) };
    assert_eq!(size, Ok(8));
    // SAFETY: as above.
    let refused = unsafe { occupancy::clusters(&rig.own.api, rig.ranks, &config) };
    assert_eq!(refused.code(), CUerror::INVALID_CLUSTER_SIZE);
    rig.set(CUfunction_attribute::NON_PORTABLE_CLUSTER_SIZE_ALLOWED, 1).unwrap();
    // SAFETY: as above.
    let size = unsafe { occupancy::cluster_size(&rig.own.api, rig.ranks, &config) };
    assert_eq!(size, Ok(16));
    // SAFETY: as above.
    let clusters = unsafe { occupancy::clusters(&rig.own.api, rig.ranks, &config) }.unwrap();
    assert!((1..=16).contains(&clusters), "{clusters}");
}
