#include "tests/golden/golden_file.h"

#include <map>

namespace whet::golden {
namespace {

std::vector<std::string> Lines(std::string_view body) {
  std::vector<std::string> lines;
  while (!body.empty()) {
    const std::string_view line = body.substr(0, body.find('\n'));
    body.remove_prefix(std::min(line.size() + 1, body.size()));
    if (!line.empty()) lines.emplace_back(line);
  }
  return lines;
}

// Empty lines at a section's end only space the sections.
std::string_view Trimmed(std::string_view body) {
  while (body.size() >= 2 && body.substr(body.size() - 2) == "\n\n") body.remove_suffix(1);
  return body == "\n" ? "" : body;
}

class Builder {
 public:
  StatusOr<File> Run(File file) {
    for (size_t i = 0; i < file.sections.size(); ++i) {
      WHET_RETURN_IF_ERROR(
          Annotate(Add(file.sections[i], i), fmt::format("section '{}'", file.sections[i].header)));
    }
    WHET_RETURN_IF_ERROR(Close());
    file.cases = std::move(cases_);
    return file;
  }

 private:
  Status Add(const Section& s, size_t index) {
    const std::string_view body = Trimmed(s.body);
    if (s.header.rfind("input ", 0) == 0) {
      WHET_RETURN_IF_ERROR(Close());
      return inputs_.emplace(s.header.substr(6), body).second
                 ? OkStatus()
                 : InvalidArgument("a second input of this name");
    }
    if (s.header.rfind("case ", 0) == 0) {
      WHET_RETURN_IF_ERROR(Close());
      open_ = true;
      current_ = {};
      current_.title = s.header.substr(5);
      return SetProgram(current_.source, body);
    }
    if (!open_) return InvalidArgument("it belongs to no case");
    if (s.header == "run") {
      (judged_ ? current_.other : current_.source).steps = Lines(body);
      return judged_ && current_.verb != Verb::kSame ? InvalidArgument("steps after the verdict")
                                                     : OkStatus();
    }
    if (judged_) return InvalidArgument("a second verdict");
    judged_ = true;
    current_.section = index;
    if (s.header == "same") {
      current_.verb = Verb::kSame;
      return SetProgram(current_.other, body);
    }
    current_.expected = body;
    if (s.header == "expect" || s.header == "expect trace") {
      current_.verb = s.header == "expect" ? Verb::kExpect : Verb::kExpectTrace;
      return OkStatus();
    }
    if (s.header != "error")
      return InvalidArgument(
          "unknown; sections are input, case, run, expect, expect trace, same, error");
    current_.verb = Verb::kError;
    if (Lines(body).size() != 1)
      return InvalidArgument("one line is expected, {} given", Lines(body).size());
    current_.expected = Lines(body)[0];
    return OkStatus();
  }

  Status SetProgram(Source& source, std::string_view body) {
    if (body.substr(0, 4) != "use ") {
      source.program = body;
      return OkStatus();
    }
    const auto it = inputs_.find(Lines(body)[0].substr(4));
    if (it == inputs_.end()) return InvalidArgument("no input of the name in '{}'", Lines(body)[0]);
    source.program = it->second;
    return OkStatus();
  }

  Status Close() {
    if (open_ && !judged_) return InvalidArgument("case '{}' expects nothing", current_.title);
    if (open_) cases_.push_back(std::move(current_));
    open_ = judged_ = false;
    return OkStatus();
  }

  std::map<std::string, std::string> inputs_;
  std::vector<Case> cases_;
  Case current_;
  bool open_ = false, judged_ = false;
};

}  // namespace

std::string File::ToString() const {
  std::string text = comment;
  for (const Section& s : sections) text += "== " + s.header + "\n" + s.body;
  return text;
}

StatusOr<File> Parse(std::string_view text) {
  File file;
  while (!text.empty()) {
    const size_t end = text.find('\n');
    if (end == std::string_view::npos) return InvalidArgument("the last line has no end");
    const std::string line(text.substr(0, end + 1));
    text.remove_prefix(end + 1);
    if (line.rfind("== ", 0) == 0) {
      file.sections.push_back({line.substr(3, line.size() - 4), ""});
    } else if (!file.sections.empty()) {
      file.sections.back().body += line;
    } else if (line[0] == '#' || line == "\n") {
      file.comment += line;
    } else {
      return InvalidArgument("'{}' before the first section", line.substr(0, line.size() - 1));
    }
  }
  return Builder().Run(std::move(file));
}

}  // namespace whet::golden
