/*
 * Freehold: announces the blocks of an RMM memory resource to `freehold check`. Licence: MIT OR Apache-2.0.
 *
 *     rmm::mr::pool_memory_resource pool{rmm::mr::cuda_memory_resource{}, 1 << 30};
 *     freehold::check_rmm checked{pool};
 *     rmm::mr::set_current_device_resource_ref(checked);
 *
 * The adaptor passes each allocation to the resource, and tells the checker which bytes belong to whom: accesses past the end of a
 * block, accesses to a freed block, and blocks that are handed out before their last user is done are then reported. Without the
 * checker it does nothing else. For RMM with `device_memory_resource`, up to version 26.04, it takes a pointer to the resource, which
 * it does not own; for later versions any resource, of which it keeps a copy.
 */
#ifndef FREEHOLD_CHECK_RMM_HPP
#define FREEHOLD_CHECK_RMM_HPP

#include <cstddef>

#include "check.h"

#if __has_include(<rmm/mr/device_memory_resource.hpp>)
#include <rmm/mr/device_memory_resource.hpp>
#define FREEHOLD_CHECK_RMM_HAS_BASE
#elif __has_include(<rmm/mr/device/device_memory_resource.hpp>)
#include <rmm/mr/device/device_memory_resource.hpp>
#define FREEHOLD_CHECK_RMM_HAS_BASE
#else
#include <rmm/resource_ref.hpp>

#include <cuda/memory_resource>
#include <cuda/stream>
#include <memory>
#include <utility>
#endif

namespace freehold {

#ifdef FREEHOLD_CHECK_RMM_HAS_BASE

class check_rmm final : public rmm::mr::device_memory_resource {
   public:
    explicit check_rmm(rmm::mr::device_memory_resource *upstream) : upstream_(upstream) {}

   private:
    using stream_view = rmm::cuda_stream_view;

    /* The order of the arguments differs between versions. */
    template <class Resource>
    static auto allocate_from(Resource &from, std::size_t bytes, stream_view stream, int)
        -> decltype(from.allocate(stream, bytes)) {
        return from.allocate(stream, bytes);
    }
    template <class Resource>
    static auto allocate_from(Resource &from, std::size_t bytes, stream_view stream, long)
        -> decltype(from.allocate(bytes, stream)) {
        return from.allocate(bytes, stream);
    }
    template <class Resource>
    static auto deallocate_to(Resource &to, void *block, std::size_t bytes, stream_view stream, int)
        -> decltype(to.deallocate(stream, block, bytes)) {
        to.deallocate(stream, block, bytes);
    }
    template <class Resource>
    static auto deallocate_to(Resource &to, void *block, std::size_t bytes, stream_view stream, long)
        -> decltype(to.deallocate(block, bytes, stream)) {
        to.deallocate(block, bytes, stream);
    }

    void *do_allocate(std::size_t bytes, stream_view stream) override {
        void *block = allocate_from(*upstream_, bytes, stream, 0);
        if (bytes > 0) freehold_check_handed_out(upstream_, block, bytes, stream.value());
        return block;
    }

    void do_deallocate(void *block, std::size_t bytes, stream_view stream) noexcept override {
        if (bytes > 0 && block != nullptr) freehold_check_freed(upstream_, block, stream.value());
        deallocate_to(*upstream_, block, bytes, stream, 0);
    }

    bool do_is_equal(const rmm::mr::device_memory_resource &other) const noexcept override {
        auto checked = dynamic_cast<const check_rmm *>(&other);
        return checked != nullptr && checked->upstream_ == upstream_;
    }

    rmm::mr::device_memory_resource *upstream_;
};

#else

class check_rmm {
   public:
    using upstream_resource = cuda::mr::any_resource<cuda::mr::device_accessible>;

    explicit check_rmm(upstream_resource upstream)
        : upstream_(std::make_shared<upstream_resource>(std::move(upstream))) {}

    void *allocate(cuda::stream_ref stream, std::size_t bytes, std::size_t alignment = 256) {
        return announced(upstream_->allocate(stream, bytes, alignment), bytes, stream.get());
    }

    void deallocate(cuda::stream_ref stream, void *block, std::size_t bytes, std::size_t alignment = 256) noexcept {
        announce_free(block, bytes, stream.get());
        upstream_->deallocate(stream, block, bytes, alignment);
    }

    void *allocate_sync(std::size_t bytes, std::size_t alignment = 256) {
        return announced(upstream_->allocate_sync(bytes, alignment), bytes, nullptr);
    }

    void deallocate_sync(void *block, std::size_t bytes, std::size_t alignment = 256) noexcept {
        announce_free(block, bytes, nullptr);
        upstream_->deallocate_sync(block, bytes, alignment);
    }

    bool operator==(const check_rmm &other) const noexcept { return upstream_ == other.upstream_; }
    bool operator!=(const check_rmm &other) const noexcept { return !(*this == other); }

    friend void get_property(const check_rmm &, cuda::mr::device_accessible) noexcept {}

   private:
    void *announced(void *block, std::size_t bytes, cudaStream_t stream) {
        if (bytes > 0) freehold_check_handed_out(upstream_.get(), block, bytes, stream);
        return block;
    }

    void announce_free(void *block, std::size_t bytes, cudaStream_t stream) noexcept {
        if (bytes > 0 && block != nullptr) freehold_check_freed(upstream_.get(), block, stream);
    }

    /* Copies of the adaptor are the same resource. */
    std::shared_ptr<upstream_resource> upstream_;
};

static_assert(cuda::mr::resource_with<check_rmm, cuda::mr::device_accessible>, "RMM takes it as a resource");

#endif

} // namespace freehold

#undef FREEHOLD_CHECK_RMM_HAS_BASE
#endif
