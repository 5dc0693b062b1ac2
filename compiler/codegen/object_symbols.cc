#include "compiler/codegen/object_symbols.h"

#include <elf.h>

#include <cstdint>
#include <cstring>
#include <optional>
#include <vector>

namespace diapason {
namespace {

// A structure at an offset, if it lies in the object.
template <typename T>
std::optional<T> At(const std::string& object, uint64_t offset) {
  if (offset > object.size() || object.size() - offset < sizeof(T)) return std::nullopt;
  T value;
  std::memcpy(&value, object.data() + offset, sizeof(T));
  return value;
}

const std::set<std::string> kUnknown = {""};

// The text at an offset of a table of strings, up to its zero.
std::string TextAt(const std::string& object, const Elf64_Shdr& table, uint64_t offset) {
  if (offset >= table.sh_size || table.sh_offset > object.size() || object.size() - table.sh_offset < table.sh_size)
    return "";
  const char* const begin = object.data() + table.sh_offset + offset;
  return std::string(begin, strnlen(begin, table.sh_size - offset));
}

}  // namespace

std::set<std::string> UndefinedSymbols(const std::string& object) {
  const std::optional<Elf64_Ehdr> header = At<Elf64_Ehdr>(object, 0);
  if (!header || object.compare(0, SELFMAG, ELFMAG) != 0 || header->e_ident[EI_CLASS] != ELFCLASS64 ||
      header->e_shentsize != sizeof(Elf64_Shdr))
    return kUnknown;
  std::vector<Elf64_Shdr> sections;
  for (uint64_t i = 0; i < header->e_shnum; ++i) {
    const auto section = At<Elf64_Shdr>(object, header->e_shoff + i * sizeof(Elf64_Shdr));
    if (!section) return kUnknown;
    sections.push_back(*section);
  }
  std::set<std::string> names;
  for (const Elf64_Shdr& table : sections) {
    if (table.sh_type != SHT_SYMTAB) continue;
    if (table.sh_link >= sections.size()) return kUnknown;
    for (uint64_t i = 1; i < table.sh_size / sizeof(Elf64_Sym); ++i) {  // the first is none
      const auto symbol = At<Elf64_Sym>(object, table.sh_offset + i * sizeof(Elf64_Sym));
      if (!symbol) return kUnknown;
      if (symbol->st_shndx == SHN_UNDEF) names.insert(TextAt(object, sections[table.sh_link], symbol->st_name));
    }
  }
  names.erase("_GLOBAL_OFFSET_TABLE_");
  return names;
}

}  // namespace diapason
