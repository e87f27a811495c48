// PyTorch's caching allocator. It lies in libc10_cuda.so: neither Python nor the rest of PyTorch is needed.
#include "allocator.h"

#include <c10/core/AllocatorConfig.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAFunctions.h>
#include <torch/headeronly/version.h>

// No header declares it: PyTorch's own caller does so as well.
namespace c10::cuda::_internal {
C10_CUDA_API void setHasPrimaryContext(bool (*)(DeviceIndex));
}

namespace {

namespace caching = c10::cuda::CUDACachingAllocator;

class Torch final : public Allocator {
 public:
  Torch() {
    // The rest of PyTorch, which is not here, would answer whether a device has a context. It has, before this is opened.
    c10::cuda::_internal::setHasPrimaryContext([](c10::DeviceIndex) { return true; });
    caching::init(c10::cuda::device_count());
  }
  void *allocate(size_t bytes, cudaStream_t stream) override { return caching::raw_alloc_with_stream(bytes, stream); }
  // A block goes back to the stream that it was allocated for.
  void release(void *start, size_t, cudaStream_t) override { caching::raw_delete(start); }
  void use(void *start, cudaStream_t, cudaStream_t stream) override {
    c10::DataPtr block(start, start, caching::get()->raw_deleter(), c10::Device(c10::DeviceType::CUDA, DEVICE));
    caching::recordStream(block, c10::cuda::getStreamFromExternal(stream, DEVICE));
    // The block outlives this pointer to it.
    block.release_context();
  }
  std::optional<size_t> reserved_bytes() override {
    using c10::CachingAllocator::StatType;
    return caching::getDeviceStats(DEVICE).reserved_bytes[static_cast<size_t>(StatType::AGGREGATE)].current;
  }
  void trim() override {
    must(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
    caching::emptyCache();
  }
  std::string version() override { return TORCH_VERSION; }
};

std::unique_ptr<Allocator> open(bool is_expandable, const char *remedy) {
  using c10::CachingAllocator::AcceleratorAllocatorConfig;
  if (AcceleratorAllocatorConfig::use_expandable_segments() != is_expandable) throw std::runtime_error(remedy);
  return std::make_unique<Torch>();
}

}  // namespace

std::unique_ptr<Allocator> open_torch() {
  return open(false, "expandable segments are on: unset PYTORCH_ALLOC_CONF and PYTORCH_CUDA_ALLOC_CONF");
}
std::unique_ptr<Allocator> open_torch_expandable() {
  return open(true, "expandable segments are off: set PYTORCH_ALLOC_CONF=expandable_segments:True");
}
