// Operators as host tasks: a task runs the CPU's kernel of an operator on the memory of the device, in stream order.
#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/cuda/PhiloxCudaState.h>

#include <optional>
#include <vector>

#include "operators_tensors.h"

namespace freehold {

// Computes an operator that the CPU has no kernel for: takes the arguments from the stack, and puts the results there.
using Implementation = void (*)(torch::jit::Stack& stack, const std::optional<at::Generator>& generator);

// Where a task takes its random numbers from: the state of a generator of the device.
struct Random {
  at::PhiloxCudaState state;
  // The argument that is a generator; -1 if the operator has none.
  int argument;
};

struct Task {
  explicit Task(const c10::OperatorHandle& of) : op(of) {}

  c10::OperatorHandle op;
  // Null if the CPU has a kernel.
  Implementation implementation = nullptr;
  // Their tensors are of the CPU.
  torch::jit::Stack arguments;
  // One for each result that the task writes to memory of the device: a tensor, a list of tensors, or None.
  std::vector<c10::IValue> outputs;
  std::optional<Random> random;
  std::vector<Access> accesses;
};

// Runs a task after the work that is in the stream. In a capture it becomes part of the graph.
void submit(c10::cuda::CUDAStream stream, std::unique_ptr<Task> task);

// Runs a task after the work that is in the stream, waits for it, and returns its results, which are of the CPU.
torch::jit::Stack submit_and_wait(c10::cuda::CUDAStream stream, std::unique_ptr<Task> task);

// Calls an operator with tensors of the CPU: `stack` has the arguments, then the results. Reduced types that its kernel
// does not know are computed as float.
void call_on_cpu(const c10::OperatorHandle& op, torch::jit::Stack& stack);

// Throws the first error of a task that nobody was told of.
void throw_error_of_task();

}  // namespace freehold
