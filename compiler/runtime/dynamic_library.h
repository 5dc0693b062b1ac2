// A shared library that may or may not be on this machine, opened at run time.
#pragma once

#include <memory>
#include <string>
#include <vector>

namespace diapason {

class DynamicLibrary {
 public:
  // The first of `names` that opens; null when none does (then *why, if given, says the loader's reason for the last).
  static std::unique_ptr<DynamicLibrary> Open(const std::vector<std::string>& names, std::string* why = nullptr);
  ~DynamicLibrary();
  DynamicLibrary(const DynamicLibrary&) = delete;
  DynamicLibrary& operator=(const DynamicLibrary&) = delete;

  // Null when the library has no such symbol.
  void* Find(const char* symbol) const;
  // Fills a function pointer; false when the library has no such symbol.
  template <typename Function>
  bool Find(const char* symbol, Function*& function) const {
    function = reinterpret_cast<Function*>(Find(symbol));
    return function != nullptr;
  }

 private:
  explicit DynamicLibrary(void* handle) : handle_(handle) {}
  void* const handle_;
};

}  // namespace diapason
