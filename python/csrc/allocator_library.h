// The functions of libfreehold.so, found at run time: the library that the Python package itself has loaded.
#pragma once

#include <cuda_runtime_api.h>
#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <string>

namespace freehold_torch {

// As in freehold.h, with the runtime's stream type.
struct LibrarySegment {
  void *base;
  size_t size;
  cudaStream_t stream;
};

struct LibraryChunk {
  void *base;
  size_t size;
  int descriptor;
};

struct Library {
  void *(*alloc)(ssize_t size, int device, cudaStream_t stream);
  int (*try_free)(void *ptr, ssize_t size, int device, cudaStream_t stream);
  int (*free_after_all)(void *ptr, int device);
  int (*record_use)(void *ptr, cudaStream_t stream);
  void (*announce_captures)();
  int (*pool_begin)(int device, uint64_t first, uint64_t second);
  int (*pool_end)(int device, uint64_t first, uint64_t second);
  size_t (*reserved_bytes)(int device);
  size_t (*live_bytes)(int device);
  int (*trim)(int device, size_t keep);
  int (*set_budget)(int device, size_t bytes);
  int (*segments)(int device, LibrarySegment *out, size_t room, size_t *count);
  int (*make_exportable)(int device);
  int (*export_block)(const void *ptr, LibraryChunk *out, size_t room, size_t *count);
  int (*set_peers)(int device, const int *peers, size_t count);
  const char *(*last_error)();
  int (*last_error_code)();
};

// FREEHOLD_ERROR_OUT_OF_MEMORY.
constexpr int kOutOfMemory = 2;

// Valid after load_library has succeeded.
extern Library library;

// Finds the functions in the library at a path. Returns what is missing, or an empty string.
std::string load_library(const char *path);

// Throws an error with the library's explanation unless the code of a call is that of success.
void check(int code, const char *what);

} // namespace freehold_torch
