// Cuts a graph into fused groups, each an instance of a workload. An anchor (convolution, matmul,
// pool, reduction) takes the elementwise and broadcast operators that follow it while its result
// goes nowhere else; elementwise and injective operators fuse with each other and into the inputs
// of epilogues and reductions; opaque ones stay alone. A depthwise convolution of a large image
// joins the pointwise one that alone reads it. View nodes run nothing and belong to no group. Every
// group has one result that others read. Pure functions of the graph.
#pragma once
#include <set>
#include <string>
#include <vector>

#include "compiler/fusion/workload.h"
#include "compiler/graph/graph.h"

namespace whet::fusion {

struct Task {  // a distinct workload
  Workload workload;
  Fingerprint fingerprint;
  int count = 0;      // groups that are instances of it
  std::string label;  // of its first group
};

struct Group {
  int task = 0;  // index into tasks
  // In the workload's order; constants included; views already resolved.
  std::vector<graph::ValueId> inputs;
  std::vector<graph::ValueId> outputs;  // in the workload's order
  // Positions of inputs that are read element by element, each just before the result's element at
  // the same place is written: the result may take the bytes of one of them that dies here.
  std::vector<int> overwritable;
  std::vector<int> nodes;  // of the graph, in order
  std::string label;       // the model's own node names, joined by '+'
};

struct Partition {
  std::vector<Task> tasks;    // in order of first use
  std::vector<Group> groups;  // in execution order
  // Per value of the graph: the value whose bytes it shares (itself unless it is the result of a
  // view). Groups refer only to such roots. Each graph output has a root of its own that a group
  // writes.
  std::vector<graph::ValueId> storage;
};

// The graph has been through the passes (layouts assigned, views marked, outputs separated).
// Instances of the workloads in `split` are computed in parts: see SplitOf.
StatusOr<Partition> PartitionGraph(const graph::Graph& g, const std::set<Fingerprint>& split = {});

// What a group of nodes computes, by the layouts that its operands and results have in the graph.
Workload WorkloadOf(const graph::Graph& g, const std::vector<int>& nodes);

// The alternative to a fused group: the anchor alone, what comes before it, and what comes after
// it; of two convolutions, each with what is computed with it. Tasks as often as the group runs
// them; empty for a group that is one node, has no anchor, or whose parts would have more than one
// result each.
std::vector<Task> SplitOf(const graph::Graph& g, const Group& group);

// Makes `other`, the partition of the same network for other input shapes, refer to the tasks of
// `first`: those that `first` lacks are added to it, and a task counts as often as both run it.
void ShareTasks(Partition& first, Partition& other);

}  // namespace whet::fusion
