// libdiapason: tuning and building as a library. model.h describes models; compiler.h lists tasks and builds packages,
// tuner.h tunes, history.h reads measurements. Packages are run by a separate, smaller library (runtime.h).
//
//   diapason::api::BuildOptions options;
//   options.model.source = "resnet-18";
//   options.target = "cpu";
//   options.out = "package";
//   absl::StatusOr<diapason::api::BuildReport> built = diapason::api::Build(options);
//
// These headers need only C++20 and abseil (Debian's libabsl-dev). Errors are absl::Status whose message says what is
// wrong and how to fix it; messages name options as the command line does (`--dim`). Nothing throws. The ABI may change
// with each minor version (docs/library.md).
//
// Models are read, and candidates built and measured, in child processes, which run the `diapason` program of the same
// build (SetProgram).
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

namespace diapason::api {

// A network, and how it is read.
struct Model {
  std::string source;           // path of an .onnx file, or a built-in network ("resnet-18"; `diapason networks`)
  int64_t batch = 0;            // first extent of every input; 0: the model's, or 1 if it is symbolic
  std::string layout = "NHWC";  // layout of images inside the network; or "NCHW"
  // Type of weights and activations: "float32", "float16" or "bfloat16". On cuda also "tf32" (float32, with products
  // that may be rounded to TensorFloat-32, 10 bits of fraction; target "cuda -tf32") and "mixed" (as tf32, for tasks
  // whose result stays within `tolerance`; target "cuda -tf32=1e-3").
  std::string dtype = "float32";
  double tolerance = 0;  // largest relative error of a task's result for "mixed"; 0: 1e-3
  std::map<std::string, std::vector<int64_t>> input_shapes;  // by input; needed only where they differ from the model's
  // Sizes of symbolic dimensions: "batch=1,4", "seq=16..128". Each combination of sizes becomes a plan.
  std::vector<std::string> dims;
  std::string mask;  // input that is 1 at real positions of a sequence and 0 at padded ones
  // Reject models that contain float64 (otherwise computed in float32, with a warning) or have a newer ONNX opset than
  // the known ones (otherwise read as the newest known one, with a warning).
  bool strict = false;
  std::map<std::string, std::string> options;  // of built-in networks: {"image", "64"}
  double import_memory_gib = 0;                // memory limit of the process that reads it; 0: half of the host's
  double import_seconds = 300;                 // its time limit
};

// Callbacks of long-running calls.
struct Hooks {
  // Called with each warning, on the thread of the call or the tuning thread. May be empty.
  std::function<void(const std::string&)> warn;
  const std::atomic<bool>* stop = nullptr;  // unless null: the call returns early once it is true
};

// The address of a tracker or a service (docs/fleet.md), and the credentials for it.
struct Endpoint {
  std::string address;                    // HOST:PORT; of several, separated by commas, the one that answers is used
  std::string token_file;                 // file with the token to present; empty: none
  std::string tls_cert, tls_key, tls_ca;  // PEM files for mutual TLS: all or none
  bool allow_no_role = false;             // accept certificates without a role
  bool insecure = false;                  // allow unencrypted connections with other hosts
};

// An option of a built-in network, for Model::options.
struct NetworkOption {
  std::string name, fallback, help;  // `fallback`: the default value
};
struct BuiltinNetwork {
  std::string name, help;
  std::vector<NetworkOption> options;
};
std::vector<BuiltinNetwork> Networks();

// Sizes of symbolic dimensions as text: "batch=1 seq=16".
std::string SizesText(const std::map<std::string, int64_t>& sizes);

// Sets the path of the `diapason` program that child processes run. Call it before any other function. The default is
// bin/diapason in a parent folder of the installed library or, if there is none, the executable of this process.
void SetProgram(const std::string& path);

// "0.1.0".
const char* Version();

}  // namespace diapason::api
