#include "operators_task.h"

#include <ATen/Context.h>
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAGraphsC10Utils.h>

#include <mutex>
#include <string>
#include <unordered_set>

namespace freehold {

namespace {

std::mutex error_lock;
std::optional<std::string> error_of_task;

void note_error(const c10::OperatorHandle& op, const char* message) {
  std::lock_guard<std::mutex> guard(error_lock);
  if (!error_of_task) {
    error_of_task = op.operator_name().name + " failed on the software device: " + message;
  }
}

// Returns a name that is never freed.
const char* lasting_name(const c10::OperatorHandle& op) {
  static std::mutex lock;
  static auto* names = new std::unordered_set<std::string>();
  std::lock_guard<std::mutex> guard(lock);
  return names->insert(op.operator_name().name).first->c_str();
}

uint64_t load(const void* view) {
  return *static_cast<const uint64_t*>(view);
}

// Returns a generator of the CPU that continues the numbers of one of the device. The pointers of a captured state are
// those at which a task reads.
at::Generator cpu_generator(const at::PhiloxCudaState& state) {
  uint64_t seed = state.captured_ ? load(state.seed_.ptr) : state.seed_.val;
  uint64_t offset = state.captured_ ? load(state.offset_.ptr) + state.offset_intragraph_ : state.offset_.val;
  // The finalizer of SplitMix64, because the generator's own seed has 32 bits.
  uint64_t mixed = seed + (offset + 1) * 0x9e3779b97f4a7c15;
  mixed = (mixed ^ (mixed >> 30)) * 0xbf58476d1ce4e5b9;
  mixed = (mixed ^ (mixed >> 27)) * 0x94d049bb133111eb;
  return at::detail::createCPUGenerator(mixed ^ (mixed >> 31));
}

bool is_reduced(const at::Tensor& tensor) {
  return c10::isReducedFloatingType(tensor.scalar_type()) || c10::isFloat8Type(tensor.scalar_type());
}

// Computes as float what the CPU has no kernel of a shorter type for.
void call_as_float(const c10::OperatorHandle& op, torch::jit::Stack& stack) {
  std::vector<std::pair<at::Tensor, at::Tensor>> replaced;
  for (c10::IValue& value : stack) {
    value = map_tensors(value, [&](const at::Tensor& tensor) {
      if (!is_reduced(tensor)) {
        return tensor;
      }
      at::Tensor wide = tensor.to(at::kFloat);
      replaced.emplace_back(tensor, wide);
      return wide;
    });
  }
  op.callBoxed(stack);
  const auto& arguments = op.schema().arguments();
  bool is_written = std::any_of(arguments.begin(), arguments.end(), [](const c10::Argument& argument) {
    return argument.alias_info() != nullptr && argument.alias_info()->isWrite();
  });
  for (auto& [narrow, wide] : replaced) {
    if (is_written) {
      narrow.copy_(wide);
    }
  }
}

void copy_result(const at::Tensor& output, const at::Tensor& result) {
  TORCH_CHECK(
      output.sizes() == result.sizes(),
      "its result has the shape ",
      result.sizes(),
      ", and that of other data with the same shape has ",
      output.sizes());
  output.copy_(result);
}

void copy_results(const Task& task, const torch::jit::Stack& results) {
  for (size_t index = 0; index < task.outputs.size(); ++index) {
    const c10::IValue& output = task.outputs[index];
    if (output.isTensor()) {
      copy_result(output.toTensor(), results[index].toTensor());
    } else if (output.isTensorList()) {
      std::vector<at::Tensor> to = output.toTensorVector();
      std::vector<at::Tensor> from = results[index].toTensorVector();
      for (size_t element = 0; element < to.size(); ++element) {
        copy_result(to[element], from[element]);
      }
    }
  }
}

torch::jit::Stack run(const Task& task) {
  at::AutoDispatchBelowADInplaceOrView guard;
  torch::jit::Stack stack = task.arguments;
  std::optional<at::Generator> generator;
  if (task.random) {
    generator = cpu_generator(task.random->state);
    if (task.random->argument >= 0) {
      stack[task.random->argument] = *generator;
    }
  }
  if (task.implementation != nullptr) {
    task.implementation(stack, generator);
  } else {
    call_on_cpu(task.op, stack);
  }
  copy_results(task, stack);
  return stack;
}

void run_noting_errors(const Task& task) {
  try {
    run(task);
  } catch (const c10::Error& error) {
    note_error(task.op, error.what_without_backtrace());
  } catch (const std::exception& error) {
    note_error(task.op, error.what());
  }
}

void run_once(void* data) {
  std::unique_ptr<Task> task(static_cast<Task*>(data));
  run_noting_errors(*task);
}

void run_again(void* data) {
  run_noting_errors(*static_cast<const Task*>(data));
}

bool is_capturing() {
  return c10::cuda::currentStreamCaptureStatusMayInitCtx() != c10::cuda::CaptureStatus::None;
}

// A task that the host waits for, and what it led to.
struct Awaited {
  std::unique_ptr<Task> task;
  torch::jit::Stack results;
  std::exception_ptr error;
};

void run_awaited(void* data) {
  auto* awaited = static_cast<Awaited*>(data);
  try {
    awaited->results = run(*awaited->task);
  } catch (...) {
    awaited->error = std::current_exception();
  }
}

void destroy(void* data) {
  delete static_cast<Task*>(data);
}

// Gives a task to the graph that a stream is captured in: it lives as long as the graph.
void give_to_graph(c10::cuda::CUDAStream stream, std::unique_ptr<Task> task) {
  cudaStreamCaptureStatus status;
  cudaGraph_t graph;
#if CUDART_VERSION >= 13000
  C10_CUDA_CHECK(cudaStreamGetCaptureInfo(stream, &status, nullptr, &graph, nullptr, nullptr, nullptr));
#else
  C10_CUDA_CHECK(cudaStreamGetCaptureInfo_v2(stream, &status, nullptr, &graph, nullptr, nullptr));
#endif
  cudaUserObject_t owner;
  C10_CUDA_CHECK(cudaUserObjectCreate(&owner, task.get(), destroy, 1, cudaUserObjectNoDestructorSync));
  task.release();
  C10_CUDA_CHECK(cudaGraphRetainUserObject(graph, owner, 1, cudaGraphUserObjectMove));
}

}  // namespace

void call_on_cpu(const c10::OperatorHandle& op, torch::jit::Stack& stack) {
  torch::jit::Stack arguments = stack;
  try {
    op.callBoxed(stack);
  } catch (const c10::NotImplementedError&) {
    bool has_reduced = false;
    for (const c10::IValue& value : arguments) {
      for_each_tensor(value, [&](const at::Tensor& tensor) { has_reduced |= is_reduced(tensor); });
    }
    if (!has_reduced) {
      throw;
    }
    stack = std::move(arguments);
    call_as_float(op, stack);
  }
}

void submit(c10::cuda::CUDAStream stream, std::unique_ptr<Task> task) {
  bool is_captured = is_capturing();
  const char* name = lasting_name(task->op);
  std::vector<Access> accesses = std::move(task->accesses);
  launch(stream, name, is_captured ? run_again : run_once, task.get(), accesses);
  if (is_captured) {
    give_to_graph(stream, std::move(task));
  } else {
    // It frees itself.
    task.release();
  }
}

torch::jit::Stack submit_and_wait(c10::cuda::CUDAStream stream, std::unique_ptr<Task> task) {
  const char* name = lasting_name(task->op);
  std::vector<Access> accesses = std::move(task->accesses);
  Awaited awaited{std::move(task), {}, nullptr};
  TORCH_CHECK(!is_capturing(), name, ": its result depends on data, and cannot be captured in a CUDA graph");
  launch(stream, name, run_awaited, &awaited, accesses);
  c10::cuda::stream_synchronize(stream.stream());
  throw_error_of_task();
  if (awaited.error) {
    std::rethrow_exception(awaited.error);
  }
  return std::move(awaited.results);
}

void throw_error_of_task() {
  std::optional<std::string> error;
  {
    std::lock_guard<std::mutex> guard(error_lock);
    error.swap(error_of_task);
  }
  TORCH_CHECK(!error.has_value(), error.value_or(""));
}

}  // namespace freehold
