// The flags of one verb, bound to the fields of its options struct. A thin face on CLI11 and
// compiler/support/config.h (command line, then WHET_<FLAG>, then --config), for two reasons: a
// file that includes CLI11 compiles for five seconds, and there are a dozen verbs; and every verb's
// --help has the same form, examples included.
//   void Declare(Flags& flags) override {
//     flags.Positional("ARTIFACT", &artifact_, "a compiled model (.so)");
//     flags.Add("--threads", &threads_, "threads to run on").Range(1, 1024);
//     flags.Example("whet bench face.so --threads 2");
//   }
#pragma once
#include <cstdint>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "compiler/support/status.h"

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace whet::driver {

// What a verb's process ends with; scripts rely on these.
enum ExitCode {
  kExitDone = 0,
  kExitFailed = 1,
  kExitUsage = 2,
  kExitUnreachable = 3,
  kExitInterrupted = 130
};

class Flags {
 public:
  explicit Flags(CLI::App* app);  // borrowed
  Flags(const Flags&) = delete;

  class Handle {
   public:
    Handle(Flags* flags, CLI::Option* option, const std::string* text = nullptr,
           const std::vector<std::string>* texts = nullptr)
        : flags_(flags), option_(option), text_(text), texts_(texts) {}
    Handle& Range(int64_t least, int64_t most);      // of an int64_t
    Handle& OneOf(std::vector<std::string> values);  // of a string
    Handle& Value(std::string placeholder);          // in --help: "--db FILE"
    Handle& Reads();   // of a path, or of NAME=FILE texts: the verb reads the file
    Handle& Writes();  // of a path: the verb writes the file

   private:
    friend class Flags;
    Flags* flags_;
    CLI::Option* option_;
    const std::string* text_;
    const std::vector<std::string>* texts_;
  };

  // The variable holds the default. `names` as CLI11 takes them: "-o,--output". Vectors: the flag
  // may be repeated.
  Handle Add(const std::string& names, std::string* value, const std::string& help);
  Handle Add(const std::string& names, int64_t* value, const std::string& help);
  Handle Add(const std::string& names, double* value, const std::string& help);
  Handle Add(const std::string& names, bool* value, const std::string& help);
  Handle Add(const std::string& names, std::vector<std::string>* values, const std::string& help);
  // Arguments without a flag, in order.
  enum class Need { kRequired, kOptional };
  Handle Positional(const std::string& name, std::string* value, const std::string& help,
                    Need need = Need::kRequired);
  // `--json FILE|-`, the same for every verb.
  void Json(std::string* value);

  // Before the verb runs: what it writes is neither what it reads, this configuration file
  // included, nor written by it in another way.
  Status CheckFiles(const std::string& config) const;
  // The files of Writes() that were given.
  std::vector<std::string> Written() const;
  // Whether the flag is on the command line; the environment and a configuration file are shared by
  // commands that have no use for it.
  bool OnCommandLine(const std::string& name) const { return on_command_line_.contains(name); }

  void Notes(const std::string& text);    // under the flags in --help
  void Example(const std::string& line);  // under the notes

 private:
  void ShowFooter();

  CLI::App* app_;
  std::set<std::string> on_command_line_;
  std::vector<const std::string*> read_;
  std::vector<const std::vector<std::string>*> read_specs_;
  std::vector<std::pair<std::string, const std::string*>> written_;  // with the flag's name
  std::string notes_;
  std::vector<std::string> examples_;
};

// "90", "90s", "10m", "1.5h" in seconds; negative when the text is none of these.
double ParseSeconds(std::string_view text);

}  // namespace whet::driver
