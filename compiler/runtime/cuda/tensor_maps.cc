#include "compiler/runtime/cuda/tensor_maps.h"

#include "absl/strings/str_cat.h"
#include "base/check.h"

namespace diapason {
namespace {

// Numbers of cuda.h from 12.0 on.
constexpr int kNoInterleave = 0, kPromoteTo256Bytes = 3, kZerosOutside = 0;

absl::Status Encode(const CudaLibrary& cuda, const Kernel::TensorMap& map, CUdeviceptr buffer, EncodedTensorMap* to) {
  DriverTensorBox box = ForDriver(map.box, map.element_bytes);
  box.strides.push_back(0);  // behind the last that is read, so that there is one
  const std::vector<uint32_t> ones(box.extents.size(), 1);
  static_assert(sizeof(cuuint64_t) == sizeof(uint64_t) && sizeof(cuuint32_t) == sizeof(uint32_t));
  void* address = reinterpret_cast<void*>(static_cast<uintptr_t>(buffer + static_cast<CUdeviceptr>(box.offset)));
  const auto rank = static_cast<cuuint32_t>(box.extents.size());
  const auto* extents = reinterpret_cast<const cuuint64_t*>(box.extents.data());
  const auto* strides = reinterpret_cast<const cuuint64_t*>(box.strides.data());
  const CUresult result =
      map.box.windows.empty()
          ? cuda.TensorMapEncodeTiled(to->words, box.type, rank, address, extents, strides, box.box.data(), ones.data(),
                                      kNoInterleave, box.swizzle, kPromoteTo256Bytes, kZerosOutside)
          : cuda.TensorMapEncodeIm2col(to->words, box.type, rank, address, extents, strides, box.first.data(),
                                       box.last.data(), box.box[0], box.box[1], box.steps.data(), kNoInterleave,
                                       box.swizzle, kPromoteTo256Bytes, kZerosOutside);
  return cuda.ToStatus(result, "making a tensor map");
}

}  // namespace

absl::StatusOr<std::vector<EncodedTensorMap>> EncodeTensorMaps(const CudaLibrary& cuda, const Kernel& kernel,
                                                               const std::vector<CUdeviceptr>& args) {
  std::vector<EncodedTensorMap> maps(kernel.tensor_maps.size());
  if (!maps.empty() && (cuda.TensorMapEncodeTiled == nullptr || cuda.TensorMapEncodeIm2col == nullptr))
    return absl::FailedPreconditionError(
        absl::StrCat("kernel '", kernel.name, "' uses tensor maps, which need a driver of CUDA 12.0 or later"));
  for (size_t i = 0; i < maps.size(); ++i) {
    const Kernel::TensorMap& map = kernel.tensor_maps[i];
    DIAPASON_CHECK(map.arg >= 0 && map.arg < static_cast<int>(args.size()));
    RETURN_IF_ERROR(Encode(cuda, map, args[map.arg], &maps[i]));
  }
  return maps;
}

}  // namespace diapason
