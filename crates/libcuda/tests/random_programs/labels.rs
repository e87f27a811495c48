//! A function for each step and each host function, so that the stack of a finding names it.

use std::ffi::c_void;
use std::hint::black_box;
use std::sync::OnceLock;

/// Calls a closure in a function of its own.
type Named = fn(&mut dyn FnMut());

type HostFunction = unsafe extern "C" fn(*mut c_void);

/// What the host functions of this process do to the words that they get: the ranges, and what is added.
pub(crate) static HOST_WORK: OnceLock<Vec<HostWork>> = OnceLock::new();

#[derive(Clone, Copy, Debug)]
pub(crate) struct HostWork {
    pub(crate) to: usize,
    pub(crate) from: usize,
    pub(crate) words: usize,
    pub(crate) add: u32,
}

fn work(slot: usize, data: *mut c_void) {
    let HostWork { to, from, words, add } = HOST_WORK.get().expect("it is set before the driver is")[slot];
    let base = data.cast::<u32>();
    for index in 0..words {
        // SAFETY: the ranges are in the pinned buffer that `data` points to, which lives until the process ends.
        let read = unsafe { base.add(from + index).read_volatile() };
        // SAFETY: as above.
        let old = unsafe { base.add(to + index).read_volatile() };
        let new = old.wrapping_mul(5).wrapping_add(read).wrapping_add(add);
        // SAFETY: as above.
        unsafe { base.add(to + index).write_volatile(new) };
    }
}

macro_rules! names {
    ($list:ident: $($name:ident $number:literal)*) => {
        $(#[inline(never)]
        fn $name(run: &mut dyn FnMut()) {
            run();
            black_box($number);
        })*

        pub(crate) const $list: &[Named] = &[$($name),*];
    };
}

macro_rules! host_functions {
    ($list:ident: $($name:ident $number:literal)*) => {
        $(#[inline(never)]
        unsafe extern "C" fn $name(data: *mut c_void) {
            work($number, data);
            black_box($number);
        })*

        pub(crate) const $list: &[HostFunction] = &[$($name),*];
    };
}

names! {
    STEPS:
    step_0 0 step_1 1 step_2 2 step_3 3 step_4 4 step_5 5 step_6 6 step_7 7 step_8 8 step_9 9 step_10 10 step_11 11
    step_12 12 step_13 13 step_14 14 step_15 15 step_16 16 step_17 17 step_18 18 step_19 19 step_20 20 step_21 21
    step_22 22 step_23 23 step_24 24 step_25 25 step_26 26 step_27 27 step_28 28 step_29 29 step_30 30 step_31 31
    step_32 32 step_33 33 step_34 34 step_35 35 step_36 36 step_37 37 step_38 38 step_39 39 step_40 40 step_41 41
    step_42 42 step_43 43 step_44 44 step_45 45 step_46 46 step_47 47 step_48 48 step_49 49 step_50 50 step_51 51
    step_52 52 step_53 53 step_54 54 step_55 55 step_56 56 step_57 57 step_58 58 step_59 59 step_60 60 step_61 61
    step_62 62 step_63 63 step_64 64 step_65 65 step_66 66 step_67 67 step_68 68 step_69 69 step_70 70 step_71 71
    step_72 72 step_73 73 step_74 74 step_75 75 step_76 76 step_77 77 step_78 78 step_79 79 step_80 80 step_81 81
    step_82 82 step_83 83 step_84 84 step_85 85 step_86 86 step_87 87 step_88 88 step_89 89 step_90 90 step_91 91
    step_92 92 step_93 93 step_94 94 step_95 95 step_96 96 step_97 97 step_98 98 step_99 99 step_100 100 step_101 101
    step_102 102 step_103 103 step_104 104 step_105 105 step_106 106 step_107 107 step_108 108 step_109 109 step_110 110
    step_111 111 step_112 112 step_113 113 step_114 114 step_115 115 step_116 116 step_117 117 step_118 118 step_119 119
    step_120 120 step_121 121 step_122 122 step_123 123 step_124 124 step_125 125 step_126 126 step_127 127
}

host_functions! {
    HOST_FUNCTIONS:
    host_function_0 0 host_function_1 1 host_function_2 2 host_function_3 3 host_function_4 4 host_function_5 5
    host_function_6 6 host_function_7 7 host_function_8 8 host_function_9 9 host_function_10 10 host_function_11 11
    host_function_12 12 host_function_13 13 host_function_14 14 host_function_15 15
}
