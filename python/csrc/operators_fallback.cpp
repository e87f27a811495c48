#include "operators_fallback.h"

#include <ATen/cuda/CUDAGeneratorImpl.h>
#include <ATen/cuda/EmptyTensor.h>
#include <ATen/ops/empty.h>
#include <c10/cuda/CUDAGuard.h>

#include <unordered_set>

namespace freehold {

namespace {

// As few as a kernel of PyTorch takes.
constexpr uint64_t RANDOM_INCREMENT = 4;

bool is_written(const c10::Argument& argument) {
  return argument.alias_info() != nullptr && argument.alias_info()->isWrite();
}

// Returns the argument that a result is, or -1.
int returned_argument(const c10::FunctionSchema& schema, const c10::Argument& result) {
  if (result.alias_info() == nullptr) {
    return -1;
  }
  const auto& wanted = result.alias_info()->beforeSets();
  for (size_t index = 0; index < schema.arguments().size(); ++index) {
    const c10::AliasInfo* alias = schema.arguments()[index].alias_info();
    if (alias != nullptr && alias->beforeSets() == wanted) {
      return static_cast<int>(index);
    }
  }
  return -1;
}

// Operators that read a tensor of the CPU beside those of the device: an index, or numbers for a list of tensors.
const std::unordered_set<std::string>& may_read_cpu() {
  static const std::unordered_set<std::string> names = {
      "aten::index",
      "aten::index_put",
      "aten::index_put_",
      "aten::_index_put_impl",
      "aten::_index_put_impl_",
      "aten::_unsafe_index",
      "aten::_foreach_addcdiv",
      "aten::_foreach_addcdiv_",
      "aten::_foreach_addcmul",
      "aten::_foreach_addcmul_",
  };
  return names;
}

// Returns the device on which an operator runs: that of its tensors, else the one that it is given.
c10::Device device_of(const std::string& name, c10::ArrayRef<c10::IValue> arguments) {
  std::optional<c10::Device> found;
  bool has_cpu = false;
  for (const c10::IValue& value : arguments) {
    for_each_tensor(value, [&](const at::Tensor& tensor) {
      if (!tensor.is_cuda()) {
        has_cpu |= tensor.dim() > 0;
        return;
      }
      TORCH_CHECK(
          !found || *found == tensor.device(),
          "Expected all tensors to be on the same device, but found at least two devices, ",
          *found,
          " and ",
          tensor.device(),
          "! (in ",
          name,
          ")");
      found = tensor.device();
    });
  }
  bool may_have_cpu = may_read_cpu().count(name) != 0;
  TORCH_CHECK(
      !has_cpu || !found || may_have_cpu,
      "Expected all tensors to be on the same device, but found at least two devices, ",
      *found,
      " and cpu! (in ",
      name,
      ")");
  for (const c10::IValue& value : arguments) {
    if (!found && value.isDevice() && value.toDevice().is_cuda()) {
      found = value.toDevice();
    }
  }
  c10::DeviceIndex current = c10::cuda::current_device();
  return found && found->has_index() ? *found : c10::Device(at::kCUDA, current);
}

at::Tensor made_on(c10::Device device, const std::optional<Shape>& shape) {
  if (!shape) {
    return at::Tensor();
  }
  auto options = at::TensorOptions().device(device).dtype(shape->dtype);
  return at::detail::empty_strided_cuda(shape->sizes, shape->strides, options);
}

// Gives an argument `out` the shape of the result.
void resize(const at::Tensor& out, const Shape& shape) {
  out.resize_(shape.sizes);
  if (out.strides() != at::IntArrayRef(shape.strides)) {
    out.as_strided_(shape.sizes, shape.strides);
  }
}

// Returns a result of the CPU as one of the device.
c10::IValue moved(const c10::IValue& result, c10::Device device) {
  return map_tensors(result, [&](const at::Tensor& tensor) { return tensor.to(device); });
}

}  // namespace

Fallback::Fallback(const c10::OperatorHandle& op, Implementation implementation)
    : op_(op),
      implementation_(implementation),
      is_random_(op.hasTag(at::Tag::nondeterministic_seeded)),
      is_data_dependent_(op.hasTag(at::Tag::dynamic_output_shape) || op.hasTag(at::Tag::data_dependent_output)) {
  // PyTorch has given this one no tag.
  is_data_dependent_ |= op.operator_name().name == "aten::_unique";
  for (const c10::Argument& result : op.schema().returns()) {
    returned_arguments_.push_back(returned_argument(op.schema(), result));
  }
}

void Fallback::operator()(const c10::OperatorHandle&, c10::DispatchKeySet, torch::jit::Stack* stack) {
  throw_error_of_task();
  size_t count = op_.schema().arguments().size();
  torch::jit::Stack arguments = torch::jit::pop(*stack, count);
  c10::Device device = device_of(op_.operator_name().name, arguments);
  c10::cuda::CUDAGuard guard(device);
  torch::jit::Stack results;
  if (depends_on_data(arguments)) {
    results = compute_now(arguments, device);
  } else {
    results = enqueue(arguments, device, *shapes_.find(op_, implementation_, arguments));
  }
  stack->insert(stack->end(), results.begin(), results.end());
}

// A mask that selects elements is an index whose result depends on data, and takes as many values as it has elements.
bool Fallback::depends_on_data(c10::ArrayRef<c10::IValue> arguments) const {
  const std::string& name = op_.operator_name().name;
  bool is_read = name == "aten::index";
  bool is_written = name == "aten::_index_put_impl_" || name == "aten::index_put" || name == "aten::index_put_";
  if (!is_read && !is_written) {
    return is_data_dependent_;
  }
  if (is_written && arguments[2].toTensor().numel() == 1) {
    return false;
  }
  bool has_mask = false;
  for_each_tensor(arguments[1], [&](const at::Tensor& index) {
    has_mask |= index.scalar_type() == at::kBool || index.scalar_type() == at::kByte;
  });
  return has_mask;
}

std::unique_ptr<Task> Fallback::task_of(c10::ArrayRef<c10::IValue> arguments, c10::Device device) const {
  auto task = std::make_unique<Task>(op_);
  task->implementation = implementation_;
  const auto& schema = op_.schema().arguments();
  uint32_t kind = READ;
  TensorMap view = once_each(cpu_view);
  for (size_t index = 0; index < arguments.size(); ++index) {
    const c10::IValue& value = arguments[index];
    kind = is_written(schema[index]) ? (schema[index].is_out() ? WRITE : READ | WRITE) : READ;
    if (value.isDevice()) {
      task->arguments.emplace_back(c10::Device(at::kCPU));
    } else if (schema[index].name() == "pin_memory") {
      task->arguments.emplace_back();
    } else {
      task->arguments.push_back(map_tensors(value, [&](const at::Tensor& tensor) {
        if (!tensor.is_cuda()) {
          TORCH_CHECK(kind == READ, op_.operator_name().name, ": expected a result on ", device, ", found one on the CPU");
          // The program may change its tensor before the task runs.
          return tensor.clone();
        }
        append_access(task->accesses, tensor, kind);
        return view(tensor);
      }));
    }
  }
  task->random = random_of(arguments, device, *task);
  return task;
}

std::optional<Random> Fallback::random_of(
    c10::ArrayRef<c10::IValue> arguments,
    c10::Device device,
    Task& task) const {
  if (!is_random_) {
    return std::nullopt;
  }
  int argument = -1;
  std::optional<at::Generator> given;
  for (size_t index = 0; index < arguments.size(); ++index) {
    if (op_.schema().arguments()[index].name() == "generator") {
      argument = static_cast<int>(index);
      given = arguments[index].toOptional<at::Generator>();
    }
  }
  auto* generator = at::get_generator_or_default<at::CUDAGeneratorImpl>(
      given, at::cuda::detail::getDefaultCUDAGenerator(device.index()));
  std::lock_guard<std::mutex> guard(generator->mutex_);
  at::PhiloxCudaState state = generator->philox_cuda_state(RANDOM_INCREMENT);
  if (state.captured_) {
    for (int64_t** pointer : {&state.seed_.ptr, &state.offset_.ptr}) {
      task.accesses.push_back({reinterpret_cast<uint64_t>(*pointer), sizeof(int64_t), READ, 0});
      *pointer = static_cast<int64_t*>(host_view(*pointer, sizeof(int64_t)));
    }
  }
  return Random{state, argument};
}

torch::jit::Stack Fallback::enqueue(
    c10::ArrayRef<c10::IValue> arguments,
    c10::Device device,
    const Shapes& shapes) const {
  for (const auto& [index, shape] : shapes.resized) {
    resize(arguments[index].toTensor(), shape);
  }
  std::unique_ptr<Task> task = task_of(arguments, device);
  torch::jit::Stack results;
  auto output = [&](const at::Tensor& tensor) {
    if (!tensor.defined()) {
      return tensor;
    }
    append_access(task->accesses, tensor, WRITE);
    return cpu_view(tensor);
  };
  for (size_t index = 0; index < returned_arguments_.size(); ++index) {
    if (returned_arguments_[index] >= 0) {
      results.push_back(arguments[returned_arguments_[index]]);
      task->outputs.emplace_back();
      continue;
    }
    const ResultShape& shape = shapes.results[index];
    if (!shape.number.isNone()) {
      results.push_back(shape.number);
      task->outputs.emplace_back();
      continue;
    }
    std::vector<at::Tensor> made, views;
    for (const std::optional<Shape>& each : shape.tensors) {
      made.push_back(made_on(device, each));
      views.push_back(output(made.back()));
    }
    if (shape.is_list) {
      results.emplace_back(c10::List<at::Tensor>(made));
      task->outputs.emplace_back(c10::List<at::Tensor>(views));
    } else {
      results.emplace_back(made.at(0));
      task->outputs.push_back(views.at(0).defined() ? c10::IValue(views[0]) : c10::IValue());
    }
  }
  submit(c10::cuda::getCurrentCUDAStream(device.index()), std::move(task));
  return results;
}

torch::jit::Stack Fallback::compute_now(c10::ArrayRef<c10::IValue> arguments, c10::Device device) const {
  std::unique_ptr<Task> task = task_of(arguments, device);
  const auto& schema = op_.schema().arguments();
  for (size_t index = 0; index < arguments.size(); ++index) {
    if (schema[index].is_out()) {
      // Its shape is not known, and memory of the device cannot be resized by a task.
      task->arguments[index] = at::empty({0}, task->arguments[index].toTensor().options());
    }
  }
  torch::jit::Stack results = submit_and_wait(c10::cuda::getCurrentCUDAStream(device.index()), std::move(task));
  for (size_t index = 0; index < results.size(); ++index) {
    int argument = returned_arguments_[index];
    if (argument < 0) {
      results[index] = moved(results[index], device);
      continue;
    }
    if (schema[argument].is_out()) {
      const at::Tensor& out = arguments[argument].toTensor();
      out.resize_(results[index].toTensor().sizes());
      out.copy_(results[index].toTensor());
    }
    results[index] = arguments[argument];
  }
  return results;
}

}  // namespace freehold
