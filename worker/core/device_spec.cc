#include "worker/core/device_spec.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <map>

#include "compiler/support/names.h"

namespace whet::worker {
namespace {

constexpr int kMaxDevices = 64;
constexpr int kMaxCore = 8191;

bool ParseInt(std::string_view text, int most, int* out) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *out);
  return error == std::errc() && end == text.data() + text.size() && *out >= 0 && *out <= most;
}

StatusOr<DeviceSpec> ParseDevice(std::string_view text, const std::string& key) {
  DeviceSpec d;
  d.key = key;
  d.name = std::string(text.substr(0, text.find(':')));
  const std::string_view name = d.name;
  // "cpu01" would be another folder with the lock of "cpu1".
  if (name.substr(0, 3) != "cpu" || !ParseInt(name.substr(3), kMaxDevices - 1, &d.index) ||
      fmt::format("cpu{}", d.index) != name) {
    return InvalidArgument(
        "--device '{}': the name is cpu0 to cpu{}, then :key=KEY and :cores=LIST", text,
        kMaxDevices - 1);
  }
  for (std::string_view rest = text.substr(d.name.size()); !rest.empty();) {
    const size_t end = std::min(rest.find(':', 1), rest.size());
    const std::string_view part = rest.substr(1, end - 1);
    rest.remove_prefix(end);
    const std::string_view field = part.substr(0, part.find('='));
    const std::string_view value = part.substr(std::min(field.size() + 1, part.size()));
    if (field == "key") {
      if (!IsDeviceKey(value))
        return InvalidArgument("--device '{}': '{}' is not a key: {}", text, value, kDeviceKeyRule);
      d.key = std::string(value);
    } else if (field == "cores") {
      StatusOr<std::vector<int>> cores = ParseCores(value);
      if (!cores.ok()) return Annotate(cores.status(), fmt::format("--device '{}'", text));
      d.cores = std::move(*cores);
    } else {
      return InvalidArgument("--device '{}': there is no '{}'; there are key and cores", text,
                             field);
    }
  }
  return d;
}

// Those that name no cores get what is left, in runs of neighbours.
Status ShareOut(std::vector<DeviceSpec>& devices, const std::vector<int>& left) {
  const auto without = static_cast<size_t>(std::count_if(
      devices.begin(), devices.end(), [](const DeviceSpec& d) { return d.cores.empty(); }));
  if (without == 0) return OkStatus();
  if (left.size() < without) {
    return InvalidArgument(
        "{} devices name no cores, and {} cores are left for them; start fewer devices, or name "
        "fewer cores",
        without, left.size());
  }
  size_t at = 0, number = 0;
  for (DeviceSpec& d : devices) {
    if (!d.cores.empty()) continue;
    const size_t end = left.size() * ++number / without;
    d.cores.assign(left.begin() + static_cast<ptrdiff_t>(at),
                   left.begin() + static_cast<ptrdiff_t>(end));
    at = end;
  }
  return OkStatus();
}

}  // namespace

StatusOr<std::vector<int>> ParseCores(std::string_view text) {
  std::vector<int> cores;
  for (std::string_view rest = text;;) {
    const std::string_view range = rest.substr(0, rest.find(','));
    const size_t dash = range.find('-');
    int first = 0, last = 0;
    const bool parsed =
        ParseInt(range.substr(0, dash), kMaxCore, &first) &&
        ParseInt(dash == std::string_view::npos ? range : range.substr(dash + 1), kMaxCore, &last);
    if (!parsed || last < first)
      return InvalidArgument("cores '{}' are not numbers and ranges, as in 0-3,8", text);
    for (int c = first; c <= last; ++c) cores.push_back(c);
    if (range.size() == rest.size()) break;
    rest.remove_prefix(range.size() + 1);
  }
  std::sort(cores.begin(), cores.end());
  if (const auto twice = std::adjacent_find(cores.begin(), cores.end()); twice != cores.end())
    return InvalidArgument("cores '{}' have {} twice", text, *twice);
  return cores;
}

StatusOr<std::vector<DeviceSpec>> ParseDevices(const std::vector<std::string>& texts,
                                               const std::string& key,
                                               const std::vector<int>& allowed) {
  std::vector<DeviceSpec> devices;
  std::map<int, std::string> holder;  // of each core that is named
  for (const std::string& text : texts) {
    WHET_ASSIGN_OR_RETURN(DeviceSpec d, ParseDevice(text, key));
    for (const DeviceSpec& other : devices) {
      if (other.name == d.name) return InvalidArgument("there are two devices '{}'", d.name);
    }
    for (const int core : d.cores) {
      if (std::find(allowed.begin(), allowed.end(), core) == allowed.end()) {
        return InvalidArgument("--device '{}': this process may not run on core {}; it may on {}",
                               text, core, fmt::format("{}", fmt::join(allowed, ",")));
      }
      const auto [it, first] = holder.emplace(core, d.name);
      if (!first) {
        return InvalidArgument("devices '{}' and '{}' both have core {}; each needs its own",
                               it->second, d.name, core);
      }
    }
    devices.push_back(std::move(d));
  }
  std::vector<int> left;
  std::copy_if(allowed.begin(), allowed.end(), std::back_inserter(left),
               [&](int core) { return !holder.contains(core); });
  WHET_RETURN_IF_ERROR(ShareOut(devices, left));
  return devices;
}

}  // namespace whet::worker
