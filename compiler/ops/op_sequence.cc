#include <algorithm>

#include "compiler/ops/lists.h"

// Sequences and optionals exist at import only: these operators build lists and take them apart.
namespace whet::ops {
namespace {

constexpr size_t kMaxItems = 65536;

// Appends a list to the outputs.
Status OutputList(ImportContext& c, graph::ImportList list) {
  WHET_ASSIGN_OR_RETURN(const ValueId v, c.lists->Add(std::move(list)));
  c.outputs.push_back(v);
  return OkStatus();
}

Status OutputSequence(ImportContext& c, std::vector<ValueId> items) {
  return OutputList(c, {.optional = false, .items = std::move(items)});
}

Status NeedLists(const ImportContext& c) {
  return c.lists != nullptr ? OkStatus() : Unimplemented("sequences are not supported here");
}

// A position among `count` items; negative ones count from the end.
StatusOr<int64_t> Position(const ImportContext& c, int input, int64_t count, int64_t missing) {
  if (!c.Has(input)) return missing;
  WHET_ASSIGN_OR_RETURN(int64_t at, c.ConstInt(input, "position"));
  if (at < 0) at += count;
  return at;
}

Status NeedTensor(const ImportContext& c, int i) {
  if (c.List(i) == nullptr) return OkStatus();
  return InvalidArgument("input {} is not a tensor", i);
}

Status ImportSequenceEmpty(ImportContext& c) {
  WHET_RETURN_IF_ERROR(NeedLists(c));
  WHET_RETURN_IF_ERROR(c.NeedInputs(0, 0));
  c.Ignore("dtype");
  return OutputSequence(c, {});
}

Status ImportSequenceConstruct(ImportContext& c) {
  WHET_RETURN_IF_ERROR(NeedLists(c));
  for (int i = 0; i < c.num_inputs(); ++i) {
    if (!c.Has(i)) return InvalidArgument("input {} is missing", i);
    WHET_RETURN_IF_ERROR(NeedTensor(c, i));
  }
  WHET_RETURN_IF_ERROR(c.NeedInputs(1));
  return OutputSequence(c, c.inputs);
}

Status ImportSequenceInsert(ImportContext& c) {
  WHET_RETURN_IF_ERROR(c.NeedInputs(2, 3));
  WHET_RETURN_IF_ERROR(NeedTensor(c, 1));
  WHET_RETURN_IF_ERROR(NeedTensor(c, 2));
  WHET_ASSIGN_OR_RETURN(std::vector<ValueId> items, c.Sequence(0));
  const auto count = static_cast<int64_t>(items.size());
  WHET_ASSIGN_OR_RETURN(const int64_t at, Position(c, 2, count, count));
  if (at < 0 || at > count) return InvalidArgument("position {} is outside of {} items", at, count);
  if (items.size() >= kMaxItems) return ResourceExhausted("more than {} items", kMaxItems);
  items.insert(items.begin() + at, c.inputs[1]);
  return OutputSequence(c, std::move(items));
}

// The sequence and a position in it, which may be left out where `last` is allowed.
Status SequenceAndPosition(ImportContext& c, bool last, std::vector<ValueId>* items, int64_t* at) {
  WHET_RETURN_IF_ERROR(c.NeedInputs(last ? 1 : 2, 2));
  WHET_RETURN_IF_ERROR(NeedTensor(c, 1));
  WHET_ASSIGN_OR_RETURN(*items, c.Sequence(0));
  const auto count = static_cast<int64_t>(items->size());
  WHET_ASSIGN_OR_RETURN(*at, Position(c, 1, count, count - 1));
  if (*at < 0 || *at >= count)
    return InvalidArgument("position {} is outside of {} items", *at, count);
  return OkStatus();
}

Status ImportSequenceAt(ImportContext& c) {
  std::vector<ValueId> items;
  int64_t at = 0;
  WHET_RETURN_IF_ERROR(SequenceAndPosition(c, false, &items, &at));
  c.outputs = {items[at]};
  return OkStatus();
}

Status ImportSequenceErase(ImportContext& c) {
  std::vector<ValueId> items;
  int64_t at = 0;
  WHET_RETURN_IF_ERROR(SequenceAndPosition(c, true, &items, &at));
  items.erase(items.begin() + at);
  return OutputSequence(c, std::move(items));
}

Status ImportSequenceLength(ImportContext& c) {
  WHET_RETURN_IF_ERROR(c.NeedInputs(1, 1));
  WHET_ASSIGN_OR_RETURN(const std::vector<ValueId> items, c.Sequence(0));
  const int64_t n[] = {static_cast<int64_t>(items.size())};
  c.outputs = {c.builder.Constant("", graph::Constant::OfInts({}, n))};
  return OkStatus();
}

// The sizes of the parts along an axis, from `split`, of one element or one per part.
StatusOr<std::vector<int64_t>> PartSizes(ImportContext& c, int64_t extent) {
  std::vector<int64_t> sizes;
  int64_t each = 1;
  if (c.Has(1)) {
    WHET_RETURN_IF_ERROR(NeedTensor(c, 1));
    WHET_ASSIGN_OR_RETURN(sizes, c.ConstInts(1, "split"));
    if (c.type(1).rank() > 0) {
      int64_t left = extent;
      for (int64_t s : sizes) {
        if (s < 0 || s > left) left = -1;
        if (left >= 0) left -= s;
      }
      if (left != 0)
        return InvalidArgument("sizes {} do not add up to {}", ShapeText(sizes), extent);
      return sizes;
    }
    each = sizes.empty() ? 0 : sizes[0];
    if (each < 1) return InvalidArgument("parts of {} elements", each);
  }
  if (extent / each >= static_cast<int64_t>(kMaxItems))
    return ResourceExhausted("more than {} items", kMaxItems);
  sizes.clear();
  for (int64_t left = extent; left > 0; left -= each) sizes.push_back(std::min(left, each));
  return sizes;
}

Status ImportSplitToSequence(ImportContext& c) {
  WHET_RETURN_IF_ERROR(NeedLists(c));
  WHET_RETURN_IF_ERROR(c.NeedInputs(1, 2));
  WHET_RETURN_IF_ERROR(NeedTensor(c, 0));
  WHET_ASSIGN_OR_RETURN(int64_t axis, c.TakeInt("axis", 0));
  WHET_ASSIGN_OR_RETURN(axis, NormalizeAxis(axis, c.type(0).rank()));
  WHET_ASSIGN_OR_RETURN(const int64_t keep, c.TakeInt("keepdims", 1));
  WHET_ASSIGN_OR_RETURN(const std::vector<int64_t> sizes, PartSizes(c, c.type(0).shape[axis]));
  const Axis how = keep == 0 && !c.Has(1) ? Axis::kDrop : Axis::kKeep;
  std::vector<ValueId> items;
  int64_t at = 0;
  for (int64_t size : sizes) {
    WHET_ASSIGN_OR_RETURN(ValueId v, Part(c.builder, c.inputs[0], axis, at, size, how));
    items.push_back(v);
    at += size;
  }
  return OutputSequence(c, std::move(items));
}

Status ImportConcatFromSequence(ImportContext& c) {
  WHET_RETURN_IF_ERROR(c.NeedInputs(1, 1));
  if (!c.HasAttr("axis")) return InvalidArgument("attribute 'axis' is missing");
  WHET_ASSIGN_OR_RETURN(const int64_t axis, c.TakeInt("axis", 0));
  WHET_ASSIGN_OR_RETURN(const int64_t stack, c.TakeInt("new_axis", 0));
  WHET_ASSIGN_OR_RETURN(std::vector<ValueId> items, c.Sequence(0));
  WHET_ASSIGN_OR_RETURN(ValueId v, Join(c.builder, std::move(items), axis,
                                        stack != 0 ? Joined::kStack : Joined::kConcat));
  c.outputs = {v};
  return OkStatus();
}

// The body once per item; inputs that are tensors are the same each time.
Status ImportSequenceMap(ImportContext& c) {
  WHET_RETURN_IF_ERROR(c.NeedInputs(1));
  WHET_ASSIGN_OR_RETURN(auto body, c.TakeBody("body"));
  WHET_ASSIGN_OR_RETURN(const std::vector<ValueId> items, c.Sequence(0));
  std::vector<std::vector<ValueId>> results(static_cast<size_t>(body->num_outputs()));
  for (size_t i = 0; i < items.size(); ++i) {
    std::vector<ValueId> in = {items[i]};
    for (int k = 1; k < c.num_inputs(); ++k) {
      if (!c.Has(k)) return InvalidArgument("input {} is missing", k);
      if (c.List(k) == nullptr) {
        in.push_back(c.inputs[k]);
        continue;
      }
      WHET_ASSIGN_OR_RETURN(const std::vector<ValueId> more, c.Sequence(k));
      if (more.size() != items.size())
        return InvalidArgument("sequences of {} and {} items", items.size(), more.size());
      in.push_back(more[i]);
    }
    WHET_ASSIGN_OR_RETURN(const std::vector<ValueId> out, body->Inline(std::move(in)));
    for (size_t k = 0; k < out.size(); ++k) results[k].push_back(out[k]);
  }
  for (std::vector<ValueId>& r : results) WHET_RETURN_IF_ERROR(OutputSequence(c, std::move(r)));
  return OkStatus();
}

Status ImportOptional(ImportContext& c) {
  WHET_RETURN_IF_ERROR(NeedLists(c));
  WHET_RETURN_IF_ERROR(c.NeedInputs(0, 1));
  c.Ignore("type");
  // One within the other means nothing to a model, and a chain of them has no bound.
  if (const graph::ImportList* inner = c.List(0); inner != nullptr && inner->optional)
    return InvalidArgument("input 0 is an optional itself");
  return OutputList(c, {.optional = true, .items = c.inputs});
}

Status ImportOptionalHasElement(ImportContext& c) {
  WHET_RETURN_IF_ERROR(c.NeedInputs(0, 1));
  const graph::ImportList* list = c.List(0);
  const bool has = c.Has(0) && (list == nullptr || !list->optional || !list->items.empty());
  const double value[] = {has ? 1.0 : 0.0};
  c.outputs = {c.builder.Constant("", graph::Constant::OfDoubles(DType::kBool, {}, value))};
  return OkStatus();
}

Status ImportOptionalGetElement(ImportContext& c) {
  WHET_RETURN_IF_ERROR(c.NeedInputs(1, 1));
  const graph::ImportList* list = c.List(0);
  if (list == nullptr || !list->optional) {
    c.outputs = {c.inputs[0]};
  } else if (list->items.empty()) {
    return InvalidArgument("the optional is empty");
  } else {
    c.outputs = {list->items[0]};
  }
  return OkStatus();
}

OpRecord OnLists(std::string name, std::string note, std::function<Status(ImportContext&)> import) {
  OpRecord r;
  r.name = std::move(name);
  r.note = std::move(note);
  r.takes_lists = true;
  r.import = std::move(import);
  return r;
}

}  // namespace

const OpRecord& OpConcatFromSequence() {
  static const OpRecord op = OnLists("ConcatFromSequence", "", ImportConcatFromSequence);
  return op;
}

const OpRecord& OpOptional() {
  static const OpRecord op = OnLists("Optional", "inside of a model only", ImportOptional);
  return op;
}

const OpRecord& OpOptionalGetElement() {
  static const OpRecord op = OnLists("OptionalGetElement", "", ImportOptionalGetElement);
  return op;
}

const OpRecord& OpOptionalHasElement() {
  static const OpRecord op = OnLists("OptionalHasElement", "", ImportOptionalHasElement);
  return op;
}

const OpRecord& OpSequenceAt() {
  static const OpRecord op =
      OnLists("SequenceAt", "the position known at compile time", ImportSequenceAt);
  return op;
}

const OpRecord& OpSequenceConstruct() {
  static const OpRecord op =
      OnLists("SequenceConstruct", "inside of a model only", ImportSequenceConstruct);
  return op;
}

const OpRecord& OpSequenceEmpty() {
  static const OpRecord op =
      OnLists("SequenceEmpty", "inside of a model only", ImportSequenceEmpty);
  return op;
}

const OpRecord& OpSequenceErase() {
  static const OpRecord op =
      OnLists("SequenceErase", "the position known at compile time", ImportSequenceErase);
  return op;
}

const OpRecord& OpSequenceInsert() {
  static const OpRecord op =
      OnLists("SequenceInsert", "the position known at compile time", ImportSequenceInsert);
  return op;
}

const OpRecord& OpSequenceLength() {
  static const OpRecord op = OnLists("SequenceLength", "", ImportSequenceLength);
  return op;
}

const OpRecord& OpSequenceMap() {
  static const OpRecord op = OnLists("SequenceMap", "unrolled", ImportSequenceMap);
  return op;
}

const OpRecord& OpSplitToSequence() {
  static const OpRecord op =
      OnLists("SplitToSequence", "the sizes known at compile time", ImportSplitToSequence);
  return op;
}

}  // namespace whet::ops
