// Calls of vendors' libraries as a device makes them. The libraries are opened with dlopen when the first call of them
// is prepared; no header of theirs is needed to build.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "compiler/tensor/library_call.h"
#include "compiler/tensor/target.h"

namespace diapason {

// A call with all that can be set up before its tensors are known. Must not outlive the LibraryCalls that made it.
class PreparedCall {
 public:
  virtual ~PreparedCall() = default;
  // Memory that the call wants beside its operands.
  virtual int64_t workspace_bytes() const = 0;
  // Puts the call into the stream (cuda), or makes it (host). `operands` in order of LibraryCall::Operands.
  virtual absl::Status Enqueue(absl::Span<void* const> operands, void* workspace) = 0;
};

// The libraries on one stream of one device. One thread at a time, with the device's context selected. An interface, so
// that tests put a library on the host in place of one on a GPU.
class LibraryCalls {
 public:
  virtual ~LibraryCalls() = default;
  // Unavailable without the library (what is missing, and how to fix it); FailedPrecondition when the library does not
  // do what the call asks for, the algorithm for instance; ResourceExhausted when memory is out.
  virtual absl::StatusOr<std::shared_ptr<PreparedCall>> Prepare(const LibraryCall& call) = 0;
};

// Makes calls by cuDNN and cuBLAS on a CUDA stream. Prepared calls are kept: a second Prepare of an equal call gives
// the same one.
std::unique_ptr<LibraryCalls> MakeCudaLibraryCalls(void* stream);

// Whether the library can be opened here: Unavailable says what is missing and how to fix it. Opens it and keeps it
// open.
absl::Status CheckLibrary(Library library);

// The libraries that a target names, in order of their numbers.
std::vector<Library> LibrariesOf(const Target& target);

// Where a library file may lie, in the order in which it is looked for: wherever the loader finds it (LD_LIBRARY_PATH,
// ldconfig); lib64 and lib of $CUDA_HOME, $CUDA_PATH and /usr/local/cuda; the folders nvidia/*/lib of Python packages
// under $VIRTUAL_ENV, $CONDA_PREFIX, $HOME/.local, /usr/local and /usr. `variable` gives the value of an environment
// variable, or null. Folders are looked at: only files that exist are returned, beside the bare name.
std::vector<std::string> LibraryPaths(const std::string& file, const char* (*variable)(const char* name));

}  // namespace diapason
