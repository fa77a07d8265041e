// The opt-in copy of a model's constants in huge pages.
#include <sys/mman.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>

#include "deploy/runtime/model.h"

namespace whet {
namespace {

constexpr uint64_t kHugePage = uint64_t{2} << 20;

// Bytes of the mapping from `begin` on that the system put into huge pages; -1: it does not say.
int64_t HugeBytesAt(const char* begin) {
  std::ifstream in("/proc/self/smaps");
  bool here = false;
  for (std::string line; std::getline(in, line);) {
    unsigned long long from = 0, to = 0, kilobytes = 0;
    if (std::sscanf(line.c_str(), "%llx-%llx ", &from, &to) == 2) {
      here = from <= reinterpret_cast<uintptr_t>(begin) && reinterpret_cast<uintptr_t>(begin) < to;
    } else if (here && std::sscanf(line.c_str(), "AnonHugePages: %llu kB", &kilobytes) == 1) {
      return static_cast<int64_t>(kilobytes) * 1024;
    }
  }
  return -1;
}

// A huge page that is not full is given to none.
Memory Map(uint64_t bytes, std::string* why_not) {
  std::string setting;
  std::getline(std::ifstream("/sys/kernel/mm/transparent_hugepage/enabled"), setting);
  if (setting.empty() || setting.find("[never]") != std::string::npos) {
    *why_not = setting.empty() ? "the system has no transparent huge pages"
                               : "transparent huge pages are off "
                                 "(/sys/kernel/mm/transparent_hugepage/enabled is 'never')";
    return nullptr;
  }
  void* p = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (p == MAP_FAILED) {
    *why_not = "the system refused " + std::to_string(bytes) + " bytes of memory";
    return nullptr;
  }
  Memory memory(static_cast<char*>(p), FreeMemory{bytes});
  if (madvise(p, bytes, MADV_HUGEPAGE) != 0) {
    *why_not = std::string("the system refused huge pages: ") + std::strerror(errno);
    return nullptr;
  }
  return memory;
}

}  // namespace

void FreeMemory::operator()(void* p) const {
  if (mapped_bytes > 0) {
    munmap(p, mapped_bytes);
  } else {
    std::free(p);
  }
}

// Only what this build reads: a library may hold the weights of others too.
void Model::CopyToHugePages() {
  std::vector<Model*> sets = {this};
  for (const auto& v : variants_) sets.push_back(const_cast<Model*>(v.get()));
  std::map<std::pair<uint64_t, uint64_t>, uint64_t> places;  // (offset, bytes) -> new offset
  uint64_t bytes = 0;
  for (const Model* set : sets) {
    for (const whet_tensor& t : set->tensors_) {
      if (t.storage != WHET_CONSTANT || !places.try_emplace({t.offset, t.bytes}, bytes).second)
        continue;
      bytes += (t.bytes + WHET_ALIGNMENT - 1) / WHET_ALIGNMENT * WHET_ALIGNMENT;
    }
  }
  if (bytes < kHugePage) {
    huge_pages_note_ = "the weights do not fill a huge page; they stay where they are";
    return;
  }
  // Where the kernel puts a mapping is not aligned, before it is asked for more than one needs.
  const uint64_t whole = (bytes + kHugePage - 1) / kHugePage * kHugePage;
  std::string why_not;
  Memory memory = Map(whole + kHugePage, &why_not);
  if (!memory) {
    huge_pages_note_ = why_not + "; the weights stay where they are";
    return;
  }
  const auto address = reinterpret_cast<uintptr_t>(memory.get());
  char* const begin = memory.get() + ((kHugePage - address % kHugePage) % kHugePage);
  const char* const from = static_cast<const char*>(desc_.constants);
  for (const auto& [place, at] : places) std::memcpy(begin + at, from + place.first, place.second);
  mprotect(begin, whole, PROT_READ);
  const int64_t huge = HugeBytesAt(begin);
  if (huge >= 0 && static_cast<uint64_t>(huge) < whole)
    huge_pages_note_ = "the system put " + std::to_string(huge) + " of " + std::to_string(whole) +
                       " bytes of weights into huge pages";
  huge_ = std::make_shared<Memory>(std::move(memory));
  for (Model* set : sets) {
    for (whet_tensor& t : set->tensors_) {
      if (t.storage == WHET_CONSTANT) t.offset = places.at({t.offset, t.bytes});
    }
    set->desc_.constants = begin;
    set->desc_.constants_bytes = bytes;
    set->huge_ = huge_;
  }
}

int64_t Model::shared_bytes() const {
  int64_t bytes = huge_ ? static_cast<int64_t>(desc_.constants_bytes) : 0;
  std::vector<const Model*> sets = {this};
  for (const auto& v : variants_) sets.push_back(v.get());
  for (const Model* set : sets) {
    const std::lock_guard lock(set->packed_mutex_);
    if (set->packed_) bytes += static_cast<int64_t>(set->desc_.packed_bytes);
  }
  return bytes;
}

}  // namespace whet
