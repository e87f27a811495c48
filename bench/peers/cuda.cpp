// The CUDA runtime's own two allocators.
#include "allocator.h"

#include <cstdint>

namespace {

std::string runtime_version() {
  int version = 0;
  must(cudaRuntimeGetVersion(&version), "cudaRuntimeGetVersion");
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

class CudaMalloc final : public Allocator {
 public:
  void *allocate(size_t bytes, cudaStream_t) override {
    void *start = nullptr;
    must(cudaMalloc(&start, bytes), "cudaMalloc");
    return start;
  }
  void release(void *start, size_t, cudaStream_t) override { must(cudaFree(start), "cudaFree"); }
  // cudaFree waits for all work.
  void use(void *, cudaStream_t, cudaStream_t) override {}
  std::optional<size_t> reserved_bytes() override { return std::nullopt; }
  void trim() override {}
  std::string version() override { return runtime_version(); }
};

class CudaMallocAsync final : public Allocator {
 public:
  CudaMallocAsync() {
    must(cudaDeviceGetDefaultMemPool(&pool_, DEVICE), "cudaDeviceGetDefaultMemPool");
    // By default the pool gives everything back whenever a stream is waited for; this is how it is used for speed.
    uint64_t threshold_bytes = UINT64_MAX;
    must(cudaMemPoolSetAttribute(pool_, cudaMemPoolAttrReleaseThreshold, &threshold_bytes), "cudaMemPoolSetAttribute");
  }
  void *allocate(size_t bytes, cudaStream_t stream) override {
    void *start = nullptr;
    must(cudaMallocAsync(&start, bytes, stream), "cudaMallocAsync");
    return start;
  }
  void release(void *start, size_t, cudaStream_t stream) override {
    must(cudaFreeAsync(start, stream), "cudaFreeAsync");
  }
  void use(void *, cudaStream_t home, cudaStream_t stream) override { join_.wait(home, stream); }
  std::optional<size_t> reserved_bytes() override {
    uint64_t bytes = 0;
    must(cudaMemPoolGetAttribute(pool_, cudaMemPoolAttrReservedMemCurrent, &bytes), "cudaMemPoolGetAttribute");
    return bytes;
  }
  void trim() override {
    must(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
    must(cudaMemPoolTrimTo(pool_, 0), "cudaMemPoolTrimTo");
  }
  std::string version() override { return runtime_version(); }

 private:
  cudaMemPool_t pool_ = nullptr;
  Join join_;
};

}  // namespace

std::unique_ptr<Allocator> open_cuda_malloc() { return std::make_unique<CudaMalloc>(); }
std::unique_ptr<Allocator> open_cuda_malloc_async() { return std::make_unique<CudaMallocAsync>(); }
