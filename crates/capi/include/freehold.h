/*
 * Freehold: GPU memory that is pooled and reused, and whose owners are recorded. Link with -lfreehold. Building and linking need no
 * CUDA library: the driver is the one that the process has loaded, or libcuda.so.1.
 *
 * Devices. A device is identified by its ordinal in the driver. The first call for a device adopts the context that is current in
 * its thread, if it belongs to that device, and the device's primary context otherwise. All streams that are passed later for the
 * device must belong to that context, and it must not be destroyed before the last call.
 *
 * Order. A block belongs to the stream that it was allocated for. When it is released in that stream, it is reused there
 * immediately, because the next use is ordered after the previous one. Report work in other streams with freehold_record_use, or
 * release the block in the stream that used it last, ordered after the others. No call waits for the device.
 *
 * Trust. By default a stream is identified by its handle: the same handle means the same stream until freehold_stream_retire. If a
 * program destroys a stream without that call and creates another, the driver may reuse the handle: blocks of the old stream are
 * then reused in the order of the new one, while work of the old one may be pending. With FREEHOLD_STREAMS=checked in the
 * environment, each call asks the driver for the stream's id instead. That needs no freehold_stream_retire, and costs more than the
 * rest of the call. In both modes, a stream passed to freehold_record_use must live until the block is released.
 *
 * Default streams. Stream 0, like CU_STREAM_LEGACY (1), is the legacy default stream of the adopted context, whatever is
 * current later. CU_STREAM_PER_THREAD (2) is the calling thread's own: blocks released there are reused by that thread. A
 * program that is compiled for per-thread default streams passes 2, not 0.
 *
 * Errors. A call that fails changes nothing, prints nothing, and sets the error of its thread: see freehold_last_error. All
 * functions may be called in any thread at any time, except in a forked child: there they fail.
 */


#ifndef FREEHOLD_H
#define FREEHOLD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* As in cuda.h. */
#if !defined(__cuda_cuda_h__) && !defined(FREEHOLD_CUDA_H)
typedef struct CUstream_st *CUstream;
#endif

/* The former name of freehold_owner_of. In C++ the structure has this name. */
#ifndef __cplusplus
struct freehold_owner;
int freehold_owner(const void *ptr, struct freehold_owner *out);
#endif


// Why a call failed.
enum freehold_error {
  // Nothing failed.
  FREEHOLD_ERROR_NONE = 0,
  // Zero bytes, or a negative number of bytes, were requested.
  FREEHOLD_ERROR_NOTHING_ASKED = 1,
  // There is not enough free memory.
  FREEHOLD_ERROR_OUT_OF_MEMORY = 2,
  // The address is inside a block; a block is released by its first address.
  FREEHOLD_ERROR_INTERIOR = 3,
  // The block was released before.
  FREEHOLD_ERROR_ALREADY_RELEASED = 4,
  // Nothing was ever allocated at the address.
  FREEHOLD_ERROR_NEVER_ALLOCATED = 5,
  // The block belongs to another device.
  FREEHOLD_ERROR_WRONG_DEVICE = 6,
  // The block belongs to Rust code of this process, or to other code that registered it with the library.
  FREEHOLD_ERROR_NOT_YOURS = 7,
  // This process is a fork of the one that opened the device.
  FREEHOLD_ERROR_FORKED_CHILD = 8,
  // The device or the driver does not exist.
  FREEHOLD_ERROR_NO_DEVICE = 9,
  // The driver refused a call.
  FREEHOLD_ERROR_DRIVER = 10,
  // The device has failed: every call of this process fails until the process exits.
  FREEHOLD_ERROR_DEVICE_FAILED = 11,
  // A system call failed.
  FREEHOLD_ERROR_SYSTEM = 12,
  // An argument that must not be null is null.
  FREEHOLD_ERROR_NULL_ARGUMENT = 13,
  // A bug in the library: please report the text.
  FREEHOLD_ERROR_INTERNAL = 14,
  // The allocation would exceed the budget of the tag, or of one that contains it.
  FREEHOLD_ERROR_TAG_BUDGET = 15,
  // No more tags can have a budget, or sleep.
  FREEHOLD_ERROR_TOO_MANY_TAGS = 16,
  // A string is not valid UTF-8.
  FREEHOLD_ERROR_NOT_TEXT = 17,
  // The stream is being captured.
  FREEHOLD_ERROR_STREAM_CAPTURED = 18,
  // There is no private pool with this id to end or release.
  FREEHOLD_ERROR_NO_SUCH_POOL = 19,
  // The private pool was begun and not ended; end it before releasing it.
  FREEHOLD_ERROR_POOL_OPEN = 20,
  // The block is asleep: call freehold_wake before using it.
  FREEHOLD_ERROR_ASLEEP = 21,
  // The tag is not one that freehold_set_sleepable was called with, or no tag of this device can sleep.
  FREEHOLD_ERROR_NOT_SLEEPABLE = 22,
};

// Memory that grows and shrinks at a fixed address. Calls for one vector must not run at the same time.
struct freehold_vector;

// The owner of a block.
struct freehold_owner {
  // The first address of the block.
  void *base;
  // The size that was requested.
  size_t size;
  // The device number.
  int device;
  // The library's id of the stream whose order the block follows, never reused for another stream; 0 if it is no
  // longer known.
  uint32_t stream;
  // The process id.
  uint32_t process;
  // Whether the block is allocated; otherwise it has been released.
  bool is_live;
};

// Memory at consecutive addresses that the library has from the driver.
struct freehold_segment {
  // Its first address; null for memory that is cached and not mapped.
  void *base;
  // Its length.
  size_t size;
  // The stream whose freed blocks it contains.
  CUstream stream;
};

// Memory in which a block, or a part of one, lies, for another process.
struct freehold_chunk {
  // Where it begins in this process.
  void *base;
  // Its length.
  size_t size;
  // A descriptor that the caller closes. cuMemImportFromShareableHandle imports it, in this or another process.
  int descriptor;
};

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// Allocates memory for work in a stream. The memory is reused in the order of that stream, where no wait is necessary.
// The signature is PyTorch's.
//
// Returns null if there is not enough memory, or if zero bytes were requested: see freehold_last_error.
void *freehold_alloc(ssize_t size,
                     int device,
                     CUstream stream);

// Like freehold_alloc, with the memory zeroed in the order of the stream.
void *freehold_alloc_zeroed(ssize_t size, int device, CUstream stream);

// Like freehold_alloc, with the block counted under a tag until it is released: see freehold_set_tag_budget. Both the
// allocation and the release take a lock.
//
// A tag is a NUL-terminated UTF-8 string. Slashes nest tags: a live block tagged `model/cache` also counts for
// `model`. The library counts at most 4096 tags, including enclosing ones; blocks with further tags are not counted.
void *freehold_alloc_tagged(ssize_t size,
                            int device,
                            CUstream stream,
                            const char *tag);

// Releases a block in the order of a stream. Earlier work in the stream may still use the block; it is not reused
// before that work is done. The call does not wait. The signature is PyTorch's.
//
// The size is ignored. Null is ignored. An invalid release changes nothing, and sets freehold_last_error.
void freehold_free(void *ptr,
                   ssize_t size,
                   int device,
                   CUstream stream);

// Like freehold_free, but returns a freehold_error, which is FREEHOLD_ERROR_NONE on success.
int freehold_try_free(void *ptr, ssize_t size, int device, CUstream stream);

// Resizes a block in the order of a stream: in place if possible, otherwise by moving it, with the contents copied in
// the order of the stream. A null pointer allocates. Size 0 is an error, not a release.
//
// Returns null on failure: the block is unchanged, and freehold_last_error says why.
void *freehold_realloc(void *ptr,
                       ssize_t new_size,
                       int device,
                       CUstream stream);

// Records that work in a stream uses a block of another stream. The block is not reused until all work enqueued in
// that stream before the release is done. This is PyTorch's `record_stream`.
//
// Returns a freehold_error.
int freehold_record_use(void *ptr,
                        CUstream stream);

// Releases a block after all work that was submitted to the device before, in any stream. For callers that do not know
// which streams have used the block. The call does not wait.
//
// Returns a freehold_error. Null is ignored.
int freehold_free_after_all(void *ptr,
                            int device);

// Makes work that is submitted to the stream `later` from now on wait, on the device, for the work that was submitted to
// `earlier` before. In a capture the wait becomes part of the graph.
//
// Returns a freehold_error.
int freehold_order_after(int device,
                         CUstream later,
                         CUstream earlier);

// Makes work that is submitted to the stream `later` from now on wait, on the device, for all work that was submitted
// to the device before, in any stream. With a driver before CUDA 12.5 the call waits for that work.
//
// Returns a freehold_error: FREEHOLD_ERROR_STREAM_CAPTURED while a stream is being captured.
int freehold_order_after_all(int device,
                             CUstream later);

// Tells the library that a stream is about to be destroyed, after which the driver may reuse its handle. Call it
// before cuStreamDestroy, whichever device the stream belongs to. Blocks of the stream are unaffected.
//
// Returns a freehold_error. FREEHOLD_ERROR_STREAM_CAPTURED means that the stream is not retired, because it is being
// captured.
int freehold_stream_retire(CUstream stream);

// Promises that each stream capture of this process is announced by freehold_pool_begin, for any device, before it
// begins and in the thread that begins it. Without this promise, each call with a stream other than the legacy default
// one asks the driver whether the stream is capturing, which costs about 0.1 microseconds.
//
// Memory that is allocated or freed in a capturing stream belongs to its capture, because each launch of the graph
// uses it again. It is not reused elsewhere until freehold_pool_release, or freehold_capture_release if the capture
// was not announced.
void freehold_announce_captures(void);

// Makes captures that this thread begins from now on allocate from a private pool, until freehold_pool_end. The two
// numbers are the pool's id, which the caller chooses; captures that use one pool share its memory, so their graphs
// must not run at the same time. The signature is that of PyTorch's begin_allocate_to_pool, without its third
// argument.
//
// A capture belongs to the last pool that its thread began before the capture. The library detects the capture when
// that thread passes one of the capturing streams; from then on, other threads that pass these streams allocate from
// the pool too. If captures are announced, another thread may pass such a stream first, provided that only one thread
// has begun pools. Any other capture gets a pool of its own: see freehold_capture_release. A thread that has begun a
// pool itself must not be the first to pass a stream of another thread's capture.
//
// A pool contains memory of one device. Call this for each device on which the capture allocates. Memory that it
// allocates on any other device is kept for the capture until freehold_capture_release is called for that device.
//
// If a thread begins a pool again without freehold_pool_end, after its capture with the pool is over, the library
// concludes that the capture failed and has no graph, and counts both begins as one.
//
// Returns a freehold_error.
int freehold_pool_begin(int device,
                        uint64_t first,
                        uint64_t second);

// Ends what freehold_pool_begin began. Call it after the capture. The memory stays in the pool. The signature is
// PyTorch's.
//
// Returns a freehold_error.
int freehold_pool_end(int device,
                      uint64_t first,
                      uint64_t second);

// Releases a private pool. Call it once for each freehold_pool_begin, when the graphs captured with the pool will not
// be launched again. The pool's free memory is then reused elsewhere, and so are its live blocks once they are freed.
// The call waits for the work on the device, unless a stream is capturing or the driver refuses to wait; then the
// memory stays until the next such call or freehold_trim. The signature is PyTorch's.
//
// Returns a freehold_error. FREEHOLD_ERROR_POOL_OPEN means that the pool was begun and not ended; end it first.
int freehold_pool_release(int device,
                          uint64_t first,
                          uint64_t second);

// Like freehold_pool_release, for the memory of a capture that was not announced. `capture` is the id that
// cuStreamGetCaptureInfo returns.
//
// Returns a freehold_error.
int freehold_capture_release(int device,
                             uint64_t capture);

// Writes the addresses of the live blocks of a private pool to `out`, as many as fit, and their total number to
// `count`. If there is no room, `out` may be null.
//
// Returns a freehold_error.
int freehold_pool_blocks(int device,
                         uint64_t first,
                         uint64_t second,
                         void **out,
                         size_t room,
                         size_t *count);

// Returns how many bytes of a device's memory the library has allocated from the driver: those of live blocks, and
// those kept for reuse.
size_t freehold_reserved_bytes(int device);

// Returns how many bytes of a device's memory were requested and not released.
size_t freehold_live_bytes(int device);

// Returns unused memory to the driver until at most `keep` bytes of the device are reserved. Memory that work still
// uses stays. The call does not wait, unless a released private pool still has to be returned.
//
// Returns a freehold_error.
int freehold_trim(int device,
                  size_t keep);

// Limits how much of a device's memory the library reserves; SIZE_MAX means no limit. Memory that is already reserved
// is not returned: see freehold_trim.
//
// Returns a freehold_error.
int freehold_set_budget(int device,
                        size_t bytes);

// Limits the live bytes under a tag and the tags within it, on one device; SIZE_MAX means no limit. An allocation that
// would exceed the limit fails with FREEHOLD_ERROR_TAG_BUDGET. Live blocks are not affected.
//
// Returns a freehold_error.
int freehold_set_tag_budget(int device,
                            const char *tag,
                            size_t bytes);

// Returns the live bytes under a tag and the tags within it, on one device; 0 if the tag is not valid UTF-8.
size_t freehold_tag_bytes(int device,
                          const char *tag);

// Describes the owner of the block that contains an address.
//
// Returns a freehold_error. FREEHOLD_ERROR_NEVER_ALLOCATED means that there is no block, and `out` is unchanged.
int freehold_owner_of(const void *ptr,
                      struct freehold_owner *out);

// Returns a sentence that describes this thread's last failed call, or an empty string if none failed. The text is in
// a buffer that lives as long as the thread. The next call of this function overwrites it if another call has failed
// since. A successful call does not clear the error.
const char *freehold_last_error(void);

// Returns the freehold_error of this thread's last failed call.
int freehold_last_error_code(void);

// Clears this thread's last error.
void freehold_clear_error(void);

// Returns the library's version, such as "0.1.0".
const char *freehold_version(void);

// freehold_alloc with the signature of CuPy's CFunctionAllocator, whose `param` is the stream.
void *freehold_cupy_malloc(void *stream, size_t size, int device);

// freehold_free with the signature of CuPy's CFunctionAllocator, whose `param` is the stream.
void freehold_cupy_free(void *stream, void *ptr, int device);

// Writes the memory that the library has from the driver to `out`, sorted by address, as many segments as fit, and
// their total number to `count`. `out` may be null if `room` is 0. The sizes add up to freehold_reserved_bytes
// unless other threads allocate meanwhile.
//
// Returns a freehold_error.
int freehold_segments(int device,
                      struct freehold_segment *out,
                      size_t room,
                      size_t *count);

// Makes the memory that the library takes from the driver from now on exportable, on a device. Call it before the first
// allocation there.
//
// Returns a freehold_error. FREEHOLD_ERROR_SYSTEM means that the device cannot export memory.
int freehold_make_exportable(int device);

// Writes the memory in which a block lies to `out`, in the order of the addresses, and the number of chunks to `count`.
// If there are more than there is room for, writes nothing but the number. The block must not be freed during the call.
// The same memory may hold other blocks, which the receiver of a descriptor can access too.
//
// Returns a freehold_error.
int freehold_export(const void *ptr,
                    struct freehold_chunk *out,
                    size_t room,
                    size_t *count);

// Lets other devices access the memory that the library has mapped for blocks of a device, and all that it maps from
// now on. They must be able to access that device's memory: see cuDeviceCanAccessPeer.
//
// Returns a freehold_error.
int freehold_set_peers(int device,
                       const int *peers,
                       size_t count);

// Makes the blocks of a tag able to sleep: those that freehold_alloc_tagged allocates from now on, under this tag or
// tags within it. They lie in memory of their own, which contains no other blocks. At most 64 tags of a device can sleep.
// A tag that can sleep already stays as it is.
//
// Returns a freehold_error: FREEHOLD_ERROR_NOT_SLEEPABLE on a device that cannot map memory.
int freehold_set_sleepable(int device,
                           const char *tag);

// Returns the memory of all blocks of a tag to the driver. Their addresses stay reserved, and the blocks allocated. If
// `keep` is not 0, the contents are first copied to pinned host memory; otherwise they have no defined value after
// freehold_wake. The call waits for all work of the device. From then until freehold_wake, no work may use the blocks.
// They can be released, and others can be allocated under the tag, which have memory when it wakes.
//
// Writes how many bytes went back to `bytes`, unless that is null: 0 if the tag was asleep already.
//
// Returns a freehold_error: FREEHOLD_ERROR_NOT_SLEEPABLE without freehold_set_sleepable, FREEHOLD_ERROR_STREAM_CAPTURED
// while a stream is being captured. After an error the blocks are awake, with their contents, or all of them are
// asleep: if the driver refused to take a step back, or to free memory that was unmapped already. Then another call
// returns what is left, and freehold_wake works as ever.
int freehold_sleep(int device,
                   const char *tag,
                   int keep,
                   size_t *bytes);

// Maps new memory for the blocks of a tag that sleeps, at their addresses, and copies kept contents back. Memory is
// mapped only where blocks are left. Graphs that use the blocks can be launched again.
//
// Writes how many bytes were mapped to `bytes`, unless that is null: 0 if the tag was awake already.
//
// Returns a freehold_error. After an error all of the blocks sleep on, and what was kept stays kept:
// FREEHOLD_ERROR_OUT_OF_MEMORY if there is not enough memory for all of them.
int freehold_wake(int device,
                  const char *tag,
                  size_t *bytes);

// Returns a new vector of size 0, with addresses for `size_max` bytes, or, if that is 0, for as many as the device has
// memory for. Addresses are not memory.
//
// Returns null on failure: see freehold_last_error.
struct freehold_vector *freehold_vector_new(int device,
                                            size_t size_max);

// Changes the size. The address and the contents stay, and the call waits for nothing: work of all streams may use the
// vector meanwhile. Added bytes have no defined value. A smaller size keeps the memory: see freehold_vector_shrink.
//
// Returns a freehold_error; a failed call changes nothing.
int freehold_vector_resize(struct freehold_vector *vector,
                           size_t size);

// Returns the memory beyond the vector's size to the pool, in whole chunks of 2 MiB or more, when all work that was
// submitted to the device before is complete. Does not wait.
//
// Returns a freehold_error: FREEHOLD_ERROR_STREAM_CAPTURED while a stream is being captured.
int freehold_vector_shrink(struct freehold_vector *vector);

// Returns the first address of a vector, which never changes; null for null.
void *freehold_vector_address(const struct freehold_vector *vector);

// Returns the size of a vector in bytes; 0 for null.
size_t freehold_vector_size(const struct freehold_vector *vector);

// Returns how many bytes a vector has memory for; 0 for null.
size_t freehold_vector_capacity(const struct freehold_vector *vector);

// Releases a vector after all work that was submitted to the device before, in any stream. Does not wait. Null is
// ignored.
//
// Returns a freehold_error.
int freehold_vector_free(struct freehold_vector *vector);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* FREEHOLD_H */
