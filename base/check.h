// DIAPASON_CHECK aborts the process when an invariant of this program does not hold, and prints where. Errors that have
// other causes (input, disk, network, a kernel) are an absl::Status instead.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <string>

namespace diapason::internal {

[[noreturn]] inline void CheckFailed(const char* file, int line, const char* what, const std::string& why) {
  std::fprintf(stderr, "%s:%d: internal error: %s does not hold%s%s\n", file, line, what, why.empty() ? "" : ": ",
               why.c_str());
  std::abort();
}

}  // namespace diapason::internal

#define DIAPASON_CHECK_MSG(condition, why)                                                    \
  do {                                                                                        \
    if (!(condition)) ::diapason::internal::CheckFailed(__FILE__, __LINE__, #condition, why); \
  } while (false)
#define DIAPASON_CHECK(condition) DIAPASON_CHECK_MSG(condition, "")

// Returns the status of an expression that failed; assigns the value of one that did not.
#define DIAPASON_CONCAT_(a, b) a##b
#define DIAPASON_CONCAT(a, b) DIAPASON_CONCAT_(a, b)
#define RETURN_IF_ERROR(expr)                                 \
  do {                                                        \
    if (auto status_ = (expr); !status_.ok()) return status_; \
  } while (false)
#define ASSIGN_OR_RETURN(lhs, expr) ASSIGN_OR_RETURN_(DIAPASON_CONCAT(statusor_, __LINE__), lhs, expr)
#define ASSIGN_OR_RETURN_(tmp, lhs, expr) \
  auto tmp = (expr);                      \
  if (!tmp.ok()) return tmp.status();     \
  lhs = std::move(tmp).value()
