//! `libnvJitLink.so.12`: the CUDA 12 names of nvJitLink, each a jump to `libnvJitLink.so.13`, which is ours too.
//!
//! A program may load both, so each has a file, with its own name and its own version of the symbols. The functions have the same
//! arguments in both: those of `.so.12` are the plain ones of `.so.13`, except the one that tells the version.
//!
//! The jumps are those of x86-64. On other processors the library is empty.

#[cfg(target_arch = "x86_64")]
mod exports {
    use std::arch::naked_asm;

    /// Exports a name as a jump to a function of the other library. Without the version, this library would find itself.
    macro_rules! jump {
        ($name:expr, $target:literal) => {
            const _: () = {
                #[unsafe(naked)]
                #[unsafe(export_name = $name)]
                extern "C" fn function() {
                    naked_asm!(
                        concat!(".symver v13_", $target, ", ", $target, "@libnvJitLink.so.13"),
                        concat!("jmp [rip + v13_", $target, "@GOTPCREL]"),
                    )
                }
            };
        };
    }

    /// Exports each function under its plain name and under that of each minor version.
    macro_rules! exports {
        ($($name:literal)*) => {
            $(jump!($name, $name);)*
            $(exports! { @versions $name "_12_0" "_12_1" "_12_2" "_12_3" "_12_4" "_12_5" "_12_6" "_12_7" "_12_8" "_12_9" })*
        };
        (@versions $name:literal $($version:literal)*) => {
            $(jump!(concat!("__", $name, $version), $name);)*
        };
    }

    exports! {
        "nvJitLinkCreate"
        "nvJitLinkDestroy"
        "nvJitLinkAddData"
        "nvJitLinkAddFile"
        "nvJitLinkComplete"
        "nvJitLinkGetLinkedCubinSize"
        "nvJitLinkGetLinkedCubin"
        "nvJitLinkGetLinkedPtxSize"
        "nvJitLinkGetLinkedPtx"
        "nvJitLinkGetLinkedLTOIRSize"
        "nvJitLinkGetLinkedLTOIR"
        "nvJitLinkGetErrorLogSize"
        "nvJitLinkGetErrorLog"
        "nvJitLinkGetInfoLogSize"
        "nvJitLinkGetInfoLog"
    }

    jump!("nvJitLinkVersion", "freehold_v12_nvJitLinkVersion");
}
