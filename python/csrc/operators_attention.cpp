// Attention, whose fused kernels the CPU does not have.

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/ones.h>

#include <cmath>

#include "operators_special.h"

namespace freehold {

namespace {

using torch::jit::Stack;

struct Attention {
  at::Tensor query, key, value;
  std::optional<at::Tensor> bias;
  double dropout_p;
  bool is_causal;
  double scale;
};

double scale_of(const at::Tensor& query, const c10::IValue& scale) {
  return scale.isNone() ? 1 / std::sqrt(static_cast<double>(query.size(-1))) : scale.toDouble();
}

// Returns the scaled products of queries and keys, in float or double.
at::Tensor scores(const Attention& of) {
  at::ScalarType type = of.query.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  at::Tensor products = of.query.to(type).matmul(of.key.to(type).transpose(-2, -1)).mul_(of.scale);
  if (of.bias) {
    products = products + of.bias->to(type);
  }
  if (of.is_causal) {
    at::Tensor allowed = at::ones({products.size(-2), products.size(-1)}, at::kBool);
    products.masked_fill_(allowed.tril().logical_not(), -INFINITY);
  }
  return products;
}

// Returns by what the weights are multiplied: 0, or the inverse of the chance to be kept. The same seed gives the same.
at::Tensor dropout_of(const at::Tensor& weights, double p, int64_t seed) {
  at::Generator generator = at::detail::createCPUGenerator(seed);
  return weights.new_empty(weights.sizes()).bernoulli_(1 - p, generator).div_(1 - p);
}

struct Computed {
  at::Tensor output, log_sum;
  int64_t seed;
};

Computed attend(const Attention& of, const std::optional<at::Generator>& generator) {
  at::Tensor products = scores(of);
  at::Tensor log_sum = products.logsumexp(-1);
  // A row without a key that it may see has no weights.
  at::Tensor weights = products.sub_(log_sum.unsqueeze(-1)).exp_().nan_to_num_(0.0);
  int64_t seed = generator ? at::empty({1}, at::kLong).random_(generator).item<int64_t>() : 0;
  if (of.dropout_p > 0) {
    weights.mul_(dropout_of(weights, of.dropout_p, seed));
  }
  at::Tensor output = weights.matmul(of.value.to(weights.scalar_type())).to(of.query.scalar_type());
  return {output, log_sum, seed};
}

struct Gradients {
  at::Tensor query, key, value, scores;
};

Gradients attend_backward(const Attention& of, const at::Tensor& gradient, const at::Tensor& log_sum, int64_t seed) {
  at::Tensor weights = scores(of).sub_(log_sum.unsqueeze(-1)).exp_().nan_to_num_(0.0);
  at::ScalarType type = weights.scalar_type();
  at::Tensor wide = gradient.to(type);
  at::Tensor to_weights = wide.matmul(of.value.to(type).transpose(-2, -1));
  at::Tensor used = weights;
  if (of.dropout_p > 0) {
    at::Tensor kept = dropout_of(weights, of.dropout_p, seed);
    used = weights * kept;
    to_weights.mul_(kept);
  }
  at::Tensor value = used.transpose(-2, -1).matmul(wide);
  at::Tensor to_scores = weights * (to_weights - (to_weights * weights).sum(-1, true));
  at::Tensor query = to_scores.matmul(of.key.to(type)).mul_(of.scale);
  at::Tensor key = to_scores.transpose(-2, -1).matmul(of.query.to(type)).mul_(of.scale);
  at::ScalarType narrow = of.query.scalar_type();
  return {query.to(narrow), key.to(narrow), value.to(narrow), to_scores};
}

at::Tensor number(int64_t value) {
  return at::empty({}, at::kLong).fill_(value);
}

// (query, key, value, attn_bias, compute_log_sumexp, dropout_p, is_causal, scale)
void efficient(Stack& stack, const std::optional<at::Generator>& generator) {
  at::Tensor query = stack[0].toTensor();
  Attention of{query, stack[1].toTensor(), stack[2].toTensor(), stack[3].toOptional<at::Tensor>(), stack[5].toDouble(),
               stack[6].toBool(), scale_of(query, stack[7])};
  Computed computed = attend(of, generator);
  stack = {computed.output, computed.log_sum, number(computed.seed), number(0)};
}

// (grad_out, query, key, value, attn_bias, out, logsumexp, philox_seed, philox_offset, dropout_p, grad_input_mask, is_causal,
// scale)
void efficient_backward(Stack& stack, const std::optional<at::Generator>&) {
  at::Tensor query = stack[1].toTensor();
  std::optional<at::Tensor> bias;
  if (stack[4].isTensor() && stack[4].toTensor().defined()) {
    bias = stack[4].toTensor();
  }
  Attention of{query, stack[2].toTensor(), stack[3].toTensor(), bias, stack[9].toDouble(), stack[11].toBool(),
               scale_of(query, stack[12])};
  int64_t seed = stack[7].toTensor().item<int64_t>();
  Gradients gradients = attend_backward(of, stack[0].toTensor(), stack[6].toTensor(), seed);
  at::Tensor to_bias;
  if (bias && stack[10].toBoolList()[3]) {
    to_bias = gradients.scores.sum_to_size(bias->sizes()).to(bias->scalar_type());
  }
  stack = {gradients.query, gradients.key, gradients.value, to_bias};
}

// (query, key, value, dropout_p, is_causal, return_debug_mask, scale)
void flash(Stack& stack, const std::optional<at::Generator>& generator) {
  at::Tensor query = stack[0].toTensor(), key = stack[1].toTensor();
  Attention of{query, key, stack[2].toTensor(), std::nullopt, stack[3].toDouble(), stack[4].toBool(),
               scale_of(query, stack[6])};
  Computed computed = attend(of, generator);
  at::Tensor none = query.new_empty({0});
  at::Tensor seed = at::empty({2}, at::kUInt64).fill_(computed.seed);
  stack = {computed.output, computed.log_sum, at::Tensor(), at::Tensor(), query.size(2), key.size(2), seed,
           at::empty({}, at::kUInt64).fill_(0), none};
}

// (grad_out, query, key, value, out, logsumexp, cum_seq_q, cum_seq_k, max_q, max_k, dropout_p, is_causal, philox_seed,
// philox_offset, scale)
void flash_backward(Stack& stack, const std::optional<at::Generator>&) {
  at::Tensor query = stack[1].toTensor();
  Attention of{query, stack[2].toTensor(), stack[3].toTensor(), std::nullopt, stack[10].toDouble(), stack[11].toBool(),
               scale_of(query, stack[14])};
  int64_t seed = stack[12].toTensor().flatten()[0].to(at::kLong).item<int64_t>();
  Gradients gradients = attend_backward(of, stack[0].toTensor(), stack[5].toTensor(), seed);
  stack = {gradients.query, gradients.key, gradients.value};
}

// (query, key, value, attn_bias, compute_log_sumexp, dropout_p, is_causal, return_debug_mask, scale)
void cudnn(Stack& stack, const std::optional<at::Generator>& generator) {
  at::Tensor query = stack[0].toTensor(), key = stack[1].toTensor();
  Attention of{query, key, stack[2].toTensor(), stack[3].toOptional<at::Tensor>(), stack[5].toDouble(), stack[6].toBool(),
               scale_of(query, stack[8])};
  Computed computed = attend(of, generator);
  stack = {computed.output, computed.log_sum.unsqueeze(-1), at::Tensor(), at::Tensor(), query.size(2), key.size(2),
           number(computed.seed), number(0), query.new_empty({0})};
}

// (grad_out, query, key, value, out, logsumexp, philox_seed, philox_offset, attn_bias, cum_seq_q, cum_seq_k, max_q, max_k,
// dropout_p, is_causal, scale)
void cudnn_backward(Stack& stack, const std::optional<at::Generator>&) {
  at::Tensor query = stack[1].toTensor();
  std::optional<at::Tensor> bias;
  if (stack[8].isTensor() && stack[8].toTensor().defined()) {
    bias = stack[8].toTensor();
  }
  Attention of{query, stack[2].toTensor(), stack[3].toTensor(), bias, stack[13].toDouble(), stack[14].toBool(),
               scale_of(query, stack[15])};
  int64_t seed = stack[6].toTensor().item<int64_t>();
  Gradients gradients = attend_backward(of, stack[0].toTensor(), stack[5].toTensor().squeeze(-1), seed);
  stack = {gradients.query, gradients.key, gradients.value};
}

}  // namespace

const Implementations& attention_implementations() {
  static const Implementations implementations = {
      {"aten::_scaled_dot_product_efficient_attention", efficient},
      {"aten::_scaled_dot_product_efficient_attention_backward", efficient_backward},
      {"aten::_scaled_dot_product_flash_attention", flash},
      {"aten::_scaled_dot_product_flash_attention_backward", flash_backward},
      {"aten::_scaled_dot_product_cudnn_attention", cudnn},
      {"aten::_scaled_dot_product_cudnn_attention_backward", cudnn_backward},
  };
  return implementations;
}

}  // namespace freehold
