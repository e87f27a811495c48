// Tensors of other processes, and of other devices.
//
// A handle names its process, a block, and a random token. Who wants the memory asks that process over a Unix socket,
// and gets descriptors of the memory that the block lies in. So nothing is kept open for a handle that nobody opens, and
// a handle of a block that was freed opens nothing.

#include "allocator.h"
#include "allocator_socket.h"

#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <cuda.h>
#include <dlfcn.h>
#include <unistd.h>

#include <cstring>
#include <random>

namespace freehold_torch {

namespace {

// What a handle consists of.
struct Handle {
  char magic[8];
  uint64_t base;
  uint64_t token;
  char socket[48];
};

constexpr char kMagic[8] = {'f', 'r', 'e', 'e', 'h', 'o', 'l', 'd'};

// The driver's functions for memory of other processes.
struct Driver {
  decltype(&cuMemImportFromShareableHandle) import_handle;
  decltype(&cuMemAddressReserve) reserve;
  decltype(&cuMemAddressFree) unreserve;
  decltype(&cuMemMap) map;
  decltype(&cuMemUnmap) unmap;
  decltype(&cuMemSetAccess) set_access;
  decltype(&cuMemRelease) release;
};

const Driver &driver() {
  static const Driver found = [] {
    void *const library = dlopen("libcuda.so.1", RTLD_NOW);
    TORCH_CHECK(library != nullptr, "Freehold: the driver cannot be loaded: ", dlerror());
    Driver functions{};
    const auto find = [&](auto &function, const char *name) {
      function = reinterpret_cast<std::decay_t<decltype(function)>>(dlsym(library, name));
      TORCH_CHECK(function != nullptr, "Freehold: the driver lacks ", name);
    };
    find(functions.import_handle, "cuMemImportFromShareableHandle");
    find(functions.reserve, "cuMemAddressReserve");
    find(functions.unreserve, "cuMemAddressFree");
    find(functions.map, "cuMemMap");
    find(functions.unmap, "cuMemUnmap");
    find(functions.set_access, "cuMemSetAccess");
    find(functions.release, "cuMemRelease");
    return functions;
  }();
  return found;
}

void check_driver(CUresult result, const char *call) {
  TORCH_CHECK(result == CUDA_SUCCESS, "Freehold: ", call, " failed with error ", static_cast<int>(result));
}

// Memory of another process, mapped here until it is dropped.
class Mapping {
 public:
  explicit Mapping(DeviceIndex device) : device_(device) {}
  Mapping(const Mapping &) = delete;
  Mapping &operator=(const Mapping &) = delete;

  ~Mapping() {
    if (start_ == 0) {
      return;
    }
    // Unmapping does not wait for kernels that use the memory.
    const c10::cuda::CUDAGuard guard(device_);
    C10_CUDA_CHECK_WARN(cudaDeviceSynchronize());
    for (const auto &[address, size] : mapped_) {
      driver().unmap(address, size);
    }
    driver().unreserve(start_, bytes_);
  }

  // Maps chunks side by side.
  void map(const std::vector<ReceivedChunk> &chunks) {
    size_t bytes = 0;
    for (const auto &chunk : chunks) {
      bytes += chunk.size;
    }
    check_driver(driver().reserve(&start_, bytes, 0, 0, 0), "cuMemAddressReserve");
    bytes_ = bytes;
    CUdeviceptr next = start_;
    for (const auto &chunk : chunks) {
      CUmemGenericAllocationHandle memory = 0;
      void *const descriptor = reinterpret_cast<void *>(static_cast<intptr_t>(chunk.descriptor.get()));
      check_driver(
          driver().import_handle(&memory, descriptor, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR),
          "cuMemImportFromShareableHandle");
      const CUresult mapped = driver().map(next, chunk.size, 0, memory, 0);
      // The mapping keeps the memory.
      check_driver(driver().release(memory), "cuMemRelease");
      check_driver(mapped, "cuMemMap");
      mapped_.emplace_back(next, chunk.size);
      next += chunk.size;
    }
    CUmemAccessDesc access{};
    access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    access.location.id = device_;
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    check_driver(driver().set_access(start_, bytes_, &access, 1), "cuMemSetAccess");
  }

  void *at(size_t offset) const { return reinterpret_cast<void *>(start_ + offset); }

 private:
  DeviceIndex device_;
  CUdeviceptr start_ = 0;
  size_t bytes_ = 0;
  std::vector<std::pair<CUdeviceptr, size_t>> mapped_;
};

uint64_t random_token() {
  std::random_device source;
  const uint64_t token = (uint64_t{source()} << 32) | source();
  return token == 0 ? 1 : token;
}

// Returns the memory in which a block lies. The caller closes the descriptors.
std::vector<LibraryChunk> chunks_of(void *base) {
  std::vector<LibraryChunk> chunks(8);
  size_t count = 0;
  while (true) {
    check(library.export_block(base, chunks.data(), chunks.size(), &count), "sharing a tensor between processes");
    if (count <= chunks.size()) {
      chunks.resize(count);
      return chunks;
    }
    chunks.resize(count);
  }
}

Answer answer(const Request &request) {
  Answer sent;
  auto *const base = reinterpret_cast<void *>(request.base);
  try {
    const bool is_there = the_allocator().while_shared(base, request.token, [&] {
      for (const auto &chunk : chunks_of(base)) {
        sent.chunks.push_back({chunk.size, Descriptor(chunk.descriptor)});
        if (sent.chunks.size() == 1) {
          sent.offset = request.base - reinterpret_cast<uint64_t>(chunk.base);
        }
      }
    });
    sent.error = is_there ? "" : "the process that shared the tensor has freed it";
  } catch (const std::exception &error) {
    sent.chunks.clear();
    sent.error = error.what();
  }
  return sent;
}

} // namespace

bool Device::share(void *ptr, uint64_t *token, void **base, ptrdiff_t *offset) {
  const Lock lock(mutex_);
  const auto found = blocks_.find(ptr);
  if (found == blocks_.end()) {
    return false;
  }
  Block &block = found->second;
  TORCH_CHECK(
      block.pool == nullptr || !block.pool->allocator,
      "Freehold: memory of a user's allocator cannot be shared between processes");
  if (block.share_token == 0) {
    block.share_token = random_token();
  }
  *token = block.share_token;
  *base = block.pool == nullptr ? ptr : block.pool->segment_of(static_cast<char *>(ptr));
  *offset = static_cast<char *>(ptr) - static_cast<char *>(*base);
  return true;
}

bool Device::while_shared(void *base, uint64_t token, const std::function<void()> &act) {
  const Lock lock(mutex_);
  const auto is_it = [&](void *ptr, const Block &block) {
    return block.share_token == token &&
        (block.pool == nullptr ? ptr : block.pool->segment_of(static_cast<char *>(ptr))) == base;
  };
  if (const auto found = blocks_.find(base); found != blocks_.end() && is_it(base, found->second)) {
    act();
    return true;
  }
  for (const auto &[ptr, block] : blocks_) {
    if (block.pool != nullptr && is_it(ptr, block)) {
      act();
      return true;
    }
  }
  return false;
}

void Device::add_peer(int other) {
  const Lock lock(mutex_);
  if (std::find(peers_.begin(), peers_.end(), other) != peers_.end()) {
    return;
  }
  auto peers = peers_;
  peers.push_back(other);
  check(library.set_peers(index_, peers.data(), peers.size()), "letting another device access memory");
  peers_ = std::move(peers);
}

ShareableHandle Allocator::shareIpcHandle(void *ptr) {
  for (const auto &device : devices_) {
    Handle handle{};
    void *base = nullptr;
    ptrdiff_t offset = 0;
    if (!device->share(ptr, &handle.token, &base, &offset)) {
      continue;
    }
    std::memcpy(handle.magic, kMagic, sizeof kMagic);
    handle.base = reinterpret_cast<uint64_t>(base);
    // Fails now, and not in the process that opens the handle, if the memory cannot be exported.
    for (const auto &chunk : chunks_of(base)) {
      close(chunk.descriptor);
    }
    const std::string &name = serve(&answer);
    TORCH_INTERNAL_ASSERT(name.size() < sizeof handle.socket);
    std::memcpy(handle.socket, name.data(), name.size());
    return {offset, std::string(reinterpret_cast<const char *>(&handle), sizeof handle)};
  }
  TORCH_CHECK(false, "invalid device pointer: ", ptr);
}

std::shared_ptr<void> Allocator::getIpcDevPtr(std::string text) {
  Handle handle{};
  TORCH_CHECK(
      text.size() == sizeof handle && std::memcmp(text.data(), kMagic, sizeof kMagic) == 0,
      "the tensor comes from a process without Freehold: call freehold.torch.enable() in both processes");
  std::memcpy(&handle, text.data(), sizeof handle);
  DeviceIndex device = 0;
  C10_CUDA_CHECK(c10::cuda::GetDevice(&device));
  // A handle is mapped once while it is in use, as it is in PyTorch.
  static std::mutex mutex;
  static std::map<std::string, std::weak_ptr<void>> opened;
  const std::lock_guard<std::mutex> lock(mutex);
  for (auto one = opened.begin(); one != opened.end();) {
    one = one->second.expired() ? opened.erase(one) : std::next(one);
  }
  if (const auto found = opened.find(text); found != opened.end()) {
    if (auto mapped = found->second.lock()) {
      return mapped;
    }
  }
  const Answer received = ask(handle.socket, {handle.base, handle.token});
  TORCH_CHECK(received.error.empty(), "a tensor of another process cannot be opened: ", received.error);
  auto mapping = std::make_shared<Mapping>(device);
  mapping->map(received.chunks);
  std::shared_ptr<void> base(mapping, mapping->at(received.offset));
  opened[text] = base;
  return base;
}

void Allocator::enablePeerAccess(DeviceIndex device, DeviceIndex other) {
  // The runtime's own peer access, for memory that other libraries allocate.
  const c10::cuda::CUDAGuard guard(device);
  if (const cudaError_t enabled = cudaDeviceEnablePeerAccess(other, 0);
      enabled == cudaErrorPeerAccessAlreadyEnabled) {
    (void)cudaGetLastError();
  } else {
    C10_CUDA_CHECK(enabled);
  }
  at(other).add_peer(device);
}

cudaError_t Allocator::memcpyAsync(
    void *to, int to_device, const void *from, int from_device, size_t bytes, cudaStream_t stream, bool) {
  // Between devices, the peer copy needs no access of one to the other's memory.
  if (to_device == from_device) {
    return cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, stream);
  }
  return cudaMemcpyPeerAsync(to, to_device, from, from_device, bytes, stream);
}

} // namespace freehold_torch
