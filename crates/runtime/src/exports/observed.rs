// What is observed of a call: an allocation, a free, another call, or nothing. The arguments are those of the list.
macro_rules! observed {
    (cudaMalloc; [$start:ident $bytes:ident]; $call:expr) => { allocates!(Memory, cudaMalloc, $start, $bytes, $call) };
    (cudaMallocManaged; [$start:ident $bytes:ident $flags:ident]; $call:expr) => {
        allocates!(Memory, cudaMallocManaged, $start, $bytes, $call)
    };
    (cudaMallocAsync; [$start:ident $bytes:ident $stream:ident]; $call:expr) => {
        allocates!(Memory, cudaMallocAsync, $start, $bytes, $call, $stream)
    };
    (cudaMallocFromPoolAsync; [$start:ident $bytes:ident $pool:ident $stream:ident]; $call:expr) => {
        allocates!(Memory, cudaMallocFromPoolAsync, $start, $bytes, $call, $stream)
    };
    (cudaMallocPitch; [$start:ident $pitch:ident $width:ident $height:ident]; $call:expr) => {
        // SAFETY: the call has written the pitch.
        allocates!(Memory, cudaMallocPitch, $start, unsafe { *$pitch }.saturating_mul($height), $call)
    };
    (cudaMalloc3D; [$place:ident $extent:ident]; $call:expr) => {
        when_on!($call; observe::alloc(function!(Memory, cudaMalloc3D), || $call, || {
            // SAFETY: the call has written the address and the pitch.
            let rows = unsafe { *$place };
            (rows.ptr.addr(), (rows.pitch * $extent.height * $extent.depth) as u64)
        }))
    };
    (cudaMallocHost; [$start:ident $bytes:ident]; $call:expr) => {
        allocates!(Host, cudaMallocHost, $start, $bytes, $call)
    };
    (cudaHostAlloc; [$start:ident $bytes:ident $flags:ident]; $call:expr) => {
        allocates!(Host, cudaHostAlloc, $start, $bytes, $call)
    };
    (cudaMallocArray; [$array:ident $desc:ident $width:ident $height:ident $flags:ident]; $call:expr) => {
        // SAFETY: the call has read the description.
        makes!(Array, cudaMallocArray, $array, unsafe { *$desc }.element_bytes() * $width * $height.max(1), $call)
    };
    (cudaMalloc3DArray; [$array:ident $desc:ident $extent:ident $flags:ident]; $call:expr) => {
        // SAFETY: the call has read the description.
        makes!(Array, cudaMalloc3DArray, $array, unsafe { *$desc }.element_bytes() * $extent.elements(1), $call)
    };
    (cudaMallocMipmappedArray; [$array:ident $desc:ident $extent:ident $levels:ident $flags:ident]; $call:expr) => {
        // SAFETY: the call has read the description.
        makes!(Mipmap, cudaMallocMipmappedArray, $array, unsafe { *$desc }.element_bytes() * $extent.elements($levels), $call)
    };
    (cudaStreamCreate; [$stream:ident]; $call:expr) => { makes!(Stream, cudaStreamCreate, $stream, 0, $call) };
    (cudaStreamCreateWithFlags; [$stream:ident $flags:ident]; $call:expr) => {
        makes!(Stream, cudaStreamCreateWithFlags, $stream, 0, $call)
    };
    (cudaStreamCreateWithPriority; [$stream:ident $flags:ident $priority:ident]; $call:expr) => {
        makes!(Stream, cudaStreamCreateWithPriority, $stream, 0, $call)
    };
    (cudaEventCreate; [$event:ident]; $call:expr) => { makes!(Event, cudaEventCreate, $event, 0, $call) };
    (cudaEventCreateWithFlags; [$event:ident $flags:ident]; $call:expr) => {
        makes!(Event, cudaEventCreateWithFlags, $event, 0, $call)
    };
    (cudaFree; [$start:ident]; $call:expr) => { when_on!($call; observe::free(function!(Memory, cudaFree), $start.addr(), || $call)) };
    (cudaFreeAsync; [$start:ident $stream:ident]; $call:expr) => {
        when_on!($call; observe::free(function!(Memory, cudaFreeAsync, $stream), $start.addr(), || $call))
    };
    (cudaFreeHost; [$start:ident]; $call:expr) => { when_on!($call; observe::free(function!(Host, cudaFreeHost), $start.addr(), || $call)) };
    (cudaFreeArray; [$array:ident]; $call:expr) => { when_on!($call; observe::free(function!(Array, cudaFreeArray), $array.0, || $call)) };
    (cudaFreeMipmappedArray; [$array:ident]; $call:expr) => {
        when_on!($call; observe::free(function!(Mipmap, cudaFreeMipmappedArray), $array.0, || $call))
    };
    (cudaStreamDestroy; [$stream:ident]; $call:expr) => {
        when_on!($call; observe::free(function!(Stream, cudaStreamDestroy), $stream.0, || $call))
    };
    (cudaEventDestroy; [$event:ident]; $call:expr) => {
        when_on!($call; observe::free(function!(Event, cudaEventDestroy), $event.0, || $call))
    };
    (cudaDeviceReset; []; $call:expr) => { observe::reset(|| $call) };
    (cudaLaunchKernel; [$f:ident $grid:ident $block:ident $arguments:ident $shared:ident $stream:ident]; $call:expr) => {
        when_on!($call; observe::call("cudaLaunchKernel", thread::stream($stream).0, None, || $call))
    };
    (__cudaLaunchKernel; [$f:ident $grid:ident $block:ident $arguments:ident $shared:ident $stream:ident]; $call:expr) => {
        when_on!($call; observe::call("cudaLaunchKernel", thread::stream($stream).0, None, || $call))
    };
    (cudaLaunchKernelExC; [$config:ident $function:ident $arguments:ident]; $call:expr) => {
        when_on!($call; observe::call("cudaLaunchKernelExC", 0, None, || $call))
    };
    (cudaGraphLaunch; [$exec:ident $stream:ident]; $call:expr) => {
        when_on!($call; observe::call("cudaGraphLaunch", thread::stream($stream).0, None, || $call))
    };
    (cudaMemcpy; [$to:ident $from:ident $bytes:ident $kind:ident]; $call:expr) => {
        when_on!($call; observe::call("cudaMemcpy", 0, Some($bytes), || $call))
    };
    (cudaMemcpyAsync; [$to:ident $from:ident $bytes:ident $kind:ident $stream:ident]; $call:expr) => {
        when_on!($call; observe::call("cudaMemcpyAsync", thread::stream($stream).0, Some($bytes), || $call))
    };
    (cudaMemset; [$to:ident $value:ident $bytes:ident]; $call:expr) => {
        when_on!($call; observe::call("cudaMemset", 0, Some($bytes), || $call))
    };
    (cudaMemsetAsync; [$to:ident $value:ident $bytes:ident $stream:ident]; $call:expr) => {
        when_on!($call; observe::call("cudaMemsetAsync", thread::stream($stream).0, Some($bytes), || $call))
    };
    (cudaDeviceSynchronize; []; $call:expr) => { when_on!($call; observe::call("cudaDeviceSynchronize", 0, None, || $call)) };
    (cudaStreamSynchronize; [$stream:ident]; $call:expr) => {
        when_on!($call; observe::call("cudaStreamSynchronize", thread::stream($stream).0, None, || $call))
    };
    (cudaEventSynchronize; [$event:ident]; $call:expr) => { when_on!($call; observe::call("cudaEventSynchronize", 0, None, || $call)) };
    ($other:ident; [$($argument:ident)*]; $call:expr) => { $call };
}

macro_rules! allocates {
    ($kind:ident, $name:ident, $start:ident, $bytes:expr, $call:expr $(, $stream:ident)?) => {
        // SAFETY: the call has written the address.
        when_on!($call; observe::alloc(function!($kind, $name $(, $stream)?), || $call, || (unsafe { *$start }.addr(), $bytes as u64)))
    };
}

macro_rules! makes {
    ($kind:ident, $name:ident, $handle:ident, $bytes:expr, $call:expr) => {
        // SAFETY: the call has written the handle.
        when_on!($call; observe::alloc(function!($kind, $name), || $call, || (unsafe { *$handle }.0, $bytes as u64)))
    };
}

macro_rules! function {
    ($kind:ident, $name:ident) => { Function { name: stringify!($name), kind: Kind::$kind, stream: 0 } };
    ($kind:ident, $name:ident, $stream:ident) => {
        Function { name: stringify!($name), kind: Kind::$kind, stream: thread::stream($stream).0 }
    };
}

// One branch, unless something is observed.
macro_rules! when_on {
    ($call:expr; $observed:expr) => {
        if observe::is_on() { $observed } else { $call }
    };
}
