#include "api/npy.h"

#include <array>
#include <cstring>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "base/check.h"

namespace diapason::api {
namespace {

constexpr char kMagic[] = "\x93NUMPY";
constexpr size_t kMagicSize = 6;

constexpr std::array<std::pair<const char*, DType>, 8> kDescriptors = {{{"<f4", DType::kFloat32},
                                                                        {"<f2", DType::kFloat16},
                                                                        {"<f8", DType::kFloat64},
                                                                        {"<i4", DType::kInt32},
                                                                        {"<i8", DType::kInt64},
                                                                        {"|b1", DType::kBool},
                                                                        {"|i1", DType::kInt8},
                                                                        {"|u1", DType::kUint8}}};

absl::Status Damaged(const std::string& name, const std::string& why) {
  return absl::DataLossError(absl::StrCat(name, " is no whole .npy file (", why, "); write it again with numpy.save"));
}

// The text of a value in the header's Python dictionary: what stands behind 'key': up to the comma or bracket that ends
// it.
std::optional<std::string> Entry(const std::string& header, const std::string& key) {
  const size_t at = header.find("'" + key + "'");
  if (at == std::string::npos) return std::nullopt;
  const size_t colon = header.find(':', at);
  if (colon == std::string::npos) return std::nullopt;
  const size_t begin = header.find_first_not_of(' ', colon + 1);
  if (begin == std::string::npos) return std::nullopt;
  const size_t end = header[begin] == '(' ? header.find(')', begin) : header.find_first_of(",}", begin);
  if (end == std::string::npos) return std::nullopt;
  return header.substr(begin, end - begin);
}

std::optional<std::vector<int64_t>> ShapeOf(const std::string& entry) {
  if (entry.empty() || entry[0] != '(') return std::nullopt;
  std::vector<int64_t> shape;
  for (absl::string_view part : absl::StrSplit(entry.substr(1), ',', absl::SkipWhitespace())) {
    int64_t extent = 0;
    if (!absl::SimpleAtoi(absl::StripAsciiWhitespace(part), &extent) || extent < 0 || extent > (int64_t{1} << 40)) {
      return std::nullopt;
    }
    shape.push_back(extent);
  }
  return shape;
}

// Length of the header and where it begins; nothing if the file is shorter.
std::optional<std::pair<size_t, size_t>> HeaderRange(const std::string& bytes) {
  const int version = static_cast<unsigned char>(bytes[kMagicSize]);
  const size_t width = version == 1 ? 2 : 4, begin = kMagicSize + 2 + width;
  if (bytes.size() < begin) return std::nullopt;
  uint32_t length = 0;
  std::memcpy(&length, bytes.data() + kMagicSize + 2, width);
  if (bytes.size() - begin < length) return std::nullopt;
  return std::make_pair(begin, static_cast<size_t>(length));
}

// Row-major data of an array stored with its first index fastest.
void FromFortran(Array& array) {
  const size_t rank = array.shape.size();
  const int width = BytesOf(array.dtype);
  const std::vector<uint8_t> source = array.data;
  std::vector<int64_t> index(rank, 0);
  for (int64_t i = 0; i < array.elements(); ++i) {
    int64_t at = 0;
    for (size_t d = rank; d-- > 0;) at = at * array.shape[d] + index[d];
    std::memcpy(array.data.data() + i * width, source.data() + at * width, width);
    for (size_t d = rank; d-- > 0 && ++index[d] == array.shape[d];) index[d] = 0;
  }
}

}  // namespace

absl::StatusOr<Array> ParseNpy(const std::string& bytes, const std::string& name) {
  if (bytes.size() < kMagicSize + 4 || std::memcmp(bytes.data(), kMagic, kMagicSize) != 0) {
    return Damaged(name, "it does not begin like one");
  }
  const auto range = HeaderRange(bytes);
  if (!range.has_value()) return Damaged(name, "it ends within its header");
  const std::string header = bytes.substr(range->first, range->second);
  const auto descriptor = Entry(header, "descr"), order = Entry(header, "fortran_order"),
             shape_text = Entry(header, "shape");
  if (!descriptor || !order || !shape_text) return Damaged(name, "its header lacks descr, fortran_order or shape");
  const auto shape = ShapeOf(*shape_text);
  if (!shape.has_value()) return Damaged(name, "its shape is not understood");

  std::optional<DType> dtype;
  for (const auto& [text, candidate] : kDescriptors) {
    if (*descriptor == absl::StrCat("'", text, "'")) dtype = candidate;
  }
  if (!dtype.has_value()) {
    return absl::InvalidArgumentError(absl::StrCat(name, " has elements of type ", *descriptor,
                                                   "; convert them with numpy's astype, for example to float32"));
  }
  double expected = BytesOf(*dtype);
  for (int64_t extent : *shape) expected *= static_cast<double>(extent);
  const size_t begin = range->first + range->second;
  if (expected != static_cast<double>(bytes.size() - begin)) {
    return Damaged(name, absl::StrCat("it has ", bytes.size() - begin, " bytes of data where its shape needs ",
                                      absl::StrFormat("%.0f", expected)));
  }
  Array array(*dtype, *shape);
  if (!array.data.empty()) std::memcpy(array.data.data(), bytes.data() + begin, array.data.size());
  if (*order == "True") FromFortran(array);
  return array;
}

std::string SerializeNpy(const Array& given) {
  const Array array = given.dtype == DType::kBfloat16 ? CastArray(given, DType::kFloat32) : given;
  std::string descriptor;
  for (const auto& [text, dtype] : kDescriptors) {
    if (dtype == array.dtype) descriptor = text;
  }
  std::string header = absl::StrCat("{'descr': '", descriptor, "', 'fortran_order': False, 'shape': (",
                                    absl::StrJoin(array.shape, ", "), array.shape.size() == 1 ? ",), }" : "), }");
  // The data begins at a multiple of 64 bytes, and the header ends in a newline, as NumPy writes it.
  const size_t used = kMagicSize + 4 + header.size() + 1;
  header += std::string((64 - used % 64) % 64, ' ') + "\n";
  std::string bytes(kMagic, kMagicSize);
  bytes += std::string("\x01\x00", 2);
  bytes += static_cast<char>(header.size() & 0xff);
  bytes += static_cast<char>(header.size() >> 8);
  bytes += header;
  bytes.append(reinterpret_cast<const char*>(array.data.data()), array.data.size());
  return bytes;
}

}  // namespace diapason::api
