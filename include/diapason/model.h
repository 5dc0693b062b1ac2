// libdiapason: tuning and building as a library. model.h says what is tuned and built; compiler.h lists tasks and
// builds packages, tuner.h tunes, history.h reads what was measured. Running packages is a library of its own
// (runtime.h).
//
//   diapason::api::BuildOptions options;
//   options.model.source = "resnet-18";
//   options.target = "cpu";
//   options.out = "package";
//   absl::StatusOr<diapason::api::BuildReport> built = diapason::api::Build(options);
//
// These headers need C++20 and abseil (Debian's libabsl-dev) and nothing else. Errors are absl::Status with one
// sentence that says what is wrong and how to fix it; it names options as the command line does (`--dim`). Nothing
// throws. The ABI is that of one minor version (docs/library.md).
//
// Models are read, and candidates built and measured, by processes of their own: the `diapason` program of the same
// build, which is started for them (SetProgram).
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
  std::string source;           // an .onnx file, or a built-in network ("resnet-18", `diapason networks`)
  int64_t batch = 0;            // first extent of every input; 0: the model's, 1 where it is open
  std::string layout = "NHWC";  // of images inside the network; or "NCHW"
  // "float16" or "bfloat16": of weights and activations as well. On cuda also "tf32": float32, whose products may be
  // single ones of TensorFloat-32 (10 bits of fraction; target "cuda -tf32"), and "mixed": the same for each task whose
  // result stays within `tolerance` with them (target "cuda -tf32=1e-3").
  std::string dtype = "float32";
  double tolerance = 0;                                      // "mixed": error relative to a task's result; 0: 1e-3
  std::map<std::string, std::vector<int64_t>> input_shapes;  // by input, where they differ from the model's
  std::vector<std::string>
      dims;             // sizes of symbolic dimensions: "batch=1,4", "seq=16..128"; each combination is a plan
  std::string mask;     // input that is 1 where a sequence is real and 0 where it is padding
  bool strict = false;  // refuse tensors of type float64 instead of computing them in float32 with a warning
  std::map<std::string, std::string> options;  // of built-in networks: {"image", "64"}
  double import_memory_gib = 0;                // limit of memory while it is read; 0: half of the host's
  double import_seconds = 300;                 // limit of time while it is read
};

// Callbacks of calls that take long.
struct Hooks {
  // Gets each warning, one sentence, from the thread of the call or the one that tunes. May be empty.
  std::function<void(const std::string&)> warn;
  const std::atomic<bool>* stop = nullptr;  // unless null: the call ends early once it is true
};

// A tracker or a service (docs/fleet.md), and how it is connected to.
struct Endpoint {
  std::string address;                    // HOST:PORT; several with commas between them: the one that answers
  std::string token_file;                 // with the token to show; empty: none
  std::string tls_cert, tls_key, tls_ca;  // PEM files for mutual TLS: all or none
  bool allow_no_role = false;             // accept certificates without a role
  bool insecure = false;                  // allow plain text beyond this host
};

// A built-in network, and its options, as Model::options takes them.
struct NetworkOption {
  std::string name, fallback, help;  // `fallback`: its value where none is given
};
struct BuiltinNetwork {
  std::string name, help;
  std::vector<NetworkOption> options;
};
std::vector<BuiltinNetwork> Networks();

// "batch=1 seq=16", for people: sizes of symbolic dimensions.
std::string SizesText(const std::map<std::string, int64_t>& sizes);

// Says where the `diapason` program of this build is, from which processes are started. To be called before any other
// function. By default it is bin/diapason in a folder above that of the installed library; where there is none, the
// file of this process.
void SetProgram(const std::string& path);

// "0.1.0".
const char* Version();

}  // namespace diapason::api
