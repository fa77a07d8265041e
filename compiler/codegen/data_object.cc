// Writes an ELF relocatable by hand: one section with bytes and one symbol. Weights of any size go
// from memory to the linker without passing through LLVM's constant arrays.
#include <elf.h>

#include <cerrno>
#include <cstring>

#include "compiler/codegen/codegen.h"

namespace whet::codegen {
namespace {

constexpr size_t kAlignment = 64;  // of the section, and of each piece in it
static_assert(sizeof(Elf64_Ehdr) % kAlignment == 0);

}  // namespace

DataObject::DataObject(std::string path, std::string symbol, const Target& target)
    : path_(std::move(path)),
      symbol_(std::move(symbol)),
      machine_(target.arch == "aarch64" ? EM_AARCH64 : EM_X86_64),
      out_(path_, std::ios::binary) {
  // The header is known at the end; the section follows it.
  const Elf64_Ehdr later = {};
  out_.write(reinterpret_cast<const char*>(&later), sizeof later);
}

int64_t DataObject::Append(std::string_view bytes) {
  static constexpr char kZeros[kAlignment] = {};
  const int64_t at = size_;
  out_.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  const size_t tail = bytes.size() % kAlignment;
  if (tail > 0) out_.write(kZeros, static_cast<std::streamsize>(kAlignment - tail));
  size_ += static_cast<int64_t>((bytes.size() + kAlignment - 1) / kAlignment * kAlignment);
  return at;
}

Status DataObject::Finish() {
  // Sections: null, .rodata, .symtab, .strtab, .shstrtab, .note.GNU-stack
  static constexpr char kNames[] = "\0.rodata.whet\0.symtab\0.strtab\0.shstrtab\0.note.GNU-stack";
  const std::string shstr(kNames, sizeof kNames);
  const std::string strtab = std::string(1, '\0') + symbol_ + std::string(1, '\0');
  Elf64_Sym syms[2] = {};
  syms[1].st_name = 1;
  syms[1].st_info = ELF64_ST_INFO(STB_GLOBAL, STT_OBJECT);
  syms[1].st_other = STV_HIDDEN;
  syms[1].st_shndx = 1;
  syms[1].st_size = static_cast<uint64_t>(size_);

  // What follows the section, which ends at `begin`.
  const size_t begin = sizeof(Elf64_Ehdr) + static_cast<size_t>(size_);
  std::string tail;
  auto append = [&](const void* p, size_t n, size_t align) {
    tail.resize((tail.size() + align - 1) / align * align, '\0');
    const size_t at = begin + tail.size();
    tail.append(static_cast<const char*>(p), n);
    return at;
  };
  Elf64_Shdr sections[6] = {};
  auto describe = [&](int i, const char* name, uint32_t type, uint64_t flags, size_t at, size_t n,
                      uint64_t align) {
    sections[i].sh_name = static_cast<uint32_t>(shstr.find(name));
    sections[i].sh_type = type;
    sections[i].sh_flags = flags;
    sections[i].sh_offset = at;
    sections[i].sh_size = n;
    sections[i].sh_addralign = align;
  };
  describe(1, ".rodata.whet", SHT_PROGBITS, SHF_ALLOC, sizeof(Elf64_Ehdr),
           static_cast<size_t>(size_), kAlignment);
  describe(2, ".symtab", SHT_SYMTAB, 0, append(syms, sizeof syms, 8), sizeof syms, 8);
  sections[2].sh_link = 3;
  sections[2].sh_info = 1;  // first global symbol
  sections[2].sh_entsize = sizeof(Elf64_Sym);
  describe(3, ".strtab", SHT_STRTAB, 0, append(strtab.data(), strtab.size(), 1), strtab.size(), 1);
  describe(4, ".shstrtab", SHT_STRTAB, 0, append(shstr.data(), shstr.size(), 1), shstr.size(), 1);
  describe(5, ".note.GNU-stack", SHT_PROGBITS, 0, append("", 0, 1), 0, 1);
  const size_t table = append(sections, sizeof sections, 8);

  Elf64_Ehdr header = {};
  std::memcpy(header.e_ident, ELFMAG, SELFMAG);
  header.e_ident[EI_CLASS] = ELFCLASS64;
  header.e_ident[EI_DATA] = ELFDATA2LSB;
  header.e_ident[EI_VERSION] = EV_CURRENT;
  header.e_type = ET_REL;
  header.e_machine = machine_;
  header.e_version = EV_CURRENT;
  header.e_shoff = table;
  header.e_ehsize = sizeof(Elf64_Ehdr);
  header.e_shentsize = sizeof(Elf64_Shdr);
  header.e_shnum = 6;
  header.e_shstrndx = 4;
  out_.write(tail.data(), static_cast<std::streamsize>(tail.size()));
  out_.seekp(0);
  out_.write(reinterpret_cast<const char*>(&header), sizeof header);
  out_.close();
  return out_ ? OkStatus() : Unavailable("cannot write '{}': {}", path_, std::strerror(errno));
}

}  // namespace whet::codegen
