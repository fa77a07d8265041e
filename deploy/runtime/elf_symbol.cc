#include "deploy/runtime/elf_symbol.h"

#include <elf.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string_view>
#include <vector>

#include "deploy/runtime/whet_artifact.h"

namespace whet {
namespace {

#if defined(__x86_64__)
constexpr int kMachine = EM_X86_64;
#else
constexpr int kMachine = EM_AARCH64;
#endif
constexpr uint64_t kMaxTableBytes =
    16 << 20;  // an artifact exports one symbol; a foreign library may export many

const char* MachineName(int machine) {
  switch (machine) {
    case EM_X86_64: return "x86_64";
    case EM_AARCH64: return "aarch64";
    case EM_ARM: return "arm";
    case EM_386: return "i386";
    case EM_RISCV: return "riscv";
    default: return "another architecture";
  }
}

// Opening does not wait for the other end of a pipe, which is then refused.
class File {
 public:
  explicit File(const std::string& path)
      : fd_(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)) {}
  ~File() {
    if (fd_ >= 0) close(fd_);
  }
  File(const File&) = delete;
  File& operator=(const File&) = delete;

  int fd() const { return fd_; }

  template <typename T>  // false when the range is not wholly inside the file
  bool Read(uint64_t offset, uint64_t count, std::vector<T>* out) const {
    struct stat st;
    if (fstat(fd_, &st) != 0) return false;
    const auto size = static_cast<uint64_t>(st.st_size);
    if (count > kMaxTableBytes / sizeof(T) || offset > size || count * sizeof(T) > size - offset)
      return false;
    out->resize(count);
    return pread(fd_, out->data(), count * sizeof(T), static_cast<off_t>(offset)) ==
           static_cast<ssize_t>(count * sizeof(T));
  }

 private:
  int fd_;
};

bool IsDescriptorName(std::string_view name) {
  const std::string_view prefix = WHET_SYMBOL_PREFIX, suffix = WHET_SYMBOL_SUFFIX;
  return name.size() > prefix.size() + suffix.size() && name.substr(0, prefix.size()) == prefix &&
         name.substr(name.size() - suffix.size()) == suffix;
}

std::string CheckHeader(const std::vector<Elf64_Ehdr>& header, bool read) {
  if (!read || std::memcmp(header[0].e_ident, ELFMAG, SELFMAG) != 0)
    return "it is not an ELF shared library";
  if (header[0].e_ident[EI_CLASS] != ELFCLASS64) return "it is a 32-bit ELF file";
  if (header[0].e_machine != kMachine) {
    return std::string("it is for ") + MachineName(header[0].e_machine) + ", this machine is " +
           MachineName(kMachine);
  }
  if (header[0].e_type != ET_DYN) return "it is an ELF file but not a shared library";
  return "";
}

}  // namespace

std::string FindDescriptorSymbol(const std::string& path, std::string* error) {
  const File file(path);
  struct stat st;
  if (file.fd() < 0 || fstat(file.fd(), &st) != 0) {
    *error = "cannot open '" + path + "': " + std::strerror(errno);
    return "";
  }
  auto refuse = [&](const std::string& why) {
    *error = "'" + path + "' is not a whet artifact: " + why;
    return std::string();
  };
  if (!S_ISREG(st.st_mode))
    return refuse(S_ISDIR(st.st_mode) ? "it is a folder" : "it is not a regular file");
  if (st.st_size == 0) return refuse("it is empty");
  std::vector<Elf64_Ehdr> header;
  const bool read = file.Read(0, 1, &header);
  if (std::string why = CheckHeader(header, read); !why.empty()) return refuse(why);
  std::vector<Elf64_Shdr> sections;
  if (header[0].e_shnum == 0 || header[0].e_shentsize != sizeof(Elf64_Shdr) ||
      !file.Read(header[0].e_shoff, header[0].e_shnum, &sections)) {
    return refuse("its section table is damaged or cut off");
  }
  std::vector<std::string> found;
  for (const Elf64_Shdr& s : sections) {
    if (s.sh_type != SHT_DYNSYM) continue;
    std::vector<Elf64_Sym> symbols;
    std::vector<char> strings;
    if (s.sh_link >= sections.size() ||
        !file.Read(s.sh_offset, s.sh_size / sizeof(Elf64_Sym), &symbols) ||
        !file.Read(sections[s.sh_link].sh_offset, sections[s.sh_link].sh_size, &strings) ||
        strings.empty() || strings.back() != '\0') {
      return refuse("its symbol table is damaged or cut off");
    }
    for (const Elf64_Sym& symbol : symbols) {
      if (symbol.st_shndx == SHN_UNDEF || symbol.st_name >= strings.size()) continue;
      if (const char* name = strings.data() + symbol.st_name; IsDescriptorName(name))
        found.emplace_back(name);
    }
  }
  if (found.empty()) return refuse("it exports no whet_model_<name>_v1 function");
  if (found.size() > 1) return refuse("it exports both " + found[0] + " and " + found[1]);
  return found[0];
}

}  // namespace whet
