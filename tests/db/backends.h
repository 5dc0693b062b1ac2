// Tests of what every database behind the history does alike.
#pragma once

#include <cctype>
#include <string>

#include "tests/db/postgres_server.h"
#include "tests/db/testing.h"

namespace diapason {

enum class Backend { kSqlite, kPostgres };

// Path names a history of its own in the database of the parameter.
class BackendTest : public HistoryFolder, public ::testing::TestWithParam<Backend> {
 protected:
  std::string Path(const std::string& name) const override {
    if (GetParam() == Backend::kSqlite) return HistoryFolder::Path(name);
    std::string schema = "t";  // one for each folder and name, in lower-case letters and digits
    for (char c : folder_ + name) {
      const auto byte = static_cast<unsigned char>(c);
      if (std::islower(byte) != 0 || std::isdigit(byte) != 0) schema += c;
      if (std::isupper(byte) != 0) schema += std::string("0") + static_cast<char>(std::tolower(byte));
    }
    return PostgresServer::Get().Uri(schema);
  }
};

inline std::string BackendName(const ::testing::TestParamInfo<Backend>& info) {
  return info.param == Backend::kSqlite ? "Sqlite" : "Postgres";
}

#define DIAPASON_ON_EVERY_BACKEND(suite) \
  INSTANTIATE_TEST_SUITE_P(Every, suite, ::testing::Values(Backend::kSqlite, Backend::kPostgres), BackendName)

}  // namespace diapason
