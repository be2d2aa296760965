// On systems that forbid running generated code, functions use the tiled interpreter or the reference, with the same bits and one log line.
#include <catch2/catch.hpp>

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "every_mode.h"
#include "has_codegen.h"
#include "onepass/onepass.h"
#include "runtime/os.h"

namespace op = onepass;
using op::Array, op::Mode, op::Options, op::Tensor;

namespace {

#ifndef PR_SET_MDWE
#define PR_SET_MDWE 65
#endif

bool deny_by_prctl() { return prctl(PR_SET_MDWE, 1UL, 0UL, 0UL, 0UL) == 0; }

// Makes mmap, mprotect and pkey_mprotect with PROT_EXEC fail. This is stricter than prctl, since no library can be opened either.
bool deny_by_filter() {
  const auto jump_if = [](unsigned short code, unsigned k, unsigned char yes, unsigned char no) { return sock_filter{code, yes, no, k}; };
  sock_filter code[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      jump_if(BPF_JMP | BPF_JEQ | BPF_K, SYS_mmap, 3, 0),
      jump_if(BPF_JMP | BPF_JEQ | BPF_K, SYS_mprotect, 2, 0),
      jump_if(BPF_JMP | BPF_JEQ | BPF_K, SYS_pkey_mprotect, 1, 0),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, args[2])),
      jump_if(BPF_JMP | BPF_JSET | BPF_K, PROT_EXEC, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  const sock_fprog program{sizeof code / sizeof code[0], code};
  return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

constexpr const char* kPrograms[] = {
    "x*2 + tanh(w)", "softmax(x)", "cumsum(x, 1) - sum(x, 0)", "x % 7", "matmul(x, transpose(w))", "take(x, cast(w[0, :3]*0, i64), 1)"};

// Runs every program in every mode, often enough to get shape-specialized kernels.
void run_all(int columns) {
  const Array x = op::test::random_array({6, columns}), w = op::test::random_array({6, columns}, op::f32, 2);
  for (const char* text : kPrograms) {
    const Array expected = op::test::run_formula(op::formula(text, {.mode = Mode::reference}), {{"x", x}, {"w", w}})[0];
    for (const Mode mode : {Mode::adaptive, Mode::generic, Mode::specialized, Mode::unfused})
      for (const int threads : {1, 3}) {
        INFO(text << ", mode " << static_cast<int>(mode) << ", threads " << threads);
        const op::Formula f =
            op::formula(text, {.mode = mode, .specialization = {.after_calls = 2, .in_background = false}, .threads = threads});
        for (int call = 0; call < 4; ++call)
          CHECK(op::test::bytes_of(op::test::run_formula(f, {{"x", x}, {"w", w}})[0]) == op::test::bytes_of(expected));
        CHECK_FALSE(f.explain().empty());
      }
  }
}

}  // namespace

TEST_CASE("made code: in a separate process", "[.][in-a-process-of-its-own]") {
  const std::string by = std::getenv("ONEPASS_TEST_DENY_BY") ? std::getenv("ONEPASS_TEST_DENY_BY") : "prctl";
  const bool later = std::getenv("ONEPASS_TEST_DENY_LATER") != nullptr;
  static int lines = 0;
  static std::string said;
  op::set_log([](op::LogLevel, std::string_view text) { ++lines, said += text; }, op::LogLevel::warning);
  const op::Formula before = op::formula("sum(exp(x) + 1, 1)", {.mode = Mode::generic});
  const Array x = op::test::random_array({5, 77});
  Array first;
  if (later) first = before({x})[0];
  if (!(by == "prctl" ? deny_by_prctl() : deny_by_filter())) {
    std::printf("skipped: this system cannot deny executable memory by %s\n", by.c_str());
    return;
  }
  CHECK_FALSE(op::os::may_run_made_code());
  if (later) CHECK(op::test::bytes_of(before({x})[0]) == op::test::bytes_of(first));  // code that already exists still runs
  run_all(100);
  run_all(20'000);
  CHECK(lines == 1);
  CHECK(said.find("does not let a program run code that it generated") != std::string::npos);
  CHECK(before.compare({{"x", x}}).equal);
  op::set_log(nullptr);
}

TEST_CASE("made code: if the system denies it, at the start or later, results are equal and one line is logged", "[made_code]") {
  if (!op::test::has_codegen()) return;
  for (const char* by : {"prctl", "filter"})
    for (const char* later : {"", "ONEPASS_TEST_DENY_LATER=1"}) {
      INFO(by << " " << later);
      CHECK(std::system(fmt::format("ONEPASS_TEST_DENY_BY={} {} /proc/{}/exe '[in-a-process-of-its-own]'", by, later, getpid()).c_str()) ==
            0);
    }
}
