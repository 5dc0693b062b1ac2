#include "compiler/tensor/tensor_box.h"

#include <algorithm>

namespace diapason {
namespace {

// Of CUtensorMap (CUDA driver API, cuTensorMapEncodeTiled and cuTensorMapEncodeIm2col).
constexpr int64_t kLongestBox = 256, kLongestTensor = int64_t{1} << 32, kLongestStride = int64_t{1} << 40, kUnit = 16,
                  kMostWindows = 1024, kLongestStep = 8;

// From the first element of a dimension to its last one; -1: no buffer has so much.
int64_t Reach(int64_t extent, int64_t stride) {
  return extent - 1 > (int64_t{1} << 60) / stride ? -1 : (extent - 1) * stride;
}

// From the image's last element to that of the last window.
int64_t LastWindow(const TensorBox& box, size_t d) {
  const WindowDim& w = box.windows[d - 1];
  return w.first + (w.windows - 1) * w.step - (box.extents[d] - 1);
}

// A dimension of images has 16, 8 or 5 bits for where windows begin, and for what is where in them.
bool AreCopyableWindows(const TensorBox& box) {
  const size_t rank = box.extents.size();
  if (rank < 3 || box.windows.size() != rank - 2 || box.box.size() != 2) return false;
  const int64_t bits = rank == 3 ? 16 : rank == 4 ? 8 : 5, half = int64_t{1} << (bits - 1), all = int64_t{1} << bits;
  for (size_t d = 1; d + 1 < rank; ++d) {
    const WindowDim& w = box.windows[d - 1];
    if (w.windows < 1 || w.windows > kLongestTensor || w.step < 1 || w.step > kLongestStep || w.first < -half ||
        w.first >= half || w.elements < 1 || w.elements > all || w.apart < 1 || w.apart > all ||
        (w.elements - 1) * w.apart >= all)
      return false;
    const int64_t last = LastWindow(box, d);
    if (last < -half || last >= half) return false;
  }
  return true;
}

}  // namespace

int64_t TensorBox::elements() const {
  int64_t product = 1;
  for (int64_t extent : box) product *= extent;
  return product;
}

DriverTensorBox ForDriver(const TensorBox& box, int element_bytes) {
  // CU_TENSOR_MAP_DATA_TYPE_UINT8, _UINT16, _UINT32 and _UINT64; CU_TENSOR_MAP_SWIZZLE_NONE, _32B, _64B and _128B.
  DriverTensorBox made;
  made.type = element_bytes == 1 ? 0 : element_bytes == 2 ? 1 : element_bytes == 4 ? 2 : 4;
  made.swizzle = box.swizzle == 32 ? 1 : box.swizzle == 64 ? 2 : box.swizzle == 128 ? 3 : 0;
  made.offset = box.offset * element_bytes;
  for (size_t d = 0; d < box.extents.size(); ++d) {
    made.extents.push_back(static_cast<uint64_t>(box.extents[d]));
    if (d > 0) made.strides.push_back(static_cast<uint64_t>(box.strides[d] * element_bytes));
  }
  for (int64_t extent : box.box) made.box.push_back(static_cast<uint32_t>(extent));
  if (box.windows.empty()) return made;
  made.steps.assign(box.extents.size(), 1);
  for (size_t d = 1; d + 1 < box.extents.size(); ++d) {
    made.first.push_back(static_cast<int>(box.windows[d - 1].first));
    made.last.push_back(static_cast<int>(LastWindow(box, d)));
    made.steps[d] = static_cast<uint32_t>(box.windows[d - 1].step);
  }
  return made;
}

bool IsCopyable(const TensorBox& box, int64_t element_bytes, int64_t buffer_elements) {
  const size_t rank = box.extents.size();
  if (rank < 1 || rank > TensorBox::kMostDimensions || box.strides.size() != rank) return false;
  if (box.windows.empty() && box.box.size() != rank) return false;
  if (box.offset < 0 || box.offset > buffer_elements || box.offset * element_bytes % kUnit != 0) return false;
  int64_t left = buffer_elements - 1 - box.offset;
  for (size_t d = 0; d < rank; ++d) {
    if (box.extents[d] < 1 || box.extents[d] > kLongestTensor) return false;
    const bool strided = box.strides[d] > 0 && box.strides[d] < kLongestStride / element_bytes &&
                         box.strides[d] * element_bytes % kUnit == 0;
    if (d == 0 ? box.strides[d] != 1 : !strided) return false;
    const int64_t reach = Reach(box.extents[d], box.strides[d]);
    if (reach < 0 || reach > left) return false;
    left -= reach;
  }
  if (!box.windows.empty() && !AreCopyableWindows(box)) return false;
  for (size_t d = 0; d < box.box.size(); ++d) {
    const int64_t longest = d == 1 && !box.windows.empty() ? kMostWindows : kLongestBox;
    if (box.box[d] < 1 || box.box[d] > longest) return false;
  }
  const int64_t row = box.box[0] * element_bytes;
  const bool swizzled = box.swizzle == 32 || box.swizzle == 64 || box.swizzle == 128;
  return box.swizzle == 0 ? row % kUnit == 0 : swizzled && row == box.swizzle;
}

}  // namespace diapason
