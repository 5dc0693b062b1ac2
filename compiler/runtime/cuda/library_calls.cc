#include "compiler/runtime/cuda/library_calls.h"

#include <glob.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/check.h"
#include "compiler/runtime/cuda/cublas_library.h"
#include "compiler/runtime/cuda/cudnn_library.h"
#include "compiler/runtime/cuda/library_open.h"

namespace diapason {
namespace {

// Names of the files, the newest first.
std::vector<std::string> FilesOf(Library library) {
  if (library == Library::kCudnn) return {"libcudnn.so.9"};
  return {"libcublas.so.13", "libcublas.so.12"};
}

std::string MendFor(Library library) {
  return library == Library::kCudnn
             ? "install cuDNN 9 (`pip install nvidia-cudnn-cu13`), or add its folder to LD_LIBRARY_PATH"
             : "install the CUDA toolkit's cuBLAS (`pip install nvidia-cublas`), or add its folder to "
               "LD_LIBRARY_PATH";
}

std::string FilesText(Library library) { return absl::StrJoin(FilesOf(library), " or "); }

const char* Environment(const char* name) { return std::getenv(name); }

bool Exists(const std::string& path) {
  std::error_code ignored;
  return std::filesystem::exists(path, ignored);
}

void AddMatching(const std::string& pattern, std::vector<std::string>* paths) {
  glob_t found{};
  if (glob(pattern.c_str(), 0, nullptr, &found) == 0)
    paths->insert(paths->end(), found.gl_pathv, found.gl_pathv + found.gl_pathc);
  globfree(&found);
}

// Each library by itself, started when it is first asked for.
class CudaLibraryCalls : public LibraryCalls {
 public:
  explicit CudaLibraryCalls(void* stream) : stream_(stream) {}

  absl::StatusOr<std::shared_ptr<PreparedCall>> Prepare(const LibraryCall& call) override {
    std::shared_ptr<PreparedCall>& known = prepared_[call.ToNumbers()];
    if (known == nullptr) {
      ASSIGN_OR_RETURN(LibraryCalls * calls, CallsOf(call.library()));
      absl::StatusOr<std::shared_ptr<PreparedCall>> made = calls->Prepare(call);
      if (!made.ok())
        return absl::Status(made.status().code(), absl::StrCat(made.status().message(), " (", call.ToString(), ")"));
      known = *std::move(made);
    }
    return known;
  }

 private:
  absl::StatusOr<LibraryCalls*> CallsOf(Library library) {
    std::unique_ptr<LibraryCalls>& calls = calls_[library];
    if (calls == nullptr && library == Library::kCudnn) {
      ASSIGN_OR_RETURN(const CudnnApi* api, CudnnApi::Get());
      ASSIGN_OR_RETURN(calls, CudnnCalls::Create(*api, stream_));
    } else if (calls == nullptr) {
      ASSIGN_OR_RETURN(const CublasApi* api, CublasApi::Get());
      ASSIGN_OR_RETURN(calls, CublasCalls::Create(*api, stream_));
    }
    return calls.get();
  }

  void* const stream_;
  std::map<Library, std::unique_ptr<LibraryCalls>> calls_;
  std::map<std::vector<int64_t>, std::shared_ptr<PreparedCall>> prepared_;  // freed before the handles
};

}  // namespace

std::unique_ptr<LibraryCalls> MakeCudaLibraryCalls(void* stream) { return std::make_unique<CudaLibraryCalls>(stream); }

absl::Status CheckLibrary(Library library) {
  return library == Library::kCudnn ? CudnnApi::Get().status() : CublasApi::Get().status();
}

std::vector<Library> LibrariesOf(const Target& target) {
  std::vector<Library> libraries;
  for (Library library : AllLibraries())
    if (std::find(target.libs.begin(), target.libs.end(), NameOf(library)) != target.libs.end())
      libraries.push_back(library);
  return libraries;
}

std::vector<std::string> LibraryPaths(const std::string& file, const char* (*variable)(const char* name)) {
  std::vector<std::string> paths = {file};
  const auto value = [&](const char* name) {
    const char* text = variable(name);
    return std::string(text != nullptr ? text : "");
  };
  for (const std::string& home : {value("CUDA_HOME"), value("CUDA_PATH"), std::string("/usr/local/cuda")}) {
    if (home.empty()) continue;
    for (const char* folder : {"/lib64/", "/lib/"})
      if (const std::string path = home + folder + file; Exists(path)) paths.push_back(path);
  }
  const std::string home = value("HOME");
  for (const std::string& root : {value("VIRTUAL_ENV"), value("CONDA_PREFIX"), home.empty() ? "" : home + "/.local",
                                  std::string("/usr/local"), std::string("/usr")}) {
    if (root.empty()) continue;
    for (const char* packages : {"site-packages", "dist-packages"})
      AddMatching(absl::StrCat(root, "/lib/python3*/", packages, "/nvidia/*/lib/", file), &paths);
  }
  return paths;
}

void OpenedLibrary::Lacks(const std::string& symbol) {
  if (!problem.empty()) return;
  problem = absl::StrCat(TitleOf(library), " on this machine has no function ", symbol, "; ", MendFor(library));
}

OpenedLibrary OpenLibraryFile(Library library) {
  OpenedLibrary opened;
  opened.library = library;
  std::string broken;
  for (const std::string& name : FilesOf(library)) {
    for (const std::string& path : LibraryPaths(name, Environment)) {
      std::string why;
      opened.file = DynamicLibrary::Open({path}, &why);
      if (opened.file != nullptr) return opened;
      if (path != name && broken.empty()) broken = why;
    }
  }
  opened.problem = broken.empty() ? absl::StrCat(TitleOf(library), " (", FilesText(library),
                                                 ") is not on this machine; ", MendFor(library))
                                  : absl::StrCat(TitleOf(library), " does not open (", broken, "); ", MendFor(library));
  return opened;
}

}  // namespace diapason
