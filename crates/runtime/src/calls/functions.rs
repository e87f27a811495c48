//! The kernels: their names, which arguments may contain addresses, and the code that they belong to.

use std::collections::{HashMap, HashSet};
use std::ffi::{CStr, c_char, c_void};
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::{Mutex, PoisonError, RwLock};

use freehold_check::calls::{Argument, CallChecker, KernelId};
use freehold_driver::cuda::{Api, CUfunction, CUkernel, CUlibrary, CUmodule, launch_param};

use super::handles::HandleHash;
use super::lock::lock;

/// Arguments that are larger are not looked at: structures of that size often have words that were never written.
const ARGUMENT_BYTES_MAX: usize = 256;

/// How many words of a launch are looked at.
const WORDS_MAX: usize = 64;

/// Most kernels have no more: less memory is set for these.
const WORDS_FEW: usize = 8;

const ADDRESS_BYTES: usize = size_of::<u64>();

/// A word of a kernel's arguments that may be an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Word {
    /// Which argument, and where in it.
    argument: usize,
    offset: usize,
    /// Where in all arguments.
    place: usize,
    is_whole: bool,
}

/// A kernel.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) struct Function {
    handle: CUfunction,
    pub(super) kernel: KernelId,
    /// Its module or library.
    pub(super) module: Option<u64>,
    is_of_library: bool,
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

/// The kernels that were launched, by their handles.
#[derive(Default)]
pub(super) struct Functions {
    all: RwLock<HashMap<usize, &'static Function, HandleHash>>,
    /// Those that were launched last, which are found without a lock. Changed while `all` is locked.
    recent: [AtomicPtr<Function>; RECENT],
    /// All that were ever described.
    described: Mutex<HashSet<&'static Function>>,
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
        let function = known.unwrap_or_else(|| self.interned(describe(api, checker, handle)));
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

    /// Returns a function that is kept for as long as the process: a launch may use it while another thread unloads the code. One that
    /// is described again takes no more memory.
    fn interned(&self, function: Function) -> &'static Function {
        let mut described = lock(&self.described);
        if let Some(known) = described.get(&function) {
            return known;
        }
        let kept: &'static Function = Box::leak(Box::new(function));
        described.insert(kept);
        kept
    }

    /// Forgets all kernels: their handles may mean others.
    pub(super) fn forget_all(&self) {
        self.forget(|_| true);
    }

    /// Forgets the kernels of a module.
    pub(super) fn forget_module(&self, module: CUmodule) {
        self.forget(|function| !function.is_of_library && function.module.is_none_or(|owner| owner == module.0 as u64));
    }

    /// Forgets the kernels of a library, and those of modules: a library has a module in each context.
    pub(super) fn forget_library(&self, library: CUlibrary) {
        self.forget(|function| !function.is_of_library || function.module == Some(library.0 as u64));
    }

    fn forget(&self, is_gone: impl Fn(&Function) -> bool) {
        let mut all = self.all.write().unwrap_or_else(PoisonError::into_inner);
        all.retain(|_, function| !is_gone(function));
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
    let is_of_library = unsafe { (api.cuKernelGetLibrary)(&raw mut library, kernel) }.is_ok();
    let module = match is_of_library {
        true => Some(library.0 as u64),
        // SAFETY: as above.
        false => unsafe { (api.cuFuncGetModule)(&raw mut module, handle) }.ok().map(|()| module.0 as u64),
    };
    Function { handle, kernel: checker.kernel(&text), module, is_of_library, words: words(api, handle) }
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

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use freehold_driver::cuda::{CUerror, CUresult};

    use super::*;

    /// How often a kernel was described.
    static DESCRIBED: AtomicUsize = AtomicUsize::new(0);

    /// A driver in which kernels below 1000 belong to modules, the others to libraries. The hundreds are the module or library.
    fn driver() -> Api {
        unsafe extern "C" fn library(library: *mut CUlibrary, kernel: CUkernel) -> CUresult {
            if kernel.0 < 1000 {
                return Err(CUerror::INVALID_HANDLE);
            }
            // SAFETY: the caller passes a valid place.
            unsafe { *library = CUlibrary(kernel.0 / 100) };
            Ok(())
        }
        unsafe extern "C" fn module(module: *mut CUmodule, function: CUfunction) -> CUresult {
            // SAFETY: the caller passes a valid place.
            unsafe { *module = CUmodule(function.0 / 100) };
            Ok(())
        }
        unsafe extern "C" fn name(_: *mut *const c_char, _: CUfunction) -> CUresult {
            DESCRIBED.fetch_add(1, Ordering::Relaxed);
            Err(CUerror::INVALID_HANDLE)
        }
        // SAFETY: there are no symbols, so that no function of the table does anything.
        let (mut api, _) = unsafe { Api::from_symbols(|_| None) };
        api.cuKernelGetLibrary = library;
        api.cuFuncGetModule = module;
        api.cuFuncGetName = name;
        api
    }

    #[test]
    fn unloaded_code_takes_its_own_kernels_along_and_kernels_that_come_back_take_no_more_memory() {
        let (api, checker, functions) = (driver(), CallChecker::new(|_| {}), Functions::default());
        let get = |handle| functions.get(&api, &checker, CUfunction(handle));
        let described = |handles: &[usize]| {
            let before = DESCRIBED.load(Ordering::Relaxed);
            for handle in handles {
                assert_eq!(get(*handle).handle, CUfunction(*handle));
            }
            DESCRIBED.load(Ordering::Relaxed) - before
        };
        let first = get(101);
        assert_eq!(described(&[101, 201, 1101, 1201]), 3);
        functions.forget_module(CUmodule(1));
        assert_eq!(described(&[201, 1101, 1201]), 0);
        assert_eq!(described(&[101]), 1);
        assert!(ptr::eq(get(101), first));
        // A module may be that of the library in a context.
        functions.forget_library(CUlibrary(11));
        assert_eq!(described(&[1201]), 0);
        assert_eq!(described(&[101, 201, 1101]), 3);
        functions.forget_all();
        assert_eq!(described(&[101, 201, 1101, 1201]), 4);
        assert_eq!(lock(&functions.described).len(), 4);
    }
}
