#include "compiler/tensor/library_call.h"

#include <iterator>
#include <limits>

#include "absl/strings/str_cat.h"

namespace diapason {
namespace {

constexpr int64_t kIntMax = std::numeric_limits<int32_t>::max();
// Elements of a tensor: beyond this no device has memory, and products of two such numbers fit 64 bits.
constexpr int64_t kMaxElements = int64_t{1} << 40;

// As cudnn.h numbers them.
constexpr const char* kConvolutionAlgorithms[] = {
    "implicit_gemm", "implicit_precomp_gemm", "gemm", "direct", "fft", "fft_tiling", "winograd", "winograd_nonfused"};

bool IsPlainFloat(DType dtype) { return dtype == DType::kFloat32 || dtype == DType::kFloat16; }

// The product of factors, or -1 when it is no number of elements.
int64_t Elements(std::initializer_list<int64_t> factors) {
  int64_t product = 1;
  for (int64_t factor : factors) {
    if (factor < 1 || factor > kMaxElements / product) return -1;
    product *= factor;
  }
  return product;
}

absl::Status Bad(const std::string& why) { return absl::InvalidArgumentError(absl::StrCat("a library call ", why)); }

// The fields of each kind of call, in the order in which they are stored.
template <typename Call, typename Visitor>
void VisitFields(Call& call, const Visitor& visit) {
  if constexpr (std::is_same_v<std::remove_const_t<Call>, ConvolutionCall>) {
    visit(call.dtype), visit(call.nhwc), visit(call.batch), visit(call.channels), visit(call.height), visit(call.width);
    visit(call.filters), visit(call.kernel_h), visit(call.kernel_w), visit(call.groups), visit(call.out_h);
    visit(call.out_w), visit(call.stride_h), visit(call.stride_w), visit(call.pad_h), visit(call.pad_w);
    visit(call.dilation_h), visit(call.dilation_w), visit(call.bias), visit(call.residual), visit(call.relu);
  } else {
    visit(call.in), visit(call.out), visit(call.batch), visit(call.m), visit(call.n), visit(call.k);
    visit(call.transpose_a), visit(call.transpose_b), visit(call.lda), visit(call.ldb), visit(call.ldc);
    visit(call.stride_a), visit(call.stride_b), visit(call.stride_c);
  }
}

// Reads the fields of a call; not OK when one is out of the range of its type, or the count differs.
class FieldReader {
 public:
  explicit FieldReader(absl::Span<const int64_t> numbers) : numbers_(numbers) {}
  template <typename Call>
  bool Read(Call* call) {
    VisitFields(*call, [this](auto& field) { Take(&field); });
    return ok_ && next_ == numbers_.size();
  }

 private:
  int64_t Next() {
    ok_ = ok_ && next_ < numbers_.size();
    return ok_ ? numbers_[next_++] : 0;
  }
  void Take(int64_t* field) { *field = Next(); }
  void Take(bool* field) {
    const int64_t value = Next();
    ok_ = ok_ && (value == 0 || value == 1);
    *field = value == 1;
  }
  void Take(DType* field) {
    const int64_t value = Next();
    for (DType known : {DType::kFloat32, DType::kFloat16}) {
      if (static_cast<int64_t>(known) != value) continue;
      *field = known;
      return;
    }
    ok_ = false;
  }

  const absl::Span<const int64_t> numbers_;
  size_t next_ = 0;
  bool ok_ = true;
};

absl::Status CheckCall(const ConvolutionCall& c) {
  if (!IsPlainFloat(c.dtype)) return Bad("convolves neither float32 nor float16");
  for (int64_t extent : {c.batch, c.channels, c.height, c.width, c.filters, c.kernel_h, c.kernel_w, c.groups, c.out_h,
                         c.out_w, c.stride_h, c.stride_w, c.dilation_h, c.dilation_w})
    if (extent < 1 || extent > kIntMax) return Bad(absl::StrCat("has an extent of ", extent));
  if (c.pad_h < 0 || c.pad_w < 0 || c.pad_h > kIntMax / 4 || c.pad_w > kIntMax / 4) return Bad("has a padding below 0");
  if (c.channels % c.groups != 0 || c.filters % c.groups != 0) return Bad("has groups that do not divide its channels");
  const auto output = [](int64_t extent, int64_t pad, int64_t kernel, int64_t dilation, int64_t stride) {
    const int64_t room = extent + 2 * pad - ((kernel - 1) * dilation + 1);
    return room < 0 ? 0 : room / stride + 1;
  };
  if (output(c.height, c.pad_h, c.kernel_h, c.dilation_h, c.stride_h) != c.out_h ||
      output(c.width, c.pad_w, c.kernel_w, c.dilation_w, c.stride_w) != c.out_w)
    return Bad("has an output that its window does not make");
  for (int64_t elements :
       {Elements({c.batch, c.channels, c.height, c.width}), Elements({c.batch, c.filters, c.out_h, c.out_w}),
        Elements({c.filters, c.channels / c.groups, c.kernel_h, c.kernel_w})})
    if (elements < 0) return Bad("has a tensor too large for any device");
  return absl::OkStatus();
}

// Elements between the first and the last one of a matrix of `rows` rows of `columns` elements, both included.
int64_t MatrixElements(int64_t batch, int64_t stride, int64_t rows, int64_t columns, int64_t ld) {
  return (batch - 1) * stride + (rows - 1) * ld + columns;
}

absl::Status CheckCall(const GemmCall& g) {
  if (!IsPlainFloat(g.in) || g.out != DType::kFloat32) return Bad("multiplies neither float32 nor float16 to float32");
  for (int64_t extent : {g.batch, g.m, g.n, g.k, g.lda, g.ldb, g.ldc})
    if (extent < 1 || extent > kIntMax) return Bad(absl::StrCat("has an extent of ", extent));
  if (g.lda < (g.transpose_a ? g.m : g.k) || g.ldb < (g.transpose_b ? g.k : g.n) || g.ldc < g.n)
    return Bad("has rows that overlap");
  for (int64_t stride : {g.stride_a, g.stride_b, g.stride_c})
    if (stride < 0 || (g.batch > 1 && stride > kMaxElements / g.batch))
      return Bad("has batches that lie too far apart");
  if (g.batch > 1 && g.stride_c < MatrixElements(1, 0, g.m, g.n, g.ldc)) return Bad("has results that overlap");
  return absl::OkStatus();
}

std::string TextOf(const ConvolutionCall& c) {
  const std::string image = c.nhwc ? absl::StrCat("NHWC ", c.batch, "x", c.height, "x", c.width, "x", c.channels)
                                   : absl::StrCat("NCHW ", c.batch, "x", c.channels, "x", c.height, "x", c.width);
  std::string text =
      absl::StrCat("convolution ", NameOf(c.dtype), " ", image, " with ", c.filters, " filters ", c.kernel_h, "x",
                   c.kernel_w, " to ", c.out_h, "x", c.out_w, ", stride ", c.stride_h, "x", c.stride_w, ", padding ",
                   c.pad_h, "x", c.pad_w, ", dilation ", c.dilation_h, "x", c.dilation_w, ", groups ", c.groups);
  if (c.bias) text += ", bias";
  if (c.residual) text += ", residual";
  if (c.relu) text += ", relu";
  return text;
}

std::string TextOf(const GemmCall& g) {
  std::string text = absl::StrCat("product ", NameOf(g.in), " ", g.m, "x", g.k, g.transpose_a ? " (transposed)" : "",
                                  " by ", g.k, "x", g.n, g.transpose_b ? " (transposed)" : "", " to ", NameOf(g.out),
                                  ", leading dimensions ", g.lda, " ", g.ldb, " ", g.ldc);
  if (g.batch > 1)
    absl::StrAppend(&text, ", ", g.batch, " of them ", g.stride_a, " ", g.stride_b, " ", g.stride_c, " apart");
  return text;
}

}  // namespace

const char* NameOf(Library library) { return library == Library::kCudnn ? "cudnn" : "cublas"; }
const char* TitleOf(Library library) { return library == Library::kCudnn ? "cuDNN" : "cuBLAS"; }

const std::vector<Library>& AllLibraries() {
  static const auto& all = *new std::vector<Library>{Library::kCudnn, Library::kCublas};
  return all;
}

std::string AlgorithmName(Library library, int64_t algorithm) {
  if (library == Library::kCublas) return algorithm == 0 ? "default" : absl::StrCat(algorithm);
  const bool known = algorithm >= 0 && algorithm < static_cast<int64_t>(std::size(kConvolutionAlgorithms));
  return known ? kConvolutionAlgorithms[algorithm] : absl::StrCat(algorithm);
}

std::vector<LibraryCall::Operand> LibraryCall::Operands() const {
  if (const auto* g = std::get_if<GemmCall>(&what)) {
    return {{"a", g->in,
             MatrixElements(g->batch, g->stride_a, g->transpose_a ? g->k : g->m, g->transpose_a ? g->m : g->k, g->lda)},
            {"b", g->in,
             MatrixElements(g->batch, g->stride_b, g->transpose_b ? g->n : g->k, g->transpose_b ? g->k : g->n, g->ldb)},
            {"c", g->out, MatrixElements(g->batch, g->stride_c, g->m, g->n, g->ldc)}};
  }
  const ConvolutionCall& c = std::get<ConvolutionCall>(what);
  const int64_t y = c.batch * c.filters * c.out_h * c.out_w;
  std::vector<Operand> operands = {{"x", c.dtype, c.batch * c.channels * c.height * c.width},
                                   {"w", c.dtype, c.filters * (c.channels / c.groups) * c.kernel_h * c.kernel_w}};
  if (c.bias) operands.push_back({"bias", c.dtype, c.filters});
  if (c.residual) operands.push_back({"residual", c.dtype, y});
  operands.push_back({"y", c.dtype, y});
  return operands;
}

absl::Status LibraryCall::Check() const {
  if (algorithm < 0 || algorithm > kIntMax) return Bad(absl::StrCat("has an algorithm ", algorithm));
  return std::visit([](const auto& call) { return CheckCall(call); }, what);
}

std::string LibraryCall::ToString() const {
  return absl::StrCat(NameOf(library()), " ", std::visit([](const auto& call) { return TextOf(call); }, what),
                      ", algorithm ", AlgorithmName(library(), algorithm));
}

std::vector<int64_t> LibraryCall::ToNumbers() const {
  std::vector<int64_t> numbers = {static_cast<int64_t>(library()), algorithm};
  std::visit(
      [&](const auto& call) {
        VisitFields(call, [&](const auto& field) { numbers.push_back(static_cast<int64_t>(field)); });
      },
      what);
  return numbers;
}

absl::StatusOr<LibraryCall> LibraryCall::FromNumbers(absl::Span<const int64_t> numbers) {
  const absl::Status damaged = absl::DataLossError("these numbers are no library call");
  if (numbers.size() < 2) return damaged;
  LibraryCall call;
  call.algorithm = numbers[1];
  FieldReader reader(numbers.subspan(2));
  bool ok = false;
  if (numbers[0] == static_cast<int64_t>(Library::kCudnn)) ok = reader.Read(&call.what.emplace<ConvolutionCall>());
  if (numbers[0] == static_cast<int64_t>(Library::kCublas)) ok = reader.Read(&call.what.emplace<GemmCall>());
  return ok && call.Check().ok() ? absl::StatusOr<LibraryCall>(call) : damaged;
}

}  // namespace diapason
