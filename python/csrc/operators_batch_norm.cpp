// The parts of batch normalization over several processes (`torch.nn.SyncBatchNorm`), which the CPU has no kernels for.
// Channels are the second dimension. Half-precision tensors are computed in single precision, as on a GPU.

#include <ATen/TensorOperators.h>

#include "operators_special.h"

namespace freehold {

namespace {

using c10::IValue;
using torch::jit::Stack;

bool is_given(const IValue& value) {
  return value.isTensor() && value.toTensor().defined();
}

at::Tensor in_single(const at::Tensor& tensor) {
  bool is_half = tensor.scalar_type() == at::kHalf || tensor.scalar_type() == at::kBFloat16;
  return is_half ? tensor.to(at::kFloat) : tensor;
}

// Returns numbers of the channels in a shape that spreads over an input.
at::Tensor spread(const at::Tensor& channels, const at::Tensor& input) {
  std::vector<int64_t> shape(input.dim(), 1);
  shape.at(1) = channels.numel();
  return in_single(channels).view(shape);
}

at::Tensor sum_of_channels(const at::Tensor& tensor) {
  return tensor.transpose(0, 1).flatten(1).sum(1);
}

// (input, eps)
void stats(Stack& stack, const std::optional<at::Generator>&) {
  at::Tensor rows = in_single(stack[0].toTensor()).transpose(0, 1).flatten(1);
  at::Tensor variance = rows.var(1, /*unbiased=*/false);
  stack = {rows.mean(1), (variance + stack[1].toDouble()).rsqrt()};
}

// (input, weight, bias, mean, invstd, eps)
void normalize(Stack& stack, const std::optional<at::Generator>&) {
  at::Tensor given = stack[0].toTensor(), input = in_single(given);
  at::Tensor result = (input - spread(stack[3].toTensor(), input)) * spread(stack[4].toTensor(), input);
  if (is_given(stack[1])) {
    result = result * spread(stack[1].toTensor(), input);
  }
  if (is_given(stack[2])) {
    result = result + spread(stack[2].toTensor(), input);
  }
  stack = {result.to(given.scalar_type())};
}

void move_towards(const IValue& running, const at::Tensor& value, double momentum) {
  if (is_given(running)) {
    const at::Tensor& tensor = running.toTensor();
    tensor.copy_(in_single(tensor) * (1 - momentum) + value * momentum);
  }
}

// Joins the statistics of processes, of which each has a row, and `counts` elements in each channel.
void join(Stack& stack, const at::Tensor& counts) {
  double momentum = stack[5].toDouble(), eps = stack[6].toDouble();
  at::Tensor means = in_single(stack[1].toTensor()), deviations = in_single(stack[2].toTensor());
  at::Tensor weights = counts.to(means.scalar_type()).view({-1, 1});
  at::Tensor count = weights.sum();
  at::Tensor mean = (means * weights).sum(0) / count;
  at::Tensor variances = deviations.pow(-2) - eps;
  at::Tensor squares = ((variances + (means - mean).pow(2)) * weights).sum(0);
  move_towards(stack[3], mean, momentum);
  move_towards(stack[4], squares / (count - 1), momentum);
  stack = {mean, (squares / count + eps).rsqrt()};
}

// (input, mean, invstd, running_mean, running_var, momentum, eps, count)
void gather(Stack& stack, const std::optional<at::Generator>&) {
  at::Tensor means = stack[1].toTensor();
  join(stack, means.new_full({means.size(0)}, stack[7].toInt(), at::kLong));
}

// The same with the count of each process.
void gather_with_counts(Stack& stack, const std::optional<at::Generator>&) {
  join(stack, stack[7].toTensor());
}

// (grad_out, input, mean, invstd, weight, input_g, weight_g, bias_g)
void backward_reduce(Stack& stack, const std::optional<at::Generator>&) {
  at::Tensor gradient = in_single(stack[0].toTensor()), input = in_single(stack[1].toTensor());
  at::Tensor sum = sum_of_channels(gradient);
  at::Tensor product = sum_of_channels(gradient * (input - spread(stack[2].toTensor(), input)));
  at::Tensor to_weight = product * in_single(stack[3].toTensor());
  at::Tensor none;
  bool has_weight = is_given(stack[4]), of_input = stack[5].toBool();
  at::ScalarType type = has_weight ? stack[4].toTensor().scalar_type() : sum.scalar_type();
  bool of_weight = stack[6].toBool() && has_weight, of_bias = stack[7].toBool() && has_weight;
  stack = {
      of_input ? sum : none,
      of_input ? product : none,
      of_weight ? to_weight.to(type) : none,
      of_bias ? sum.to(type) : none,
  };
}

// (grad_out, input, mean, invstd, weight, sum_dy, sum_dy_xmu, count)
void backward_normalize(Stack& stack, const std::optional<at::Generator>&) {
  at::Tensor given = stack[1].toTensor(), input = in_single(given), gradient = in_single(stack[0].toTensor());
  at::Tensor deviation = in_single(stack[3].toTensor());
  at::Tensor count = stack[7].toTensor().sum().to(input.scalar_type());
  at::Tensor shift = spread(in_single(stack[5].toTensor()) / count, input);
  at::Tensor slope = spread(in_single(stack[6].toTensor()) * deviation.pow(2) / count, input);
  at::Tensor result = gradient - shift - (input - spread(stack[2].toTensor(), input)) * slope;
  result = result * spread(deviation, input);
  if (is_given(stack[4])) {
    result = result * spread(stack[4].toTensor(), input);
  }
  stack = {result.to(given.scalar_type())};
}

}  // namespace

const Implementations& batch_norm_implementations() {
  static const Implementations all = {
      {"aten::batch_norm_stats", stats},
      {"aten::batch_norm_elemt", normalize},
      {"aten::batch_norm_gather_stats", gather},
      {"aten::batch_norm_gather_stats_with_counts", gather_with_counts},
      {"aten::batch_norm_backward_reduce", backward_reduce},
      {"aten::batch_norm_backward_elemt", backward_normalize},
  };
  return all;
}

}  // namespace freehold
