// How a device counts.
#pragma once

#include <c10/core/CachingDeviceAllocator.h>

namespace freehold_torch {

using c10::CachingAllocator::StatArray;
using c10::CachingAllocator::StatType;

// All memory counts as PyTorch's large pool: Freehold's blocks of all sizes lie in the same segments.
template <typename Change>
void change(StatArray &stat, Change act) {
  act(stat[static_cast<size_t>(StatType::AGGREGATE)]);
  act(stat[static_cast<size_t>(StatType::LARGE_POOL)]);
}

inline void increase(StatArray &stat, size_t amount) {
  change(stat, [&](auto &one) { one.increase(amount); });
}

inline void decrease(StatArray &stat, size_t amount) {
  change(stat, [&](auto &one) { one.decrease(amount); });
}

inline void set_current(StatArray &stat, size_t amount) {
  const auto now = static_cast<size_t>(stat[0].current);
  if (amount > now) {
    increase(stat, amount - now);
  } else if (amount < now) {
    decrease(stat, now - amount);
  }
}

} // namespace freehold_torch
