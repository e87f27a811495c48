#include "allocator_pool.h"

#include <c10/util/Exception.h>

#include <iterator>

namespace freehold_torch {

namespace {

constexpr size_t kMib = size_t{1} << 20;
// Segments for small allocations, and for those that are neither small nor large.
constexpr size_t kSmallSegmentBytes = 2 * kMib;
constexpr size_t kMediumSegmentBytes = 20 * kMib;
constexpr size_t kSmallMax = kMib;
constexpr size_t kMediumMax = 10 * kMib;

} // namespace

size_t PrivatePool::segment_bytes(size_t bytes) const {
  const size_t size = rounded(bytes, kGranuleBytes);
  if (is_unsplit || size > kMediumMax) {
    return rounded(size, 2 * kMib);
  }
  return size <= kSmallMax ? kSmallSegmentBytes : kMediumSegmentBytes;
}

void PrivatePool::add_segment(char *base, size_t size, cudaStream_t stream, Context context) {
  segments_.emplace(base, PoolSegment{size, stream, std::move(context)});
  list(parts_.emplace(base, Part{size, stream, base, true}).first);
}

char *PrivatePool::alloc(size_t bytes, cudaStream_t stream) {
  const size_t size = rounded(bytes, kGranuleBytes);
  const auto fitting = free_.find(stream);
  if (fitting == free_.end()) {
    return nullptr;
  }
  const auto best = fitting->second.lower_bound({size, nullptr});
  // An unsplit pool gives out whole segments only: one of another size would hold memory that nothing can use.
  if (best == fitting->second.end() || (is_unsplit && best->first != segment_bytes(bytes))) {
    return nullptr;
  }
  char *const ptr = best->second;
  cut(parts_.find(ptr), is_unsplit ? best->first : size);
  return ptr;
}

void PrivatePool::cut(Parts::iterator part, size_t bytes) {
  unlist(part);
  const size_t rest = part->second.size - bytes;
  part->second.size = bytes;
  part->second.is_free = false;
  if (rest > 0) {
    const Part behind{rest, part->second.stream, part->second.segment, true};
    list(parts_.emplace(part->first + bytes, behind).first);
  }
}

void PrivatePool::alloc_at(char *ptr, size_t bytes) {
  auto part = std::prev(parts_.upper_bound(ptr));
  TORCH_CHECK(
      part->second.is_free && ptr + bytes <= part->first + part->second.size,
      "Freehold: the checkpoint belongs to another state of this pool");
  if (const size_t before = static_cast<size_t>(ptr - part->first); before > 0) {
    unlist(part);
    const Part behind{part->second.size - before, part->second.stream, part->second.segment, true};
    part->second.size = before;
    list(part);
    part = parts_.emplace(ptr, behind).first;
    list(part);
  }
  cut(part, bytes);
}

void PrivatePool::free(char *ptr) {
  auto part = parts_.find(ptr);
  part->second.is_free = true;
  list(part);
  join_next(part);
  if (part != parts_.begin() && std::prev(part)->second.is_free) {
    join_next(std::prev(part));
  }
}

void PrivatePool::join_next(Parts::iterator part) {
  const auto next = std::next(part);
  if (next == parts_.end() || !next->second.is_free || next->second.segment != part->second.segment) {
    return;
  }
  unlist(part);
  unlist(next);
  part->second.size += next->second.size;
  parts_.erase(next);
  list(part);
}

std::vector<std::pair<char *, PoolSegment>> PrivatePool::take_free_segments() {
  std::vector<std::pair<char *, PoolSegment>> taken;
  for (auto segment = segments_.begin(); segment != segments_.end();) {
    const auto part = parts_.find(segment->first);
    if (!part->second.is_free || part->second.size != segment->second.size) {
      ++segment;
      continue;
    }
    unlist(part);
    parts_.erase(part);
    taken.emplace_back(*segment);
    segment = segments_.erase(segment);
  }
  return taken;
}

std::pair<size_t, size_t> PrivatePool::inactive_split() const {
  std::pair<size_t, size_t> found{0, 0};
  for (const auto &[ptr, part] : parts_) {
    if (part.is_free && part.size != segments_.at(part.segment).size) {
      found.first += 1;
      found.second += part.size;
    }
  }
  return found;
}

} // namespace freehold_torch
