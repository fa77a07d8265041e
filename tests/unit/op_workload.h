// Workloads of one operator, or of a chain of them, for tests: evaluated, interpreted or compiled.
#pragma once
#include <gtest/gtest.h>

#include <optional>
#include <set>
#include <string>
#include <vector>

#include "compiler/fusion/workload.h"
#include "compiler/loop/interpret.h"
#include "compiler/ops/catalog.h"

namespace whet::testing_support {

// {"f32[2,3]", "const f32[3]"} and {"Add.1(0, 1)"} -> a workload with one output, row-major: output
// `output` of the last operator. All operators but the last have one output.
inline StatusOr<fusion::Workload> OpWorkload(const std::vector<std::string>& inputs,
                                             const std::vector<std::string>& ops,
                                             size_t output = 0) {
  const size_t result = inputs.size() + ops.size() - 1 + output;
  std::string text = "whet-workload 1\n";
  for (const std::string& i : inputs) text += "input " + i + "\n";
  for (const std::string& op : ops) text += "op " + op + "\n";
  // Inference says what the output is; the parser wants it spelled out.
  auto probe =
      fusion::Workload::Parse(text + fmt::format("output {} f32[]\n", result), ops::Catalog());
  if (probe.ok()) return probe;
  const std::string message = Message(probe.status());
  const std::string marker = fmt::format("output {} is ", result);
  const size_t at = message.find(marker);
  if (at == std::string::npos) return probe.status();
  const size_t begin = at + marker.size();
  return fusion::Workload::Parse(
      text + fmt::format("output {} {}\n", result,
                         message.substr(begin, message.find(", not ", begin) - begin)),
      ops::Catalog());
}

// The tensor expressions of a workload, run by the interpreter: inputs and result in logical order.
class OpProgram {
 public:
  explicit OpProgram(const fusion::Workload& w) : workload_(w) {
    auto te = fusion::BuildTe(w);
    EXPECT_TRUE(te.ok()) << te.status();
    if (!te.ok()) return;
    te_ = *std::move(te);
    for (const te::Stage& stage : te_.func.stages) {  // schedules tell axes apart by their names
      std::set<std::string> names;
      for (const auto* axes : {&stage.axes, &stage.reduce}) {
        for (const te::Axis& a : *axes)
          EXPECT_TRUE(names.insert(a.name).second)
              << w.ToString() << "stage " << stage.name << ", axis " << a.name;
      }
    }
    auto program = loop::FromTe("sample", te_.func, te_.input_layouts, te_.output_layouts);
    EXPECT_TRUE(program.ok()) << program.status();
    if (program.ok()) program_ = *std::move(program);
  }
  bool ok() const { return program_.has_value(); }
  const loop::Program& program() const { return *program_; }

  loop::Memory Inputs(const std::vector<std::vector<double>>& inputs) const {
    loop::Memory memory;
    for (size_t i = 0; i < inputs.size(); ++i)
      memory[te_.func.inputs[i]->name] =
          fusion::LogicalToPhysical(workload_.inputs[i].type, inputs[i]);
    return memory;
  }
  std::vector<double> Output(const loop::Memory& memory) const {
    return fusion::PhysicalToLogical(workload_.outputs[0].type,
                                     memory.at(te_.func.outputs[0]->name));
  }
  StatusOr<std::vector<double>> Interpret(const std::vector<std::vector<double>>& inputs) const {
    loop::Memory memory = Inputs(inputs);
    WHET_RETURN_IF_ERROR(loop::Interpret(*program_, memory));
    return Output(memory);
  }

 private:
  const fusion::Workload workload_;
  fusion::TeWorkload te_;
  std::optional<loop::Program> program_;
};

}  // namespace whet::testing_support
