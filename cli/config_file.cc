#include "cli/config_file.h"

#include <algorithm>
#include <cstring>
#include <utility>

// Its functions are in a library, made with exceptions; the headers alone would compile them here.
#define TOML_HEADER_ONLY 0
#define TOML_SHARED_LIB 1
#include <toml++/toml.h>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/read_file.h"

namespace diapason {
namespace {

int LineOf(const toml::node& node) { return static_cast<int>(node.source().begin.line); }

absl::Status Wrong(const std::string& path, int line, const std::string& what) {
  return absl::InvalidArgumentError(absl::StrCat(path, ", line ", line, ": ", what));
}

absl::Status CollectSettings(const toml::table& table, const std::vector<std::string>& command, ConfigFile& file) {
  for (const auto& [name, node] : table) {
    const std::string key(name.str());
    if (const toml::table* section = node.as_table()) {
      std::vector<std::string> below = command;
      below.push_back(key);
      RETURN_IF_ERROR(CollectSettings(*section, below, file));
      continue;
    }
    ConfigFile::Entry entry{command, key, "", LineOf(node)};
    if (const auto* text = node.as_string()) {
      entry.value = text->get();
    } else if (const auto* whole = node.as_integer()) {
      entry.value = absl::StrCat(whole->get());
    } else if (const auto* number = node.as_floating_point()) {
      entry.value = absl::StrCat(number->get());
    } else {
      return Wrong(file.path, entry.line,
                   node.is_boolean() ? absl::StrCat("'", key, "' is a switch, and switches can only be typed")
                                     : absl::StrCat("the value of '", key, "' is neither text in quotes nor a number"));
    }
    file.entries.push_back(std::move(entry));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<ConfigFile> ReadConfigFile(const std::string& path) {
  const absl::StatusOr<std::string> text = ReadWholeFile(path);
  if (!text.ok())
    return absl::NotFoundError(absl::StrCat("the configuration file ", path, " cannot be read (",
                                            text.status().message(), "); name another with --config"));
  toml::table parsed;
  try {
    parsed = toml::parse(*text);
  } catch (const toml::parse_error& error) {
    return Wrong(path, static_cast<int>(error.source().begin.line),
                 absl::StrCat("this is no TOML (", std::string(error.description()),
                              "); write lines as in tracker = \"10.0.0.1:9190\""));
  }
  ConfigFile read;
  read.path = path;
  RETURN_IF_ERROR(CollectSettings(parsed, {}, read));
  std::stable_sort(read.entries.begin(), read.entries.end(),
                   [](const auto& a, const auto& b) { return a.line < b.line; });
  return read;
}

}  // namespace diapason
