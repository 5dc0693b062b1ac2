// Tensors in files, and data outside of a model's file.
#include "compiler/graph/onnx/tensor.h"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>

#include "../testing.h"
#include "compiler/graph/onnx/import.h"
#include "model_builder.h"
#include "onnx/onnx_pb.h"

namespace diapason {
namespace {

namespace fs = std::filesystem;

class Tensors : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::path(testing::TempDir()) /
              ("onnx_tensors_" + std::string(testing::UnitTest::GetInstance()->current_test_info()->name()));
    fs::remove_all(folder_);
    fs::create_directories(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }

  std::string Write(const std::string& name, const std::string& bytes) {
    std::string path = (folder_ / name).string();
    std::ofstream(path, std::ios::binary) << bytes;
    return path;
  }
  std::string Path(const std::string& name) { return (folder_ / name).string(); }

  // The error of reading a tensor, without the folder.
  std::string ErrorOf(const onnx::TensorProto& tensor) {
    absl::StatusOr<Array> array = ReadOnnxTensor(Write("t.pb", tensor.SerializeAsString()));
    std::string text = array.ok() ? "no error" : std::string(array.status().message());
    for (size_t at; (at = text.find(folder_.string() + "/")) != std::string::npos;)
      text.erase(at, folder_.string().size() + 1);
    return text;
  }

  fs::path folder_;
};

struct NarrowCase {
  int data_type;
  std::string bytes;
  std::vector<double> values;
};

// By hand from the formats: sign, exponent, mantissa; two numbers of 4 bits a byte, the low one first.
TEST_F(Tensors, OfNarrowTypesBecomeWider) {
  for (const NarrowCase& c : std::vector<NarrowCase>{
           {17, std::string("\x38\x7e\x81", 3), {1, 448, -0.001953125}},  // e4m3fn: 2^0, 1.75 * 2^8, -2^-9
           {19, std::string("\x3c\x7b\xfc", 3), {1, 57344, -HUGE_VAL}},   // e5m2: 2^0, 1.75 * 2^15, -infinity
           {22, std::string("\x7f\x08", 2), {-1, 7, -8}},                 // int4
           {24, std::string("\x7f\x82\x00", 3), {1, 8, 0x1p-127}},        // e8m0: powers of two
           {21, std::string("\x7f\x08", 2), {15, 7, 8}},                  // uint4
           {4, std::string("\xff\xff\x01\x00", 4), {65535, 1}},           // uint16
           {5, std::string("\xff\xff\x01\x00", 4), {-1, 1}}}) {           // int16
    SCOPED_TRACE(c.data_type);
    onnx::TensorProto tensor;
    tensor.set_data_type(c.data_type);
    tensor.add_dims(static_cast<int64_t>(c.values.size()));
    tensor.set_raw_data(c.bytes);
    const absl::StatusOr<Array> array = ReadOnnxTensor(Write("t.pb", tensor.SerializeAsString()));
    ASSERT_TRUE(array.ok()) << array.status();
    for (size_t i = 0; i < c.values.size(); ++i) EXPECT_EQ(array->at(static_cast<int64_t>(i)), c.values[i]) << i;
  }
}

constexpr DType kAll[] = {DType::kFloat32, DType::kFloat16, DType::kBfloat16, DType::kFloat64, DType::kInt32,
                          DType::kInt64,   DType::kBool,    DType::kInt8,     DType::kUint8};

Array Sample(DType dtype) {
  Array array(dtype, {2, 3});
  for (int i = 0; i < 6; ++i)
    IsFloat(dtype) ? array.set(i, i - 2.5) : array.set_int(i, dtype == DType::kUint8 ? i + 250 : i - 2);
  if (dtype == DType::kBool) {
    for (int i = 0; i < 6; ++i) array.set_int(i, i % 2);
  }
  return array;
}

TEST_F(Tensors, RawDataOfAllTypes) {
  for (DType dtype : kAll) {
    onnx::TensorProto tensor;
    SetTensor(tensor, "x", Sample(dtype));
    auto array = ReadOnnxTensor(Write("x.pb", tensor.SerializeAsString()));
    ASSERT_TRUE(array.ok()) << NameOf(dtype) << " " << array.status();
    ExpectNear(*array, Sample(dtype), 0);
  }
}

TEST_F(Tensors, TypedFieldsOfAllTypes) {
  for (DType dtype : kAll) {
    Array want = Sample(dtype);
    onnx::TensorProto tensor;
    SetTensor(tensor, "x", want);
    tensor.clear_raw_data();
    for (int i = 0; i < 6; ++i) {
      switch (dtype) {
        case DType::kFloat32: tensor.add_float_data(want.as<float>()[i]); break;
        case DType::kFloat64: tensor.add_double_data(want.as<double>()[i]); break;
        case DType::kInt64: tensor.add_int64_data(want.as<int64_t>()[i]); break;
        case DType::kFloat16:
        case DType::kBfloat16: tensor.add_int32_data(want.as<uint16_t>()[i]); break;
        default: tensor.add_int32_data(static_cast<int32_t>(want.int_at(i)));
      }
    }
    auto array = ReadOnnxTensor(Write("x.pb", tensor.SerializeAsString()));
    ASSERT_TRUE(array.ok()) << NameOf(dtype) << " " << array.status();
    ExpectNear(*array, want, 0);
  }
}

TEST_F(Tensors, ScalarsAndEmptyTensors) {
  onnx::TensorProto tensor;
  SetTensor(tensor, "x", Array::FromFloats({}, {3}));
  ExpectNear(ReadOnnxTensor(Write("x.pb", tensor.SerializeAsString())).value(), Array::FromFloats({}, {3}), 0);
  SetTensor(tensor, "x", Array(DType::kFloat32, {0}));
  EXPECT_EQ(ReadOnnxTensor(Write("x.pb", tensor.SerializeAsString()))->shape, Ints{0});
}

TEST_F(Tensors, Errors) {
  EXPECT_EQ(ReadOnnxTensor("no/such.pb").status().message(),
            "cannot read 'no/such.pb': No such file or directory; name a tensor's file, as .npy or .pb");
  onnx::TensorProto tensor;
  EXPECT_EQ(ErrorOf(tensor),
            "'t.pb' is no ONNX tensor, or it was cut off; give a file with one TensorProto, or a .npy file");
  SetTensor(tensor, "x", Array::FromFloats({2}, {3, 4}));
  onnx::TensorProto bad = tensor;
  bad.set_raw_data("1234");
  EXPECT_EQ(ErrorOf(bad), "'t.pb': tensor 'x' has 4 bytes of data where its shape asks for 8");
  bad.clear_raw_data();
  EXPECT_EQ(ErrorOf(bad), "'t.pb': tensor 'x' has 0 elements of data where its shape asks for 2");
  bad = tensor;
  bad.set_dims(0, -2);
  EXPECT_EQ(ErrorOf(bad), "'t.pb': tensor 'x' has an extent of -2");
  bad.set_dims(0, INT64_MAX);
  EXPECT_EQ(ErrorOf(bad), "'t.pb': tensor 'x' is too large");
  bad.set_data_type(onnx::TensorProto::COMPLEX64);
  EXPECT_EQ(ErrorOf(bad), "'t.pb': tensor 'x' has type COMPLEX64; bool, integers and floats are supported");
  bad.set_data_type(77);
  EXPECT_EQ(ErrorOf(bad), "'t.pb': tensor 'x' has type number 77; bool, integers and floats are supported");
}

void SetExternal(onnx::TensorProto& tensor, const std::vector<std::pair<std::string, std::string>>& entries) {
  tensor.clear_raw_data();
  tensor.clear_external_data();
  tensor.set_data_location(onnx::TensorProto::EXTERNAL);
  for (const auto& [key, value] : entries) {
    onnx::StringStringEntryProto* entry = tensor.add_external_data();
    entry->set_key(key);
    entry->set_value(value);
  }
}

// Large and small weights in files beside the model; shapes too.
TEST_F(Tensors, AModelWithExternalData) {
  Array weight = RandomArray({DType::kFloat32, {2000}}, 1), shape(DType::kInt64, {2});
  shape.set_int(0, 20);
  shape.set_int(1, 100);
  ModelBuilder model(13);
  model.Input("x", {2000}).Initializer("w", weight).Initializer("s", shape);
  model.Node("Add", {"x", "w"}, {"a"}).Node("Reshape", {"a", "s"}, {"y"}).Output("y");
  auto* initializers = model.proto().mutable_graph()->mutable_initializer();
  SetExternal(*initializers->Mutable(0), {{"location", "data/weights.bin"}, {"offset", "16"}, {"length", "8000"}});
  SetExternal(*initializers->Mutable(1), {{"location", "data/weights.bin"}, {"length", "16"}});
  fs::create_directories(folder_ / "data");
  std::string bytes(shape.data.begin(), shape.data.end());
  Write("data/weights.bin", bytes + std::string(weight.data.begin(), weight.data.end()));
  auto network = ImportOnnx(Write("m.onnx", model.Bytes()), {});
  ASSERT_TRUE(network.ok()) << network.status();
  EXPECT_EQ(network->tensors[network->outputs[0]].type.ToString(), "float32 20x100");
  Array got = EvaluateNetwork(*network, {Array(DType::kFloat32, {2000})}).value()[0];
  got.shape = {2000};
  ExpectNear(got, weight, 0);
}

TEST_F(Tensors, ExternalDataThatCannotBeUsed) {
  onnx::TensorProto tensor;
  SetTensor(tensor, "x", Array::FromFloats({2}, {3, 4}));
  Write("x.bin", "1234567");
  SetExternal(tensor, {{"location", "x.bin"}});
  EXPECT_EQ(ErrorOf(tensor), "'t.pb': tensor 'x' needs 8 bytes at 0 of 'x.bin', which has 7");
  SetExternal(tensor, {{"location", "x.bin"}, {"length", "4"}});
  EXPECT_EQ(ErrorOf(tensor), "'t.pb': tensor 'x' needs 8 bytes at 0 of 'x.bin', which has 7 (the model says 4)");
  SetExternal(tensor, {{"location", "x.bin"}, {"offset", "9223372036854775807"}});
  EXPECT_EQ(ErrorOf(tensor), "'t.pb': tensor 'x' needs 8 bytes at 9223372036854775807 of 'x.bin', which has 7");
  SetExternal(tensor, {{"location", "x.bin"}, {"offset", "-1"}});
  EXPECT_EQ(ErrorOf(tensor), "'t.pb': tensor 'x' has external data with offset '-1', which is no size");
  SetExternal(tensor, {{"location", "y.bin"}});
  EXPECT_EQ(ErrorOf(tensor),
            "'t.pb': tensor 'x' has its data in 'y.bin', which cannot be read: No such file or directory");
  for (const char* outside : {"/etc/passwd", "../x.bin", "a/../../x.bin", ""}) {
    SetExternal(tensor, {{"location", outside}});
    EXPECT_EQ(ErrorOf(tensor),
              std::string("'t.pb': tensor 'x' has external data in '") + outside + "', which is not beside the model");
  }
}

// A link leads anywhere, and a model chooses its name.
TEST_F(Tensors, ExternalDataBehindALink) {
  onnx::TensorProto tensor;
  SetTensor(tensor, "x", Array::FromFloats({2}, {3, 4}));
  fs::create_directories(folder_ / "real");
  Write("real/x.bin", "12345678");
  fs::create_symlink("real/x.bin", folder_ / "link.bin");
  fs::create_directory_symlink("real", folder_ / "folder");
  SetExternal(tensor, {{"location", "real/../real/./x.bin"}});
  EXPECT_EQ(ErrorOf(tensor), "no error");
  SetExternal(tensor, {{"location", "link.bin"}});
  EXPECT_EQ(ErrorOf(tensor), "'t.pb': tensor 'x' has external data in 'link.bin', which is a symbolic link");
  SetExternal(tensor, {{"location", "folder/x.bin"}});
  EXPECT_EQ(
      ErrorOf(tensor),
      "'t.pb': tensor 'x' has external data in 'folder/x.bin', which lies behind a symbolic link, or in no folder");
  SetExternal(tensor, {{"location", "real"}});
  EXPECT_EQ(ErrorOf(tensor), "'t.pb': tensor 'x' has its data in 'real', which cannot be read: no regular file");
}

void SetSparse(onnx::SparseTensorProto& sparse, const Array& values, const Array& indices, const Ints& dims) {
  SetTensor(*sparse.mutable_values(), "w", values);
  SetTensor(*sparse.mutable_indices(), "", indices);
  sparse.mutable_dims()->Assign(dims.begin(), dims.end());
}

// x + a sparse w of 2x3.
absl::StatusOr<Network> ImportSparse(const Array& values, const Array& indices, const Ints& dims = {2, 3}) {
  ModelBuilder model(13);
  model.Input("x", {2, 3}).Node("Add", {"x", "w"}, {"y"}).Output("y");
  SetSparse(*model.proto().mutable_graph()->add_sparse_initializer(), values, indices, dims);
  return model.Import();
}

TEST_F(Tensors, SparseInitializersHaveZerosBetweenTheirValues) {
  const Array values = Array::FromFloats({2}, {5, 7});
  Array pairs(DType::kInt64, {2, 2});
  for (const auto& [at, index] : {std::pair{1, 1}, {2, 1}, {3, 2}}) pairs.set_int(at, index);
  for (const Array& indices : {IntList({1, 5}), pairs}) {  // both are (0, 1) and (1, 2)
    const auto network = ImportSparse(values, indices);
    ASSERT_TRUE(network.ok()) << network.status();
    const auto outputs = EvaluateNetwork(*network, {Counting({2, 3})});
    ASSERT_TRUE(outputs.ok()) << outputs.status();
    ExpectNear((*outputs)[0], Array::FromFloats({2, 3}, {1, 7, 3, 4, 5, 13}), 0);
  }
}

TEST_F(Tensors, SparseConstantsToo) {
  ModelBuilder model(13);
  model.Input("x", {3}).Node("Constant", {}, {"w"}).Node("Mul", {"x", "w"}, {"y"}).Output("y");
  onnx::AttributeProto& attribute = *model.proto().mutable_graph()->mutable_node(0)->add_attribute();
  attribute.set_name("sparse_value");
  attribute.set_type(onnx::AttributeProto::SPARSE_TENSOR);
  SetSparse(*attribute.mutable_sparse_tensor(), Array::FromFloats({1}, {4}), IntList({2}), {3});
  const auto network = model.Import();
  ASSERT_TRUE(network.ok()) << network.status();
  ExpectNear((*EvaluateNetwork(*network, {Counting({3})}))[0], Array::FromFloats({3}, {0, 0, 12}), 0);
}

TEST_F(Tensors, SparseOnesThatDoNotFitAreRefused) {
  const auto error = [](const absl::StatusOr<Network>& network) { return std::string(network.status().message()); };
  const Array two = Array::FromFloats({2}, {5, 7});
  EXPECT_EQ(error(ImportSparse(two, IntList({1, 6}))),
            "cannot import 'model.onnx': tensor 'w' is sparse and has an index outside (that of value 1)");
  EXPECT_EQ(error(ImportSparse(two, IntList({-1, 2}))),
            "cannot import 'model.onnx': tensor 'w' is sparse and has an index outside (that of value 0)");
  EXPECT_EQ(error(ImportSparse(two, IntList({1, 2, 3}))),
            "cannot import 'model.onnx': tensor 'w' is sparse and has indices that do not fit its values");
  EXPECT_EQ(error(ImportSparse(two, IntList({1, 2}), {1 << 15, 1 << 15})),
            "cannot import 'model.onnx': tensor 'w' is sparse and has more than 268435456 elements");
}

TEST_F(Tensors, ExternalDataOfAModelThatCameAlone) {
  ModelBuilder model(13);
  model.Input("x", {2}).Initializer("w", Array::FromFloats({2}, {3, 4})).Node("Add", {"x", "w"}, {"y"}).Output("y");
  SetExternal(*model.proto().mutable_graph()->mutable_initializer(0), {{"location", "x.bin"}});
  Write("x.bin", "12345678");
  const std::string path = Write("m.onnx", model.Bytes());
  EXPECT_TRUE(ImportOnnx(path, {}).ok());
  ModelOptions alone;
  alone.external_data = false;
  EXPECT_EQ(ImportOnnx(path, alone).status(),
            absl::InvalidArgumentError("cannot import '" + path +
                                       "': tensor 'w' has its data in another file, which a "
                                       "service does not have: save the model as one file"));
}

}  // namespace
}  // namespace diapason
