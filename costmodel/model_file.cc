#include "costmodel/model_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <bit>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <optional>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "base/check.h"
#include "base/read_file.h"

namespace diapason {
namespace {

static_assert(std::endian::native == std::endian::little, "model files are little-endian");

constexpr char kMagic[] = "diapason cost model, format ";
constexpr int kFormat = 1;
constexpr char kHowToFix[] = "name another file or remove it, a new model is trained from the history";

// FNV-1a over 64 bits: against damage, not against malice.
uint64_t Checksum(const std::string& bytes) {
  uint64_t hash = 0xcbf29ce484222325u;
  for (unsigned char byte : bytes) hash = (hash ^ byte) * 0x100000001b3u;
  return hash;
}

class Writer {
 public:
  template <typename T>
  void Put(const T& value) {
    bytes_.append(reinterpret_cast<const char*>(&value), sizeof value);
  }
  void PutBytes(const void* data, size_t size) {
    Put(static_cast<uint64_t>(size));
    bytes_.append(static_cast<const char*>(data), size);
  }
  std::string&& bytes() { return std::move(bytes_); }

 private:
  std::string bytes_;
};

// Gives zeros behind the end, and says so in ok().
class Reader {
 public:
  explicit Reader(const std::string& bytes) : bytes_(bytes) {}
  template <typename T>
  T Get() {
    T value{};
    if (bytes_.size() - at_ < sizeof value) {
      ok_ = false;
      return value;
    }
    std::memcpy(&value, bytes_.data() + at_, sizeof value);
    at_ += sizeof value;
    return value;
  }
  std::string GetBytes() {
    const auto size = Get<uint64_t>();
    if (!ok_ || size > bytes_.size() - at_) {
      ok_ = false;
      return "";
    }
    std::string out = bytes_.substr(at_, size);
    at_ += size;
    return out;
  }
  bool ok() const { return ok_; }
  bool at_end() const { return at_ == bytes_.size(); }

 private:
  const std::string& bytes_;
  size_t at_ = 0;
  bool ok_ = true;
};

std::string Payload(const ModelFile& file) {
  Writer out;
  out.Put(static_cast<uint64_t>(file.samples.size()));
  for (const Sample& sample : file.samples) {
    out.Put(sample.task);
    out.Put(sample.candidate);
    out.Put(sample.analytic_seconds);
    out.Put(sample.seconds);
    for (float feature : sample.features) out.Put(feature);
  }
  out.Put(file.prior.slope);
  out.Put(static_cast<uint64_t>(file.prior.tasks.size()));
  for (const auto& [key, task] : file.prior.tasks) {
    out.Put(key);
    out.Put(task.mean_label);
    out.Put(task.mean_analytic);
    out.Put(task.best_seconds);
  }
  out.PutBytes(file.booster.data(), file.booster.size());
  return out.bytes();
}

bool ParsePayload(const std::string& bytes, ModelFile* file) {
  Reader in(bytes);
  const auto samples = in.Get<uint64_t>();
  for (uint64_t i = 0; i < samples && in.ok(); ++i) {
    Sample sample;
    sample.task = in.Get<uint64_t>();
    sample.candidate = in.Get<uint64_t>();
    sample.analytic_seconds = in.Get<double>();
    sample.seconds = in.Get<double>();
    sample.features.resize(file->num_features);
    for (float& feature : sample.features) feature = in.Get<float>();
    file->samples.push_back(std::move(sample));
  }
  file->prior.slope = in.Get<double>();
  const auto tasks = in.Get<uint64_t>();
  for (uint64_t i = 0; i < tasks && in.ok(); ++i) {
    AnalyticPrior::Task& task = file->prior.tasks[in.Get<uint64_t>()];
    task.mean_label = in.Get<double>();
    task.mean_analytic = in.Get<double>();
    task.best_seconds = in.Get<double>();
  }
  file->booster = in.GetBytes();
  return in.ok() && in.at_end();
}

absl::Status WriteError(const std::string& path) {
  const int code = errno;
  return absl::ErrnoToStatus(code, absl::StrCat("cannot write the cost model ", path));
}

absl::Status Damaged(const std::string& path) {
  return absl::DataLossError(absl::StrCat("the cost model ", path, " is damaged: ", kHowToFix));
}

struct Header {
  int feature_version = 0, num_features = 0, label = 0;
  std::string target_kind;
};

// The line of `text` that begins at `at`, which moves behind it. Nothing when there is no whole line.
std::optional<std::string> TakeLine(const std::string& text, size_t* at) {
  const size_t end = text.find('\n', *at);
  if (end == std::string::npos) return std::nullopt;
  std::string line = text.substr(*at, end - *at);
  *at = end + 1;
  return line;
}

// "key value" lines up to an empty one.
bool ParseHeader(const std::string& text, size_t* at, Header* header) {
  while (true) {
    const std::optional<std::string> line = TakeLine(text, at);
    if (!line) return false;
    if (line->empty()) return true;
    const std::vector<std::string> words = absl::StrSplit(*line, ' ');
    if (words.size() != 2) return false;
    if (words[0] == "target") header->target_kind = words[1];
    int* number = words[0] == "feature_version" ? &header->feature_version
                  : words[0] == "num_features"  ? &header->num_features
                  : words[0] == "label"         ? &header->label
                                                : nullptr;
    if (number != nullptr && !absl::SimpleAtoi(words[1], number)) return false;
  }
}

absl::Status WriteAll(int fd, const std::string& bytes, const std::string& path) {
  size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t written = write(fd, bytes.data() + done, bytes.size() - done);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return WriteError(path);
    done += static_cast<size_t>(written);
  }
  return fsync(fd) == 0 ? absl::OkStatus() : WriteError(path);
}

}  // namespace

absl::Status WriteModelFile(const std::string& path, const ModelFile& file) {
  const std::string body =
      absl::StrFormat("feature_version %d\nnum_features %d\ntarget %s\nlabel %d\n\n", file.feature_version,
                      file.num_features, file.target_kind, static_cast<int>(file.label)) +
      Payload(file);
  const std::string bytes = absl::StrFormat("%s%d\nchecksum %016x\n", kMagic, kFormat, Checksum(body)) + body;
  const std::string temporary = absl::StrCat(path, ".", getpid(), ".tmp");
  const int fd = open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  if (fd < 0) return WriteError(path);
  absl::Status status = WriteAll(fd, bytes, path);
  close(fd);
  if (status.ok() && rename(temporary.c_str(), path.c_str()) != 0) status = WriteError(path);
  if (!status.ok()) unlink(temporary.c_str());
  return status;
}

absl::StatusOr<ModelFile> ReadModelFile(const std::string& path, int feature_version, int num_features,
                                        const std::string& target_kind) {
  const absl::StatusOr<std::string> contents = ReadWholeFile(path);
  if (!contents.ok())
    return absl::Status(contents.status().code(),
                        absl::StrCat("cannot read the cost model ", path, ": ", contents.status().message()));
  const std::string& text = *contents;
  size_t at = 0;
  int format = 0;
  const std::optional<std::string> magic = TakeLine(text, &at);
  if (!magic || magic->rfind(kMagic, 0) != 0 || !absl::SimpleAtoi(magic->substr(sizeof kMagic - 1), &format))
    return Damaged(path);
  if (format != kFormat) {
    return absl::FailedPreconditionError(absl::StrCat("the cost model ", path, " has format ", format,
                                                      ", this program reads ", kFormat, ": ", kHowToFix));
  }
  const std::optional<std::string> checksum = TakeLine(text, &at);
  const std::string body = text.substr(at);
  if (!checksum || *checksum != absl::StrFormat("checksum %016x", Checksum(body))) return Damaged(path);
  Header header;
  at = 0;
  if (!ParseHeader(body, &at, &header)) return Damaged(path);
  if (header.feature_version != feature_version || header.num_features != num_features ||
      header.target_kind != target_kind) {
    return absl::FailedPreconditionError(
        absl::StrCat("the cost model ", path, " was trained on version ", header.feature_version, " of the features (",
                     header.num_features, " of them) for ", header.target_kind, ", this run needs version ",
                     feature_version, " (", num_features, ") for ", target_kind, ": ", kHowToFix));
  }
  ModelFile file;
  file.feature_version = feature_version;
  file.num_features = num_features;
  file.target_kind = target_kind;
  file.label = static_cast<Label>(header.label);
  if (header.label < 0 || header.label > static_cast<int>(Label::kRank) || !ParsePayload(body.substr(at), &file))
    return Damaged(path);
  return file;
}

}  // namespace diapason
