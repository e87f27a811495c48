// RMM's pool and arena, both over cudaMalloc.
#include "allocator.h"

#include <rmm/aligned.hpp>
#include <rmm/mr/arena_memory_resource.hpp>
#include <rmm/mr/cuda_memory_resource.hpp>
#include <rmm/mr/pool_memory_resource.hpp>
#include <rmm/version_config.hpp>

namespace {

// Neither gives memory back while it lives, so that trimming makes a new one.
template <class Resource, class Open>
class Rmm final : public Allocator {
 public:
  explicit Rmm(Open open) : open_(open) { open_(resource_); }
  void *allocate(size_t bytes, cudaStream_t stream) override {
    return resource_->allocate(cuda::stream_ref{stream}, bytes, rmm::CUDA_ALLOCATION_ALIGNMENT);
  }
  void release(void *start, size_t bytes, cudaStream_t stream) override {
    resource_->deallocate(cuda::stream_ref{stream}, start, bytes, rmm::CUDA_ALLOCATION_ALIGNMENT);
  }
  void use(void *, cudaStream_t home, cudaStream_t stream) override { join_.wait(home, stream); }
  std::optional<size_t> reserved_bytes() override {
    if constexpr (requires { resource_->pool_size(); }) return resource_->pool_size();
    // An arena takes half of the device's memory at once, whatever is asked of it.
    return std::nullopt;
  }
  void trim() override {
    must(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
    resource_.reset();
    open_(resource_);
  }
  std::string version() override {
    return std::to_string(RMM_VERSION_MAJOR) + "." + std::to_string(RMM_VERSION_MINOR);
  }

 private:
  Open open_;
  std::optional<Resource> resource_;
  Join join_;
};

template <class Resource, class Open>
std::unique_ptr<Allocator> open_rmm(Open open) {
  return std::make_unique<Rmm<Resource, Open>>(open);
}

}  // namespace

// A pool that begins empty doubles as it grows, and so reserves what the workload needs rather than what it was told.
std::unique_ptr<Allocator> open_rmm_pool() {
  using Pool = rmm::mr::pool_memory_resource;
  return open_rmm<Pool>([](std::optional<Pool> &pool) { pool.emplace(rmm::mr::cuda_memory_resource{}, 0); });
}

std::unique_ptr<Allocator> open_rmm_arena() {
  using Arena = rmm::mr::arena_memory_resource;
  return open_rmm<Arena>([](std::optional<Arena> &arena) { arena.emplace(rmm::mr::cuda_memory_resource{}); });
}
