// How a verb talks: JSON to a file or standard output (`--json FILE|-`), text for people otherwise,
// errors on standard error as `whet VERB: message`, a Status turned into an exit code. Stateless.
// Standard output that cannot be written is main's to report: fmt::print throws, or what is left in
// the buffer cannot be flushed at the end.
#pragma once
#include <nlohmann/json_fwd.hpp>

#include <string>

#include "compiler/driver/flags.h"
#include "compiler/support/status.h"

namespace whet::driver {

// With "-" standard output carries JSON and nothing else: text for people is then left out.
inline bool TextWanted(const std::string& json) { return json != "-"; }

// Writes `value` to the file, or to standard output for "-"; nothing when `json` is empty.
Status WriteJson(const std::string& json, const nlohmann::ordered_json& value);

// Prints the error and returns the exit code it means: bad input 2, unreachable 3, cancelled 130,
// everything else 1.
int Explain(const std::string& verb, const Status& status);

}  // namespace whet::driver
