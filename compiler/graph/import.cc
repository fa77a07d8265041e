#include "compiler/graph/import.h"

#include <fmt/format.h>

#include "compiler/graph/bind_hint.h"

namespace whet::graph {

namespace {
constexpr int64_t kMaxListItems = int64_t{1} << 24;
}  // namespace

StatusOr<ValueId> ImportLists::Add(ImportList list) {
  items_ += 1 + static_cast<int64_t>(list.items.size());
  if (items_ > kMaxListItems)
    return ResourceExhausted("sequences hold more than {} items in all", kMaxListItems);
  lists_.push_back(std::move(list));
  return kFirstList - static_cast<ValueId>(lists_.size() - 1);
}

const ImportList* ImportLists::Find(ValueId v) const {
  const int64_t i = int64_t{kFirstList} - v;
  return i < 0 || i >= static_cast<int64_t>(lists_.size()) ? nullptr : &lists_[i];
}

Status ImportContext::NeedInputs(int at_least, int at_most) const {
  for (int i = 0; i < at_least; ++i) {
    if (!Has(i)) return InvalidArgument("input {} is missing", i);
  }
  if (at_most >= 0 && num_inputs() > at_most)
    return InvalidArgument("{} inputs; it takes at most {}", num_inputs(), at_most);
  return OkStatus();
}

template <typename T>
StatusOr<T> ImportContext::Take(std::string_view name, T missing) {
  const AttrValue* v = attrs_.Find(name);
  if (v == nullptr) return missing;
  const T* typed = std::get_if<T>(v);
  if (typed == nullptr)
    return InvalidArgument("attribute '{}' is a {}", name, ToString(TypeOf(*v)));
  T result = *typed;
  attrs_.Erase(name);
  return result;
}

StatusOr<int64_t> ImportContext::TakeInt(std::string_view name, int64_t missing) {
  return Take(name, missing);
}

StatusOr<double> ImportContext::TakeFloat(std::string_view name, double missing) {
  if (const AttrValue* v = attrs_.Find(name); v != nullptr && std::holds_alternative<int64_t>(*v)) {
    WHET_ASSIGN_OR_RETURN(int64_t i, TakeInt(name, 0));
    return static_cast<double>(i);
  }
  return Take(name, missing);
}

StatusOr<std::string> ImportContext::TakeString(std::string_view name, std::string missing) {
  return Take(name, std::move(missing));
}

StatusOr<std::vector<int64_t>> ImportContext::TakeInts(std::string_view name,
                                                       std::vector<int64_t> missing) {
  return Take(name, std::move(missing));
}

StatusOr<std::vector<double>> ImportContext::TakeFloats(std::string_view name,
                                                        std::vector<double> missing) {
  return Take(name, std::move(missing));
}

ConstantPtr ImportContext::TakeTensor(std::string_view name) {
  for (auto it = tensors.begin(); it != tensors.end(); ++it) {
    if (it->first != name) continue;
    ConstantPtr c = it->second;
    tensors.erase(it);
    return c;
  }
  return nullptr;
}

StatusOr<std::unique_ptr<ImportBody>> ImportContext::TakeBody(std::string_view name) {
  for (auto it = bodies.begin(); it != bodies.end(); ++it) {
    if (it->first != name) continue;
    std::unique_ptr<ImportBody> body = std::move(it->second);
    bodies.erase(it);
    return body;
  }
  return InvalidArgument("attribute '{}', a graph, is missing", name);
}

Status ImportContext::CheckAllTaken() const {
  if (!attrs_.empty())
    return Unimplemented("attribute '{}' is not supported", attrs_.entries().front().first);
  if (!tensors.empty())
    return Unimplemented("tensor attribute '{}' is not supported", tensors.front().first);
  if (!bodies.empty())
    return Unimplemented("graph attribute '{}' is not supported", bodies.front().first);
  return OkStatus();
}

StatusOr<std::vector<int64_t>> ImportContext::ConstInts(int i, std::string_view what) const {
  if (!IsConst(i))
    return Unimplemented("{} (input {}) must be a constant once shapes are known{}", what, i,
                         BindHint(builder.graph(), inputs[i]));
  const Constant& c = *builder.graph().constant(inputs[i]);
  if (IsFloat(c.dtype()))
    return InvalidArgument("{} (input {}) is {}, not an integer", what, i,
                           whet::ToString(c.dtype()));
  if (c.num_elements() > 65536)
    return InvalidArgument("{} (input {}) has {} elements", what, i, c.num_elements());
  return c.Ints();
}

StatusOr<int64_t> ImportContext::ConstInt(int i, std::string_view what) const {
  WHET_ASSIGN_OR_RETURN(const std::vector<int64_t> v, ConstInts(i, what));
  if (v.size() != 1)
    return InvalidArgument("{} (input {}) has {} elements, not 1", what, i, v.size());
  return v[0];
}

StatusOr<std::vector<ValueId>> ImportContext::Sequence(int i) const {
  if (!Has(i)) return InvalidArgument("input {} is missing", i);
  const ImportList* list = List(i);
  // An optional that holds a sequence stands for it.
  if (list != nullptr && list->optional && list->items.size() == 1)
    list = lists->Find(list->items[0]);
  if (list == nullptr || list->optional)
    return InvalidArgument("input {} is {}, not a sequence", i,
                           list != nullptr ? "an empty optional" : "a tensor");
  return list->items;
}

StatusOr<std::vector<double>> ImportContext::ConstFloats(int i, std::string_view what) const {
  if (!IsConst(i))
    return Unimplemented("{} (input {}) must be a constant once shapes are known{}", what, i,
                         BindHint(builder.graph(), inputs[i]));
  return builder.graph().constant(inputs[i])->Doubles();
}

Status ImportContext::Finish(std::string_view op, std::vector<ValueId> in, Attrs attrs) {
  WHET_ASSIGN_OR_RETURN(ValueId v, builder.Emit(op, std::move(in), std::move(attrs)));
  outputs = {v};
  return OkStatus();
}

}  // namespace whet::graph
