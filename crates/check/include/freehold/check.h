/*
 * Freehold: what a memory pool tells `freehold check` about its blocks. Licence: MIT OR Apache-2.0.
 *
 * A pool takes large allocations from the driver and hands out parts of them. The driver does not see those parts, so a checker cannot
 * tell a block that is in use from one that was freed, and does not notice that a block is handed out before its last user is done.
 * Three calls tell it:
 *
 *     void *allocate(size_t bytes, cudaStream_t stream) {
 *         void *block = ...;                                         // waits for events, or makes `stream` wait for them
 *         freehold_check_handed_out(pool, block, bytes, stream);     // last, when `stream` may use the block
 *         return block;
 *     }
 *     void record_use(void *block, cudaStream_t stream) {
 *         freehold_check_used(pool, block, stream);
 *         ...
 *     }
 *     void release(void *block, cudaStream_t stream) {
 *         freehold_check_freed(pool, block, stream);                 // first, before another thread can take the block
 *         ...
 *     }
 *
 * With them `freehold check` reports accesses past the end of a block, accesses to a freed block, reads of bytes that the new owner has
 * not written, second frees, frees of an address inside a block, leaks, and races between the last user of a block and the next one.
 *
 * The functions are declared for C99 and C++11, need no library (with glibc before 2.34: -ldl), and may be called in any thread.
 * Without the checker they do nothing: each looks up its implementation once, in the process, and finds none. They must not be
 * called in a child after fork.
 */
#ifndef FREEHOLD_CHECK_H
#define FREEHOLD_CHECK_H

#include <dlfcn.h>
#include <stddef.h>
#include <string.h>

/* The implementation of a function, or NULL without the checker. `*cache` is its own address until it was looked up. */
static inline void *freehold_check_implementation(void **cache, const char *name) {
    void *found = __atomic_load_n(cache, __ATOMIC_RELAXED);
    if (found == (void *)cache) {
#ifdef RTLD_DEFAULT
        found = dlsym(RTLD_DEFAULT, name);
#else
        found = dlsym(NULL, name); /* The value of RTLD_DEFAULT, which strict C99 hides. */
#endif
        __atomic_store_n(cache, found, __ATOMIC_RELAXED);
    }
    return found;
}

/*
 * A block of `pool` now belongs to the caller of the pool: work that is submitted to `stream` from now on may use its `bytes` bytes.
 * Its content is undefined. Call it as the last step of an allocation, after `stream` was made to wait for earlier users; a pool that
 * fills its blocks does so after this call.
 *
 * Null pointers and blocks of zero bytes are ignored, by all three calls: such a block may have the address of another one.
 *
 * `pool` is any address that identifies the pool, such as that of its object. `stream` is a cudaStream_t or CUstream; NULL is the
 * legacy default stream.
 */
static inline void freehold_check_handed_out(void *pool, void *address, size_t bytes, void *stream) {
    static void *cache = &cache;
    void *found = freehold_check_implementation(&cache, "freehold_check_handed_out");
    if (found != NULL) {
        void (*call)(void *, void *, size_t, void *);
        memcpy(&call, &found, sizeof call);
        call(pool, address, bytes, stream);
    }
}

/*
 * The block at `address` goes back to `pool`, in the order of `stream`: work that is submitted to `stream` before this call may still
 * use the block, later work may not. Call it as the first step of a free.
 */
static inline void freehold_check_freed(void *pool, void *address, void *stream) {
    static void *cache = &cache;
    void *found = freehold_check_implementation(&cache, "freehold_check_freed");
    if (found != NULL) {
        void (*call)(void *, void *, void *);
        memcpy(&call, &found, sizeof call);
        call(pool, address, stream);
    }
}

/*
 * The pool was told that work of `stream` uses the block too, besides the stream that it was handed out for (`record_stream` in
 * PyTorch). The call orders nothing: if the block is handed out before that work is done, a race is reported as without it. It lets
 * the report say whether the pool ignored a use that it knew of, or was not told.
 */
static inline void freehold_check_used(void *pool, void *address, void *stream) {
    static void *cache = &cache;
    void *found = freehold_check_implementation(&cache, "freehold_check_used");
    if (found != NULL) {
        void (*call)(void *, void *, void *);
        memcpy(&call, &found, sizeof call);
        call(pool, address, stream);
    }
}

#endif
