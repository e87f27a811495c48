// What Python calls, through ctypes: the extension does not depend on a version of Python.

#include "allocator.h"

#include <torch/csrc/cuda/CUDAPluggableAllocator.h>
#include <torch/version.h>

namespace freehold_torch {

namespace {

std::string error_text;

std::string install(const char *library_path) {
  if (std::string missing = load_library(library_path); !missing.empty()) {
    return missing;
  }
  library.announce_captures();
  // PyTorch keeps the allocator for ever; this one has no owner.
  const std::shared_ptr<CUDAAllocator> shared(&the_allocator(), [](auto *) {});
  torch::cuda::CUDAPluggableAllocator::changeCurrentAllocator(shared);
  // Where torch.accelerator looks.
  c10::SetAllocator(c10::DeviceType::CUDA, &the_allocator());
  return "";
}

} // namespace

} // namespace freehold_torch

extern "C" {

// The version of PyTorch that this file was compiled for.
__attribute__((visibility("default"))) const char *freehold_torch_version() {
  return TORCH_VERSION;
}

// Makes Freehold PyTorch's allocator. Returns why it could not, or null.
__attribute__((visibility("default"))) const char *freehold_torch_install(const char *library_path) {
  try {
    freehold_torch::error_text = freehold_torch::install(library_path);
  } catch (const c10::Error &error) {
    freehold_torch::error_text = error.what_without_backtrace();
  } catch (const std::exception &error) {
    freehold_torch::error_text = error.what();
  }
  return freehold_torch::error_text.empty() ? nullptr : freehold_torch::error_text.c_str();
}
}
