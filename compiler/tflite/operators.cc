#include <algorithm>
#include <map>

#include "compiler/tflite/context.h"

namespace whet::tflite {
namespace {

const std::map<fb::BuiltinOperator, OpEntry>& AllOperators() {
  static const std::map<fb::BuiltinOperator, OpEntry> all = [] {
    std::map<fb::BuiltinOperator, OpEntry> m;
    for (const auto& part : {WindowOperators(), ArithmeticOperators(), MovementOperators()}) {
      for (const OpEntry& e : part)
        WHET_CHECK(m.emplace(e.code, e).second, "operator {} twice", static_cast<int>(e.code));
    }
    return m;
  }();
  return all;
}

}  // namespace

const OpEntry* FindOperator(fb::BuiltinOperator code) {
  auto it = AllOperators().find(code);
  return it == AllOperators().end() ? nullptr : &it->second;
}

std::vector<std::string> OperatorNames() {
  std::vector<std::string> names;
  for (const auto& [code, entry] : AllOperators())
    names.emplace_back(EnumNameBuiltinOperator(code));
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace whet::tflite
