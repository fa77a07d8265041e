#include "compiler/onnx/external_data.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <string_view>
#include <utility>
#include <vector>

namespace whet::onnx {
namespace {

constexpr size_t kMaxPath = 4096, kMaxParts = 64;

class Descriptor {
 public:
  explicit Descriptor(int fd = -1) : fd_(fd) {}
  Descriptor(Descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~Descriptor() {
    if (fd_ >= 0) close(fd_);
  }
  int get() const { return fd_; }

 private:
  int fd_;
};

struct Place {
  std::string location;
  int64_t offset = 0;
  int64_t length = -1;  // not given
};

StatusOr<int64_t> Number(const std::string& key, const std::string& text) {
  int64_t v = 0;
  const auto [end, failed] = std::from_chars(text.data(), text.data() + text.size(), v);
  if (failed != std::errc() || end != text.data() + text.size() || v < 0)
    return InvalidArgument("{} '{}' of its external data is not a number of bytes", key, text);
  return v;
}

StatusOr<Place> PlaceOf(const onnx_schema::TensorProto& t) {
  Place p;
  for (const auto& entry : t.external_data()) {
    if (entry.key() == "location") {
      p.location = entry.value();
    } else if (entry.key() == "offset") {
      WHET_ASSIGN_OR_RETURN(p.offset, Number("offset", entry.value()));
    } else if (entry.key() == "length") {
      WHET_ASSIGN_OR_RETURN(p.length, Number("length", entry.value()));
    } else if (entry.key() != "checksum") {
      return Unimplemented("external data with '{}' is not supported", entry.key());
    }
  }
  if (p.location.empty()) return InvalidArgument("its external data has no location");
  return p;
}

StatusOr<std::vector<std::string>> PartsOf(const std::string& location) {
  const char* rule = "external data must be a relative path beneath the model's folder";
  if (location.size() > kMaxPath || location.find('\0') != std::string::npos ||
      location.find('\\') != std::string::npos)
    return InvalidArgument("external data '{}': {}", location.substr(0, 100), rule);
  std::vector<std::string> parts;
  std::string_view rest = location;
  while (true) {
    const size_t slash = std::min(rest.find('/'), rest.size());
    const std::string_view part = rest.substr(0, slash);
    // A leading '.' is what some exporters write for the folder itself.
    if (part == "." && parts.empty() && slash < rest.size()) {
      rest.remove_prefix(slash + 1);
      continue;
    }
    if (part.empty() || part == "." || part == ".." || parts.size() == kMaxParts)
      return InvalidArgument("external data '{}': {}", location, rule);
    parts.emplace_back(part);
    if (slash == rest.size()) return parts;
    rest.remove_prefix(slash + 1);
  }
}

// Opened part by part, so that no link on the way is followed.
StatusOr<Descriptor> OpenBeneath(const std::string& folder, const std::string& location) {
  WHET_ASSIGN_OR_RETURN(const std::vector<std::string> parts, PartsOf(location));
  Descriptor at(open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  for (size_t i = 0; at.get() >= 0 && i < parts.size(); ++i) {
    const int kind = i + 1 < parts.size() ? O_DIRECTORY : O_NONBLOCK;
    at = Descriptor(openat(at.get(), parts[i].c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC | kind));
    if (at.get() >= 0) continue;
    if (errno == ELOOP || errno == ENOTDIR)
      return InvalidArgument(
          "external data '{}': '{}' is a link or no folder; links are not "
          "followed",
          location, parts[i]);
  }
  if (at.get() < 0) return NotFound("external data '{}': {}", location, std::strerror(errno));
  return at;
}

}  // namespace

StatusOr<std::string> ExternalData::Read(const onnx_schema::TensorProto& t, int64_t wanted) {
  WHET_ASSIGN_OR_RETURN(const Place place, PlaceOf(t));
  if (place.length >= 0 && place.length != wanted)
    return InvalidArgument("its type takes {} bytes, its external data has a length of {}", wanted,
                           place.length);
  if (folder_.empty())
    return Unimplemented("its data is in the file '{}', but the model was not read from a folder",
                         place.location.substr(0, 100));
  if (wanted > kMaxExternalBytes - bytes_read_)
    return ResourceExhausted("external data of more than {} bytes in all", kMaxExternalBytes);
  WHET_ASSIGN_OR_RETURN(const Descriptor file, OpenBeneath(folder_, place.location));
  struct stat info{};
  if (fstat(file.get(), &info) != 0 || !S_ISREG(info.st_mode))
    return InvalidArgument("external data '{}' is not a regular file", place.location);
  if (files_.emplace(info.st_dev, info.st_ino).second) {
    // Files with holes may be of any size: a sum that cannot overflow, and allows all there is.
    file_bytes_ = std::min(kMaxExternalBytes,
                           file_bytes_ + std::min<int64_t>(kMaxExternalBytes, info.st_size));
    for (const std::string& path : writes_) {
      struct stat written{};
      if (stat(path.c_str(), &written) == 0 && written.st_dev == info.st_dev &&
          written.st_ino == info.st_ino)
        return InvalidArgument(
            "external data '{}' is read by this command, and would be "
            "overwritten: '{}' is the same file",
            place.location, path);
    }
  }
  // Written without a sum, which could overflow.
  if (place.offset > info.st_size || wanted > info.st_size - place.offset)
    return InvalidArgument("external data '{}' has {} bytes, not the {} from {} on that are wanted",
                           place.location, static_cast<int64_t>(info.st_size), wanted,
                           place.offset);
  if (wanted > 4 * file_bytes_ + kMaxSharedBytes - bytes_read_)
    return ResourceExhausted(
        "external data '{}': tensors name the same bytes again and again; the limit is {} bytes in "
        "all for files of {} bytes",
        place.location, 4 * file_bytes_ + kMaxSharedBytes, file_bytes_);
  std::string bytes(static_cast<size_t>(wanted), '\0');
  int64_t done = 0;
  while (done < wanted) {
    const ssize_t n = pread(file.get(), bytes.data() + done, static_cast<size_t>(wanted - done),
                            place.offset + done);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return Unavailable("external data '{}' cannot be read", place.location);
    done += n;
  }
  bytes_read_ += wanted;
  return bytes;
}

}  // namespace whet::onnx
