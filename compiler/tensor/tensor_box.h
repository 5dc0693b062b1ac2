// Boxes of tensors in global memory, as tensor copies move them (Tensor Memory Accelerator; PTX ISA, "Tensors"): what a
// kernel's tensor maps are made of.
#pragma once

#include <cstdint>
#include <vector>

namespace diapason {

// Dimensions are in order from the innermost; numbers are elements.
struct TensorBox {
  int64_t offset = 0;            // of the tensor's first element in its buffer
  std::vector<int64_t> extents;  // of the tensor; outside of them a copy reads zeros
  std::vector<int64_t> strides;  // of the tensor; the innermost is 1
  std::vector<int64_t> box;      // extents of what one copy moves. In shared memory it has no gaps
  // Bytes: how it is swizzled in shared memory (32, 64, 128; 0: not), which then is as long as a row of the box.
  int swizzle = 0;
  bool operator==(const TensorBox&) const = default;

  int64_t rank() const { return static_cast<int64_t>(extents.size()); }
  int64_t elements() const;  // of the box
  int64_t end() const;       // the element behind the tensor's last one
};

// Whether hardware can copy such boxes of elements of so many bytes, out of a buffer of so many elements. Total: the
// numbers may come from a peer.
bool IsCopyable(const TensorBox& box, int64_t element_bytes, int64_t buffer_elements);

// A box in the units and numbers of the driver (cuTensorMapEncodeTiled, CUDA 12.0 and later), which older headers lack.
struct DriverTensorBox {
  int type = 0, swizzle = 0;
  int64_t offset = 0;             // bytes
  std::vector<uint64_t> extents;  // elements
  std::vector<uint64_t> strides;  // bytes, of all dimensions but the innermost
  std::vector<uint32_t> box;      // elements
};
// Elements are taken for unsigned integers: what is copied is not looked at, and zeros are zeros of all types.
DriverTensorBox ForDriver(const TensorBox& box, int element_bytes);

}  // namespace diapason
