#include "compiler/build/package_archive.h"

#include <errno.h>
#include <fcntl.h>
#include <minizip/unzip.h>
#include <minizip/zip.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/check.h"

namespace diapason {
namespace {

namespace fs = std::filesystem;

constexpr size_t kLongestName = 4096;
constexpr uint64_t kAlignment = 4096;
constexpr uint64_t kLocalHeaderBytes = 30;
constexpr uint64_t kInZip64 = 0xffffffff;  // in the place of a size of 64 bits
// An extra field that says nothing: private use, of any length.
constexpr uint16_t kPaddingId = 0xd1a9;

// The file that minizip sees: a read-only range of memory.
struct MemoryFile {
  std::string_view bytes;
  uint64_t at = 0;
};

MemoryFile& Memory(void* stream) { return *static_cast<MemoryFile*>(stream); }
void* OpenMemory(void* opaque, const void*, int) { return opaque; }
uLong ReadMemory(void*, void* stream, void* to, uLong size) {
  MemoryFile& file = Memory(stream);
  const uint64_t left = file.at < file.bytes.size() ? file.bytes.size() - file.at : 0;
  const uint64_t count = std::min<uint64_t>(size, left);
  if (count > 0) std::memcpy(to, file.bytes.data() + file.at, count);  // an empty file has no address
  file.at += count;
  return static_cast<uLong>(count);
}
uLong WriteMemory(void*, void*, const void*, uLong) { return 0; }
ZPOS64_T TellMemory(void*, void* stream) { return Memory(stream).at; }
long SeekMemory(void*, void* stream, ZPOS64_T offset, int origin) {
  MemoryFile& file = Memory(stream);
  const uint64_t from = origin == ZLIB_FILEFUNC_SEEK_CUR   ? file.at
                        : origin == ZLIB_FILEFUNC_SEEK_END ? file.bytes.size()
                                                           : 0;
  if (offset > file.bytes.size() || from + offset > file.bytes.size()) return -1;
  file.at = from + offset;
  return 0;
}
int CloseNothing(void*, void*) { return 0; }
int NoError(void*, void*) { return 0; }

zlib_filefunc64_def MemoryFunctions(MemoryFile* file) {
  return {OpenMemory, ReadMemory, WriteMemory, TellMemory, SeekMemory, CloseNothing, NoError, file};
}

struct UnzipCloser {
  void operator()(void* zip) const { unzClose(zip); }
};

// Whether the archive's last record, with its comment, ends where the file does: minizip accepts one that is cut.
bool EndsWhole(void* zip, std::string_view bytes) {
  constexpr size_t kEndRecordBytes = 22;
  unz_global_info64 info{};
  if (unzGetGlobalInfo64(zip, &info) != UNZ_OK || bytes.size() < kEndRecordBytes + info.size_comment) return false;
  return bytes.substr(bytes.size() - kEndRecordBytes - info.size_comment, 4) == "PK\x05\x06";
}

bool IsInside(const std::string& name) {
  if (name.empty() || name.find('\\') != std::string::npos || name.find('\0') != std::string::npos) return false;
  for (const absl::string_view part : absl::StrSplit(name, '/'))
    if (part.empty() || part == "." || part == "..") return false;
  return true;
}

// As a message may show it: names are the archive's.
std::string Shown(const std::string& name) {
  std::string shown = name.substr(0, 80);
  for (char& c : shown)
    if (static_cast<unsigned char>(c) < 0x20 || static_cast<unsigned char>(c) >= 0x7f) c = '?';
  return shown;
}

// Entries with weights are large: pieces of them are summed by several threads.
uint32_t Crc(std::string_view bytes) {
  constexpr size_t kPiece = size_t{4} << 20;
  constexpr size_t kMostThreads = 8;
  const size_t pieces = bytes.size() / kPiece + 1;  // the last one may be empty
  std::vector<uLong> sums(pieces);
  std::atomic<size_t> next{0};
  const auto sum = [&] {
    for (size_t i = next++; i < pieces; i = next++) {
      const std::string_view piece = bytes.substr(i * kPiece, kPiece);
      sums[i] = crc32(0, reinterpret_cast<const Bytef*>(piece.data()), static_cast<uInt>(piece.size()));
    }
  };
  {
    std::vector<std::jthread> others;
    try {
      while (others.size() + 1 < std::min({pieces, kMostThreads, size_t{std::thread::hardware_concurrency()}}))
        others.emplace_back(sum);
    } catch (const std::system_error&) {  // no more threads: those there are do it
    }
    sum();
  }
  uLong all = sums[0];
  for (size_t i = 1; i < pieces; ++i)
    all = crc32_combine(all, sums[i], static_cast<z_off_t>(bytes.substr(i * kPiece, kPiece).size()));
  return static_cast<uint32_t>(all);
}

absl::Status BadArchive(const std::string& path, const std::string& why) {
  return absl::DataLossError(
      absl::StrCat("'", path, "' is no package: ", why, "; name a folder or a .dpk file made by 'diapason build'"));
}

}  // namespace

absl::Status PackageArchive::Bad(const std::string& why) const { return BadArchive(path_, why); }

absl::StatusOr<std::shared_ptr<const PackageArchive>> PackageArchive::Open(const std::string& path) {
  absl::StatusOr<std::shared_ptr<const MappedFile>> file = MappedFile::Open(path);
  if (absl::IsInvalidArgument(file.status())) return BadArchive(path, std::string(file.status().message()));
  if (!file.ok())
    return absl::Status(file.status().code(), absl::StrCat("cannot read ", path, ": ", file.status().message()));
  std::shared_ptr<PackageArchive> archive(new PackageArchive(path, (*file)->bytes(), *file));
  RETURN_IF_ERROR(archive->ReadEntries());
  return archive;
}

absl::StatusOr<std::shared_ptr<const PackageArchive>> PackageArchive::FromMemory(std::string_view bytes,
                                                                                 const std::string& name) {
  std::shared_ptr<PackageArchive> archive(new PackageArchive(name, bytes, nullptr));
  RETURN_IF_ERROR(archive->ReadEntries());
  return archive;
}

absl::Status PackageArchive::ReadEntries() {
  MemoryFile file{bytes_};
  zlib_filefunc64_def functions = MemoryFunctions(&file);
  const std::unique_ptr<void, UnzipCloser> zip(unzOpen2_64(path_.c_str(), &functions));
  if (zip == nullptr || !EndsWhole(zip.get(), bytes_)) return Bad("it is no zip archive, or not a whole one");
  int next = unzGoToFirstFile(zip.get());
  while (next == UNZ_OK) {
    RETURN_IF_ERROR(AddEntry(zip.get()));
    next = unzGoToNextFile(zip.get());
  }
  if (next != UNZ_END_OF_LIST_OF_FILE) return Bad("its list of entries is damaged");
  return CheckOverlaps();
}

absl::Status PackageArchive::AddEntry(void* zip) {
  unz_file_info64 info{};
  if (unzGetCurrentFileInfo64(zip, &info, nullptr, 0, nullptr, 0, nullptr, 0) != UNZ_OK ||
      info.size_filename > kLongestName)
    return Bad("its list of entries is damaged");
  std::string name(info.size_filename + 1, 0);
  if (unzGetCurrentFileInfo64(zip, &info, name.data(), name.size(), nullptr, 0, nullptr, 0) != UNZ_OK)
    return Bad("its list of entries is damaged");
  name.resize(info.size_filename);
  const auto bad = [&](const char* why) { return Bad(absl::StrCat("its entry '", Shown(name), "' ", why)); };
  const bool folder = absl::EndsWith(name, "/");  // zip makes entries of folders
  if (!IsInside(folder ? name.substr(0, name.size() - 1) : name)) return bad("has a name that leads elsewhere");
  if ((info.flag & 1) != 0) return bad("is encrypted");
  if (info.uncompressed_size == kInZip64 || info.compressed_size == kInZip64)
    return bad("gives its size in 64 bits (zip64), and a .dpk file is below 4 GiB");
  if (info.compression_method != 0 || info.compressed_size != info.uncompressed_size) return bad("is compressed");
  if (folder && info.uncompressed_size != 0) return bad("is a folder with contents");
  if (unzOpenCurrentFile2(zip, nullptr, nullptr, /*raw=*/1) != UNZ_OK)
    return bad("does not lie where the list of entries says");
  const uint64_t offset = unzGetCurrentFileZStreamPos64(zip);
  unzCloseCurrentFile(zip);
  if (offset > bytes_.size() || info.uncompressed_size > bytes_.size() - offset) return bad("lies outside of the file");
  if (!entries_.emplace(name, Entry{offset, info.uncompressed_size, static_cast<uint32_t>(info.crc)}).second)
    return bad("is there twice");
  return absl::OkStatus();
}

absl::Status PackageArchive::CheckOverlaps() const {
  std::vector<std::pair<Entry, const std::string*>> sorted;
  for (const auto& [name, entry] : entries_)
    if (entry.bytes > 0) sorted.emplace_back(entry, &name);
  std::sort(sorted.begin(), sorted.end(), [](const auto& a, const auto& b) { return a.first.offset < b.first.offset; });
  for (size_t i = 1; i < sorted.size(); ++i)
    if (sorted[i].first.offset - sorted[i - 1].first.offset < sorted[i - 1].first.bytes)
      return Bad(absl::StrCat("its entries '", Shown(*sorted[i - 1].second), "' and '", Shown(*sorted[i].second),
                              "' lie over each other"));
  return absl::OkStatus();
}

absl::StatusOr<std::string_view> PackageArchive::Read(const std::string& name) const {
  const auto found = entries_.find(name);
  if (found == entries_.end())
    return absl::NotFoundError(
        absl::StrCat("cannot read ", path_, ":", name, ": there is no such entry; build the package again"));
  const std::string_view contents = bytes_.substr(found->second.offset, found->second.bytes);
  if (Crc(contents) == found->second.crc) return contents;
  return absl::DataLossError(
      absl::StrCat(path_, ":", name, " is damaged: its checksum does not match; build the package again"));
}

bool IsArchiveName(const std::string& path) { return absl::EndsWith(path, ".dpk"); }

namespace {

// The file that minizip writes.
struct DiskFile {
  int fd = -1;
  uint64_t at = 0;
  int error = 0;
};

DiskFile& Disk(void* stream) { return *static_cast<DiskFile*>(stream); }
uLong ReadDisk(void*, void*, void*, uLong) { return 0; }
uLong WriteDisk(void*, void* stream, const void* from, uLong size) {
  DiskFile& file = Disk(stream);
  uLong done = 0;
  while (done < size) {
    const ssize_t n = pwrite(file.fd, static_cast<const char*>(from) + done, size - done, static_cast<off_t>(file.at));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) {
      file.error = n < 0 ? errno : EIO;
      return done;
    }
    done += n;
    file.at += n;
  }
  return done;
}
ZPOS64_T TellDisk(void*, void* stream) { return Disk(stream).at; }
long SeekDisk(void*, void* stream, ZPOS64_T offset, int origin) {
  DiskFile& file = Disk(stream);
  struct stat facts {};
  if (origin == ZLIB_FILEFUNC_SEEK_END && fstat(file.fd, &facts) != 0) return -1;
  file.at = offset + (origin == ZLIB_FILEFUNC_SEEK_CUR   ? file.at
                      : origin == ZLIB_FILEFUNC_SEEK_END ? static_cast<uint64_t>(facts.st_size)
                                                         : 0);
  return 0;
}
int DiskError(void*, void* stream) { return Disk(stream).error; }

class ArchiveWriter : public PackageWriter {
 public:
  ArchiveWriter(std::string destination, std::string temporary, int fd, uint64_t most_bytes)
      : destination_(std::move(destination)), temporary_(std::move(temporary)), most_bytes_(most_bytes) {
    file_.fd = fd;
    functions_ = {OpenMemory, ReadDisk, WriteDisk, TellDisk, SeekDisk, CloseNothing, DiskError, &file_};
    zip_ = zipOpen2_64(temporary_.c_str(), APPEND_STATUS_CREATE, nullptr, &functions_);
  }
  ~ArchiveWriter() override {
    if (zip_ != nullptr) zipClose(zip_, nullptr);
    if (file_.fd >= 0) close(file_.fd);
    if (!temporary_.empty()) unlink(temporary_.c_str());
  }

  absl::Status Write(const std::string& name, const std::string& contents) override;
  absl::Status Commit() override;

 private:
  std::string Padding(const std::string& name) const;
  absl::Status Failed() const { return PackageWriteError(destination_, file_.error != 0 ? file_.error : EIO); }

  const std::string destination_;
  std::string temporary_;
  const uint64_t most_bytes_;
  DiskFile file_;
  zlib_filefunc64_def functions_{};
  zipFile zip_ = nullptr;
};

// An extra field of the local header behind which the contents begin at a multiple of kAlignment.
std::string ArchiveWriter::Padding(const std::string& name) const {
  const uint64_t begin = file_.at + kLocalHeaderBytes + name.size() + 4;
  const auto length = static_cast<uint16_t>((kAlignment - begin % kAlignment) % kAlignment);
  std::string extra(4 + length, 0);
  std::memcpy(extra.data(), &kPaddingId, 2);
  std::memcpy(extra.data() + 2, &length, 2);
  return extra;
}

absl::Status ArchiveWriter::Write(const std::string& name, const std::string& contents) {
  if (contents.size() > most_bytes_ || file_.at > most_bytes_ - contents.size())
    return absl::InvalidArgumentError(
        absl::StrCat("'", destination_, "' would be a file of more than ", most_bytes_ >> 20,
                     " MiB, which a .dpk file cannot be; give --out a folder: a name without .dpk"));
  const std::string extra = contents.size() >= kAlignment ? Padding(name) : "";
  zip_fileinfo info{};
  info.tmz_date.tm_year = 1980;  // the same contents make the same file
  info.tmz_date.tm_mday = 1;
  info.external_fa = 0100644u << 16;
  constexpr uLong kMadeByUnix = 3 << 8 | 45;
  int result = zip_ == nullptr ? ZIP_ERRNO
                               : zipOpenNewFileInZip4_64(zip_, name.c_str(), &info, extra.data(),
                                                         static_cast<uInt>(extra.size()), nullptr, 0, nullptr,
                                                         /*method=*/0, 0, /*raw=*/0, -MAX_WBITS, DEF_MEM_LEVEL,
                                                         Z_DEFAULT_STRATEGY, nullptr, 0, kMadeByUnix, 0, /*zip64=*/0);
  for (size_t at = 0; result == ZIP_OK && at < contents.size();) {
    const size_t piece = std::min<size_t>(contents.size() - at, 1 << 30);
    result = zipWriteInFileInZip(zip_, contents.data() + at, static_cast<unsigned>(piece));
    at += piece;
  }
  if (result == ZIP_OK) result = zipCloseFileInZip(zip_);
  return result == ZIP_OK && file_.error == 0 ? absl::OkStatus() : Failed();
}

absl::Status CheckArchiveReplaceable(const std::string& path) {
  std::error_code error;
  if (!fs::exists(path, error)) return absl::OkStatus();
  if (fs::is_directory(path, error))
    return absl::FailedPreconditionError(
        absl::StrCat("'", path, "' is a folder, and a name that ends in .dpk is a file; give --out another name"));
  const absl::StatusOr<std::shared_ptr<const PackageArchive>> archive = PackageArchive::Open(path);
  if (archive.ok() && (*archive)->Read(kManifestFile).ok()) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("'", path, "' is a file that is no package; give --out a new name, or a package to replace"));
}

absl::Status ArchiveWriter::Commit() {
  RETURN_IF_ERROR(CheckArchiveReplaceable(destination_));
  const int closed = zip_ != nullptr ? zipClose(std::exchange(zip_, nullptr), nullptr) : ZIP_ERRNO;
  if (closed != ZIP_OK || file_.error != 0) return Failed();
  const bool synced = fsync(file_.fd) == 0;
  const bool written = close(std::exchange(file_.fd, -1)) == 0 && synced;
  if (!written || rename(temporary_.c_str(), destination_.c_str()) != 0) return PackageWriteError(destination_, errno);
  temporary_.clear();
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<PackageWriter>> CreatePackageArchive(const std::string& path, uint64_t most_bytes) {
  std::error_code error;
  const fs::path destination = fs::weakly_canonical(fs::absolute(path, error), error);
  if (error || path.empty())
    return absl::InvalidArgumentError(absl::StrCat("'", path, "' is no file name; give --out another"));
  RETURN_IF_ERROR(CheckArchiveReplaceable(path));
  fs::create_directories(destination.parent_path(), error);
  std::string temporary = absl::StrCat(destination.string(), ".tmp-XXXXXX");
  const int fd = mkostemp(temporary.data(), O_CLOEXEC);
  if (fd < 0) return PackageWriteError(destination.string(), errno);
  fchmod(fd, 0644);
  return std::make_unique<ArchiveWriter>(destination.string(), std::move(temporary), fd, most_bytes);
}

}  // namespace diapason
