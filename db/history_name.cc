#include "db/history_name.h"

#include <unistd.h>

#include <cstdlib>
#include <filesystem>

#include "db/postgres.h"
#include "db/text.h"

namespace diapason {
namespace {

std::filesystem::path StateFolder() {
  const char* state = std::getenv("XDG_STATE_HOME");
  if (state != nullptr && *state == '/') return state;
  if (const char* home = std::getenv("HOME"); home != nullptr && *home == '/')
    return std::filesystem::path(home) / ".local/state";
  std::error_code ignored;
  return std::filesystem::temp_directory_path(ignored) / ("diapason-state-" + std::to_string(geteuid()));
}

}  // namespace

bool IsPostgresUri(const std::string& history) {
  return history.rfind("postgresql://", 0) == 0 || history.rfind("postgres://", 0) == 0;
}

std::string HistoryName(const std::string& history) { return IsPostgresUri(history) ? PostgresName(history) : history; }

bool MayBeThere(const std::string& history) {
  std::error_code ignored;
  return !history.empty() && (IsPostgresUri(history) || std::filesystem::exists(history, ignored));
}

std::string StatePath(const std::string& history, const std::string& ending) {
  if (!IsPostgresUri(history)) return history + ending;
  const std::filesystem::path folder = StateFolder() / "diapason" / Hex64(Fnv1a(PostgresName(history)));
  std::error_code ignored;  // what cannot be made shows when a file in it is opened
  std::filesystem::create_directories(folder, ignored);
  std::filesystem::permissions(folder, std::filesystem::perms::owner_all, ignored);
  return (folder / ("history" + ending)).string();
}

}  // namespace diapason
