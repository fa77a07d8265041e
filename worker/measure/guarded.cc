#include "worker/measure/guarded.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>

#include "compiler/support/emulated.h"

namespace whet::worker {
namespace {

constexpr uint64_t kPage = 4096;
constexpr uint64_t kAlignment = 64;

uint64_t RoundUp(uint64_t v, uint64_t unit) { return (v + unit - 1) / unit * unit; }

}  // namespace

GuardedPlace PlaceGuarded(uint64_t bytes) {
  // qemu (7.2) touches all lanes of a masked AVX vector, which the processor does not: there, the
  // guard stands one vector further, and the canary alone sees what is written in between.
  static const uint64_t kBeyond = Emulated() ? kAlignment : 0;
  const uint64_t aligned = RoundUp(std::max<uint64_t>(bytes, 1), kAlignment) + kBeyond;
  GuardedPlace place;
  place.pages_bytes = RoundUp(aligned, kPage);
  place.offset = place.pages_bytes - aligned;
  return place;
}

void FillSlack(char* pages, const GuardedPlace& place, uint64_t bytes) {
  std::memset(pages, kCanary, place.offset);
  std::memset(pages + place.offset + bytes, kCanary, place.pages_bytes - place.offset - bytes);
}

bool SlackIntact(const char* pages, const GuardedPlace& place, uint64_t bytes) {
  auto intact = [](const char* p, uint64_t n) {
    return std::all_of(p, p + n, [](char c) { return static_cast<unsigned char>(c) == kCanary; });
  };
  return intact(pages, place.offset) &&
         intact(pages + place.offset + bytes, place.pages_bytes - place.offset - bytes);
}

GuardedMemory::~GuardedMemory() {
  for (const Region& r : regions_) munmap(r.base, r.mapped);
}

char* GuardedMemory::Add(uint64_t bytes, int fd, uint64_t fd_offset) {
  const GuardedPlace place = PlaceGuarded(bytes);
  const uint64_t mapped = place.pages_bytes + 2 * kPage;
  void* base = mmap(nullptr, mapped, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (base == MAP_FAILED) return nullptr;
  char* pages = static_cast<char*>(base) + kPage;
  void* got = MAP_FAILED;
  if (fd >= 0) {
    got = mmap(pages, place.pages_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd,
               static_cast<off_t>(fd_offset));
  } else {
    got = mmap(pages, place.pages_bytes, PROT_READ | PROT_WRITE,
               MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
  }
  if (got == MAP_FAILED) {
    munmap(base, mapped);
    return nullptr;
  }
  if (fd < 0) FillSlack(pages, place, bytes);
  regions_.push_back({static_cast<char*>(base), mapped, pages, place, bytes});
  return pages + place.offset;
}

bool GuardedMemory::MakeReadOnly(const char* buffer) {
  for (const Region& r : regions_) {
    if (r.pages + r.place.offset == buffer)
      return mprotect(r.pages, r.place.pages_bytes, PROT_READ) == 0;
  }
  return false;
}

int GuardedMemory::FirstDamaged() const {
  for (size_t i = 0; i < regions_.size(); ++i) {
    if (!SlackIntact(regions_[i].pages, regions_[i].place, regions_[i].bytes))
      return static_cast<int>(i);
  }
  return -1;
}

}  // namespace whet::worker
