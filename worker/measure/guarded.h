// Memory for running code that is not trusted to stay inside its buffers. Each buffer ends right
// before a page that cannot be touched (at most 63 bytes of slack keep its start aligned), and
// starts after one; the slack on both sides holds a pattern that is looked at afterwards. Owned by
// one thread; unmapped with the object.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace whet::worker {

inline constexpr unsigned char kCanary = 0xc3;

// Where a buffer lies within its pages.
struct GuardedPlace {
  uint64_t pages_bytes = 0;  // whole pages, guards excluded
  uint64_t offset = 0;       // of the buffer within them
};
GuardedPlace PlaceGuarded(uint64_t bytes);

// True when every byte of the slack around the buffer is still the canary.
bool SlackIntact(const char* pages, const GuardedPlace& place, uint64_t bytes);
void FillSlack(char* pages, const GuardedPlace& place, uint64_t bytes);

class GuardedMemory {
 public:
  GuardedMemory() = default;
  ~GuardedMemory();
  GuardedMemory(const GuardedMemory&) = delete;
  GuardedMemory& operator=(const GuardedMemory&) = delete;

  // Null when the system refuses the memory. The slack is filled; the buffer's bytes are zero, or
  // what `fd` has at `fd_offset` (shared), whose slack the caller fills.
  char* Add(uint64_t bytes, int fd = -1, uint64_t fd_offset = 0);
  bool MakeReadOnly(const char* buffer);
  // The first buffer whose slack was written to, as an index in the order of Add; -1: none.
  // Read-only ones cannot be.
  int FirstDamaged() const;

 private:
  struct Region {
    char* base;  // with guards
    uint64_t mapped;
    char* pages;
    GuardedPlace place;
    uint64_t bytes;
  };
  std::vector<Region> regions_;
};

}  // namespace whet::worker
