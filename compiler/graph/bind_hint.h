// What an error says where a value has to be a constant and is computed from inputs of the model:
// the user can give an input a value. Pure function of the graph so far.
#pragma once
#include <string>

#include "compiler/graph/graph.h"

namespace whet::graph {

// "; --bind NAME=VALUE makes input 'x' a constant", to be appended; empty where `v` is a constant
// or a list, or is computed from none, or from an input of so many elements that nobody types them.
std::string BindHint(const Graph& g, ValueId v);

}  // namespace whet::graph
