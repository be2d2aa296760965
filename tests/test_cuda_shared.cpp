// Shared memory on a device whose blocks have at most 64 KiB, like a T4's. The fake driver (fake_cuda) counts the memory for cached rows
// and the variables that the text declares.
#include <catch2/catch.hpp>

#include <cstdlib>

#include "device_call.h"
#include "fake_cuda.h"
#include "golden.h"
#include "random_graph.h"
#include "runtime/cuda/device_plan.h"

using namespace onepass;
using namespace onepass::test;
using runtime::cuda::Gpu;

TEST_CASE("device: row buffers and declared variables fit together in the shared memory of small devices", "[cuda]") {
  setenv("FAKE_CUDA_SHARED", "65536", 1);
  setenv("FAKE_CUDA_CAPABILITY", "75", 1);
  setenv("FAKE_NVRTC_KNOWS", "75", 1);
  fake_cuda(1);
  REQUIRE(Gpu::get().target().most_shared_bytes == 65536);
  for (const int width : {768, 704, 1024}) {
    INFO(width);
    const ir::Graph graph = compiler::copy_results(optimised("y = layer_norm(x, g, g, axis=-1, eps=1e-5); dx, dg = vjp(y, [x, g], d)",
                                                             {{"x", {24, width}}, {"g", {width}}, {"d", {24, width}}}));
    const Arguments arguments = random_arguments(graph, 5);
    CHECK(difference_from_reference(graph, arguments, call_on_device(Gpu::get(), graph, arrays_of(arguments))) == "");
  }
  CHECK(fake_cuda(1).most_shared() > 40 << 10);  // rows are cached
  CHECK(fake_cuda(1).most_shared() <= 48 << 10);
}
