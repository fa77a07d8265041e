#include "worker/core/object_check.h"

#include <elf.h>

#include <algorithm>
#include <cstring>
#include <set>
#include <vector>

namespace whet::worker {
namespace {

constexpr size_t kMaxFeatureSet = 4096;

std::string ArchOf(std::string_view feature_set) {
  return std::string(feature_set.substr(0, feature_set.find(' ')));
}

// "x86_64 +a,+b" to a and b.
std::set<std::string> FeaturesOf(std::string_view feature_set) {
  std::set<std::string> features;
  feature_set.remove_prefix(std::min(feature_set.find(' '), feature_set.size()));
  while (!feature_set.empty()) {
    const size_t end = std::min(feature_set.find_first_of(" ,", 1), feature_set.size());
    const std::string_view word = feature_set.substr(0, end);
    const size_t plus = word.find('+');
    if (plus != std::string_view::npos) features.emplace(word.substr(plus + 1));
    feature_set.remove_prefix(end);
  }
  return features;
}

// A peer's text, for people.
std::string Printable(std::string_view text) {
  std::string clean(text.substr(0, 200));
  std::replace_if(
      clean.begin(), clean.end(), [](unsigned char c) { return c < 32 || c > 126; }, '?');
  return clean;
}

const char* MachineText(unsigned machine) {
  switch (machine) {
    case EM_X86_64: return "x86_64";
    case EM_AARCH64: return "aarch64";
    case EM_ARM: return "arm";
    case EM_386: return "i386";
    case EM_RISCV: return "riscv";
    default: return nullptr;
  }
}

}  // namespace

Status CheckFeatureSet(std::string_view feature_set, const v1::DeviceIdentity& device) {
  if (feature_set.empty() || feature_set == device.feature_set()) return OkStatus();
  if (feature_set.size() > kMaxFeatureSet) {
    return FailedPrecondition("the candidate's feature set has {} bytes; the limit is {}",
                              feature_set.size(), kMaxFeatureSet);
  }
  const std::string arch = ArchOf(device.feature_set());
  if (ArchOf(feature_set) != arch) {
    return FailedPrecondition("the candidate was built for {}, this device is {}",
                              Printable(ArchOf(feature_set)), arch);
  }
  std::set<std::string> have = FeaturesOf(device.feature_set());
  have.insert(device.cpu_features().begin(), device.cpu_features().end());
  std::string missing;
  for (const std::string& f : FeaturesOf(feature_set)) {
    if (!have.contains(f)) missing += (missing.empty() ? "" : ", ") + f;
  }
  if (missing.empty()) return OkStatus();
  return FailedPrecondition("the candidate needs features that this device lacks: {}",
                            Printable(missing));
}

Status CheckObjectHeader(std::string_view file, std::string_view arch) {
  static_assert(sizeof(Elf64_Ehdr) == kObjectHeaderBytes);
  if (file.size() < EI_NIDENT || std::memcmp(file.data(), ELFMAG, SELFMAG) != 0)
    return FailedPrecondition("the candidate is no ELF file");
  const auto elf_class = static_cast<unsigned char>(file[EI_CLASS]);
  if (elf_class != ELFCLASS64) {
    return FailedPrecondition("the candidate is {}, this device runs 64-bit code",
                              elf_class == ELFCLASS32 ? std::string("a 32-bit ELF file")
                                                      : fmt::format("of ELF class {}", elf_class));
  }
  if (file[EI_DATA] != ELFDATA2LSB)
    return FailedPrecondition("the candidate is big-endian, this device is little-endian");
  if (file.size() < sizeof(Elf64_Ehdr))
    return FailedPrecondition("the candidate is cut off within its {} bytes of header",
                              sizeof(Elf64_Ehdr));
  Elf64_Ehdr header;
  std::memcpy(&header, file.data(), sizeof header);
  const char* machine = MachineText(header.e_machine);
  if (machine == nullptr || machine != arch) {
    return FailedPrecondition(
        "the candidate is for {}, this device is {}",
        machine ? std::string(machine) : fmt::format("ELF machine {}", header.e_machine), arch);
  }
  if (header.e_type != ET_DYN)
    return FailedPrecondition("the candidate is an ELF file of type {}, no shared library",
                              header.e_type);
  return OkStatus();
}

}  // namespace whet::worker
