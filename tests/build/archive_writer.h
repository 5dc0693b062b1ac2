// Zip archives with any fields, right or wrong, for tests of compiler/build/package_archive.h.
#pragma once

#include <zlib.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace diapason {

struct ZipEntry {
  std::string name, contents;
  uint16_t method = 0, flags = 0;
  // As the lists say it; nothing: as it is.
  std::optional<uint32_t> bytes{}, compressed_bytes{}, offset{}, crc{};
};

class ZipText {
 public:
  void Number(uint32_t value, int bytes) {
    for (int i = 0; i < bytes; ++i) text_ += static_cast<char>(value >> (8 * i));
  }
  void Text(const std::string& text) { text_ += text; }
  uint32_t size() const { return static_cast<uint32_t>(text_.size()); }
  const std::string& text() const { return text_; }

 private:
  std::string text_;
};

// The fields that local and central headers have in common, from the needed version on.
inline void WriteFields(ZipText& zip, const ZipEntry& entry) {
  const auto size = static_cast<uint32_t>(entry.contents.size());
  const auto* bytes = reinterpret_cast<const Bytef*>(entry.contents.data());
  zip.Number(20, 2);
  zip.Number(entry.flags, 2);
  zip.Number(entry.method, 2);
  zip.Number(0, 4);
  zip.Number(entry.crc.value_or(static_cast<uint32_t>(crc32(0, bytes, size))), 4);
  zip.Number(entry.compressed_bytes.value_or(entry.bytes.value_or(size)), 4);
  zip.Number(entry.bytes.value_or(size), 4);
  zip.Number(static_cast<uint32_t>(entry.name.size()), 2);
  zip.Number(0, 2);
}

inline std::string WriteZip(const std::vector<ZipEntry>& entries) {
  ZipText zip;
  std::vector<uint32_t> offsets;
  for (const ZipEntry& entry : entries) {
    offsets.push_back(zip.size());
    zip.Number(0x04034b50, 4);
    WriteFields(zip, entry);
    zip.Text(entry.name);
    zip.Text(entry.contents);
  }
  const uint32_t directory = zip.size();
  for (size_t i = 0; i < entries.size(); ++i) {
    zip.Number(0x02014b50, 4);
    zip.Number(20, 2);
    WriteFields(zip, entries[i]);
    zip.Number(0, 2);
    zip.Number(0, 4);
    zip.Number(0, 4);
    zip.Number(entries[i].offset.value_or(offsets[i]), 4);
    zip.Text(entries[i].name);
  }
  const uint32_t end = zip.size();
  zip.Number(0x06054b50, 4);
  zip.Number(0, 4);
  zip.Number(static_cast<uint32_t>(entries.size()), 2);
  zip.Number(static_cast<uint32_t>(entries.size()), 2);
  zip.Number(end - directory, 4);
  zip.Number(directory, 4);
  zip.Number(0, 2);
  return zip.text();
}

}  // namespace diapason
