// Opening the files of vendors' libraries, for cudnn_library.cc and cublas_library.cc.
#pragma once

#include <memory>
#include <string>

#include "compiler/runtime/dynamic_library.h"
#include "compiler/tensor/library_call.h"

namespace diapason {

struct OpenedLibrary {
  Library library = Library::kCudnn;
  std::unique_ptr<DynamicLibrary> file;  // null: not found, or it does not open
  std::string problem;                   // one sentence that says how to fix it; empty when all is well

  // Notes that the library lacks a function.
  void Lacks(const std::string& symbol);
};

// The first of the library's files that opens, by LibraryPaths.
OpenedLibrary OpenLibraryFile(Library library);

}  // namespace diapason
