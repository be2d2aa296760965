// See capture.h.
#include "runtime/cuda/capture.h"

#include <algorithm>
#include <memory>
#include <utility>

#include <fmt/format.h>

#include "onepass/error.h"

namespace onepass::runtime::cuda {

// The driver's reference to what a graph uses. The driver releases it on any thread, where CUDA's functions must not be called.
struct Gpu::OfDriver {
  Gpu& gpu;
  CapturedPointer captured;
  OfDriver* next = nullptr;

  static void release(void* self) noexcept {
    auto* const it = static_cast<OfDriver*>(self);
    std::atomic<OfDriver*>& list = it->gpu.released_;
    it->next = list.load(std::memory_order_relaxed);
    while (!list.compare_exchange_weak(it->next, it, std::memory_order_release, std::memory_order_relaxed)) {}
  }
};

// Returns what the graph uses into which the stream is being captured; null if it is not being captured.
Gpu::CapturedPointer Gpu::captured_on(void* stream) {
  int status = 0;
  unsigned long long id = 0;
  void* graph = nullptr;
  driver_.check(driver_.cuStreamGetCaptureInfo_v2(stream, &status, &id, &graph, nullptr, nullptr), "querying the capture of a stream");
  if (status == 0) return nullptr;
  if (status != kIsCapturing)
    throw Error(
        fmt::format("cuda: an earlier error made the capture of a stream on {} invalid. End the capture, and start it again.", name_));
  for (const CapturedPointer& known : captured_)
    if (known->id == id) return known;
  captured_.reserve(captured_.size() + 1);
  auto made = std::make_shared<Captured>(Captured{.id = id});
  auto of_driver = std::make_unique<OfDriver>(*this, made);
  constexpr std::string_view what = "keeping the memory of a graph";
  void* object = nullptr;
  driver_.check(driver_.cuUserObjectCreate(&object, of_driver.get(), &OfDriver::release, 1, kNoDestructorSync), what);
  static_cast<void>(of_driver.release());  // the driver has it
  const Result result = driver_.cuGraphRetainUserObject(graph, object, 1, kMoveReference);
  if (result != 0) driver_.cuUserObjectRelease(object, 1);
  driver_.check(result, what);
  captured_.push_back(made);
  return made;
}

// Releases what the graphs used that the driver has destroyed. Runs the code of owners of arrays, so the caller must hold no lock.
void Gpu::release_graphs() noexcept {
  if (released_.load(std::memory_order_relaxed) == nullptr) [[likely]]
    return;
  for (OfDriver* it = released_.exchange(nullptr, std::memory_order_acquire); it;) {
    const std::unique_ptr<OfDriver> released(std::exchange(it, it->next));
    Captured& captured = *released->captured;
    {
      const std::lock_guard lock(mutex_);
      std::erase(captured_, released->captured);
      for (Report* const report : captured.reports)
        if (--report->graphs == 0 && report->is_over) end(*report);
    }
    {
      const std::lock_guard lock(pool_mutex_);
      captured.is_over = true;
      for (const Captured::Freed& freed : captured.freed) put_back(freed.place, nullptr);
      captured.freed.clear();
    }
    captured.arrays.clear(), captured.modules.clear(), captured.parameters.clear();
  }
}

// ---------------------------------------------------------------------------------------------- turns during a capture

void Gpu::Turn::fail_captured(std::string_view why) const {
  throw Error(fmt::format("cuda: a stream on {} is being captured into a CUDA graph. {}", g_.name_, why));
}

void Gpu::Turn::fail_waiting() const {
  fail_captured("Its calls have no results before the graph is launched. Copy results to the CPU after that, without check_nan.");
}

void Gpu::Turn::keep(const Array& array, const Block& block) {
  if (captured_ && block.captured_ != captured_) captured_->arrays.push_back(array);
}

// Returns memory that earlier calls of this capture have freed. If none fits, it is empty, and `freed` has room for another block.
Gpu::Block Gpu::Turn::freed_memory(std::size_t bytes) {
  Block out;
  const std::lock_guard lock(g_.pool_mutex_);
  const auto fits = [&](const Captured::Freed& f) { return f.last == stream_ && f.place->bytes >= bytes && f.place->bytes / 2 <= bytes; };
  const auto found = std::ranges::find_if(captured_->freed, fits);
  if (found == captured_->freed.end()) {
    captured_->freed.reserve(captured_->blocks + 1);
    ++captured_->blocks;
    return out;
  }
  out.gpu_ = &g_, out.place_ = found->place, out.last = stream_, out.captured_ = captured_;
  captured_->freed.erase(found);
  return out;
}

// Returns device memory with these kernel parameters, which are copied now. The graph keeps it.
DevicePointer Gpu::Turn::parameters_of_graph(std::span<const std::int64_t> words) {
  const CapturedPointer graph = std::exchange(captured_, nullptr);
  const StreamPointer stream = std::exchange(stream_, g_.own_);
  const auto back = [&] { captured_ = graph, stream_ = stream; };
  try {
    graph->parameters.reserve(graph->parameters.size() + 1);
    Block block = allocate(words.size_bytes());
    upload(block.address(), words.data(), words.size_bytes());
    wait_for(*stream_);
    back();
    return static_cast<DevicePointer>(graph->parameters.emplace_back(std::move(block)).address());
  } catch (...) {
    back();
    throw;
  }
}

}  // namespace onepass::runtime::cuda
