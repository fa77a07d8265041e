#include "compiler/frontend/model_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "compiler/support/names.h"

namespace whet::frontend {
namespace {

// Opening never waits: a pipe is looked at, and refused, like any other thing that is no file.
struct Descriptor {
  explicit Descriptor(const std::string& path)
      : fd(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)) {}
  ~Descriptor() {
    if (fd >= 0) close(fd);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  const int fd;
};

StatusOr<int64_t> SizeOfRegular(int fd) {
  struct stat info{};
  if (fd < 0 || fstat(fd, &info) != 0) {
    return errno == ENOENT ? NotFound("{}", std::strerror(errno))
                           : Unavailable("it cannot be read: {}", std::strerror(errno));
  }
  if (S_ISDIR(info.st_mode)) return InvalidArgument("it is a folder, not a file");
  if (!S_ISREG(info.st_mode)) return InvalidArgument("it is not a regular file");
  return static_cast<int64_t>(info.st_size);
}

bool ReadAll(int fd, std::string& bytes) {
  for (size_t at = 0; at < bytes.size();) {
    const ssize_t n = read(fd, bytes.data() + at, bytes.size() - at);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    at += static_cast<size_t>(n);
  }
  return true;
}

}  // namespace

std::string ReadHead(const std::string& path, size_t bytes) {
  const Descriptor file(path);
  const auto size = SizeOfRegular(file.fd);
  if (!size.ok()) return {};
  std::string head(std::min(bytes, static_cast<size_t>(*size)), '\0');
  return ReadAll(file.fd, head) ? head : std::string();
}

StatusOr<std::string> ReadModelFile(const std::string& path, int64_t most) {
  const Descriptor file(path);
  WHET_ASSIGN_OR_RETURN(const int64_t size, SizeOfRegular(file.fd));
  if (size > most) return ResourceExhausted("{} bytes exceed the limit of {}", size, most);
  std::string bytes(static_cast<size_t>(size), '\0');
  if (!ReadAll(file.fd, bytes)) return Unavailable("it cannot be read: {}", std::strerror(errno));
  return bytes;
}

bool HasOutput(const graph::Graph& g, std::string_view name) {
  return std::any_of(g.outputs.begin(), g.outputs.end(),
                     [&](const graph::GraphOutput& o) { return o.name == name; });
}

Status UnknownName(const ImportOptions& options, std::string_view flag, std::string_view name,
                   Named what, const std::vector<std::string>& inputs,
                   const std::vector<std::string>& dimensions) {
  std::vector<std::string> all = inputs;
  all.insert(all.end(), dimensions.begin(), dimensions.end());
  const std::string there =
      fmt::format("inputs: {}{}{}", ListOf(inputs),
                  dimensions.empty() ? "" : "; dimensions: ", ListOf(dimensions));
  const char* kind =
      what == Named::kInput ? "is no input" : "is no input and no symbolic dimension";
  if (!options.artifact.empty()) {
    return InvalidArgument(
        "'{}' was compiled from another model, with {} '{}', which {} of this; {}",
        options.artifact, flag == "--shape" ? "an input" : flag, name, kind, there);
  }
  return InvalidArgument("{} names '{}', which {}{}; {}", flag, name, kind, Suggestion(name, all),
                         there);
}

void Problems::Add(Status s) {
  if (first_.size() < kMost) first_.push_back(std::move(s));
  ++count_;
}

Status Problems::Report(std::string_view supported) const {
  if (count_ == 1 && supported.empty()) return first_[0];
  std::string text = count_ == 1 ? "" : fmt::format("{} problems:", count_);
  for (const Status& s : first_) text += (text.empty() ? "" : "\n  ") + Message(s);
  if (count_ > static_cast<int64_t>(first_.size()))
    text += fmt::format("\n  and {} more", count_ - static_cast<int64_t>(first_.size()));
  if (!supported.empty()) text += fmt::format("\nsupported operators: {}", supported);
  return Status(first_[0].code(), text);
}

}  // namespace whet::frontend
