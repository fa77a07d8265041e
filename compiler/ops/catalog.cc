#include "compiler/ops/catalog.h"

#include <map>

namespace whet::ops {

using graph::OpRecord;

#define X(name) const OpRecord& Op##name();
#include "compiler/ops/operators.inc"
#undef X

namespace {

class AllOps : public graph::OpCatalog {
 public:
  AllOps() {
    for (const OpRecord* op : List()) by_name_.emplace(op->name, op);
  }
  const OpRecord* Find(std::string_view name) const override {
    auto it = by_name_.find(name);
    return it == by_name_.end() ? nullptr : it->second;
  }
  std::vector<const OpRecord*> All() const override {
    std::vector<const OpRecord*> all;
    for (const auto& [name, op] : by_name_) all.push_back(op);
    return all;
  }

 private:
  static std::vector<const OpRecord*> List();
  std::map<std::string, const OpRecord*, std::less<>> by_name_;
};

std::vector<const OpRecord*> AllOps::List() {
  return {
#define X(name) &Op##name(),
#include "compiler/ops/operators.inc"
#undef X
  };
}

}  // namespace

const graph::OpCatalog& Catalog() {
  static const AllOps catalog;
  return catalog;
}

}  // namespace whet::ops
