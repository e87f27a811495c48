// The kernel that stands in for the machine code of an operator.
#pragma once

#include <ATen/core/boxing/OperatorKernel.h>

#include "operators_shapes.h"
#include "operators_task.h"

namespace freehold {

class Fallback : public c10::OperatorKernel {
 public:
  Fallback(const c10::OperatorHandle& op, Implementation implementation);

  void operator()(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack);

 private:
  // Puts the CPU's arguments and what they access into a task.
  std::unique_ptr<Task> task_of(c10::ArrayRef<c10::IValue> arguments, c10::Device device) const;
  std::optional<Random> random_of(c10::ArrayRef<c10::IValue> arguments, c10::Device device, Task& task) const;
  torch::jit::Stack enqueue(c10::ArrayRef<c10::IValue> arguments, c10::Device device, const Shapes& shapes) const;
  torch::jit::Stack compute_now(c10::ArrayRef<c10::IValue> arguments, c10::Device device) const;
  bool depends_on_data(c10::ArrayRef<c10::IValue> arguments) const;

  c10::OperatorHandle op_;
  Implementation implementation_;
  // The argument that each result is; -1 for a new tensor.
  std::vector<int> returned_arguments_;
  bool is_random_;
  bool is_data_dependent_;
  ShapeCache shapes_;
};

}  // namespace freehold
