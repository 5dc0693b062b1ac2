#include "api/tensor_file.h"

#include <cerrno>
#include <cstring>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "api/npy.h"
#include "base/check.h"
#include "base/read_file.h"
#include "compiler/graph/onnx/tensor.h"

namespace diapason::api {

absl::StatusOr<Array> ReadTensorFile(const std::string& path) {
  if (path.ends_with(".pb")) return ReadOnnxTensor(path);
  const absl::StatusOr<std::string> bytes = ReadWholeFile(path);
  if (!bytes.ok()) {
    return absl::NotFoundError(
        absl::StrCat(path, " cannot be read (", bytes.status().message(), "); name a .npy or .pb file"));
  }
  return ParseNpy(*bytes, path);
}

absl::Status WriteNpyFile(const std::string& path, const Array& array) {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file << SerializeNpy(array);
  file.close();
  if (file) return absl::OkStatus();
  return absl::PermissionDeniedError(
      absl::StrCat(path, " cannot be written (", std::strerror(errno), "); free some space or choose another folder"));
}

}  // namespace diapason::api
