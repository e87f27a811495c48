/*
 * Freehold: memory of GPUs that is used again, and that has an owner. Link with -lfreehold. It needs no CUDA library to build or
 * link: the driver is the one that the process has loaded, or libcuda.so.1.
 *
 * Device. A device is named by its number for the driver. The first call for a device adopts the context that is current in its
 * thread, if it is one of that device, and the device's primary context otherwise. All streams that are named later for
 * the device are that context's, and it is destroyed after the last call, if it is.
 *
 * Order. A block belongs to the stream that it was allocated for. Released in that stream, it is used again there at once, because
 * what uses it next comes behind what used it before. Work in other streams is told of with freehold_record_use, or by releasing the
 * block in the stream that used it last, behind the others. No call waits for the device.
 *
 * What is trusted. By default a stream is known by its handle: the same handle is the same stream until freehold_stream_retire
 * says that it is gone. A program that destroys a stream without that, and makes another, may get the handle again from the
 * driver: blocks of the old stream are then used in the order of the new one, while work of the old one may be pending. With
 * FREEHOLD_STREAMS=checked in the environment the driver is asked for the stream's id at each call instead. That needs no
 * freehold_stream_retire, and costs more than the rest of the call. A stream that freehold_record_use named lives until the
 * block is released, in both modes.
 *
 * Default streams. Stream 0, like CU_STREAM_LEGACY (1), is the legacy default stream of the adopted context, whatever is
 * current later. CU_STREAM_PER_THREAD (2) is the calling thread's own: what one thread releases there serves that thread. A
 * program that is compiled for default streams per thread passes 2, not 0.
 *
 * Errors. A call that fails changes nothing, prints nothing, and is remembered for its thread: see freehold_last_error. All
 * functions may be called in any thread at any time, a forked child's excepted: there they fail.
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


// Why a call failed.
enum freehold_error {
  // Nothing failed.
  FREEHOLD_ERROR_NONE = 0,
  // No bytes were asked for, or a negative number of them.
  FREEHOLD_ERROR_NOTHING_ASKED = 1,
  // So much memory cannot be had now.
  FREEHOLD_ERROR_OUT_OF_MEMORY = 2,
  // The address lies within a block; a block is named by its first address.
  FREEHOLD_ERROR_INTERIOR = 3,
  // The block was released before.
  FREEHOLD_ERROR_ALREADY_RELEASED = 4,
  // Nothing was ever allocated at the address.
  FREEHOLD_ERROR_NEVER_ALLOCATED = 5,
  // The block is another device's.
  FREEHOLD_ERROR_WRONG_DEVICE = 6,
  // Rust code of this process owns the block, or others who entered it with the library.
  FREEHOLD_ERROR_NOT_YOURS = 7,
  // This process is a fork of the one that opened the device.
  FREEHOLD_ERROR_FORKED_CHILD = 8,
  // There is no such device, or no driver.
  FREEHOLD_ERROR_NO_DEVICE = 9,
  // The driver refused a call.
  FREEHOLD_ERROR_DRIVER = 10,
  // The device has failed for good: every call of this process does, until it ends.
  FREEHOLD_ERROR_DEVICE_FAILED = 11,
  // The system refused something.
  FREEHOLD_ERROR_SYSTEM = 12,
  // A pointer that must not be null is.
  FREEHOLD_ERROR_NULL_ARGUMENT = 13,
  // The library is wrong: please report the text.
  FREEHOLD_ERROR_INTERNAL = 14,
  // So much more may not be live under the tag, or one that it is within.
  FREEHOLD_ERROR_TAG_BUDGET = 15,
  // More names than the library counts were to have a budget.
  FREEHOLD_ERROR_TOO_MANY_TAGS = 16,
  // A text that has to be UTF-8 is not.
  FREEHOLD_ERROR_NOT_TEXT = 17,
  // The stream is being captured.
  FREEHOLD_ERROR_STREAM_CAPTURED = 18,
  // No private pool of this id is there to be ended or released.
  FREEHOLD_ERROR_NO_SUCH_POOL = 19,
  // The private pool is begun and not ended: it is released after that.
  FREEHOLD_ERROR_POOL_OPEN = 20,
};

// Who has a block.
struct freehold_owner {
  // The first address of the block.
  void *base;
  // How many bytes were asked for.
  size_t size;
  // The number of the device.
  int device;
  // The library's number of the stream that the block is in the order of, never one that was another stream's; 0 where
  // that is not known any more.
  uint32_t stream;
  // The id of the process.
  uint32_t process;
  // Whether somebody has the block. It is released otherwise.
  bool is_live;
};

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// Allocates memory for work in a stream: PyTorch's signature. It is used again in the order of that stream, and needs no
// wait there.
//
// Null where there is none, or no byte was asked for: freehold_last_error says why.
void *freehold_alloc(ssize_t size,
                     int device,
                     CUstream stream);

// As freehold_alloc, of zeros, which are written in the order of the stream.
void *freehold_alloc_zeroed(ssize_t size, int device, CUstream stream);

// As freehold_alloc, counted for a tag until it is released: see freehold_set_tag_budget. This takes a lock, and so does the
// release.
//
// A tag is text in UTF-8 that ends with a zero. One with slashes is within those before them: what is live as `model/cache` counts for
// `model`, too. 4096 tags are counted, with those that they are within; blocks of further ones count for none.
void *freehold_alloc_tagged(ssize_t size,
                            int device,
                            CUstream stream,
                            const char *tag);

// Releases a block in the order of a stream: PyTorch's signature. Work that was put into the stream before may still use the
// block; it is not used again before that work is done. Nothing waits.
//
// The size is not looked at. Null is nothing. A wrong release changes nothing, and freehold_last_error tells of it.
void freehold_free(void *ptr,
                   ssize_t size,
                   int device,
                   CUstream stream);

// As freehold_free. Returns FREEHOLD_ERROR_NONE or another freehold_error.
int freehold_try_free(void *ptr, ssize_t size, int device, CUstream stream);

// Gives a block another size, in the order of a stream: where it lies if that can be, and else elsewhere, with the contents
// copied in the order of the stream. Null is an allocation, size 0 is not a release.
//
// Null where it cannot be: the block is as it was, and freehold_last_error says why.
void *freehold_realloc(void *ptr,
                       ssize_t new_size,
                       int device,
                       CUstream stream);

// Says that work in a stream uses a block of another stream. It is not used again before all work is done that is put into
// that stream until the block is released. PyTorch's `record_stream`.
//
// Returns a freehold_error.
int freehold_record_use(void *ptr,
                        CUstream stream);

// Says that a stream is about to be destroyed: its handle may be another stream's afterwards. Call it before
// cuStreamDestroy, on whatever device the stream is. Its blocks stay as they are.
//
// Returns a freehold_error: FREEHOLD_ERROR_STREAM_CAPTURED, and the stream is known as before, until its capture is ended.
int freehold_stream_retire(CUstream stream);

// Promises that each stream capture of this process is announced by freehold_pool_begin, of any device, before it begins and in the
// thread that begins it. Until then each call that names another stream than the legacy default one asks the driver whether the stream is capturing, which costs about
// 0.1 microseconds.
//
// Memory that is handed out or freed in a capturing stream belongs to its capture, because each launch of the graph uses it again.
// It serves nobody else until freehold_pool_release, or freehold_capture_release where the capture was not announced.
void freehold_announce_captures(void);

// Lets captures that this thread begins from now on have their memory from a private pool, until freehold_pool_end. The two numbers
// are the pool's id, which the caller chooses; captures that use one pool share its memory, so their graphs must not run at the same
// time. PyTorch's signature of begin_allocate_to_pool, whose third argument is not needed.
//
// A capture belongs to the pool that its thread began last, before the capture. The library learns of the capture when that thread
// names one of its streams; from then on other threads that name them take from the pool, too. Where captures are announced, another
// thread may be the first, if one thread only has pools begun. Any other capture has a pool of its own: see freehold_capture_release.
// A thread that has begun a pool itself must not be the first to name a stream of another thread's capture.
//
// A pool serves memory of one device. Call this for each device whose memory the capture takes; what it takes of another device is
// kept for the capture there, until freehold_capture_release of that device.
//
// A thread that begins a pool again without freehold_pool_end, after its capture with the pool is over, says that the capture failed
// and has no graph: both begins count as one.
//
// Returns a freehold_error.
int freehold_pool_begin(int device,
                        uint64_t first,
                        uint64_t second);

// Ends what freehold_pool_begin began, after the capture. The memory stays the pool's. PyTorch's signature.
//
// Returns a freehold_error.
int freehold_pool_end(int device,
                      uint64_t first,
                      uint64_t second);

// Releases a private pool once for each freehold_pool_begin: the graphs that were captured with it are not launched any more. Its
// free memory serves others afterwards, its live blocks do when they are freed. Waits for the work on the device, unless a
// stream is capturing or the driver refuses to wait: then the memory stays until the next call of this kind or freehold_trim.
// PyTorch's signature.
//
// Returns a freehold_error: FREEHOLD_ERROR_POOL_OPEN where the pool is begun and not ended. End it first.
int freehold_pool_release(int device,
                          uint64_t first,
                          uint64_t second);

// As freehold_pool_release, for what a capture took that was not announced, by the id that cuStreamGetCaptureInfo gives.
//
// Returns a freehold_error.
int freehold_capture_release(int device,
                             uint64_t capture);

// Writes the first addresses of the live blocks of a private pool to `out`, as many as there is room for, and how many there are
// to `count`. With no room `out` may be null.
//
// Returns a freehold_error.
int freehold_pool_blocks(int device,
                         uint64_t first,
                         uint64_t second,
                         void **out,
                         size_t room,
                         size_t *count);

// The bytes of a device that the library has of the driver: those of live blocks, and those that are kept for others.
size_t freehold_reserved_bytes(int device);

// The bytes that were asked for on a device and not released.
size_t freehold_live_bytes(int device);

// Gives memory that nobody has, and that no work uses, back to the driver until at most `keep` bytes of the device are
// reserved. Nothing waits, unless a released private pool is still to be given back: what is still in use stays.
//
// Returns a freehold_error.
int freehold_trim(int device,
                  size_t keep);

// Lets the library reserve no more than so many bytes of a device from now on; SIZE_MAX is no limit. What it has already is
// not given back: see freehold_trim.
//
// Returns a freehold_error.
int freehold_set_budget(int device,
                        size_t bytes);

// Lets no more than so many bytes of a device be live under a tag, and those within it, from now on; SIZE_MAX is no limit.
// What would be more is refused with FREEHOLD_ERROR_TAG_BUDGET. What is live already stays.
//
// Returns a freehold_error.
int freehold_set_tag_budget(int device,
                            const char *tag,
                            size_t bytes);

// The bytes of a device that are live under a tag, and those within it. 0 for a tag that is not text, too.
size_t freehold_tag_bytes(int device,
                          const char *tag);

// Says who has the block that an address lies in, at its beginning or further in.
//
// Returns a freehold_error: FREEHOLD_ERROR_NEVER_ALLOCATED where there is no block, and `out` is as it was.
int freehold_owner(const void *ptr,
                   struct freehold_owner *out);

// What this thread's last failed call says of its failure, in one sentence; an empty text where none failed. It stays until
// this thread's next call. A call that succeeds does not clear it.
const char *freehold_last_error(void);

// The freehold_error of this thread's last failed call.
int freehold_last_error_code(void);

// Forgets this thread's last failed call.
void freehold_clear_error(void);

// The library's version, such as "0.1.0".
const char *freehold_version(void);

// freehold_alloc with the signature of CuPy's CFunctionAllocator, whose `param` is the stream.
void *freehold_cupy_malloc(void *stream, size_t size, int device);

// freehold_free with the signature of CuPy's CFunctionAllocator, whose `param` is the stream.
void freehold_cupy_free(void *stream, void *ptr, int device);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* FREEHOLD_H */
