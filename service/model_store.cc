#include "service/model_store.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <tuple>
#include <utility>
#include <vector>

#include "base/check.h"
#include "db/blobs.h"
#include "service/sha256.h"

namespace diapason {
namespace {

constexpr char kModel[] = ".onnx";       // at the end of names
constexpr char kPart[] = ".onnx.part-";  // in the names of files that are not finished
constexpr uint64_t kMostBytes = uint64_t{1} << 50;
constexpr std::filesystem::perms kOwnerOnly = std::filesystem::perms::owner_read | std::filesystem::perms::owner_write;

absl::Status WriteError(const std::string& path) {
  return absl::ResourceExhaustedError("cannot write '" + path + "' (" + std::strerror(errno) +
                                      "): free some space on the service's disk and try again");
}

}  // namespace

struct ModelStore::Writer::State {
  std::string hash, path, temporary;
  uint64_t announced = 0, written = 0;
  int fd = -1;
  Sha256 sum;
  BlobStore* shared = nullptr;
  std::function<void()> end;  // gives back the room that was kept
};

ModelStore::Writer::Writer(std::unique_ptr<State> state) : state_(std::move(state)) {}
ModelStore::Writer::~Writer() {
  if (state_->fd >= 0) close(state_->fd);
  std::error_code ignored;
  std::filesystem::remove(state_->temporary, ignored);
  state_->end();
}

bool ModelStore::IsHash(const std::string& text) {
  return text.size() == 64 && text.find_first_not_of("0123456789abcdef") == std::string::npos;
}

absl::StatusOr<bool> ModelStore::Has(const std::string& hash) const {
  if (!IsHash(hash)) return false;
  if (shared_ != nullptr) return shared_->Use(hash + kModel);
  MutexLock lock(mutex_);
  std::error_code error;
  if (!std::filesystem::exists(PathOf(hash), error)) return false;
  std::filesystem::last_write_time(PathOf(hash), std::filesystem::file_time_type::clock::now(), error);
  return true;
}

absl::Status ModelStore::Bring(const std::string& hash) const {
  std::error_code error;
  if (shared_ == nullptr || std::filesystem::exists(PathOf(hash), error)) return absl::OkStatus();
  MakeFolder();
  const std::string temporary = TemporaryOf(hash);
  std::ofstream file(temporary, std::ios::binary | std::ios::trunc);
  std::filesystem::permissions(temporary, kOwnerOnly, error);
  Sha256 sum;
  absl::Status brought = shared_->Get(hash + kModel, [&](std::string_view data) {
    sum.Add(data.data(), data.size());
    file.write(data.data(), static_cast<std::streamsize>(data.size()));
    return file ? absl::OkStatus() : WriteError(temporary);
  });
  file.close();
  if (brought.ok() && !file) brought = WriteError(temporary);
  if (brought.ok() && sum.Hex() != hash)
    brought =
        absl::DataLossError("the model " + hash + " of the service is damaged: delete its job, and submit it again");
  if (brought.ok() && rename(temporary.c_str(), PathOf(hash).c_str()) != 0) brought = WriteError(PathOf(hash));
  if (!brought.ok()) std::filesystem::remove(temporary, error);
  return brought;
}

struct ModelStore::File {
  std::chrono::seconds unused;
  std::string hash;
  int64_t bytes;
};

void ModelStore::MakeFolder() const {
  std::error_code error;
  std::filesystem::create_directories(folder_, error);
  std::filesystem::permissions(folder_, std::filesystem::perms::owner_all, error);
}

std::string ModelStore::TemporaryOf(const std::string& hash) const {
  static std::atomic<int> number{0};
  return folder_ + "/" + hash + kPart + std::to_string(getpid()) + "-" + std::to_string(number++);
}

// Of finished models in the folder, those used longest ago first.
std::vector<ModelStore::File> ModelStore::LocalFiles() const {
  using Time = std::filesystem::file_time_type;
  std::vector<std::pair<Time, File>> files;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(folder_, error)) {
    const std::filesystem::path& path = entry.path();
    if (path.extension() != kModel || !IsHash(path.stem().string())) continue;
    std::error_code gone;
    const Time used = entry.last_write_time(gone);
    const File file{std::chrono::duration_cast<std::chrono::seconds>(Time::clock::now() - used), path.stem().string(),
                    static_cast<int64_t>(entry.file_size(gone))};
    if (!gone) files.emplace_back(used, file);
  }
  std::sort(files.begin(), files.end(), [](const auto& a, const auto& b) {
    return std::tie(a.first, a.second.hash) < std::tie(b.first, b.second.hash);
  });
  std::vector<File> sorted;
  for (auto& [used, file] : files) sorted.push_back(std::move(file));
  return sorted;
}

// Of all models that are there, likewise.
absl::StatusOr<std::vector<ModelStore::File>> ModelStore::Files() const {
  if (shared_ == nullptr) return LocalFiles();
  ASSIGN_OR_RETURN(const std::vector<BlobStore::Blob> blobs, shared_->List());
  std::vector<File> files;
  for (const BlobStore::Blob& blob : blobs) {
    if (!blob.name.ends_with(kModel)) continue;
    const std::string hash = blob.name.substr(0, blob.name.size() - std::strlen(kModel));
    if (IsHash(hash))
      files.push_back({std::chrono::duration_cast<std::chrono::seconds>(blob.unused), hash, blob.bytes});
  }
  return files;
}

ModelStore::Contents ModelStore::contents() const {
  MutexLock lock(mutex_);
  Contents contents;
  const absl::StatusOr<std::vector<File>> files = Files();
  if (!files.ok()) return contents;
  for (const File& file : *files) {
    ++contents.models;
    contents.bytes += file.bytes;
  }
  return contents;
}

absl::Status ModelStore::RemoveStale() {
  std::error_code error;
  std::vector<std::filesystem::path> stale;
  for (const auto& entry : std::filesystem::directory_iterator(folder_, error))
    if (entry.path().filename().string().find(kPart) != std::string::npos) stale.push_back(entry.path());
  for (const std::filesystem::path& path : stale) std::filesystem::remove(path, error);
  if (shared_ == nullptr) return absl::OkStatus();
  RETURN_IF_ERROR(shared_->RemoveIncomplete());
  ASSIGN_OR_RETURN(const std::vector<File> files, Files());
  std::set<std::string> there;
  for (const File& file : files) there.insert(file.hash);
  for (const File& file : LocalFiles())
    if (there.count(file.hash) == 0) std::filesystem::remove(PathOf(file.hash), error);
  return absl::OkStatus();
}

absl::Status ModelStore::Remove(const std::string& hash) {
  if (shared_ != nullptr) RETURN_IF_ERROR(shared_->Erase(hash + kModel));
  std::error_code error;
  const bool removed = std::filesystem::remove(PathOf(hash), error);
  if (shared_ == nullptr && !removed) return WriteError(PathOf(hash));
  return absl::OkStatus();
}

absl::Status ModelStore::MakeRoom(int64_t bytes, const std::set<std::string>& needed) {
  ASSIGN_OR_RETURN(const std::vector<File> files, Files());
  int64_t models = static_cast<int64_t>(files.size()) + uploads_ + 1, total = uploading_bytes_ + bytes;
  for (const File& file : files) total += file.bytes;
  for (const File& file : files) {
    if (models <= limits_.models && total <= limits_.bytes) return absl::OkStatus();
    if (needed.count(file.hash) > 0 || file.unused < limits_.grace) continue;
    if (!Remove(file.hash).ok()) continue;
    --models;
    total -= file.bytes;
  }
  if (models <= limits_.models && total <= limits_.bytes) return absl::OkStatus();
  return absl::ResourceExhaustedError("the service has no room for another model of " + std::to_string(bytes) +
                                      " bytes: it keeps " + std::to_string(files.size()) + " models, at most " +
                                      std::to_string(limits_.models) + " and " + std::to_string(limits_.bytes) +
                                      " bytes, and unfinished jobs need those; wait for some to end, or cancel some");
}

absl::StatusOr<std::unique_ptr<ModelStore::Writer>> ModelStore::Begin(const std::string& hash, uint64_t announced,
                                                                      const std::set<std::string>& needed) {
  const auto bytes = static_cast<int64_t>(std::min<uint64_t>(announced, kMostBytes));
  {
    MutexLock lock(mutex_);
    RETURN_IF_ERROR(MakeRoom(bytes, needed));
    ++uploads_;
    uploading_bytes_ += bytes;
  }
  MakeFolder();
  auto state = std::make_unique<Writer::State>();
  state->end = [this, bytes] {
    MutexLock lock(mutex_);
    --uploads_;
    uploading_bytes_ -= bytes;
  };
  state->hash = hash;
  state->path = PathOf(hash);
  state->temporary = TemporaryOf(hash);
  state->shared = shared_;
  state->announced = announced;
  state->fd = open(state->temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  std::unique_ptr<Writer> writer(new Writer(std::move(state)));
  if (writer->state_->fd < 0) return WriteError(writer->state_->temporary);
  return writer;
}

absl::Status ModelStore::Writer::Add(const std::string& data) {
  if (state_->written + data.size() > state_->announced) {
    return absl::InvalidArgumentError("the model has more than the " + std::to_string(state_->announced) +
                                      " bytes that were announced");
  }
  for (size_t done = 0; done < data.size();) {
    ssize_t n = write(state_->fd, data.data() + done, data.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return WriteError(state_->temporary);
    done += static_cast<size_t>(n);
  }
  state_->written += data.size();
  state_->sum.Add(data.data(), data.size());
  return absl::OkStatus();
}

absl::Status ModelStore::Writer::Finish() {
  if (state_->sum.Hex() != state_->hash) {
    return absl::InvalidArgumentError("the model's content, " + std::to_string(state_->written) +
                                      " bytes, is not what its hash says: send it again");
  }
  if (fsync(state_->fd) != 0) return WriteError(state_->temporary);
  if (state_->shared != nullptr) RETURN_IF_ERROR(state_->shared->Put(state_->hash + kModel, state_->temporary));
  if (rename(state_->temporary.c_str(), state_->path.c_str()) != 0) return WriteError(state_->path);
  return absl::OkStatus();
}

absl::StatusOr<std::string> HashOfFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file)
    return absl::NotFoundError("cannot read '" + path + "' (" + std::strerror(errno) + "): name an .onnx file");
  Sha256 sum;
  std::string chunk(1 << 20, '\0');
  while (file.read(chunk.data(), static_cast<std::streamsize>(chunk.size())) || file.gcount() > 0)
    sum.Add(chunk.data(), static_cast<size_t>(file.gcount()));
  return sum.Hex();
}

}  // namespace diapason
