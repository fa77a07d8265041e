// Writes an ELF relocatable by hand: one section with bytes and one symbol. Weights of any size go
// from memory to the linker without passing through LLVM's constant arrays.
#include <elf.h>

#include <cstring>

#include "compiler/codegen/codegen.h"

namespace whet::codegen {

std::string DataObject(const std::string& symbol, const std::string& bytes, const Target& target) {
  // Sections: null, .rodata, .symtab, .strtab, .shstrtab, .note.GNU-stack
  static constexpr char kNames[] = "\0.rodata.whet\0.symtab\0.strtab\0.shstrtab\0.note.GNU-stack";
  const std::string shstr(kNames, sizeof kNames);
  const std::string strtab = std::string(1, '\0') + symbol + std::string(1, '\0');
  Elf64_Sym syms[2] = {};
  syms[1].st_name = 1;
  syms[1].st_info = ELF64_ST_INFO(STB_GLOBAL, STT_OBJECT);
  syms[1].st_other = STV_HIDDEN;
  syms[1].st_shndx = 1;
  syms[1].st_size = bytes.size();

  std::string out(sizeof(Elf64_Ehdr), '\0');
  auto append = [&](const void* p, size_t n, size_t align) {
    out.resize((out.size() + align - 1) / align * align, '\0');
    const size_t at = out.size();
    out.append(static_cast<const char*>(p), n);
    return at;
  };
  Elf64_Shdr sections[6] = {};
  auto section = [&](int i, const char* name, uint32_t type, uint64_t flags, const void* p,
                     size_t n, uint64_t align) {
    sections[i].sh_name = static_cast<uint32_t>(shstr.find(name));
    sections[i].sh_type = type;
    sections[i].sh_flags = flags;
    sections[i].sh_offset = append(p, n, align);
    sections[i].sh_size = n;
    sections[i].sh_addralign = align;
  };
  section(1, ".rodata.whet", SHT_PROGBITS, SHF_ALLOC, bytes.data(), bytes.size(), 64);
  section(2, ".symtab", SHT_SYMTAB, 0, syms, sizeof syms, 8);
  sections[2].sh_link = 3;
  sections[2].sh_info = 1;  // first global symbol
  sections[2].sh_entsize = sizeof(Elf64_Sym);
  section(3, ".strtab", SHT_STRTAB, 0, strtab.data(), strtab.size(), 1);
  section(4, ".shstrtab", SHT_STRTAB, 0, shstr.data(), shstr.size(), 1);
  section(5, ".note.GNU-stack", SHT_PROGBITS, 0, "", 0, 1);
  const size_t table = append(sections, sizeof sections, 8);

  Elf64_Ehdr header = {};
  std::memcpy(header.e_ident, ELFMAG, SELFMAG);
  header.e_ident[EI_CLASS] = ELFCLASS64;
  header.e_ident[EI_DATA] = ELFDATA2LSB;
  header.e_ident[EI_VERSION] = EV_CURRENT;
  header.e_type = ET_REL;
  header.e_machine = target.arch == "aarch64" ? EM_AARCH64 : EM_X86_64;
  header.e_version = EV_CURRENT;
  header.e_shoff = table;
  header.e_ehsize = sizeof(Elf64_Ehdr);
  header.e_shentsize = sizeof(Elf64_Shdr);
  header.e_shnum = 6;
  header.e_shstrndx = 4;
  std::memcpy(out.data(), &header, sizeof header);
  return out;
}

}  // namespace whet::codegen
