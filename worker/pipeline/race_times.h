// Times to race against: the best of each workload, by what is compared.
#pragma once

#include <map>
#include <optional>
#include <string>

#include "worker/pipeline/job.h"

namespace diapason::pipeline {

class RaceTimes {
 public:
  // `model`: of the job's device: candidates on devices of one model are compared with the best of all of them.
  void Note(const Job& job, const std::string& model);
  // The best that is known here, or to who asks; nothing where none is.
  std::optional<double> BestFor(const Job& job, const std::string& model) const;

 private:
  std::map<std::string, double> best_;
};

}  // namespace diapason::pipeline
