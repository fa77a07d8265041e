// One configuration per program: each option of its command line can also come from the environment
// (WHET_<FLAG>, upper case, dashes as underscores) or from a TOML file (--config FILE); the flag
// wins over the environment, that over the file. Options of a sub-command are looked up in the
// file's table of its name first, then at its top level.
//   CLI::App app("what it does");
//   Options o; app.add_option("--listen", o.listen, "...");
//   if (auto exit = ParseProgram(app, argc, argv)) return *exit;
// Called once, before threads start. The program adds neither --config nor --dump-config nor
// --version itself.
#pragma once
#include <CLI/CLI.hpp>

#include <optional>
#include <string>

namespace whet {

inline constexpr const char* kVersion = "0.1.0";

// The code to exit with, when the program should: 0 after --help, --version or --dump-config, 2
// after bad usage (said on standard error). Nothing: the options hold their values; go on.
std::optional<int> ParseProgram(CLI::App& app, int argc, const char* const* argv);

// The path of the TOML file that options of a parsed program came from; empty: there was none.
std::string ConfigFile(const CLI::App& app);

}  // namespace whet
