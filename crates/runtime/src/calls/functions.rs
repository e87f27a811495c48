//! What is known of kernels: their names, where their arguments may have addresses, and the code that they belong to.

use std::collections::HashMap;
use std::ffi::{CStr, c_char, c_void};
use std::hash::{BuildHasherDefault, Hasher};
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::{PoisonError, RwLock};

use freehold_check::calls::{Argument, CallChecker, KernelId};
use freehold_driver::cuda::{Api, CUfunction, CUkernel, CUlibrary, CUmodule, launch_param};

/// Arguments that are larger are not looked at: structures of that size often have words that were never written.
const ARGUMENT_BYTES_MAX: usize = 256;

/// How many words of a launch are looked at.
const WORDS_MAX: usize = 64;

/// Most kernels have no more: less memory is set for these.
const WORDS_FEW: usize = 8;

const ADDRESS_BYTES: usize = size_of::<u64>();

/// A word of a kernel's arguments that may be an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Word {
    /// Which argument, and where in it.
    argument: usize,
    offset: usize,
    /// Where in all arguments.
    place: usize,
    is_whole: bool,
}

/// A kernel.
#[derive(Debug)]
pub(super) struct Function {
    handle: CUfunction,
    pub(super) kernel: KernelId,
    /// Its module or library.
    pub(super) module: Option<u64>,
    words: Vec<Word>,
}

/// The addresses in the arguments of a launch, at most `MAX`.
struct Arguments<const MAX: usize> {
    all: [Argument; MAX],
    count: usize,
}

impl<const MAX: usize> Arguments<MAX> {
    #[inline]
    fn none() -> Self {
        Self { all: [Argument { value: 0, is_whole: false }; MAX], count: 0 }
    }

    #[inline]
    fn as_slice(&self) -> &[Argument] {
        &self.all[..self.count]
    }

    #[inline]
    fn push(&mut self, argument: Argument) {
        if argument.value != 0 {
            self.all[self.count] = argument;
            self.count += 1;
        }
    }
}

impl Function {
    /// Reads the addresses in the arguments of a launch, and passes them to a function.
    ///
    /// # Safety
    /// They are arguments of this kernel, as the driver accepts them.
    #[inline]
    pub(super) unsafe fn with_arguments<R>(
        &self,
        parameters: *mut *mut c_void,
        extra: *mut *mut c_void,
        pass: impl FnOnce(&[Argument]) -> R,
    ) -> R {
        if self.words.len() <= WORDS_FEW {
            // SAFETY: the caller guarantees that they are arguments of the kernel, and no others than these may be addresses.
            return pass(unsafe { self.arguments::<WORDS_FEW>(parameters, extra) }.as_slice());
        }
        // SAFETY: as above.
        pass(unsafe { self.arguments::<WORDS_MAX>(parameters, extra) }.as_slice())
    }

    /// Reads the addresses in the arguments of a launch.
    ///
    /// # Safety
    /// As for [`with_arguments`](Self::with_arguments).
    #[inline]
    unsafe fn arguments<const MAX: usize>(
        &self,
        parameters: *mut *mut c_void,
        extra: *mut *mut c_void,
    ) -> Arguments<MAX> {
        let mut found = Arguments::none();
        if !parameters.is_null() {
            for word in &self.words {
                // SAFETY: the caller guarantees that there is a pointer to each argument.
                let argument = unsafe { parameters.add(word.argument) };
                // SAFETY: as above.
                let argument = unsafe { *argument };
                // SAFETY: the argument has the bytes of this word.
                let place = unsafe { argument.byte_add(word.offset) };
                // SAFETY: as above.
                let value = unsafe { place.cast::<u64>().read_unaligned() };
                found.push(Argument { value, is_whole: word.is_whole });
            }
        // SAFETY: the caller guarantees that `extra` is valid, if there is no list of arguments.
        } else if let Some((buffer, bytes)) = unsafe { buffer(extra) } {
            for word in self.words.iter().filter(|word| word.place + ADDRESS_BYTES <= bytes) {
                // SAFETY: the buffer has as many bytes.
                let place = unsafe { buffer.byte_add(word.place) };
                // SAFETY: as above.
                let value = unsafe { place.cast::<u64>().read_unaligned() };
                found.push(Argument { value, is_whole: word.is_whole });
            }
        }
        found
    }
}

/// Returns the buffer with all arguments of a launch, and its size.
unsafe fn buffer(extra: *mut *mut c_void) -> Option<(*mut c_void, usize)> {
    if extra.is_null() {
        return None;
    }
    let (mut start, mut bytes) = (ptr::null_mut(), 0);
    let mut at = extra;
    loop {
        // SAFETY: the caller guarantees that the list ends with `END`.
        let key = unsafe { *at } as usize;
        if key == launch_param::END {
            break;
        }
        // SAFETY: a value follows each other key.
        let place = unsafe { at.add(1) };
        // SAFETY: as above.
        let value = unsafe { *place };
        match key {
            launch_param::BUFFER_POINTER => start = value,
            // SAFETY: the value is the address of the size.
            launch_param::BUFFER_SIZE => bytes = unsafe { *value.cast::<usize>() },
            _ => return None,
        }
        // SAFETY: as above.
        at = unsafe { at.add(2) };
    }
    (!start.is_null()).then_some((start, bytes))
}

/// Hashes a handle.
#[derive(Default)]
struct HandleHasher(u64);

impl Hasher for HandleHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.0 = self.0.rotate_left(8) ^ u64::from(*byte));
    }

    fn write_usize(&mut self, handle: usize) {
        self.0 = (handle as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
}

/// The kernels that were launched, by their handles.
#[derive(Default)]
pub(super) struct Functions {
    all: RwLock<HashMap<usize, &'static Function, BuildHasherDefault<HandleHasher>>>,
    /// Those that were launched last, which are found without a lock. Changed while `all` is locked.
    recent: [AtomicPtr<Function>; RECENT],
}

/// How many kernels are found without a lock, at most.
const RECENT: usize = 16;

impl Functions {
    /// Returns what is known of a kernel. Handles of functions and of kernels are both accepted, as by launches.
    #[inline]
    pub(super) fn get(&self, api: &Api, checker: &CallChecker, handle: CUfunction) -> &'static Function {
        let recent = self.recent(handle).load(Ordering::Acquire);
        // SAFETY: what is stored there is null, or a function that is kept for as long as the process.
        if let Some(recent) = unsafe { recent.as_ref() }
            && recent.handle == handle
        {
            return recent;
        }
        self.find(api, checker, handle)
    }

    #[inline]
    fn recent(&self, handle: CUfunction) -> &AtomicPtr<Function> {
        // Handles are multiples of a power of two.
        let hash = (handle.0 as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        &self.recent[(hash >> 32) as usize % RECENT]
    }

    #[cold]
    fn find(&self, api: &Api, checker: &CallChecker, handle: CUfunction) -> &'static Function {
        let known = self.all.read().unwrap_or_else(PoisonError::into_inner).get(&handle.0).copied();
        // Kept for as long as the process: a launch may use it while another thread unloads the code.
        let function = known.unwrap_or_else(|| Box::leak(Box::new(describe(api, checker, handle))));
        let mut all = self.all.write().unwrap_or_else(PoisonError::into_inner);
        if known.is_none() {
            all.insert(handle.0, function);
        }
        // Another thread may have unloaded it meanwhile.
        if all.get(&handle.0).is_some_and(|now| ptr::eq(*now, function)) {
            self.recent(handle).store(ptr::from_ref(function).cast_mut(), Ordering::Release);
        }
        function
    }

    /// Forgets all kernels: code was unloaded, and its handles may mean others.
    pub(super) fn forget(&self) {
        let mut all = self.all.write().unwrap_or_else(PoisonError::into_inner);
        all.clear();
        self.recent.iter().for_each(|recent| recent.store(ptr::null_mut(), Ordering::Release));
    }
}

fn describe(api: &Api, checker: &CallChecker, handle: CUfunction) -> Function {
    let kernel = CUkernel(handle.0);
    let (mut name, mut library, mut module): (*const c_char, _, _) = (ptr::null(), CUlibrary::NULL, CUmodule::NULL);
    // SAFETY: the C caller guarantees that the handle is a function's or a kernel's, and `name` is a valid place.
    let named = unsafe { (api.cuFuncGetName)(&raw mut name, handle) };
    // SAFETY: as above.
    let named = named.or_else(|_| unsafe { (api.cuKernelGetName)(&raw mut name, kernel) });
    let text = match named {
        // SAFETY: the driver has written a NUL-terminated name.
        Ok(()) if !name.is_null() => unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned(),
        _ => "a kernel".to_owned(),
    };
    // SAFETY: as above.
    let owner = match unsafe { (api.cuKernelGetLibrary)(&raw mut library, kernel) } {
        Ok(()) => Some(library.0 as u64),
        // SAFETY: as above.
        Err(_) => unsafe { (api.cuFuncGetModule)(&raw mut module, handle) }.ok().map(|()| module.0 as u64),
    };
    Function { handle, kernel: checker.kernel(&text), module: owner, words: words(api, handle) }
}

/// Returns where the arguments of a kernel may have addresses.
fn words(api: &Api, handle: CUfunction) -> Vec<Word> {
    let mut words = Vec::new();
    for argument in 0.. {
        let (mut place, mut bytes) = (0, 0);
        // SAFETY: as for `describe`; both are valid places for the answer.
        let asked = unsafe { (api.cuFuncGetParamInfo)(handle, argument, &raw mut place, &raw mut bytes) };
        // SAFETY: as above.
        let asked = asked.or_else(|_| unsafe {
            (api.cuKernelGetParamInfo)(CUkernel(handle.0), argument, &raw mut place, &raw mut bytes)
        });
        if asked.is_err() {
            break;
        }
        if bytes > ARGUMENT_BYTES_MAX {
            continue;
        }
        let first = place.next_multiple_of(ADDRESS_BYTES) - place;
        let offsets = (first..bytes).step_by(ADDRESS_BYTES).filter(|offset| offset + ADDRESS_BYTES <= bytes);
        words.extend(offsets.map(|offset| Word {
            argument,
            offset,
            place: place + offset,
            is_whole: bytes == ADDRESS_BYTES,
        }));
    }
    words.truncate(WORDS_MAX);
    words
}
