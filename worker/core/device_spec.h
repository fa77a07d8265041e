// Which devices a worker consists of, as its options say: NAME[:key=KEY][:cores=LIST], for instance
// "cpu0:key=big:cores=4-7". Pure.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "compiler/support/status.h"

namespace whet::worker {

struct DeviceSpec {
  std::string name;        // cpuN: names its folder, its lock and the last part of its id
  int index = 0;           // N: of its lock
  std::string key;         // what users ask for
  std::vector<int> cores;  // the system's numbers of its processors, ascending; never empty
};

// "0-3,8" to 0, 1, 2, 3, 8. InvalidArgument names what is wrong.
StatusOr<std::vector<int>> ParseCores(std::string_view text);

// `texts`: one per device, at least one. `key`: of those that name none. `allowed`: the processors
// that this process may use; devices that name no cores share out evenly those that no other
// names. InvalidArgument: a name twice, cores that two devices have or that are not allowed, more
// devices than cores.
StatusOr<std::vector<DeviceSpec>> ParseDevices(const std::vector<std::string>& texts,
                                               const std::string& key,
                                               const std::vector<int>& allowed);

}  // namespace whet::worker
