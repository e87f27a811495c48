//! `libcudart.so.12`: the CUDA 12 names of the runtime, each a jump to `libcudart.so.13`, which lies in the same folder.
//!
//! A program may load both: the kernels, streams and memory of one are those of the other. A jump passes on whatever
//! arguments a function has, so that no signature is repeated here.
//!
//! - A function that both versions have is referred to by its symbol version, `cudaMalloc@libcudart.so.13`. Without the
//!   version this library would find itself.
//! - A function whose arguments differ is one that `libcudart.so.13` exports as `freehold_v12_cudaMemAdvise`. If it does
//!   not, the program gets `cudaErrorNotSupported`.
//!
//! The jumps are those of x86-64. On other processors the library is empty.

#[cfg(target_arch = "x86_64")]
#[allow(non_snake_case, reason = "named as C names the functions")]
mod exports {
    use std::arch::naked_asm;

    macro_rules! same {
        ($($name:ident)*) => {
            renamed! { $($name => $name)* }
        };
    }

    macro_rules! renamed {
        ($($name:ident => $target:ident)*) => {$(
            #[unsafe(naked)]
            #[unsafe(no_mangle)]
            extern "C" fn $name() {
                naked_asm!(
                    concat!(".symver v13_", stringify!($target), ", ", stringify!($target), "@libcudart.so.13"),
                    concat!("jmp [rip + v13_", stringify!($target), "@GOTPCREL]"),
                )
            }
        )*};
    }

    macro_rules! older {
        ($($name:ident)*) => {$(
            #[unsafe(naked)]
            #[unsafe(no_mangle)]
            extern "C" fn $name() {
                naked_asm!(
                    concat!(".weak freehold_v12_", stringify!($name)),
                    concat!("mov rax, [rip + freehold_v12_", stringify!($name), "@GOTPCREL]"),
                    "test rax, rax",
                    "jz 2f",
                    "jmp rax",
                    // cudaErrorNotSupported
                    "2:",
                    "mov eax, 801",
                    "ret",
                )
            }
        )*};
    }

    crate::list::with_functions!(same, renamed, older);
}

#[cfg(target_arch = "x86_64")]
mod list;
