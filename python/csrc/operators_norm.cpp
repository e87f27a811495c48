// Layer normalization of half-precision tensors: a GPU computes it in single precision, and keeps the mean and the
// deviation so. The CPU's kernels keep them in the type of the parameters, and refuse other types.

#include <ATen/core/dispatch/Dispatcher.h>

#include "operators_special.h"

namespace freehold {

namespace {

using c10::IValue;
using torch::jit::Stack;

bool is_half(const at::Tensor& tensor) {
  return tensor.defined() && (tensor.scalar_type() == at::kHalf || tensor.scalar_type() == at::kBFloat16);
}

// Calls the CPU's kernel with single precision in place of half. `types` are those of the results; a result without one
// stays as it is.
void call_in_single(const char* name, Stack& stack, const std::vector<std::optional<at::ScalarType>>& types) {
  auto op = c10::Dispatcher::singleton().findSchemaOrThrow(name, "");
  for (IValue& value : stack) {
    if (value.isTensor() && is_half(value.toTensor())) {
      value = value.toTensor().to(at::kFloat);
    }
  }
  call_on_cpu(op, stack);
  for (size_t index = 0; index < types.size(); ++index) {
    if (types[index] && stack[index].isTensor() && stack[index].toTensor().defined()) {
      stack[index] = stack[index].toTensor().to(*types[index]);
    }
  }
}

std::optional<at::ScalarType> type_of(const IValue& value) {
  if (!value.isTensor() || !value.toTensor().defined()) {
    return std::nullopt;
  }
  return value.toTensor().scalar_type();
}

// (input, normalized_shape, weight, bias, eps)
void layer_norm(Stack& stack, const std::optional<at::Generator>&) {
  call_in_single("aten::native_layer_norm", stack, {type_of(stack[0])});
}

// (grad_out, input, normalized_shape, mean, rstd, weight, bias, output_mask)
void layer_norm_backward(Stack& stack, const std::optional<at::Generator>&) {
  call_in_single("aten::native_layer_norm_backward", stack, {type_of(stack[1]), type_of(stack[5]), type_of(stack[6])});
}

}  // namespace

const Implementations& norm_implementations() {
  static const Implementations all = {
      {"aten::native_layer_norm", layer_norm},
      {"aten::native_layer_norm_backward", layer_norm_backward},
  };
  return all;
}

}  // namespace freehold
