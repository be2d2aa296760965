// See array.h.
#include "runtime/cuda/array.h"

#include <memory>

#include <fmt/format.h>

#include "onepass/error.h"
#include "runtime/program.h"

namespace onepass::runtime::cuda {

namespace {

// Returns a compiled function that copies arrays of any strides on one device.
Program& copying() {
  static Program* const program = [] {  // never destroyed: arrays may be copied while the process exits
    Options options;
    options.specialization.depth = 0;
    options.check_recording = false;
    return new Program([](ProgramRecorder& recorder, std::span<const compiler::Value> x) { recorder.output("copy", x[0]); }, {"x"},
                       options);
  }();
  return *program;
}

std::int64_t address_of(const Array& array) { return reinterpret_cast<std::int64_t>(array.data()); }

}  // namespace

detail::Storage* allocate_elements(Device device, std::size_t bytes, bool zeroed, void*& data) {
  auto storage = std::make_unique<DeviceStorage>();
  storage->gpu = &Gpu::get(device.index());
  storage->destroy = [](detail::Storage* self) noexcept {
    auto* const of_device = static_cast<DeviceStorage*>(self);
    of_device->block.last = std::move(of_device->last);
    delete of_device;
  };
  if (bytes > 0) {
    Gpu::Turn turn(*storage->gpu);
    storage->block = turn.allocate(bytes);
    storage->last = turn.stream();
    if (zeroed) turn.clear(storage->block.address(), bytes);
  }
  data = reinterpret_cast<void*>(storage->block.address());  // NOLINT: a device address
  return storage.release();
}

detail::Storage* share_memory(Device device, detail::Shared<void> owner) {
  auto storage = std::make_unique<DeviceStorage>();
  storage->gpu = &Gpu::get(device.index());
  storage->owner = std::move(owner);
  storage->destroy = [](detail::Storage* self) noexcept {
    auto* const of_device = static_cast<DeviceStorage*>(self);
    if (of_device->owner) of_device->gpu->wait_for(of_device->last);  // the owner reuses the memory without regard to these streams
    delete of_device;
  };
  storage->last = storage->gpu->stream_of_scope();
  return storage.release();
}

void copy_elements(const Array& from, const Array& to) {
  if (from.size() == 0) return;
  const auto bytes = static_cast<std::size_t>(from.bytes());
  const bool uploads = from.device().is_cpu();
  DeviceStorage* const source = uploads ? nullptr : storage_of(from);
  DeviceStorage* const target = to.device().is_cpu() ? nullptr : storage_of(to);
  if (uploads) {
    Gpu::Turn turn(*target->gpu);
    turn.follow(target->last);
    turn.upload(address_of(to), from.data(), bytes);
  } else if (!target) {
    Gpu::Turn turn(*source->gpu);
    turn.follow(source->last);
    turn.download(to.mutable_data(), address_of(from), bytes);
    turn.throw_bad_index();
  } else if (source->gpu != target->gpu) {
    // The copy is on the target's stream, after the source's previous work. Later work on the source's stream is ordered after the copy.
    Gpu &there = *source->gpu, &here = *target->gpu;
    here.reach(there);
    const Gpu::StreamPointer copying = here.stream();
    Gpu::StreamPointer made;
    {
      Gpu::Turn turn(there);
      turn.follow(source->last);
      turn.precede(*copying);
      made = turn.stream();
    }
    Gpu::Turn turn(here);
    turn.follow(target->last);
    turn.copy_from(there, address_of(to), address_of(from), bytes);
    turn.precede(*made);
  } else if (from.is_contiguous() && to.is_contiguous()) {
    Gpu::Turn turn(*source->gpu);
    turn.follow(source->last, true);
    turn.follow(target->last);
    turn.keep(from, source->block);
    turn.keep(to, target->block);
    turn.copy(address_of(to), address_of(from), bytes);
  } else {
    Argument argument;
    argument.array = &from;
    Array written = to;
    Array* const targets[] = {&written};
    copying().call_into(std::span(&argument, 1), targets);
  }
}

}  // namespace onepass::runtime::cuda
