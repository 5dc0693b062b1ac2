#include "cli/tensor_file.h"

#include <cerrno>
#include <cstring>
#include <fstream>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "cli/npy.h"
#include "compiler/graph/onnx/tensor.h"

namespace diapason {

absl::StatusOr<Array> ReadTensorFile(const std::string& path) {
  if (path.ends_with(".pb")) return ReadOnnxTensor(path);
  std::ifstream file(path, std::ios::binary);
  if (!file) {
    return absl::NotFoundError(
        absl::StrCat(path, " cannot be read (", std::strerror(errno), "); name a .npy or .pb file"));
  }
  std::ostringstream bytes;
  bytes << file.rdbuf();
  return ParseNpy(bytes.str(), path);
}

absl::Status WriteNpyFile(const std::string& path, const Array& array) {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file << SerializeNpy(array);
  file.close();
  if (file) return absl::OkStatus();
  return absl::PermissionDeniedError(
      absl::StrCat(path, " cannot be written (", std::strerror(errno), "); free some space or choose another folder"));
}

}  // namespace diapason
