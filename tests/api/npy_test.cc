#include "api/npy.h"

#include <gtest/gtest.h>

namespace diapason::api {
namespace {

std::string Npy(const std::string& dictionary, const std::string& data) {
  const std::string header = dictionary + "\n";
  std::string bytes("\x93NUMPY\x01\x00", 8);
  bytes += static_cast<char>(header.size());
  bytes += '\0';
  return bytes + header + data;
}

// NumPy has no such type.
TEST(Npy, WritesBfloat16AsFloat32) {
  Array array(DType::kBfloat16, {3});
  for (int64_t i = 0; i < 3; ++i) array.set(i, 1.5 * static_cast<double>(i));
  const auto read = ParseNpy(SerializeNpy(array), "x.npy");
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->dtype, DType::kFloat32);
  for (int64_t i = 0; i < 3; ++i) EXPECT_EQ(read->at(i), array.at(i));
}

TEST(Npy, GivesBackWhatWasWritten) {
  for (const std::vector<int64_t>& shape : {std::vector<int64_t>{}, {3}, {2, 3, 4}, {0, 5}}) {
    for (DType dtype : {DType::kFloat32, DType::kFloat16, DType::kFloat64, DType::kInt32, DType::kInt64, DType::kBool,
                        DType::kInt8, DType::kUint8}) {
      Array array(dtype, shape);
      for (int64_t i = 0; i < array.elements(); ++i) array.set(i, static_cast<double>(i % 2));
      const auto read = ParseNpy(SerializeNpy(array), "x.npy");
      ASSERT_TRUE(read.ok()) << read.status();
      EXPECT_EQ(read->dtype, dtype);
      EXPECT_EQ(read->shape, shape);
      EXPECT_EQ(read->data, array.data);
    }
  }
}

TEST(Npy, AlignsTheDataAsNumpyDoes) {
  const std::string bytes = SerializeNpy(Array(DType::kFloat32, {2, 3}));
  EXPECT_EQ((bytes.size() - 24) % 64, 0u);
  EXPECT_EQ(bytes.substr(10, 59), "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }");
}

TEST(Npy, TurnsFortranOrderIntoRowMajor) {
  const auto array = ParseNpy(
      Npy("{'descr': '|u1', 'fortran_order': True, 'shape': (2, 3), }", std::string("\0\3\1\4\2\5", 6)), "f.npy");
  ASSERT_TRUE(array.ok()) << array.status();
  for (int64_t i = 0; i < 6; ++i) EXPECT_EQ(array->int_at(i), i);
}

TEST(Npy, RefusesEveryCutOffFile) {
  const std::string whole = SerializeNpy(Array(DType::kFloat32, {2, 3}));
  for (size_t size = 0; size < whole.size(); ++size) {
    EXPECT_EQ(ParseNpy(whole.substr(0, size), "cut.npy").status().code(), absl::StatusCode::kDataLoss) << size;
  }
  EXPECT_EQ(ParseNpy(whole.substr(0, whole.size() - 4), "cut.npy").status().message(),
            "cut.npy is no whole .npy file (it has 20 bytes of data where its shape needs 24); write it again with "
            "numpy.save");
}

TEST(Npy, NamesAnElementTypeThatNoTensorHas) {
  EXPECT_EQ(ParseNpy(Npy("{'descr': '<c8', 'fortran_order': False, 'shape': (1,), }", "12345678"), "c.npy")
                .status()
                .message(),
            "c.npy has elements of type '<c8'; convert them with numpy's astype, for example to float32");
}

}  // namespace
}  // namespace diapason::api
