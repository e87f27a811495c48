//! Call stacks: return addresses, and their function names and source lines.
//!
//! A site is the addresses of the program's frames. The first capture of a site keeps a backtrace of the standard library, which
//! reads symbols and debug information when it is printed.

use std::backtrace::Backtrace;
use std::cell::RefCell;
use std::collections::HashMap;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::fmt::Write;
use std::mem::MaybeUninit;
use std::ptr;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use crate::finding::Frame;

/// How many frames of the program tell two sites apart.
const FRAMES_MAX: usize = 8;

/// How many frames are looked at: those of Freehold's libraries come first.
const DEPTH_MAX: usize = 64;

/// A place in the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Site(usize);

/// The sites of the process. While the dynamic linker runs the constructors and destructors of an object, it holds a lock that its
/// functions take, and these may call CUDA functions. So none of its functions is called, and no symbol read, with the lock of this.
#[derive(Default)]
struct Sites {
    /// By all addresses of the stack.
    numbers: HashMap<Vec<usize>, usize>,
    all: Vec<Arc<Captured>>,
}

struct Captured {
    /// Of the program's frames.
    addresses: Vec<usize>,
    /// The function that the program called.
    function: Option<String>,
    backtrace: Backtrace,
}

static SITES: Mutex<Option<Sites>> = Mutex::new(None);

fn sites() -> MutexGuard<'static, Option<Sites>> {
    SITES.lock().unwrap_or_else(PoisonError::into_inner)
}

unsafe extern "C-unwind" {
    fn _Unwind_Backtrace(
        each: unsafe extern "C-unwind" fn(frame: *mut c_void, data: *mut c_void) -> c_int,
        data: *mut c_void,
    ) -> c_int;
    fn _Unwind_GetIP(frame: *mut c_void) -> usize;
    fn _Unwind_GetCFA(frame: *mut c_void) -> usize;
}

/// `_URC_NO_REASON`.
const GO_ON: c_int = 0;
/// `_URC_END_OF_STACK`.
const STOP: c_int = 5;

/// Adds a frame to a list of addresses.
unsafe extern "C-unwind" fn add_frame(frame: *mut c_void, data: *mut c_void) -> c_int {
    // SAFETY: `capture` passes a list, which nothing else uses meanwhile.
    let found = unsafe { &mut *data.cast::<Vec<usize>>() };
    // SAFETY: the unwinder passes a frame.
    found.push(unsafe { _Unwind_GetIP(frame) });
    if found.len() < DEPTH_MAX { GO_ON } else { STOP }
}

/// Returns the addresses of the frames of this thread, the innermost first.
fn unwind() -> Vec<usize> {
    let mut found: Vec<usize> = Vec::with_capacity(DEPTH_MAX);
    // SAFETY: `add_frame` gets the list that it expects.
    unsafe { _Unwind_Backtrace(add_frame, (&raw mut found).cast()) };
    found
}

/// Returns how many of the innermost frames are Freehold's.
fn inner(found: &[usize]) -> usize {
    found.iter().take_while(|address| **address == 0 || is_ours(**address)).count()
}

/// Returns the place that called Freehold's libraries.
pub fn capture() -> Site {
    site_of(unwind(), inner, true)
}

/// Where a return address is on the stack, and its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Slot {
    at: usize,
    address: usize,
}

/// Adds a frame, with where its address is on the stack, to a list.
unsafe extern "C-unwind" fn add_slot(frame: *mut c_void, data: *mut c_void) -> c_int {
    // SAFETY: `capture_slots` passes a list, which nothing else uses meanwhile.
    let found = unsafe { &mut *data.cast::<Vec<Slot>>() };
    // SAFETY: the unwinder passes a frame.
    let address = unsafe { _Unwind_GetIP(frame) };
    // SAFETY: as above. A call puts the return address below the frame of the caller.
    let at = unsafe { _Unwind_GetCFA(frame) }.wrapping_sub(size_of::<usize>());
    found.push(Slot { at, address });
    if found.len() < DEPTH_MAX { GO_ON } else { STOP }
}

/// A site, and the return addresses on the stack that tell it from others.
struct Recent {
    /// Where the stack of the caller was.
    above: usize,
    slots: Vec<Slot>,
    site: Site,
}

/// How many places on the stack are told apart, and how many sites are remembered for each.
const PLACES: usize = 128;
const SITES_PER_PLACE: usize = 8;

thread_local! {
    /// The sites of the last calls of this thread, by where its stack was.
    static RECENT: RefCell<Vec<Vec<Recent>>> = const { RefCell::new(Vec::new()) };
}

/// Returns the place that called Freehold's libraries, as [`capture`] does. Unwinds only for a place that is new: for others the
/// return addresses are where they were. For processors on which calls put the return address on the stack; others unwind.
#[inline(never)]
pub fn capture_again() -> Site {
    if !cfg!(target_arch = "x86_64") {
        return capture();
    }
    let here = 0_u8;
    let above = (&raw const here).addr();
    let place = above / 16 % PLACES;
    let known = RECENT.try_with(|recent| {
        let mut recent = recent.try_borrow_mut().ok()?;
        if recent.is_empty() {
            recent.resize_with(PLACES, Vec::new);
        }
        let places = &mut recent[place];
        let is_same = |recent: &Recent| recent.above == above && are_in_place(&recent.slots);
        if places.first().is_some_and(is_same) {
            return Some(places[0].site);
        }
        let found = places.iter().position(is_same)?;
        places.swap(0, found);
        Some(places[0].site)
    });
    match known {
        Ok(Some(site)) => site,
        Ok(None) => capture_slots(place, above),
        // The thread is ending.
        Err(_) => capture(),
    }
}

/// Returns whether the stack has a return address.
#[inline]
fn is_in_place(slot: &Slot) -> bool {
    // SAFETY: the slot is further up the stack that the thread is on: `capture_again` compares only slots that were found when the stack
    // ended at the same address.
    unsafe { ptr::with_exposed_provenance::<usize>(slot.at).read() == slot.address }
}

/// Returns whether the stack has all return addresses.
#[inline]
fn are_in_place(slots: &[Slot]) -> bool {
    // Eight at a time: each launch compares them.
    let (eights, rest) = slots.as_chunks::<8>();
    eights.iter().all(|slots| slots.iter().all(is_in_place)) && rest.iter().all(is_in_place)
}

/// Returns the current site, and remembers it. `above` is where the stack of the caller is.
#[cold]
#[inline(never)]
fn capture_slots(place: usize, above: usize) -> Site {
    let mut found: Vec<Slot> = Vec::with_capacity(DEPTH_MAX);
    // SAFETY: `add_slot` gets the list that it expects.
    unsafe { _Unwind_Backtrace(add_slot, (&raw mut found).cast()) };
    let addresses: Vec<usize> = found.iter().map(|slot| slot.address).collect();
    let needed = inner(&addresses) + FRAMES_MAX;
    let site = site_of(addresses, inner, true);
    // Those below are gone when the next call looks.
    let slots = found.into_iter().take(needed).filter(|slot| slot.at > above && slot.address != 0);
    let slots: Vec<Slot> = slots.collect();
    if !slots.is_empty() && slots.iter().all(is_in_place) {
        let _ = RECENT.try_with(|recent| {
            if let Ok(mut recent) = recent.try_borrow_mut() {
                let places = &mut recent[place];
                places.truncate(SITES_PER_PLACE - 1);
                places.insert(0, Recent { above, slots, site });
            }
        });
    }
    site
}

/// Returns the place of an instruction that a signal has interrupted. Called by the signal's handler.
pub fn capture_interrupted(instruction: usize) -> Site {
    let mut found = unwind();
    if !found.contains(&instruction) {
        found = vec![instruction];
    }
    site_of(found, |found| found.iter().take_while(|address| **address != instruction).count(), false)
}

/// Returns the site of frames. `inner` counts those that are not the program's. `is_call`: the program called the last of them.
fn site_of(found: Vec<usize>, inner: impl FnOnce(&[usize]) -> usize, is_call: bool) -> Site {
    if let Some(&number) = sites().get_or_insert_default().numbers.get(&found) {
        return Site(number);
    }
    let ours = inner(&found);
    let function = found[..ours].last().filter(|_| is_call).and_then(|address| symbol_of(*address));
    let addresses: Vec<usize> =
        found[ours..].iter().copied().filter(|address| *address != 0).take(FRAMES_MAX).collect();
    let same =
        |sites: &Sites| sites.all.iter().position(|place| place.addresses == addresses && place.function == function);
    let known = same(sites().get_or_insert_default());
    let backtrace = known.is_none().then(|| {
        // Libraries cannot be loaded any more when the report is written.
        demangle();
        Backtrace::force_capture()
    });
    let mut sites = sites();
    let sites = sites.get_or_insert_default();
    // Another thread may have added the site meanwhile.
    let number = known.or_else(|| same(sites)).unwrap_or(sites.all.len());
    if number == sites.all.len()
        && let Some(backtrace) = backtrace
    {
        sites.all.push(Arc::new(Captured { addresses, function, backtrace }));
    }
    sites.numbers.insert(found, number);
    Site(number)
}

impl Site {
    fn captured(self) -> Option<Arc<Captured>> {
        sites().as_ref()?.all.get(self.0).cloned()
    }

    /// Returns the exported function of Freehold's libraries that the program called.
    pub fn function(self) -> Option<String> {
        self.captured()?.function.clone()
    }

    /// Returns the program's frames, with the one that called first.
    pub fn frames(self) -> Vec<Frame> {
        without_generated(self.all_frames())
    }

    fn all_frames(self) -> Vec<Frame> {
        let Some(place) = self.captured() else { return Vec::new() };
        let symbols = symbols(&format!("{:#}", place.backtrace));
        let mut frames = Vec::new();
        for address in &place.addresses {
            let named = symbols.iter().filter(|symbol| symbol.address == *address && symbol.name != UNKNOWN);
            let mut is_named = false;
            for symbol in named {
                if symbol.name.starts_with(STARTS_MAIN) {
                    return frames;
                }
                is_named = true;
                let object = if symbol.place.is_none() { object_offset(*address) } else { None };
                frames.push(Frame { function: Some(demangled(&symbol.name)), source: symbol.place.clone(), object });
                if symbol.name == "main" {
                    return frames;
                }
            }
            if !is_named {
                let object = object_offset(*address).or_else(|| Some(format!("{address:#x}")));
                frames.push(Frame { object, ..Frame::default() });
            }
        }
        frames
    }

    /// Writes a line for each frame, with the program's function first.
    pub fn describe(self, indent: &str) -> String {
        let mut text = String::new();
        for Frame { function, source, object } in self.frames() {
            let place = match (&source, &object) {
                (Some(source), _) => format!(" at {source}"),
                (None, Some(object)) => format!(" in {object}"),
                (None, None) => String::new(),
            };
            let line = format!("{}{place}", function.unwrap_or_default());
            let _ = writeln!(text, "{indent}{}", line.trim_start());
        }
        text
    }
}

/// Removes the innermost frames that are not the program's own: inline functions of NVIDIA's headers, and those that nvcc generates for a launch, up to
/// the function with the kernel's name.
fn without_generated(mut frames: Vec<Frame>) -> Vec<Frame> {
    let is_stub = |frame: &Frame| {
        let function = frame.function.as_deref().unwrap_or_default();
        function.starts_with("__device_stub__") || function.starts_with("__cudaLaunchKernel")
    };
    let is_of_header = |frame: &Frame| {
        let path = frame.source.as_deref().and_then(|source| source.rsplit_once(':')).map_or("", |(path, _)| path);
        HEADERS.iter().any(|header| path.ends_with(header))
    };
    let end = frames.iter().position(|frame| !is_stub(frame) && !is_of_header(frame)).unwrap_or(0);
    let is_launch = frames[..end].iter().any(is_stub);
    let removed = end + usize::from(is_launch);
    if removed < frames.len() {
        frames.drain(..removed);
    }
    frames
}

/// The headers of the CUDA runtime with inline functions that call it.
const HEADERS: [&str; 3] = ["/cuda_runtime.h", "/cuda_runtime_api.h", "/crt/host_runtime.h"];

/// The functions of the C library that call `main`.
const STARTS_MAIN: &str = "__libc_start_";

/// What the standard library prints for a frame without a name.
const UNKNOWN: &str = "<unknown>";

/// A function of a frame: an inlined one, or the one that it is inlined in.
#[derive(Debug, PartialEq, Eq)]
struct Symbol {
    address: usize,
    name: String,
    /// The file and the line.
    place: Option<String>,
}

/// Reads a backtrace as the standard library prints it with addresses.
fn symbols(backtrace: &str) -> Vec<Symbol> {
    let mut symbols: Vec<Symbol> = Vec::new();
    let mut address = 0;
    for line in backtrace.lines().map(str::trim) {
        if let Some(place) = line.strip_prefix("at ") {
            if let Some(symbol) = symbols.last_mut() {
                // Without the column.
                let column = place.rfind(':').filter(|at| place[..*at].contains(':'));
                symbol.place = Some(place[..column.unwrap_or(place.len())].to_owned());
            }
            continue;
        }
        let name = match line.split_once(": ").and_then(|(number, rest)| {
            number.parse::<u32>().ok()?;
            let (hex, name) = rest.trim().split_once(" - ")?;
            Some((usize::from_str_radix(hex.strip_prefix("0x")?, 16).ok()?, name))
        }) {
            Some((of_frame, name)) => {
                address = of_frame;
                name
            }
            None => line,
        };
        symbols.push(Symbol { address, name: name.to_owned(), place: None });
    }
    symbols
}

/// Asks the dynamic linker about an address.
fn look_up(address: usize) -> Option<libc::Dl_info> {
    let mut found = MaybeUninit::<libc::Dl_info>::zeroed();
    // SAFETY: `found` is a valid place for the answer. Any address may be asked about.
    if unsafe { libc::dladdr(ptr::without_provenance(address), found.as_mut_ptr()) } == 0 {
        return None;
    }
    // SAFETY: the call succeeded, so it filled the struct.
    Some(unsafe { found.assume_init() })
}

/// Returns where the object with an address is loaded, and its path.
fn object_of(address: usize) -> Option<(usize, String)> {
    let found = look_up(address)?;
    // SAFETY: the dynamic linker keeps the path, which ends in a NUL, while the object is loaded.
    let path = unsafe { CStr::from_ptr(found.dli_fname) };
    Some((found.dli_fbase as usize, path.to_string_lossy().into_owned()))
}

/// Returns the exported function that an address is in.
fn symbol_of(address: usize) -> Option<String> {
    let found = look_up(address)?;
    if found.dli_sname.is_null() {
        return None;
    }
    // SAFETY: the dynamic linker keeps the name, which ends in a NUL, while the object is loaded.
    let name = unsafe { CStr::from_ptr(found.dli_sname) };
    Some(name.to_string_lossy().into_owned())
}

/// Returns whether an address is in one of Freehold's libraries: this one, the driver or the runtime.
fn is_ours(address: usize) -> bool {
    object_of(address).is_some_and(|(base, path)| {
        let name = path.rsplit('/').next().unwrap_or_default();
        Some(base) == own_base()
            || ["libcuda.so", "libcudart.so", "libfreehold"].iter().any(|ours| name.starts_with(ours))
    })
}

fn own_base() -> Option<usize> {
    static BASE: OnceLock<Option<usize>> = OnceLock::new();
    found_once(&BASE, || object_of(own_base as *const () as usize).map(|(base, _)| base))
}

/// Returns what `find` returned first. Unlike `get_or_init`, no thread waits for another that is in `find`: one that runs a constructor
/// of an object would keep the lock of the dynamic linker meanwhile.
fn found_once<T: Copy>(found: &OnceLock<T>, find: impl FnOnce() -> T) -> T {
    match found.get() {
        Some(known) => *known,
        None => {
            let new = find();
            *found.get_or_init(|| new)
        }
    }
}

/// Returns the object of an address, and the offset in it.
fn object_offset(address: usize) -> Option<String> {
    object_of(address).map(|(base, path)| format!("{path}+{:#x}", address - base))
}

type Demangle = unsafe extern "C" fn(*const c_char, *mut c_char, *mut usize, *mut c_int) -> *mut c_char;

/// Returns the function of the C++ library that demangles, if the machine has the library.
fn demangle() -> Option<Demangle> {
    static FOUND: OnceLock<Option<Demangle>> = OnceLock::new();
    found_once(&FOUND, || {
        // SAFETY: the initializers of the library need nothing of the program. It is loaded already if the program is of C++.
        let library = unsafe { libc::dlopen(c"libstdc++.so.6".as_ptr(), libc::RTLD_LAZY) };
        if library.is_null() {
            return None;
        }
        // SAFETY: the library stays loaded, and the name ends in a NUL.
        let function = unsafe { libc::dlsym(library, c"__cxa_demangle".as_ptr()) };
        // SAFETY: the C++ ABI defines the function with this signature.
        (!function.is_null()).then(|| unsafe { std::mem::transmute::<*mut c_void, Demangle>(function) })
    })
}

/// Prepares [`demangled`] for threads that must not load a library: another one may have the lock of the dynamic linker, and wait for
/// them.
pub fn prepare_demangling(name: &str) {
    if name.starts_with("_Z") {
        demangle();
    }
}

/// Returns a name of C++ as it was written.
pub fn demangled(name: &str) -> String {
    let (true, Some(demangle), Ok(mangled)) = (name.starts_with("_Z"), demangle(), CString::new(name)) else {
        return name.to_owned();
    };
    let mut status = 0;
    // SAFETY: the name ends in a NUL; without a buffer the function allocates one.
    let text = unsafe { demangle(mangled.as_ptr(), ptr::null_mut(), ptr::null_mut(), &raw mut status) };
    if text.is_null() {
        return name.to_owned();
    }
    // SAFETY: the function returned a NUL-terminated string.
    let found = unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned();
    // SAFETY: the string was allocated with `malloc`, and is not used any more.
    unsafe { libc::free(text.cast()) };
    found
}

#[cfg(test)]
mod tests {
    use std::hint;

    use super::*;

    #[test]
    fn frames_of_headers_and_of_generated_functions_are_left_out() {
        let frame = |function: &str, source: &str| Frame {
            function: Some(function.to_owned()),
            source: Some(source.to_owned()),
            object: None,
        };
        let names = |frames: Vec<Frame>| -> Vec<String> {
            without_generated(frames).into_iter().filter_map(|frame| frame.function).collect()
        };
        let own = [frame("make", "solver.cu:19"), frame("main", "solver.cu:36")];
        let malloc = frame("cudaMalloc<float>", "/usr/local/cuda/include/cuda_runtime.h:879");
        assert_eq!(names([std::slice::from_ref(&malloc), &own[..]].concat()), ["make", "main"]);
        let launch = [
            frame("__cudaLaunchKernel_helper", "/usr/local/cuda/include/crt/host_runtime.h:261"),
            frame("__device_stub__Z4stepPf", "/tmp/tmpxft_1/solver.cudafe1.stub.c:13"),
            frame("step", "solver.cu:3"),
        ];
        assert_eq!(names([&launch[..], &own[..]].concat()), ["make", "main"]);
        assert_eq!(names(own.to_vec()), ["make", "main"]);
        // Better one frame than none.
        assert_eq!(names(vec![malloc]), ["cudaMalloc<float>"]);
    }

    #[test]
    fn a_printed_backtrace_is_read_with_inlined_functions() {
        let text = "   0:     0x55d0000010 - leak\n                               at /src/leak.c:7:5\n   1:     0x55d0000020 - inner\n                               at /src/a.h:3\n                 outer\n                               at /src/a.c:9:1\n   2:     0x7f0000 - <unknown>\n";
        let symbol = |address, name: &str, place: Option<&str>| Symbol {
            address,
            name: name.to_owned(),
            place: place.map(str::to_owned),
        };
        let expected = [
            symbol(0x55_d000_0010, "leak", Some("/src/leak.c:7")),
            symbol(0x55_d000_0020, "inner", Some("/src/a.h:3")),
            symbol(0x55_d000_0020, "outer", Some("/src/a.c:9")),
            symbol(0x7f_0000, UNKNOWN, None),
        ];
        assert_eq!(symbols(text), expected);
    }

    #[test]
    fn the_standard_library_prints_backtraces_in_this_form() {
        let read = symbols(&format!("{:#}", Backtrace::force_capture()));
        assert!(read.iter().any(|symbol| symbol.name.contains("the_standard_library_prints") && symbol.address != 0));
    }

    #[test]
    fn one_place_is_one_site() {
        let captured: Vec<Site> = (0..hint::black_box(2)).map(|_| capture()).collect();
        assert_eq!(captured[0], captured[1]);
    }

    #[test]
    fn other_threads_capture_and_read_sites_while_one_looks_up_objects() {
        let known = capture();
        let mut other = None;
        let looks_up = |_: &[usize]| {
            // The dynamic linker may make this thread wait until the other one has ended.
            other = Some(std::thread::spawn(move || (capture(), known.frames())).join());
            0
        };
        site_of(vec![1], looks_up, false);
        assert!(other.is_some_and(|joined| joined.is_ok()));
    }

    #[test]
    fn a_thread_finds_what_another_one_is_looking_for() {
        let found = OnceLock::new();
        let first = found_once(&found, || found_once(&found, || 1) + 1);
        assert_eq!((first, found.get()), (1, Some(&1)));
    }

    #[inline(never)]
    fn one() -> Site {
        capture_again()
    }

    #[inline(never)]
    fn other() -> Site {
        capture_again()
    }

    /// All of its frames are in Freehold's object, so both callers are one site. They are remembered apart.
    #[test]
    fn a_remembered_site_is_not_that_of_another_caller() {
        // A loop of unknown length is not unrolled: its calls have one return address.
        let sites: Vec<[Site; 2]> = (0..hint::black_box(3)).map(|_| [one(), other()]).collect();
        assert!(sites.iter().all(|pair| *pair == sites[0]));
        let all: usize = RECENT.with_borrow(|recent| recent.iter().map(Vec::len).sum());
        assert_eq!(all, if cfg!(target_arch = "x86_64") { 2 } else { 0 });
    }
}
