#include "service/command.h"

#include "absl/strings/str_cat.h"
#include "base/environment.h"
#include "base/run_program.h"

namespace diapason {
namespace {

constexpr size_t kMaxOutput = 16 << 20;

std::string LastLine(std::string text) {
  while (!text.empty() && (text.back() == '\n' || text.back() == ' ')) text.pop_back();
  return text.substr(text.rfind('\n') + 1);
}

}  // namespace

absl::StatusOr<std::string> RunCommand(const std::vector<std::string>& args, const std::string& input,
                                       double timeout_seconds) {
  const std::string& name = args.at(0);
  absl::StatusOr<ProgramResult> result = RunProgram({.args = args,
                                                     .environment = WholeEnvironment(),
                                                     .input = input,
                                                     .timeout_seconds = timeout_seconds,
                                                     .max_output_bytes = kMaxOutput});
  if (absl::IsNotFound(result.status()))
    return absl::NotFoundError(absl::StrCat("there is no program '", name, "' on this host"));
  if (absl::IsDeadlineExceeded(result.status()))
    return absl::DeadlineExceededError(
        absl::StrCat("'", name, "' took longer than ", timeout_seconds, " s and was killed"));
  if (!result.ok())
    return absl::UnavailableError(absl::StrCat("cannot run '", name, "' (", result.status().message(), ")"));
  if (result->exit_code == 0) return std::move(result->output);
  const std::string how =
      result->signalled ? absl::StrCat("signal ", result->exit_code - 128) : absl::StrCat("status ", result->exit_code);
  return absl::UnknownError(absl::StrCat("'", name, "' failed with ", how, ": ", LastLine(result->errors)));
}

std::string ShellWord(const std::string& text) {
  std::string word = "'";
  for (char c : text) word += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return word + "'";
}

}  // namespace diapason
