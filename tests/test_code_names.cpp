// ONEPASS_SYMBOLS: names of kernels for perf and GDB.
#include <catch2/catch.hpp>

#include <elf.h>
#include <unistd.h>
#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "has_codegen.h"
#include "onepass/onepass.h"
#include "runtime/code_names.h"

extern "C" {
struct jit_code_entry {
  jit_code_entry *next_entry, *prev_entry;
  const char* symfile_addr;
  std::uint64_t symfile_size;
};
extern struct jit_descriptor {
  std::uint32_t version, action_flag;
  jit_code_entry *relevant_entry, *first_entry;
} __jit_debug_descriptor;  // NOLINT
}

using namespace onepass;
using namespace onepass::test;

namespace {

struct Named {
  std::string name;
  std::uint64_t address = 0, size = 0;
  bool unwinds = false;  // has unwind tables for the code
};

// Reads the registered objects as GDB does: the symbol's value is relative to the address of its section.
std::vector<Named> in_gdb() {
  std::vector<Named> out;
  for (const jit_code_entry* e = __jit_debug_descriptor.first_entry; e; e = e->next_entry) {
    CHECK((e->prev_entry ? e->prev_entry->next_entry : __jit_debug_descriptor.first_entry) == e);
    const char* const file = e->symfile_addr;
    Elf64_Ehdr header;
    std::memcpy(&header, file, sizeof(header));
    REQUIRE(std::memcmp(header.e_ident, ELFMAG, SELFMAG) == 0);
    std::vector<Elf64_Shdr> sections(header.e_shnum);
    REQUIRE(header.e_shoff + sections.size() * sizeof(Elf64_Shdr) <= e->symfile_size);
    std::memcpy(sections.data(), file + header.e_shoff, sections.size() * sizeof(Elf64_Shdr));
    const std::string_view names(file + sections.at(header.e_shstrndx).sh_offset, sections.at(header.e_shstrndx).sh_size);
    const auto unwind =
        std::ranges::find_if(sections, [&](const Elf64_Shdr& s) { return names.substr(s.sh_name).starts_with(".eh_frame"); });
    for (const Elf64_Shdr& s : sections) {
      if (s.sh_type != SHT_NOBITS) REQUIRE(s.sh_offset + s.sh_size <= e->symfile_size);
      if (s.sh_type != SHT_SYMTAB) continue;
      Elf64_Sym symbol;
      std::memcpy(&symbol, file + s.sh_offset + s.sh_entsize, sizeof(symbol));
      const Elf64_Shdr& text = sections.at(symbol.st_shndx);
      CHECK(std::string(file + sections.at(header.e_shstrndx).sh_offset + text.sh_name) == ".text");
      out.push_back({file + sections.at(s.sh_link).sh_offset + symbol.st_name, text.sh_addr + symbol.st_value, symbol.st_size,
                     unwind != sections.end() && unwind->sh_size > 16 &&
                         std::memcmp(file + unwind->sh_offset, reinterpret_cast<const char*>(unwind->sh_addr), unwind->sh_size) == 0});
    }
  }
  return out;
}

std::vector<Named> in_perf(const std::string& path) {
  std::vector<Named> out;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    Named n;
    int end = 0;
    REQUIRE(std::sscanf(line.c_str(), "%lx %lx %n", &n.address, &n.size, &end) == 2);
    n.name = line.substr(static_cast<std::size_t>(end));
    out.push_back(n);
  }
  return out;
}

bool has(const std::vector<Named>& names, std::string_view name) {
  return std::ranges::any_of(names, [&](const Named& n) { return n.name == name; });
}

void ask_for_names() {
  REQUIRE(setenv("ONEPASS_SYMBOLS", "perf,gdb", 1) == 0);
  REQUIRE(runtime::names_code());
}

}  // namespace

TEST_CASE("names of kernels for perf and GDB have the operator, the loops, the source line and the tier") {
  if (!has_codegen()) return;
  ask_for_names();
  const std::string map = fmt::format("/tmp/perf-{}.map", getpid());
  std::remove(map.c_str());
  {
    const auto f = compile([](Tensor x) { return tanh(x) * 3.0f; }, {.mode = Mode::generic});
    const int line = __LINE__ - 1;
    const Array x = Array::full({5, 7}, 1, f32);
    for (int i = 0; i < 3; ++i) f(x);
    f.wait_until_optimized();
    const std::vector<Named> names = in_gdb(), lines = in_perf(map);
    REQUIRE(!names.empty());
    const Named& last = names.front();  // the newest
    INFO(last.name);
    CHECK(last.name.starts_with("onepass mul 35, "));
    CHECK(last.name.find(fmt::format("test_code_names.cpp:{}", line)) != std::string::npos);
    CHECK(last.name.ends_with(", optimized"));
    CHECK(last.size > 16);
    CHECK(last.unwinds);
    REQUIRE(lines.size() == names.size());
    CHECK(lines.back().name == last.name);
    CHECK(lines.back().address == last.address);
    CHECK(lines.back().size == last.size);
  }
  std::remove(map.c_str());
}

TEST_CASE("names of kernels leave GDB's list when the code is freed, in any order") {
  ask_for_names();
  const std::array<std::byte, 64> code{};
  const std::size_t before = in_gdb().size();
  {
    runtime::CodeName a(code, "first"), b(std::span<const std::byte>(code).subspan(32), "second"), c(code, "third");
    const std::vector<Named> all = in_gdb();
    REQUIRE(all.size() == before + 3);
    CHECK(all[0].name == "third");
    CHECK(all[1].address == reinterpret_cast<std::uint64_t>(code.data() + 32));
    CHECK(all[1].size == 32);
    const runtime::CodeName moved = std::move(a);
    b = runtime::CodeName();
    CHECK(has(in_gdb(), "first"));
    CHECK(!has(in_gdb(), "second"));
    CHECK(has(in_gdb(), "third"));
  }
  CHECK(in_gdb().size() == before);
  std::remove(fmt::format("/tmp/perf-{}.map", getpid()).c_str());
}
