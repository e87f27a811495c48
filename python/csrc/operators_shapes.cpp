#include "operators_shapes.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/EmptyTensor.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/empty_strided.h>

#include <algorithm>

namespace freehold {

namespace {

constexpr size_t SHAPES_MAX = 4096;

// The CPU computes fewer at once than Python looks at their shapes.
constexpr int64_t ELEMENTS_MAX = 1 << 15;

template <typename T>
void append(std::string& key, T value) {
  key.append(reinterpret_cast<const char*>(&value), sizeof(value));
}

void append_tensor(std::string& key, const at::Tensor& tensor) {
  if (!tensor.defined()) {
    key += 'u';
    return;
  }
  key += 't';
  bool is_wrapped = tensor.unsafeGetTensorImpl()->is_wrapped_number();
  int flags = tensor.is_conj() + 2 * tensor.is_neg() + 4 * is_wrapped + 8 * tensor.is_cpu();
  append(key, static_cast<char>(flags));
  append(key, static_cast<char>(tensor.scalar_type()));
  append(key, tensor.dim());
  for (int64_t dim = 0; dim < tensor.dim(); ++dim) {
    append(key, tensor.size(dim));
    append(key, tensor.stride(dim));
  }
}

// Appends all of an argument that the shapes of the results may depend on.
void append_argument(std::string& key, const c10::IValue& value) {
  if (value.isTensor()) {
    append_tensor(key, value.toTensor());
  } else if (value.isInt()) {
    key += 'i';
    append(key, value.toInt());
  } else if (value.isDouble()) {
    key += 'd';
    append(key, value.toDouble());
  } else if (value.isBool()) {
    key += value.toBool() ? '1' : '0';
  } else if (value.isComplexDouble()) {
    key += 'c';
    append(key, value.toComplexDouble());
  } else if (value.isString()) {
    key += 's';
    append(key, value.toStringRef().size());
    key += value.toStringRef();
  } else if (value.isList()) {
    key += 'l';
    append(key, value.toListRef().size());
    for (const c10::IValue& element : value.toListRef()) {
      append_argument(key, element);
    }
  } else {
    // None, a generator or a device: no shape depends on it.
    key += 'n';
  }
}

Shape shape_of(const at::Tensor& tensor) {
  return {tensor.sizes().vec(), tensor.strides().vec(), tensor.scalar_type()};
}

std::optional<Shape> shape_if_defined(const at::Tensor& tensor) {
  return tensor.defined() ? std::optional(shape_of(tensor)) : std::nullopt;
}

// Returns the arguments with tensors and devices of another kind, on which the operator is run for its shapes.
torch::jit::Stack replaced(
    c10::ArrayRef<c10::IValue> arguments,
    c10::Device device,
    TensorMap map) {
  torch::jit::Stack stack;
  map = once_each(std::move(map));
  for (const c10::IValue& value : arguments) {
    if (value.isDevice()) {
      stack.emplace_back(device);
    } else {
      stack.push_back(map_tensors(value, map));
    }
  }
  return stack;
}

at::Tensor filled_like(const at::Tensor& tensor, int64_t value) {
  auto options = tensor.options().device(at::kCPU);
  at::Tensor made = at::empty_strided(tensor.sizes(), tensor.strides(), options).fill_(value);
  copy_flags(tensor, made);
  return made;
}

at::Tensor meta_like(const at::Tensor& tensor) {
  if (tensor.is_cpu() && tensor.dim() == 0) {
    return tensor;
  }
  at::Tensor made = at::detail::empty_strided_meta(tensor.sizes(), tensor.strides(), tensor.scalar_type());
  copy_flags(tensor, made);
  return made;
}

int64_t elements_of(c10::ArrayRef<c10::IValue> arguments) {
  int64_t elements = 0;
  for (const c10::IValue& value : arguments) {
    for_each_tensor(value, [&](const at::Tensor& tensor) { elements += tensor.numel(); });
  }
  return elements;
}

// The arguments of a run without the data, as it left them, and its results.
struct Trial {
  torch::jit::Stack arguments;
  torch::jit::Stack results;
};

// Runs the operator on tensors of one value.
Trial try_value(
    const c10::OperatorHandle& op,
    Implementation implementation,
    c10::ArrayRef<c10::IValue> arguments,
    int64_t value) {
  Trial trial;
  trial.arguments = replaced(arguments, at::kCPU, [&](const at::Tensor& tensor) { return filled_like(tensor, value); });
  // The program's own generators keep their state.
  at::Generator generator = at::detail::createCPUGenerator();
  for (size_t index = 0; index < arguments.size(); ++index) {
    const std::string& name = op.schema().arguments()[index].name();
    if (name == "generator") {
      trial.arguments[index] = generator;
    } else if (name.find("pivots") != std::string::npos) {
      // LAPACK counts rows from 1, and does not check them.
      trial.arguments[index].toTensor().fill_(1);
    }
  }
  trial.results = trial.arguments;
  if (implementation != nullptr) {
    implementation(trial.results, generator);
  } else {
    call_on_cpu(op, trial.results);
  }
  return trial;
}

Trial try_without_memory(const c10::OperatorHandle& op, c10::ArrayRef<c10::IValue> arguments) {
  Trial trial;
  trial.arguments = replaced(arguments, at::kMeta, meta_like);
  for (c10::IValue& value : trial.arguments) {
    if (value.isGenerator()) {
      value = c10::IValue();
    }
  }
  trial.results = trial.arguments;
  op.callBoxed(trial.results);
  return trial;
}

// Returns whether a result is one of the arguments.
bool has_written(const c10::FunctionSchema& schema) {
  return std::any_of(schema.arguments().begin(), schema.arguments().end(), [](const c10::Argument& argument) {
    return argument.alias_info() != nullptr && argument.alias_info()->isWrite();
  });
}

// Runs the operator without the data. PyTorch's functions for that are in Python: for a few elements the CPU's kernel takes
// less time, and its errors are those of the device's kernels. But some values are errors themselves.
Trial run_without_data(
    const c10::OperatorHandle& op,
    Implementation implementation,
    c10::ArrayRef<c10::IValue> arguments) {
  at::AutoDispatchBelowADInplaceOrView no_autograd;
  c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
  using Attempt = std::function<Trial()>;
  Attempt zeros = [&] { return try_value(op, implementation, arguments, 0); };
  Attempt ones = [&] { return try_value(op, implementation, arguments, 1); };
  Attempt memoryless = [&] { return try_without_memory(op, arguments); };
  std::vector<Attempt> attempts = {zeros, ones};
  if (elements_of(arguments) > ELEMENTS_MAX) {
    attempts = {memoryless, zeros};
  } else if (!has_written(op.schema())) {
    // Python gives some tensors that are written another shape, which is an error of the kernels.
    attempts.push_back(memoryless);
  }
  for (const Attempt& attempt : attempts) {
    try {
      return attempt();
    } catch (const std::exception&) {
      // The next one decides.
    }
  }
  return zeros();
}

Shapes read_shapes(
    const c10::FunctionSchema& schema,
    c10::ArrayRef<c10::IValue> arguments,
    const Trial& trial) {
  Shapes shapes;
  for (const c10::IValue& value : trial.results) {
    ResultShape shape{value.isTensorList(), {}, {}};
    if (value.isTensor()) {
      shape.tensors.push_back(shape_if_defined(value.toTensor()));
    } else if (value.isTensorList()) {
      for (const at::Tensor& tensor : value.toTensorVector()) {
        shape.tensors.push_back(shape_if_defined(tensor));
      }
    } else {
      shape.number = value;
    }
    shapes.results.push_back(std::move(shape));
  }
  for (size_t index = 0; index < arguments.size(); ++index) {
    if (schema.arguments()[index].is_out() && arguments[index].isTensor()) {
      const at::Tensor& now = trial.arguments[index].toTensor();
      if (now.sizes() != arguments[index].toTensor().sizes()) {
        shapes.resized.emplace_back(index, shape_of(now));
      }
    }
  }
  return shapes;
}

}  // namespace

std::shared_ptr<const Shapes> ShapeCache::find(
    const c10::OperatorHandle& op,
    Implementation implementation,
    c10::ArrayRef<c10::IValue> arguments) {
  std::string key;
  for (const c10::IValue& value : arguments) {
    append_argument(key, value);
  }
  {
    std::lock_guard<std::mutex> guard(lock_);
    auto known = known_.find(key);
    if (known != known_.end()) {
      return known->second;
    }
  }
  std::shared_ptr<const Shapes> found = std::make_shared<Shapes>(read_shapes(op.schema(), arguments, run_without_data(op, implementation, arguments)));
  std::lock_guard<std::mutex> guard(lock_);
  if (known_.size() >= SHAPES_MAX) {
    known_.clear();
  }
  known_.emplace(std::move(key), found);
  return found;
}

}  // namespace freehold
