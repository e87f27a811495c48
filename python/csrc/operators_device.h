// Host tasks on device memory: what the operators need of the software driver. NVIDIA's driver does not have it.
#pragma once

#include <c10/cuda/CUDAStream.h>
#include <c10/util/ArrayRef.h>

#include <cstdint>

namespace freehold {

// A range of device memory that a task accesses. The layout is the driver's: `HostAccess` of its extension.
struct Access {
  uint64_t start;
  uint64_t bytes;
  uint32_t kind;
  uint32_t pad;
};

constexpr uint32_t READ = 1;
constexpr uint32_t WRITE = 2;

// Looks up the driver's extension. Returns false if the driver is not the software driver.
bool find_device();

// Returns the address at which a task accesses device memory.
void* host_view(const void* start, uint64_t bytes);

// Submits a task to a stream. `name` lives as long as the process.
void launch(
    c10::cuda::CUDAStream stream,
    const char* name,
    void (*task)(void*),
    void* data,
    c10::ArrayRef<Access> accesses);

}  // namespace freehold
