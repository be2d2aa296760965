// Imports and exports Arrays with DLPack.
#include "runtime/dlpack.h"

#include <cstdint>
#include <vector>

#include <fmt/format.h>

#include "onepass/array.h"
#include "onepass/error.h"
#include "runtime/cuda/array.h"

namespace onepass {
namespace {

constexpr std::int32_t kCpu = 1, kCuda = 2, kCudaHost = 3;  // kDLCPU, kDLCUDA, kDLCUDAHost: pinned, so also CPU memory

struct Type {
  DType dtype;
  std::uint8_t code, bits;  // kDLInt 0, kDLUInt 1, kDLFloat 2, kDLBfloat 4, kDLBool 6
};
constexpr Type kTypes[] = {
    {DType::Bool, 6, 8},  {DType::I8, 0, 8},   {DType::I16, 0, 16}, {DType::I32, 0, 32}, {DType::I64, 0, 64},
    {DType::U8, 1, 8},    {DType::U16, 1, 16}, {DType::U32, 1, 32}, {DType::U64, 1, 64}, {DType::F16, 2, 16},
    {DType::BF16, 4, 16}, {DType::F32, 2, 32}, {DType::F64, 2, 64},
};

constexpr DLPackVersion kVersion{1, 0};
constexpr std::uint64_t kReadOnly = 1, kCopied = 2;  // DLPACK_FLAG_BITMASK_READ_ONLY, DLPACK_FLAG_BITMASK_IS_COPIED

// A tensor of another library, kept until the last Array of its memory is destroyed.
template <class Managed> struct Import {
  Managed* tensor = nullptr;
  ~Import() {
    if (tensor && tensor->deleter) tensor->deleter(tensor);
  }
};

template <class Managed> struct Export {
  Managed tensor{};
  Array array;
  std::vector<std::int64_t> shape, strides;
  runtime::cuda::Gpu::StreamPointer stream;  // CUDA's default stream, if the other library uses it
  ~Export() {
    if (!stream) return;
    try {  // orders the next use of the memory after the other library's work
      runtime::cuda::Gpu::Turn turn(stream->gpu);
      turn.follow(stream);
      turn.follow(runtime::cuda::storage_of(array)->last);
    } catch (const Error&) {}  // the device is lost, with its memory
  }
};

// Returns the caller's stream, else the scope's stream, else CUDA's default stream; null for DLPack's -1.
runtime::cuda::Gpu::StreamPointer stream_of(runtime::cuda::Gpu& gpu, void* stream) {
  if (reinterpret_cast<std::intptr_t>(stream) == -1) return nullptr;
  if (stream) return gpu.stream_of(stream);
  runtime::cuda::Gpu::StreamPointer scope = gpu.stream_of_scope();
  return scope ? scope : gpu.stream_of(nullptr);
}

template <class Managed> Array imported(Managed* tensor, bool read_only, void* stream) {
  const DLTensor& t = tensor->dl_tensor;
  const Type* type = nullptr;
  for (const Type& known : kTypes)
    if (known.code == t.dtype.code && known.bits == t.dtype.bits && t.dtype.lanes == 1) type = &known;
  if (!type)
    throw DTypeError(fmt::format("from_dlpack: no dtype corresponds to DLPack type code {} with {} bits and {} lanes", t.dtype.code,
                                 t.dtype.bits, t.dtype.lanes));
  const bool cuda = t.device.device_type == kCuda;
  if (!cuda && t.device.device_type != kCpu && t.device.device_type != kCudaHost)
    throw ValueError(fmt::format("from_dlpack: DLPack device type {} is neither CPU (1) nor CUDA (2). Copy the tensor to one of them.",
                                 t.device.device_type));
  if (t.ndim < 0 || t.ndim > kMaxRank)
    throw ShapeError(fmt::format("from_dlpack: the tensor has {} axes; an array has 0 to {} axes", t.ndim, kMaxRank));
  const auto rank = static_cast<std::size_t>(t.ndim);
  const std::span<const std::int64_t> shape(t.shape, rank);
  std::vector<std::int64_t> strides(rank, 1);
  if (t.strides) strides.assign(t.strides, t.strides + rank);
  else
    for (std::size_t i = rank; i-- > 1;)
      if (__builtin_mul_overflow(strides[i], shape[i], &strides[i - 1]))
        throw ShapeError("from_dlpack: the tensor has more elements than a 64-bit address can count");
  const auto owner = detail::Shared<Import<Managed>>::make();
  Array out = Array::wrap_pointer(static_cast<std::byte*>(t.data) + t.byte_offset, type->dtype, Extents(shape), Extents(strides), read_only,
                                  cuda ? Device::cuda(t.device.device_id) : Device::cpu(), owner);
  if (cuda && out.size() > 0) {
    runtime::cuda::DeviceStorage* const storage = runtime::cuda::storage_of(out);
    storage->last = stream_of(*storage->gpu, stream);
  }
  owner->tensor = tensor;
  return out;
}

template <class Managed> Managed* exported(const Array& array, void* stream) {
  runtime::cuda::Gpu::StreamPointer theirs;
  if (array.device().is_cuda() && array.size() > 0) {
    runtime::cuda::DeviceStorage* const storage = runtime::cuda::storage_of(array);
    theirs = stream_of(*storage->gpu, stream);
    runtime::cuda::Gpu::Turn turn(*storage->gpu);
    turn.follow(storage->last);
    turn.keep(array, storage->block);
    if (theirs) turn.precede(*theirs);
  }
  auto* const out = new Export<Managed>;
  // A user-created stream may no longer exist when the tensor is deleted.
  if (theirs && !stream && !theirs->gpu.stream_of_scope()) out->stream = std::move(theirs);
  out->array = array;
  out->shape.assign(array.shape().begin(), array.shape().end());
  out->strides.assign(array.strides().begin(), array.strides().end());
  DLTensor& t = out->tensor.dl_tensor;
  t.data = const_cast<void*>(array.data());
  t.device = {array.device().is_cuda() ? kCuda : kCpu, array.device().index()};
  t.ndim = array.rank();
  for (const Type& known : kTypes)
    if (known.dtype == array.dtype()) t.dtype = {known.code, known.bits, 1};
  t.shape = out->shape.data();
  t.strides = out->strides.data();
  out->tensor.manager_ctx = out;
  out->tensor.deleter = [](Managed* self) { delete static_cast<Export<Managed>*>(self->manager_ctx); };
  return &out->tensor;
}

}  // namespace

Array Array::from_dlpack(DLManagedTensor* tensor, void* stream) {
  if (!tensor) throw ValueError("from_dlpack: the tensor pointer is null");
  return imported(tensor, false, stream);
}

Array Array::from_dlpack_versioned(DLManagedTensorVersioned* tensor, void* stream) {
  if (!tensor) throw ValueError("from_dlpack: the tensor pointer is null");
  if (tensor->version.major != kVersion.major)
    throw ValueError(fmt::format("from_dlpack: the tensor has DLPack version {}.{}; onepass supports version {}", tensor->version.major,
                                 tensor->version.minor, kVersion.major));
  return imported(tensor, (tensor->flags & kReadOnly) != 0, stream);
}

DLManagedTensor* Array::to_dlpack(void* stream) const {
  check_memory("to_dlpack");
  return exported<DLManagedTensor>(*this, stream);
}

DLManagedTensorVersioned* Array::to_dlpack_versioned(void* stream, bool copied) const {
  check_memory("to_dlpack");
  auto* const tensor = exported<DLManagedTensorVersioned>(*this, stream);
  tensor->version = kVersion;
  tensor->flags = (read_only_ ? kReadOnly : 0) | (copied ? kCopied : 0);
  return tensor;
}

}  // namespace onepass
