// What lies where on a device: torch.cuda.memory_snapshot, and the events of mapped memory.
//
// Freehold's segments contain blocks of Freehold's pool, and segments of private pools. A snapshot shows each segment
// of a private pool as one of its own, and what lies between them as segments of Freehold's pool.

#include "allocator_device.h"

#include <algorithm>

namespace freehold_torch {

using c10::CachingDeviceAllocator::BlockInfo;

namespace {

const MempoolId_t kNoPool{0, 0};

// A block to show: allocated, or freed and still in use.
struct Shown {
  size_t address;
  const Block *block;
  bool is_allocated;
};

BlockInfo free_block(size_t size) {
  BlockInfo info;
  info.size = size;
  return info;
}

// Fills a segment with the blocks that lie in it, which are sorted, and the gaps between them.
void fill(SegmentInfo &segment, const std::vector<Shown> &shown) {
  const size_t end = segment.address + segment.total_size;
  size_t next = segment.address;
  const auto by_address = [](const Shown &one, size_t address) { return one.address < address; };
  for (auto one = std::lower_bound(shown.begin(), shown.end(), segment.address, by_address);
       one != shown.end() && one->address < end;
       ++one) {
    if (one->address > next) {
      segment.blocks.push_back(free_block(one->address - next));
    }
    BlockInfo info;
    info.size = one->block->size;
    info.requested_size = one->block->requested;
    info.allocated = one->is_allocated;
    info.active = true;
    info.context_when_allocated = one->block->context;
    segment.allocated_size += info.allocated ? info.size : 0;
    segment.active_size += info.size;
    segment.requested_size += info.requested_size;
    segment.blocks.push_back(std::move(info));
    next = one->address + one->block->size;
  }
  if (next < end) {
    segment.blocks.push_back(free_block(end - next));
  }
}

SegmentInfo segment_at(DeviceIndex device, size_t address, size_t size, cudaStream_t stream) {
  SegmentInfo segment;
  segment.device = device;
  segment.address = address;
  segment.total_size = size;
  segment.stream = stream;
  segment.is_large = true;
  return segment;
}

SegmentInfo pool_segment(DeviceIndex device, const PrivatePool &pool, char *base, const PoolSegment &of) {
  SegmentInfo segment = segment_at(device, reinterpret_cast<size_t>(base), of.size, of.stream);
  segment.owner_private_pool_id = pool.id;
  segment.context_when_allocated = of.context;
  return segment;
}

// Returns the parts of `one` that lie in no segment of `others`, which are sorted.
std::vector<LibrarySegment> without(const LibrarySegment &one, const std::vector<LibrarySegment> &others) {
  std::vector<LibrarySegment> parts;
  auto *next = static_cast<char *>(one.base);
  char *const end = next + one.size;
  for (const auto &other : others) {
    auto *const base = static_cast<char *>(other.base);
    if (other.base == nullptr || base + other.size <= next || base >= end) {
      continue;
    }
    if (base > next) {
      parts.push_back({next, static_cast<size_t>(base - next), one.stream});
    }
    next = std::min(end, base + other.size);
  }
  if (next < end) {
    parts.push_back({next, static_cast<size_t>(end - next), one.stream});
  }
  return parts;
}

} // namespace

std::vector<LibrarySegment> Device::library_segments() const {
  std::vector<LibrarySegment> segments(16);
  size_t count = 0;
  while (true) {
    check(library.segments(index_, segments.data(), segments.size(), &count), "listing segments");
    if (count <= segments.size()) {
      segments.resize(count);
      return segments;
    }
    segments.resize(count * 2);
  }
}

void Device::update_segments(const Context &context) {
  if (!history_.is_watched()) {
    seen_segments_.clear();
    return;
  }
  auto now = library_segments();
  const auto note_difference = [&](Action action, const auto &of, const auto &others) {
    for (const auto &segment : of) {
      if (segment.base == nullptr) {
        continue;
      }
      for (const auto &part : without(segment, others)) {
        const auto address = reinterpret_cast<size_t>(part.base);
        history_.note(action, index_, address, part.size, part.stream, kNoPool, context);
      }
    }
  };
  note_difference(Action::SEGMENT_UNMAP, seen_segments_, now);
  note_difference(Action::SEGMENT_MAP, now, seen_segments_);
  seen_segments_ = std::move(now);
}

std::vector<SegmentInfo> Device::bare_segments(const MempoolId_t &id) const {
  std::vector<SegmentInfo> segments;
  std::vector<LibrarySegment> of_pools;
  for (const auto &[pool_id, pool] : pools_) {
    for (const auto &[base, segment] : pool->segments()) {
      of_pools.push_back({base, segment.size, segment.stream});
      if (id == kNoPool || id == pool_id) {
        segments.push_back(pool_segment(index_, *pool, base, segment));
      }
    }
  }
  if (id == kNoPool) {
    std::sort(of_pools.begin(), of_pools.end(), [](const auto &a, const auto &b) { return a.base < b.base; });
    for (const auto &mapped : library_segments()) {
      for (const auto &part : without(mapped, of_pools)) {
        segments.push_back(segment_at(index_, reinterpret_cast<size_t>(part.base), part.size, part.stream));
        segments.back().is_expandable = true;
      }
    }
  }
  std::sort(segments.begin(), segments.end(), [](const auto &a, const auto &b) { return a.address < b.address; });
  return segments;
}

std::vector<SegmentInfo> Device::segments_with_blocks(const MempoolId_t &id) const {
  std::vector<Shown> shown;
  shown.reserve(blocks_.size());
  for (const auto &[ptr, block] : blocks_) {
    shown.push_back({reinterpret_cast<size_t>(ptr), &block, true});
  }
  for (const auto &[ptr, block] : deferred_) {
    shown.push_back({reinterpret_cast<size_t>(ptr), &block, false});
  }
  for (const auto &freed : pending_) {
    shown.push_back({reinterpret_cast<size_t>(freed.ptr), &freed.block, false});
  }
  std::sort(shown.begin(), shown.end(), [](const auto &a, const auto &b) { return a.address < b.address; });
  auto segments = bare_segments(id);
  for (auto &segment : segments) {
    fill(segment, shown);
  }
  return segments;
}

std::vector<SegmentInfo> Device::snapshot(const MempoolId_t &id) {
  const Lock lock(mutex_);
  finish_complete(false);
  update_reserved();
  return segments_with_blocks(id);
}

std::vector<TraceEntry> Device::trace() {
  const Lock lock(mutex_);
  auto entries = history_.entries();
  // After the entries were read: the next snapshot shows this one.
  history_.note(Action::SNAPSHOT, index_, 0, 0, nullptr, kNoPool, nullptr);
  return entries;
}

void Device::set_history(const HistorySettings &settings) {
  const Lock lock(mutex_);
  history_.set(settings);
  // Memory that is already mapped is not an event of this history.
  seen_segments_ = settings.enabled ? library_segments() : std::vector<LibrarySegment>{};
}

void Device::add_tracker(AllocatorTraceTracker tracker) {
  const Lock lock(mutex_);
  if (!history_.is_watched()) {
    seen_segments_ = library_segments();
  }
  history_.add_tracker(std::move(tracker));
}

void Device::add_observer(OutOfMemoryObserver observer) {
  const Lock lock(mutex_);
  observers_.push_back(std::move(observer));
}

void Device::set_user_metadata(const std::string &metadata) {
  const Lock lock(mutex_);
  history_.user_metadata = metadata;
}

std::string Device::user_metadata() {
  const Lock lock(mutex_);
  return history_.user_metadata;
}

void *Device::base_of(void *ptr, size_t *size) {
  const Lock lock(mutex_);
  const auto found = blocks_.find(ptr);
  if (found == blocks_.end()) {
    return nullptr;
  }
  const auto address = reinterpret_cast<size_t>(ptr);
  for (const auto &segment : bare_segments(kNoPool)) {
    if (address - segment.address < segment.total_size) {
      *size = segment.total_size;
      return reinterpret_cast<void *>(segment.address);
    }
  }
  *size = found->second.size;
  return ptr;
}

} // namespace freehold_torch
