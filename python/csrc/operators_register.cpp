// Registers the operators: `freehold_register_operators` is what Python calls.

#include <torch/library.h>

#include <chrono>
#include <cstdint>
#include <string>
#include <thread>
#include <unordered_set>

#include <c10/cuda/CUDAException.h>

#include "operators_device.h"
#include "operators_fallback.h"
#include "operators_special.h"

namespace freehold {

namespace {

// Operators that launch no kernel: memory, metadata and transfers are the device's own.
const std::unordered_set<std::string>& kept() {
  static const std::unordered_set<std::string> names = {
      "aten::empty",         "aten::empty_strided",   "aten::resize_",  "aten::_resize_output_", "aten::set_",
      "aten::record_stream", "aten::is_set_to",       "aten::is_pinned", "aten::_pin_memory",    "aten::_efficientzerotensor",
  };
  return names;
}

bool returns_view(const c10::FunctionSchema& schema) {
  for (const c10::Argument& result : schema.returns()) {
    if (result.alias_info() != nullptr && !result.alias_info()->isWrite()) {
      return true;
    }
  }
  return false;
}

bool makes_sparse_or_quantized(const std::string& name) {
  return name.find("sparse") != std::string::npos || name.find("quantize_per") != std::string::npos;
}

bool is_replaced(const c10::OperatorHandle& op) {
  const std::string& name = op.operator_name().name;
  return name.rfind("aten::", 0) == 0 && op.hasKernelForDispatchKey(c10::DispatchKey::CUDA) && kept().count(name) == 0 &&
      !returns_view(op.schema()) && !makes_sparse_or_quantized(name);
}

std::string full_name(const c10::OperatorName& name) {
  return name.overload_name.empty() ? name.name : name.name + "." + name.overload_name;
}

// PyTorch warns that a kernel is replaced, which is what happens here.
class Silent : public c10::WarningHandler {
 public:
  void process(const c10::Warning&) override {}
};

void register_all() {
  auto& dispatcher = c10::Dispatcher::singleton();
  // Registrations last as long as the process.
  auto* library = new torch::Library(torch::Library::IMPL, "aten", c10::DispatchKey::CUDA, __FILE__, __LINE__);
  Silent silent;
  c10::WarningUtils::WarningHandlerGuard guard(&silent);
  for (const c10::OperatorName& name : dispatcher.getAllOpNames()) {
    std::optional<c10::OperatorHandle> op = dispatcher.findSchema(name);
    if (!op) {
      continue;
    }
    std::string full = full_name(name);
    Implementation implementation = special_implementation(full);
    if (!is_special(full) && (is_replaced(*op) || is_added(full))) {
      auto kernel = std::make_unique<Fallback>(*op, implementation);
      library->impl(full.c_str(), torch::CppFunction::makeFromBoxedFunctor(std::move(kernel)));
    }
  }
  register_special(*library);
}

// The data is the number of nanoseconds, so that a graph can replay it.
void sleep_for(void* nanoseconds) {
  std::this_thread::sleep_for(std::chrono::nanoseconds(reinterpret_cast<intptr_t>(nanoseconds)));
}

}  // namespace

}  // namespace freehold

// Replaces the kernels of PyTorch for the device by tasks. Returns what failed, or null.
extern "C" __attribute__((visibility("default"))) const char* freehold_register_operators() {
  static std::string error;
  try {
    if (!freehold::find_device()) {
      return "the CUDA driver of this process is not Freehold's software driver of the same version";
    }
    freehold::register_all();
    return nullptr;
  } catch (const std::exception& caught) {
    error = caught.what();
    return error.c_str();
  }
}

// Throws away the first error of a task that nobody was told of, and returns it, or null. The text is valid until the
// thread's next call.
extern "C" __attribute__((visibility("default"))) const char* freehold_error_of_operators() {
  thread_local std::string error;
  try {
    freehold::throw_error_of_task();
    return nullptr;
  } catch (const c10::Error& caught) {
    error = caught.what_without_backtrace();
    return error.c_str();
  }
}

// Keeps the current stream busy for a number of cycles of the device's clock, as the kernel behind `torch.cuda._sleep` does.
// Returns what failed, or null; the text is valid until the thread's next call.
extern "C" __attribute__((visibility("default"))) const char* freehold_sleep(int64_t cycles) {
  thread_local std::string error;
  try {
    c10::cuda::CUDAStream stream = c10::cuda::getCurrentCUDAStream();
    int kilohertz = 0;
    C10_CUDA_CHECK(cudaDeviceGetAttribute(&kilohertz, cudaDevAttrClockRate, stream.device_index()));
    auto nanoseconds = static_cast<intptr_t>(static_cast<double>(cycles) * 1e6 / kilohertz);
    freehold::launch(stream, "torch.cuda._sleep", freehold::sleep_for, reinterpret_cast<void*>(nanoseconds), {});
    return nullptr;
  } catch (const c10::Error& caught) {
    error = caught.what_without_backtrace();
    return error.c_str();
  }
}
