// The fused cells of recurrent networks, and other operators for which only the device has a kernel.

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>

#include "operators_special.h"

namespace freehold {

namespace {

using torch::jit::Stack;

at::Tensor with_bias(const at::Tensor& gates, const c10::IValue& bias) {
  return bias.isNone() ? gates : gates + bias.toTensor();
}

at::Tensor joined(const std::vector<at::Tensor>& gates) {
  return at::cat(gates, 1);
}

// (input_gates, hidden_gates, cx, input_bias, hidden_bias); gates are in the order input, forget, cell, output.
void lstm_cell(Stack& stack, const std::optional<at::Generator>&) {
  at::Tensor gates = with_bias(stack[0].toTensor(), stack[3]) + with_bias(stack[1].toTensor(), stack[4]);
  std::vector<at::Tensor> parts = gates.chunk(4, 1);
  at::Tensor input = parts[0].sigmoid(), forget = parts[1].sigmoid(), cell = parts[2].tanh(), output = parts[3].sigmoid();
  at::Tensor cy = forget * stack[2].toTensor() + input * cell;
  stack = {output * cy.tanh(), cy, joined({input, forget, cell, output})};
}

// (grad_hy, grad_cy, cx, cy, workspace, has_bias)
void lstm_cell_backward(Stack& stack, const std::optional<at::Generator>&) {
  auto given = [&](size_t index) { return stack[index].isTensor() && stack[index].toTensor().defined(); };
  at::Tensor cx = stack[2].toTensor(), cy = stack[3].toTensor();
  at::Tensor to_hy = given(0) ? stack[0].toTensor() : cy.new_zeros(cy.sizes());
  at::Tensor to_cy = given(1) ? stack[1].toTensor() : cy.new_zeros(cy.sizes());
  std::vector<at::Tensor> parts = stack[4].toTensor().chunk(4, 1);
  at::Tensor input = parts[0], forget = parts[1], cell = parts[2], output = parts[3];
  at::Tensor squashed = cy.tanh();
  at::Tensor to_cell = to_hy * output * (1 - squashed * squashed) + to_cy;
  at::Tensor gates = joined(
      {
          to_cell * cell * input * (1 - input),
          to_cell * cx * forget * (1 - forget),
          to_cell * input * (1 - cell * cell),
          to_hy * squashed * output * (1 - output),
      });
  at::Tensor to_bias = stack[5].toBool() ? gates.sum(0) : at::Tensor();
  stack = {gates, to_cell * forget, to_bias};
}

// (input_gates, hidden_gates, hx, input_bias, hidden_bias); gates are in the order reset, update, new.
void gru_cell(Stack& stack, const std::optional<at::Generator>&) {
  at::Tensor hx = stack[2].toTensor();
  std::vector<at::Tensor> from_input = with_bias(stack[0].toTensor(), stack[3]).chunk(3, 1);
  std::vector<at::Tensor> from_hidden = with_bias(stack[1].toTensor(), stack[4]).chunk(3, 1);
  at::Tensor reset = (from_input[0] + from_hidden[0]).sigmoid();
  at::Tensor update = (from_input[1] + from_hidden[1]).sigmoid();
  at::Tensor fresh = (from_input[2] + reset * from_hidden[2]).tanh();
  at::Tensor hy = fresh + update * (hx - fresh);
  stack = {hy, joined({reset, update, fresh, hx, from_hidden[2]})};
}

// (grad_hy, workspace, has_bias)
void gru_cell_backward(Stack& stack, const std::optional<at::Generator>&) {
  at::Tensor to_hy = stack[0].toTensor();
  std::vector<at::Tensor> parts = stack[1].toTensor().chunk(5, 1);
  at::Tensor reset = parts[0], update = parts[1], fresh = parts[2], hx = parts[3], hidden = parts[4];
  at::Tensor to_update = to_hy * (hx - fresh) * update * (1 - update);
  at::Tensor to_fresh = to_hy * (1 - update) * (1 - fresh * fresh);
  at::Tensor to_reset = to_fresh * hidden * reset * (1 - reset);
  at::Tensor to_input = joined({to_reset, to_update, to_fresh});
  at::Tensor to_hidden = joined({to_reset, to_update, to_fresh * reset});
  bool has_bias = stack[2].toBool();
  at::Tensor none;
  stack = {to_input, to_hidden, to_hy * update, has_bias ? to_input.sum(0) : none, has_bias ? to_hidden.sum(0) : none};
}

// (input, p, train)
void native_dropout(Stack& stack, const std::optional<at::Generator>& generator) {
  at::Tensor input = stack[0].toTensor();
  double p = stack[1].toDouble();
  bool is_training = stack[2].isNone() || stack[2].toBool();
  at::Tensor mask = input.new_empty(input.sizes(), at::kBool);
  if (!is_training) {
    stack = {input.clone(), mask.fill_(true)};
    return;
  }
  mask.bernoulli_(1 - p, generator);
  stack = {input.mul(mask).mul_(p == 1 ? 0 : 1 / (1 - p)), mask};
}

// (self, p, generator): here p is the chance to be kept.
void fused_dropout(Stack& stack, const std::optional<at::Generator>& generator) {
  at::Tensor input = stack[0].toTensor();
  double p = stack[1].toDouble();
  at::Tensor mask = input.new_empty(input.sizes(), at::kByte).bernoulli_(p, generator);
  stack = {input.mul(mask).div_(p), mask};
}

// (self, mask, scale)
void masked_scale(Stack& stack, const std::optional<at::Generator>&) {
  at::Tensor input = stack[0].toTensor();
  stack = {input.mul(stack[1].toTensor().to(input.scalar_type())).mul_(stack[2].toDouble())};
}

// (grad_out, input, normalized_shape, rstd, weight, output_mask)
void rms_norm_backward(Stack& stack, const std::optional<at::Generator>&) {
  at::Tensor input = stack[1].toTensor(), inverse = stack[3].toTensor();
  at::Tensor gradient = stack[0].toTensor().to(inverse.scalar_type());
  at::Tensor normal = input.to(inverse.scalar_type()) * inverse;
  int64_t rank = static_cast<int64_t>(stack[2].toIntVector().size());
  std::vector<int64_t> inner, outer;
  for (int64_t dim = 0; dim < input.dim(); ++dim) {
    (dim < input.dim() - rank ? outer : inner).push_back(dim);
  }
  bool has_weight = stack[4].isTensor() && stack[4].toTensor().defined();
  at::Tensor scaled = has_weight ? gradient * stack[4].toTensor() : gradient;
  at::Tensor to_input = (scaled - normal * (scaled * normal).mean(inner, true)) * inverse;
  at::Tensor to_weight;
  if (has_weight && stack[5].toBoolList()[1]) {
    at::Tensor each = gradient * normal;
    to_weight = (outer.empty() ? each : each.sum(outer)).to(stack[4].toTensor().scalar_type());
  }
  stack = {to_input.to(input.scalar_type()), to_weight};
}

// (input, weight, bias, running_mean, running_var, training, exponential_average_factor, epsilon)
void cudnn_batch_norm(Stack& stack, const std::optional<at::Generator>&) {
  static auto op = c10::Dispatcher::singleton().findSchemaOrThrow("aten::native_batch_norm", "");
  at::Tensor reserve = stack[0].toTensor().new_empty({0}, at::kByte);
  op.callBoxed(stack);
  stack.push_back(reserve);
}

// (input, grad_output, weight, running_mean, running_var, save_mean, save_var, epsilon, reserveSpace)
void cudnn_batch_norm_backward(Stack& stack, const std::optional<at::Generator>&) {
  static auto op = c10::Dispatcher::singleton().findSchemaOrThrow("aten::native_batch_norm_backward", "");
  Stack arguments = {stack[1], stack[0], stack[2], stack[3], stack[4], stack[5], stack[6], true, stack[7],
                     std::array<bool, 3>{true, true, true}};
  op.callBoxed(arguments);
  stack = std::move(arguments);
}

// (self, dim, half_to_float): only the device's kernels convert. `name` is the operator's.
void softmax_as_float(const char* name, Stack& stack) {
  auto op = c10::Dispatcher::singleton().findSchemaOrThrow(name, "");
  if (stack[2].toBool()) {
    stack[0] = stack[0].toTensor().to(at::kFloat);
    stack[2] = false;
  }
  call_on_cpu(op, stack);
}

void softmax(Stack& stack, const std::optional<at::Generator>&) {
  softmax_as_float("aten::_softmax", stack);
}

void log_softmax(Stack& stack, const std::optional<at::Generator>&) {
  softmax_as_float("aten::_log_softmax", stack);
}

// (grad_output, output, dim, input_dtype)
void softmax_backward_as_float(const char* name, Stack& stack) {
  auto op = c10::Dispatcher::singleton().findSchemaOrThrow(name, "");
  at::ScalarType type = stack[3].toScalarType();
  stack[3] = stack[0].toTensor().scalar_type();
  call_on_cpu(op, stack);
  stack[0] = stack[0].toTensor().to(type);
}

void softmax_backward(Stack& stack, const std::optional<at::Generator>&) {
  softmax_backward_as_float("aten::_softmax_backward_data", stack);
}

void log_softmax_backward(Stack& stack, const std::optional<at::Generator>&) {
  softmax_backward_as_float("aten::_log_softmax_backward_data", stack);
}

}  // namespace

const Implementations& cell_implementations() {
  static const Implementations implementations = {
      {"aten::_thnn_fused_lstm_cell", lstm_cell},
      {"aten::_thnn_fused_lstm_cell_backward_impl", lstm_cell_backward},
      {"aten::_thnn_fused_gru_cell", gru_cell},
      {"aten::_thnn_fused_gru_cell_backward", gru_cell_backward},
      {"aten::native_dropout", native_dropout},
      {"aten::_softmax", softmax},
      {"aten::_log_softmax", log_softmax},
      {"aten::_softmax_backward_data", softmax_backward},
      {"aten::_log_softmax_backward_data", log_softmax_backward},
      {"aten::_fused_dropout", fused_dropout},
      {"aten::_masked_scale", masked_scale},
      {"aten::_fused_rms_norm_backward", rms_norm_backward},
      {"aten::cudnn_batch_norm", cudnn_batch_norm},
      {"aten::cudnn_batch_norm_backward", cudnn_batch_norm_backward},
  };
  return implementations;
}

}  // namespace freehold
