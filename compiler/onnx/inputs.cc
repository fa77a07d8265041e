#include "compiler/onnx/inputs.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <set>

#include "compiler/frontend/bound_value.h"
#include "compiler/frontend/model_file.h"
#include "compiler/onnx/tensor.h"
#include "compiler/support/names.h"

namespace whet::onnx {
namespace {

using onnx_schema::TensorShapeProto;
using onnx_schema::ValueInfoProto;

// Some exporters write -1 for an extent that they leave open, others leave it out.
bool Fixed(const TensorShapeProto::Dimension& d) { return d.has_dim_value() && d.dim_value() >= 0; }

// "1,3,height,?"
std::string DeclaredShape(const ValueInfoProto& v) {
  if (!v.type().tensor_type().has_shape()) return "unknown rank";
  std::string s;
  for (const auto& d : v.type().tensor_type().shape().dim()) {
    s += s.empty() ? "" : ",";
    s += Fixed(d) ? std::to_string(d.dim_value()) : d.dim_param().empty() ? "?" : d.dim_param();
  }
  return s;
}

// The same with a number in every place, for the message that shows the flag.
std::string ExampleShape(const ValueInfoProto& v) {
  std::string s;
  for (const auto& d : v.type().tensor_type().shape().dim())
    s += (s.empty() ? "" : ",") + std::to_string(Fixed(d) ? d.dim_value() : 1);
  return s.empty() ? "1" : s;
}

class Resolver {
 public:
  explicit Resolver(const ImportOptions& options) : options_(options) {}

  // A dimension parameter that --bind gives a value.
  Status BindDimension(const std::string& name, const std::string& text) {
    int64_t v = 0;
    if (!frontend::ReadNumber(text, &v) || v < 0)
      return InvalidArgument("--bind {}={}: dimension '{}' takes a number from 0", name, text,
                             name);
    bound_[name] = v;
    return OkStatus();
  }

  StatusOr<graph::ConstantPtr> Value(const ValueInfoProto& v, const std::string& text) const {
    if (!v.type().has_tensor_type()) return Unimplemented("it is no tensor");
    const auto& tensor = v.type().tensor_type();
    WHET_ASSIGN_OR_RETURN(const DType dtype, DTypeOf(tensor.elem_type()));
    std::optional<std::vector<int64_t>> shape;
    if (auto it = options_.shapes.find(v.name()); it != options_.shapes.end()) {
      shape = it->second;
    } else if (tensor.has_shape()) {
      shape.emplace();
      for (const auto& d : tensor.shape().dim()) {
        auto bound = bound_.find(d.dim_param());
        shape->push_back(Fixed(d)                                          ? d.dim_value()
                         : bound != bound_.end() && !d.dim_param().empty() ? bound->second
                                                                           : -1);
      }
    }
    return frontend::BoundValue(dtype, text, std::move(shape));
  }

  // Binds the dimension parameters of an input that has a shape option.
  Status Bind(const ValueInfoProto& v) {
    auto it = options_.shapes.find(v.name());
    if (it == options_.shapes.end() || !v.type().tensor_type().has_shape()) return OkStatus();
    const auto& dims = v.type().tensor_type().shape().dim();
    if (dims.size() != static_cast<int>(it->second.size())) {
      return InvalidArgument("--shape {}={}: the input has {} dimensions ({})", v.name(),
                             fmt::join(it->second, ","), dims.size(), DeclaredShape(v));
    }
    for (int i = 0; i < dims.size(); ++i) {
      const int64_t wanted = it->second[i];
      const TensorShapeProto::Dimension& d = dims.Get(i);
      if (Fixed(d) && d.dim_value() != wanted) {
        return InvalidArgument("--shape {}={}: dimension {} of the input is {}, not {}", v.name(),
                               fmt::join(it->second, ","), i, d.dim_value(), wanted);
      }
      if (d.dim_param().empty()) continue;
      auto [bound, fresh] = bound_.try_emplace(d.dim_param(), wanted);
      if (!fresh && bound->second != wanted) {
        return InvalidArgument("--shape {}={}: dimension '{}' is {} elsewhere, not {}", v.name(),
                               fmt::join(it->second, ","), d.dim_param(), bound->second, wanted);
      }
    }
    return OkStatus();
  }

  StatusOr<graph::TensorType> Type(const ValueInfoProto& v) const {
    if (!v.type().has_tensor_type()) {
      return Unimplemented("it is {}; only tensors are supported",
                           v.type().has_sequence_type()   ? "a sequence"
                           : v.type().has_optional_type() ? "an optional"
                                                          : "no tensor");
    }
    WHET_ASSIGN_OR_RETURN(DType dtype, DTypeOf(v.type().tensor_type().elem_type()));
    WHET_ASSIGN_OR_RETURN(std::vector<int64_t> shape, Shape(v));
    WHET_RETURN_IF_ERROR(graph::CheckShape(dtype, shape));
    return graph::TensorType::Of(dtype, std::move(shape));
  }

 private:
  StatusOr<std::vector<int64_t>> Shape(const ValueInfoProto& v) const {
    auto it = options_.shapes.find(v.name());
    if (it != options_.shapes.end()) return it->second;
    if (!v.type().tensor_type().has_shape())
      return InvalidArgument(
          "its rank is not known; give its shape, for instance --shape {}=1,3,224,224", v.name());
    std::vector<int64_t> shape;
    const auto& dims = v.type().tensor_type().shape().dim();
    for (int i = 0; i < dims.size(); ++i) {
      const auto& d = dims.Get(i);
      auto bound = bound_.find(d.dim_param());
      if (Fixed(d)) {
        shape.push_back(d.dim_value());
      } else if (!d.dim_param().empty() && bound != bound_.end()) {
        shape.push_back(bound->second);
      } else {
        return InvalidArgument(
            "dimension {} ('{}') of shape ({}) is not fixed; give its shape, for instance --shape "
            "{}={}{}",
            i, d.dim_param().empty() ? "?" : d.dim_param(), DeclaredShape(v), v.name(),
            ExampleShape(v),
            d.dim_param().empty() ? "" : fmt::format(", or --bind {}=1", d.dim_param()));
      }
    }
    return shape;
  }

  const ImportOptions& options_;
  std::map<std::string, int64_t> bound_;
};

}  // namespace

std::vector<InputType> ResolveInputs(const std::vector<const ValueInfoProto*>& inputs,
                                     const ImportOptions& options, std::vector<Status>* problems) {
  Resolver resolver(options);
  std::set<std::string> known, dimensions;
  std::vector<std::string> names;
  for (const ValueInfoProto* v : inputs) {
    known.insert(v->name());
    names.push_back(v->name());
    for (const auto& d : v->type().tensor_type().shape().dim()) {
      if (!d.dim_param().empty()) dimensions.insert(d.dim_param());
    }
  }
  for (const auto& [name, text] : options.bind) {
    if (known.count(name)) continue;
    if (dimensions.count(name)) {
      if (Status s = resolver.BindDimension(name, text); !s.ok()) problems->push_back(s);
      continue;
    }
    problems->push_back(frontend::UnknownName(options, "--bind", name,
                                              frontend::Named::kInputOrDimension, names,
                                              {dimensions.begin(), dimensions.end()}));
  }
  for (const auto& [name, shape] : options.shapes) {
    if (!known.count(name))
      problems->push_back(
          frontend::UnknownName(options, "--shape", name, frontend::Named::kInput, names));
  }
  for (const ValueInfoProto* v : inputs) {
    if (Status s = resolver.Bind(*v); !s.ok()) problems->push_back(s);
  }
  std::vector<InputType> types;
  for (const ValueInfoProto* v : inputs) {
    if (auto bound = options.bind.find(v->name()); bound != options.bind.end()) {
      auto value = resolver.Value(*v, bound->second);
      if (value.ok()) {
        types.push_back({v->name(), (*value)->type(), *value});
      } else {
        problems->push_back(Annotate(
            value.status(), fmt::format("--bind {}={}", v->name(), bound->second.substr(0, 100))));
      }
      continue;
    }
    auto type = resolver.Type(*v);
    if (!type.ok()) {
      problems->push_back(Annotate(type.status(), fmt::format("input '{}'", v->name())));
      continue;
    }
    types.push_back({v->name(), std::move(*type), nullptr});
  }
  return types;
}

}  // namespace whet::onnx
