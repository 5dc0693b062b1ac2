// The jobs of a coordinator service on disk: what it resumes after a restart, planned or not.
//
// One SQLite file (H.db.jobs) with a table `jobs`: id, key (unique), the Job of tuning.proto. Models lie beside it in
// the folder H.db.models (service/model_store.h). A change that Put has returned OK for survives the
// death of the process and a power cut. Fields are only added to Job: the list of an older program is read without the
// newer ones, and an older program keeps those that it does not know.
//
// Services whose history is in PostgreSQL keep the same table there (db/service_tables.h).
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace diapason {

class Database;
namespace v1 {
class Job;
}

// One thread at a time.
class JobStore {
 public:
  // Makes the file when there is none. FailedPrecondition: another file, or of another version. Unavailable: another
  // service has it.
  static absl::StatusOr<std::unique_ptr<JobStore>> Open(const std::string& path);
  // In the tables of a service. REQUIRES: `db` is OpenServiceTables'.
  static std::unique_ptr<JobStore> OpenShared(std::unique_ptr<Database> db);
  ~JobStore();

  // All jobs, by id.
  absl::StatusOr<std::vector<v1::Job>> Load();
  // Gives `job` an id when it has none, and writes it. Unavailable: the database cannot be reached for now.
  absl::Status Put(v1::Job& job);
  // OK for an id that is not there. The id is not given again.
  absl::Status Erase(int64_t id);

 private:
  JobStore(std::unique_ptr<Database> db, const std::string& prefix);

  const std::string table_;
  std::unique_ptr<Database> db_;
};

}  // namespace diapason
