#include "compiler/runtime/dynamic_library.h"

#include <dlfcn.h>

namespace diapason {

std::unique_ptr<DynamicLibrary> DynamicLibrary::Open(const std::vector<std::string>& names, std::string* why) {
  for (const std::string& name : names) {
    if (void* handle = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL))
      return std::unique_ptr<DynamicLibrary>(new DynamicLibrary(handle));
    const char* reason = dlerror();
    if (why != nullptr) *why = reason != nullptr ? reason : "unknown reason";
  }
  return nullptr;
}

DynamicLibrary::~DynamicLibrary() { dlclose(handle_); }

void* DynamicLibrary::Find(const char* symbol) const { return dlsym(handle_, symbol); }

}  // namespace diapason
