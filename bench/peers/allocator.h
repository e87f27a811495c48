// What an allocator offers to be measured, and who does. Knows nothing of what is measured.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>

constexpr int DEVICE = 0;

// All functions throw a std::exception that says why they cannot do what they are asked.
class Allocator {
 public:
  virtual ~Allocator() = default;
  virtual void *allocate(size_t bytes, cudaStream_t stream) = 0;
  virtual void release(void *start, size_t bytes, cudaStream_t stream) = 0;
  // Work of `stream` uses a block that was allocated for `home`.
  virtual void use(void *start, cudaStream_t home, cudaStream_t stream) = 0;
  // What it holds of the device's memory, in use or not. Nothing where it does not tell.
  virtual std::optional<size_t> reserved_bytes() = 0;
  // Gives back to the device what is not in use.
  virtual void trim() = 0;
  virtual std::string version() = 0;
};

std::unique_ptr<Allocator> open_cuda_malloc();
std::unique_ptr<Allocator> open_cuda_malloc_async();
// The library's path is in the environment: FREEHOLD_LIBRARY.
std::unique_ptr<Allocator> open_freehold();
#ifdef WITH_TORCH
// Which of the two it is was decided by the environment before the process began: PYTORCH_ALLOC_CONF.
std::unique_ptr<Allocator> open_torch();
std::unique_ptr<Allocator> open_torch_expandable();
#endif
#ifdef WITH_RMM
std::unique_ptr<Allocator> open_rmm_pool();
std::unique_ptr<Allocator> open_rmm_arena();
#endif

inline void must(cudaError_t status, const char *call) {
  if (status != cudaSuccess) throw std::runtime_error(std::string(call) + ": " + cudaGetErrorString(status));
}

// What went wrong, without the stack that some libraries add below it.
inline std::string reason(const std::exception &error) {
  const std::string text = error.what();
  return text.substr(0, text.find('\n'));
}

// Lets one stream wait for another on the device: what programs do with allocators that know nothing of uses elsewhere.
class Join {
 public:
  Join() { must(cudaEventCreateWithFlags(&event_, cudaEventDisableTiming), "cudaEventCreateWithFlags"); }
  ~Join() { cudaEventDestroy(event_); }
  Join(const Join &) = delete;
  Join &operator=(const Join &) = delete;

  void wait(cudaStream_t waiting, cudaStream_t awaited) {
    must(cudaEventRecord(event_, awaited), "cudaEventRecord");
    must(cudaStreamWaitEvent(waiting, event_, 0), "cudaStreamWaitEvent");
  }

 private:
  cudaEvent_t event_ = nullptr;
};
