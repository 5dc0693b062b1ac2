// The flags of workers that a command starts through the engine of a cluster (diapason/launch.h).
#pragma once

#include <string>

#include "diapason/launch.h"

namespace CLI {  // NOLINT(readability-identifier-naming): CLI11's
class App;
}

namespace diapason {

struct LaunchFlags {
  api::LaunchRequest request;  // without these, which are words with blanks between them:
  std::string worker_args, slurm_args;
  bool given() const { return request.given(); }
};

void AddLaunchFlags(CLI::App* command, LaunchFlags* flags);

api::LaunchRequest LaunchRequestOf(const LaunchFlags& flags);

}  // namespace diapason
