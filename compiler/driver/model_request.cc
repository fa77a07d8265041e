#include "compiler/driver/model_request.h"

#include <map>

namespace whet::driver {
namespace {

// Constants of the request's own that variants and further builds may refer to, by what they hold.
using KnownConstants = std::map<std::pair<Fingerprint, size_t>, uint32_t>;

// Tensors and steps of the request, or of a build or variant in it. Values that share bytes (views)
// share a tensor.
template <typename Message>
class RequestWriter {
 public:
  RequestWriter(const graph::Graph& g, const fusion::Partition& partition,
                const KnownConstants& known, Message& out)
      : g_(g), partition_(partition), known_(known), out_(out) {}

  Status Run() {
    for (graph::ValueId v : g_.inputs)
      Add(v, v1::ModelTensor::INPUT, g_.values[v].name, g_.type(v).shape);
    for (const graph::GraphOutput& o : g_.outputs) {
      const graph::ValueId root = partition_.storage[o.value];
      if (tensor_of_.count(root))
        return Internal("output '{}' shares its bytes with another input or output", o.name);
      Add(root, v1::ModelTensor::OUTPUT, o.name, g_.type(o.value).shape);
    }
    for (const fusion::Group& group : partition_.groups) {
      v1::ModelStep* step = out_.add_steps();
      step->set_task(group.task);
      step->set_label(group.label);
      for (const auto* values : {&group.inputs, &group.outputs}) {
        for (graph::ValueId v : *values) step->add_tensors(Tensor(v));
      }
      for (int i : group.overwritable) step->add_overwritable(static_cast<uint32_t>(i));
    }
    return OkStatus();
  }

 private:
  uint32_t Add(graph::ValueId v, v1::ModelTensor::Kind kind, const std::string& name,
               const std::vector<int64_t>& shape) {
    v1::ModelTensor* t = out_.add_tensors();
    t->set_kind(kind);
    t->set_dtype(static_cast<uint32_t>(g_.type(v).dtype));
    for (int64_t d : shape) t->add_shape(d);
    t->set_bytes_size(g_.type(v).bytes());
    t->set_name(name);
    if (kind == v1::ModelTensor::CONSTANT) {
      const graph::TensorType& type = g_.type(v);
      std::string bytes = type.IsRowMajor()
                              ? g_.constant(v)->bytes()
                              : fusion::PhysicalBytes(type, g_.constant(v)->Doubles());
      auto known =
          known_.empty() ? known_.end() : known_.find({FingerprintOf(bytes), bytes.size()});
      if (known != known_.end()) {
        t->set_same_as(known->second + 1);
      } else {
        t->set_data(std::move(bytes));
      }
    }
    return tensor_of_[v] = static_cast<uint32_t>(out_.tensors_size() - 1);
  }

  uint32_t Tensor(graph::ValueId v) {
    auto it = tensor_of_.find(v);
    if (it != tensor_of_.end()) return it->second;
    return Add(v, g_.constant(v) ? v1::ModelTensor::CONSTANT : v1::ModelTensor::INTERNAL, "",
               g_.type(v).PhysicalShape());
  }

  const graph::Graph& g_;
  const fusion::Partition& partition_;
  const KnownConstants& known_;
  Message& out_;
  std::map<graph::ValueId, uint32_t> tensor_of_;
};

KnownConstants ConstantsOf(const v1::ModelBuildRequest& request) {
  KnownConstants known;
  for (int i = 0; i < request.tensors_size(); ++i) {
    const v1::ModelTensor& t = request.tensors(i);
    if (t.kind() == v1::ModelTensor::CONSTANT)
      known.emplace(std::pair(FingerprintOf(t.data()), t.data().size()), static_cast<uint32_t>(i));
  }
  return known;
}

template <typename Message>
Status Fill(const graph::Graph& graph, const fusion::Partition& partition,
            const std::vector<std::string>& traces, const KnownConstants& known, Message& out) {
  if (traces.size() != partition.tasks.size())
    return Internal("{} traces for {} tasks", traces.size(), partition.tasks.size());
  for (size_t i = 0; i < partition.tasks.size(); ++i) {
    v1::ModelTask* t = out.add_tasks();
    t->set_workload(partition.tasks[i].workload.ToString());
    t->set_trace(traces[i]);
  }
  return RequestWriter(graph, partition, known, out).Run();
}

template <typename Message>
Status AddVariant(const graph::Graph& graph, const fusion::Partition& partition,
                  const KnownConstants& known, Message& out) {
  for (const fusion::Group& g : partition.groups) {
    if (g.task >= out.tasks_size())
      return Internal("a variant's step is an instance of task {} of {}", g.task, out.tasks_size());
  }
  return RequestWriter(graph, partition, known, *out.add_variants()).Run();
}

}  // namespace

Status FillModelRequest(const graph::Graph& graph, const fusion::Partition& partition,
                        const std::vector<std::string>& traces, v1::ModelBuildRequest& request) {
  return Fill(graph, partition, traces, {}, request);
}

Status FillModelBuild(const graph::Graph& graph, const fusion::Partition& partition,
                      const std::vector<std::string>& traces, const v1::ModelBuildRequest& request,
                      v1::ModelBuild& build) {
  return Fill(graph, partition, traces, ConstantsOf(request), build);
}

Status AddModelVariant(const graph::Graph& graph, const fusion::Partition& partition,
                       v1::ModelBuildRequest& request) {
  return AddVariant(graph, partition, ConstantsOf(request), request);
}

Status AddModelVariant(const graph::Graph& graph, const fusion::Partition& partition,
                       const v1::ModelBuildRequest& request, v1::ModelBuild& build) {
  return AddVariant(graph, partition, ConstantsOf(request), build);
}

}  // namespace whet::driver
