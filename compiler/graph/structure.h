// What a graph computes, up to names and the values of constants: networks that were trained apart
// or exported under other names have one structure, and share what a tuning log knows about the
// whole of them. Types and attributes count, layouts do not. A pure function.
#pragma once
#include "compiler/graph/graph.h"
#include "compiler/support/fingerprint.h"

namespace whet::graph {

Fingerprint StructureOf(const Graph& g);

}  // namespace whet::graph
